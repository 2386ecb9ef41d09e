"""Tensors whose memory does not hold their values: refused at the first call and at every later one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.errors import InputError, UserError
from tests.host.fusions import Definition

Make = Callable[[torch.Tensor], torch.Tensor]


class Renamed(torch.Tensor):
    """A subclass that differs in Python only."""


def _resized(x: torch.Tensor, bytes_: int, offset: int = 0) -> torch.Tensor:
    whole = torch.zeros(x.numel() + offset, dtype=x.dtype, device=x.device)
    view = whole[offset:].view(x.shape)
    whole.untyped_storage().resize_(bytes_)
    return view


REFUSED: dict[str, Make] = {
    "negated": torch._neg_view,
    "no storage": lambda x: _resized(x, 0),
    "no storage, an offset": lambda x: _resized(x, 0, offset=16),
    "half a storage": lambda x: _resized(x, x.nbytes // 2),
    "a storage that ends before an offset": lambda x: _resized(x, x.nbytes, offset=4),
    "zeros without memory": lambda x: torch._efficientzerotensor(x.shape, dtype=x.dtype, device=x.device),
    "meta": lambda x: x.to("meta"),
    "sparse": lambda x: x.to_sparse(),
    "csr": lambda x: x.to_sparse_csr(),
    "nested": lambda x: torch.nested.nested_tensor(list(x)),
    "functional": torch._to_functional_tensor,
}
DTYPES = {
    torch.float32: DataType.Float,
    torch.int64: DataType.Int,
    torch.complex64: DataType.ComplexFloat,
    torch.bfloat16: DataType.BFloat16,
}


def _doubled(dtype: torch.dtype) -> FusionDefinition:
    with FusionDefinition() as fd:
        a = fd.define_tensor([-1, -1], contiguity=True, dtype=DTYPES[dtype])
        fd.add_output(a + a)
    return fd


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support", "ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", REFUSED)
def test_what_the_first_call_refuses_every_call_refuses(
    kind: str, dtype: torch.dtype, target: torch.device
) -> None:
    x = torch.ones(4, 4, device=target).to(dtype)
    lazy = REFUSED[kind](x)
    with pytest.raises(UserError) as first:
        _doubled(dtype).execute([lazy])
    fd = _doubled(dtype)
    for _ in range(2):
        (out,) = fd.execute([x])
        assert torch.equal(out, x + x)
        with pytest.raises(UserError) as later:
            fd.execute([lazy])
        assert type(later.value) is type(first.value)
        assert later.value.message == first.value.message


def test_an_imaginary_part_of_a_conjugate_is_refused_by_the_cached_path() -> None:
    z = torch.randn(4, 4, 2)
    with FusionDefinition() as fd:
        a = fd.define_tensor([-1, -1], contiguity=False)
        fd.add_output(a * 2.0)
    plain, negated = torch.view_as_complex(z).imag, torch.view_as_complex(z).conj().imag
    assert plain.stride() == negated.stride()
    (out,) = fd.execute([plain])
    assert torch.equal(out, 2 * plain)
    with pytest.raises(InputError, match="lazily negated"):
        fd.execute([negated])


@pytest.mark.parametrize("place", ["input", "output"])
def test_a_storage_that_was_freed_after_calls_is_found(place: str, target: torch.device) -> None:
    with FusionDefinition() as fd:
        a = fd.define_tensor([-1], contiguity=True)
        b = fd.define_tensor([-1], contiguity=True)
        fd.add_output(a + b, alias_input=b if place == "output" else None)
    x, w = torch.ones(32, device=target), torch.ones(32, device=target)
    freed = x if place == "input" else w
    fd.execute([x, w])
    fd.execute([x, w])
    freed.untyped_storage().resize_(0)
    with pytest.raises(InputError, match="storage of 0 bytes, where its elements end at byte 128"):
        fd.execute([x, w])
    freed.untyped_storage().resize_(128)
    freed.fill_(2.0)
    fd.execute([x, w])


def test_a_tensor_without_elements_needs_no_storage(target: torch.device) -> None:
    fd = _doubled(torch.float32)
    x = torch.ones(8, 8, device=target)[8:]
    x.untyped_storage().resize_(0)
    for _ in range(2):
        (out,) = fd.execute([x])
        assert out.shape == (0, 8)


def test_a_host_scalar_without_storage_is_refused() -> None:
    with FusionDefinition() as fd:
        a = fd.define_tensor([-1], contiguity=True)
        c = fd.define_tensor([], is_cpu=True)
        fd.add_output(a * c)
    x, s = torch.ones(4), torch.tensor(3.0)
    (out,) = fd.execute([x, s])
    assert torch.equal(out, 3 * x)
    (out,) = fd.execute([x, torch._neg_view(s)])  # its value is asked for
    assert torch.equal(out, -3 * x)
    s.untyped_storage().resize_(0)
    with pytest.raises(InputError, match="input 1, T1, to be a tensor whose storage holds it"):
        fd.execute([x, s])


@pytest.mark.parametrize("wrap", [torch.nn.Parameter, lambda x: x.as_subclass(Renamed)])
def test_subclasses_that_differ_in_python_only_are_tensors(wrap: Make, target: torch.device) -> None:
    fd = _doubled(torch.float32)
    x = torch.randn(4, 4, device=target)
    for given in (x, wrap(x.clone()), x, wrap(x.clone())):
        (out,) = fd.execute([given])
        assert torch.equal(out, 2 * x)


def test_tensors_inside_torch_func_transforms_are_refused() -> None:
    fd = _doubled(torch.float32)
    x = torch.randn(3, 4, 4)
    fd.execute([x[0]])
    with pytest.raises(InputError, match=r"torch\.func, say\) wraps"):
        torch.func.grad(lambda a: fd.execute([a])[0].sum())(x[0])


# ---- conjugates, which are resolved


CONJUGATES: dict[str, Make] = {
    "dense": lambda z: z.conj(),
    "padded rows": lambda z: z[:, :5].conj(),
    "every other element": lambda z: z[:, ::2].conj(),
    "transposed": lambda z: z.t().conj(),
    "expanded": lambda z: z[:, :1].expand(6, 8).conj(),
    "an offset": lambda z: z.flatten()[3:45].view(6, 7).conj(),
}


@pytest.mark.parametrize("kind", CONJUGATES)
def test_a_conjugated_view_of_any_strides_is_read_with_them(kind: str, target: torch.device) -> None:
    z = CONJUGATES[kind](torch.randn(6, 8, dtype=torch.complex64, device=target))
    assert z.is_conj()
    with FusionDefinition() as fd:
        a = fd.define_tensor([-1, -1], contiguity=False, dtype=DataType.ComplexFloat)
        fd.add_output(a + a)
    for _ in range(2):
        (out,) = fd.execute([z])
        assert torch.equal(out, z + z)


def test_an_expanded_conjugate_keeps_its_layout() -> None:
    with FusionDefinition() as fd:
        a = fd.define_tensor([-1, -1], contiguity=[True, None], dtype=DataType.ComplexFloat)
        fd.add_output(a + a)
    z = torch.randn(6, 1, dtype=torch.complex64).expand(6, 8).conj()
    (out,) = fd.execute([z])
    assert torch.equal(out, z + z)


# ---- in place, unseen by autograd


@pytest.mark.parametrize("copied", [False, True])
def test_an_input_that_requires_a_gradient_is_written_like_any_other(
    copied: bool, target: torch.device
) -> None:
    definition = Definition()
    x = definition.tensor()
    y = definition.mul(x, x)
    definition.output(definition.permute(y, [1, 0]) if copied else y, alias_input=x)
    executor = definition.executor()
    leaf = torch.full((4, 4), 3.0, device=target, requires_grad=True)
    for expected in (9.0, 81.0):
        assert executor.execute([leaf]) == []
        assert torch.equal(leaf.detach(), torch.full((4, 4), expected, device=target))
    assert leaf.requires_grad


@pytest.mark.parametrize("copied", [False, True])
def test_an_inference_tensor_is_written_like_any_other(copied: bool, target: torch.device) -> None:
    definition = Definition()
    x = definition.tensor()
    y = definition.mul(x, x)
    definition.output(definition.permute(y, [1, 0]) if copied else y, alias_input=x)
    with torch.inference_mode():
        given = torch.full((4, 4), 3.0, device=target)
    definition.executor().execute([given])
    assert torch.equal(given, torch.full((4, 4), 9.0, device=target))
