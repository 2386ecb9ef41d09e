"""Calls that come again are known by one look at all their tensors, and no other call is taken for one."""

import itertools
from contextlib import suppress

import pytest
import torch

from fusewright.core.dtype import DataType
from fusewright.core.errors import InputError
from fusewright.host.inputs.signature import compile_key_function
from fusewright.host.reuse.repeated_calls import matcher
from tests.host.fusions import Definition


def definition():
    d = Definition()
    x, y, s = d.tensor((-1, -1), False), d.tensor((-1, -1), False), d.scalar(DataType.Double)
    d.output(d.mul(d.add(x, y), s))
    return d


class Sub(torch.Tensor):
    pass


def tensors():
    """Equal in nearly all that keys tell."""
    base = torch.ones(64, 8)
    yield from (base, torch.ones(64, 8), torch.ones(65, 8), torch.ones(64, 9), torch.ones(8, 64).t())
    yield from (
        torch.ones(64, 16)[:, :8],
        torch.ones(64, 8, dtype=torch.double),
        torch.ones(513)[1:].view(64, 8),
    )
    yield from (torch._neg_view(torch.ones(64, 8)), torch.ones(64, 8).as_subclass(Sub), torch.ones(512))
    yield from (
        torch.ones(64, 8, device="meta"),
        torch.ones(64, 8, requires_grad=True),
        torch.ones(1, 8).expand(64, 8),
    )
    yield torch.nn.Parameter(torch.ones(64, 8))
    yield from (
        torch.ones(64, 8).to_sparse(),
        torch.ones(64, 8).to_mkldnn(),
        torch.ones(64, 8).to_sparse_csr(),
    )
    yield torch._to_functional_tensor(torch.ones(64, 8))
    yield torch._efficientzerotensor((64, 8), dtype=torch.float32)
    yield torch.nested.nested_tensor(list(torch.ones(64, 8)))


def with_memory():
    """Those that a call may have."""
    for tensor in tensors():
        try:
            tensor.data_ptr(), tensor.stride(), tensor.is_neg()
        except (RuntimeError, NotImplementedError):
            continue
        if tensor.layout is torch.strided and not tensor.is_nested:
            yield tensor


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support", "ignore:The PyTorch API of nested tensors")
def test_what_is_taken_for_a_repeated_call_has_its_key():
    fusion = definition().fusion
    key = compile_key_function(fusion, frozenset())
    of = with_memory, with_memory
    calls = [[a, b, s] for a, b in itertools.product(*(make() for make in of)) for s in (2.0, 3.0, 2)]
    others = [[a, b, s] for a, b in itertools.product(tensors(), tensors()) for s in (2.0, 3.0, 2)]
    found = 0
    for first in calls[::11]:
        known = matcher(fusion, frozenset(), first)
        assert known(first)
        for other in (*calls, *others):
            if known(other):
                found += 1
                assert key(other) == key(first)
    assert found > len(calls[::11])


def test_scalars_that_are_sizes_count_with_their_value():
    fusion = definition().fusion
    size = fusion.inputs[2]
    x, y = torch.ones(4, 8), torch.ones(4, 8)
    known = matcher(fusion, frozenset([size]), [x, y, 2.0])
    assert known([x, y, 2.0]) and not known([x, y, 3.0]) and not known([x, y, 2])
    assert not matcher(fusion, frozenset([size]), [x, y, float("nan")])([x, y, float("nan")])


@pytest.mark.parametrize("given", [[], [torch.ones(4, 8)], [1, 2, 3], [torch.ones(4, 8), None, 2.0]])
def test_what_no_call_takes(given):
    fusion = definition().fusion
    known = matcher(fusion, frozenset(), [torch.ones(4, 8), torch.ones(4, 8), 2.0])
    with suppress(AttributeError, TypeError, ValueError):
        assert not known(given)


def test_one_tensor_twice_is_left_to_the_key():
    fusion, x = definition().fusion, torch.ones(4, 8)
    assert not matcher(fusion, frozenset(), [x, x, 2.0])([x, x, 2.0])


def test_calls_in_turn():
    executor = definition().executor()
    small, large = [torch.ones(4, 8), torch.ones(4, 8), 2.0], [torch.ones(5, 8), torch.ones(5, 8), 2.0]
    for inputs in (small, small, small, large, small, small, large, large, large, small):
        [out] = executor.execute(inputs)
        assert torch.equal(out, 4 * torch.ones(inputs[0].shape))
    with pytest.raises(InputError):
        executor.execute([*small[:2], "2"])
    with torch.inference_mode():
        [out] = executor.execute(small)
        assert torch.equal(out, 4 * torch.ones(4, 8))


def test_a_storage_that_was_resized_is_refused():
    executor = definition().executor()
    x, y = torch.ones(4, 8), torch.ones(4, 8)
    for _ in range(3):
        executor.execute([x, y, 2.0])
    y.untyped_storage().resize_(16)
    with pytest.raises(InputError, match="a storage of 16 bytes"):
        executor.execute([x, y, 2.0])
