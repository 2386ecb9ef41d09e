"""Tensors that cross from kernel to kernel in every memory order, alignment and with dimensions of size 1."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition

# A stride order is, a dimension, its place in memory: 0 for the innermost.
# All of up to three dimensions, which show every place that one may have beside two others; some of four.
STRIDE_ORDERS = [order for rank in (2, 3) for order in permutations(range(rank))]
STRIDE_ORDERS += list(permutations(range(4)))[1::3]
CHANNELS_LAST = (3, 0, 2, 1)
SIZES = (4, 6, 3, 8)


def _integers(shape: Sequence[int], device: torch.device) -> torch.Tensor:
    """Floats whose sums are exact."""
    return torch.randint(-8, 9, tuple(shape), device=device).float()


def _laid_out(x: torch.Tensor, stride_order: Sequence[int]) -> torch.Tensor:
    """The same values in dense memory of this order."""
    outermost_first = sorted(range(x.dim()), key=lambda dim: -stride_order[dim])
    inverse = [outermost_first.index(dim) for dim in range(x.dim())]
    return x.permute(outermost_first).contiguous().permute(inverse)


def _consumers(fd: FusionDefinition, tensor: Any, apart: bool = False) -> None:
    """Outputs that read `tensor` along each dimension, in another order and in its own.

    They are behind a kernel boundary; with `apart` each is behind one of its own.
    """
    rank = tensor.ndim
    shared = None if apart else fd.ops.segment_set(tensor)

    def read() -> Any:
        return fd.ops.segment_set(tensor) if shared is None else shared

    for dim in range(rank):
        fd.add_output(fd.ops.sum(read(), [dim]))
    fd.add_output(fd.ops.permute(read(), list(range(rank))[::-1]))
    fd.add_output(read() * 3.0)


def _expected(y: torch.Tensor) -> list[torch.Tensor]:
    dims = range(y.dim())
    return [*(y.double().sum(dim) for dim in dims), y.permute(*reversed(dims)), y * 3.0]


def _check_equal(given: torch.Tensor, wanted: torch.Tensor) -> None:
    assert given.shape == wanted.shape
    assert torch.equal(given.double(), wanted.double())


def _check(outputs: Sequence[torch.Tensor], y: torch.Tensor) -> None:
    expected = _expected(y)
    assert len(outputs) == len(expected)
    for given, wanted in zip(outputs, expected):
        _check_equal(given, wanted)


@pytest.mark.sampled(0.5)
@pytest.mark.parametrize("order", STRIDE_ORDERS, ids=str)
def test_an_intermediate_in_any_memory_order_is_read_in_it(
    order: tuple[int, ...], target: torch.device
) -> None:
    rank = len(order)
    with FusionDefinition() as fd:
        a = fd.define_tensor([-1] * rank, contiguity=True)
        y = fd.ops.stride_order(a, list(order))
        fd.add_output(y)
        _consumers(fd, y)
    # One of two further shapes, which take as many kernels again: each is there for half the orders.
    unit = (rank - 1) * (STRIDE_ORDERS.index(order) % 2)
    for shape in (SIZES[:rank], (*SIZES[:unit], 1, *SIZES[unit + 1 : rank])):
        x = _integers(shape, target)
        y, *rest = fd.execute([x])
        assert torch.equal(y, x)
        if 1 not in shape:
            assert y.stride() == _laid_out(x, order).stride()
        _check(rest, x)


@pytest.mark.sampled(0.6)
@pytest.mark.parametrize("order", [*STRIDE_ORDERS[:8], CHANNELS_LAST], ids=str)
def test_an_in_place_output_in_any_memory_order_is_read_in_it(
    order: tuple[int, ...], target: torch.device
) -> None:
    rank = len(order)
    with FusionDefinition() as fd:
        a = fd.define_tensor([-1] * rank, contiguity=True, stride_order=list(order))
        y = a * 2.0
        fd.add_output(y, alias_input=a)
        _consumers(fd, y)
    for shape in (SIZES[:rank], (*SIZES[: rank - 1], 1)):
        x = _laid_out(_integers(shape, target), order)
        doubled = 2 * x
        rest = fd.execute([x])
        assert torch.equal(x, doubled)
        _check(rest, doubled)


@pytest.mark.sampled(0.5, "order", "unit")
@pytest.mark.parametrize("unit", [0, 1, 2])
@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_a_broadcast_dimension_of_an_intermediate_has_its_place_in_memory(
    order: tuple[int, ...], unit: int, target: torch.device
) -> None:
    shape = [1 if dim == unit else size for dim, size in enumerate(SIZES[:3])]
    with FusionDefinition() as fd:
        a = fd.define_tensor([1 if size == 1 else -1 for size in shape], contiguity=True)
        y = fd.ops.stride_order(a, list(order))
        fd.add_output(y)
        _consumers(fd, y, apart=True)
    x = _integers(shape, target)
    y, *rest = fd.execute([x])
    assert torch.equal(y, x)
    _check(rest, x)


def test_several_reductions_of_a_reordered_copy(target: torch.device) -> None:
    with FusionDefinition() as fd:
        a = fd.define_tensor([-1, -1], contiguity=True)
        y = fd.ops.stride_order(a, [0, 1])
        fd.add_output(y)
        fd.add_output(fd.ops.sum(y, [0]))
        fd.add_output(fd.ops.sum(y, [1]))
    x = _integers((37, 70), target)
    y, columns, rows = fd.execute([x])
    assert torch.equal(y, x)
    assert y.stride() == (1, 37)
    _check_equal(columns, x.double().sum(0))
    _check_equal(rows, x.double().sum(1))


def test_sums_and_maxima_of_a_channels_last_copy(target: torch.device) -> None:
    with FusionDefinition() as fd:
        a = fd.define_tensor([-1] * 4, contiguity=True)
        y = fd.ops.stride_order(a, list(CHANNELS_LAST))
        fd.add_output(y)
        fd.add_output(fd.ops.sum(y, [0, 2, 3]))
        fd.add_output(fd.ops.max(y, [1]))
    x = _integers((2, 8, 5, 6), target)
    y, sums, maxima = fd.execute([x])
    assert torch.equal(y, x)
    assert y.is_contiguous(memory_format=torch.channels_last)
    _check_equal(sums, x.double().sum((0, 2, 3)))
    assert torch.equal(maxima, x.amax(1))


def test_a_reduction_over_outer_memory_crosses_without_its_reduced_dimension(target: torch.device) -> None:
    """What crosses is `sum(y, [1])` of a y that lies column-major: its own order has no reduced dimension."""
    with FusionDefinition() as fd:
        a = fd.define_tensor([-1, -1, -1], contiguity=True)
        s = fd.ops.sum(fd.ops.stride_order(a, [0, 1, 2]), [1])
        ordered = fd.ops.stride_order(s, [0, 1])
        fd.add_output(ordered)
        fd.add_output(fd.ops.sum(fd.ops.segment_set(ordered), [1]))
    x = _integers((5, 6, 7), target)
    s, total = fd.execute([x])
    _check_equal(s, x.double().sum(1))
    _check_equal(total, x.double().sum((1, 2)))


def test_an_expanded_dimension_of_an_intermediate_is_read_as_such(target: torch.device) -> None:
    with FusionDefinition() as fd:
        a = fd.define_tensor([-1, -1], contiguity=True)
        y = fd.ops.stride_order(a, [0, 1])
        wide = fd.ops.expand(fd.ops.broadcast(y, [False, True, False]), [5, 3, 7])
        fd.add_output(fd.ops.sum(fd.ops.segment_set(wide), [0]))
        fd.add_output(fd.ops.sum(fd.ops.segment_set(wide), [2]))
    x = _integers((5, 7), target)
    columns, rows = fd.execute([x])
    expected = x.double()[:, None, :].expand(5, 3, 7)
    _check_equal(columns, expected.sum(0))
    _check_equal(rows, expected.sum(2))


# ---- where in-place results are ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("offset", [0, 1, 2, 3, 4, 8])
def test_a_kernel_reads_an_in_place_result_at_the_alignment_of_its_home(
    offset: int, dtype: torch.dtype, target: torch.device
) -> None:
    with FusionDefinition() as fd:
        kind = DataType.Float if dtype is torch.float32 else DataType.BFloat16
        a = fd.define_tensor([-1, -1], contiguity=True, dtype=kind)
        y = fd.ops.cast(a * 2.0, kind)
        fd.add_output(y, alias_input=a)
        _consumers(fd, y)
    storage = _integers((64 + offset,), target).to(dtype)
    x = storage[offset:].view(8, 8)
    doubled = 2 * x
    outputs = fd.execute([x])
    assert torch.equal(x, doubled)
    _check(outputs, doubled)


def test_a_misaligned_home_that_a_kernel_may_not_overwrite_changes_nothing(target: torch.device) -> None:
    """The transposed result is computed elsewhere and copied: it lies in aligned memory of its own."""
    with FusionDefinition() as fd:
        a = fd.define_tensor([-1, -1], contiguity=True)
        y = fd.ops.permute(a, [1, 0]) * 2.0
        fd.add_output(y, alias_input=a)
        fd.add_output(fd.ops.sum(y, [0]))
        fd.add_output(fd.ops.sum(y, [1]))
    x = _integers((65,), target)[1:].view(8, 8)
    doubled = 2 * x.t()
    columns, rows = fd.execute([x])
    assert torch.equal(x, doubled)
    _check_equal(columns, doubled.double().sum(0))
    _check_equal(rows, doubled.double().sum(1))


def test_one_definition_serves_homes_of_any_alignment(target: torch.device) -> None:
    with FusionDefinition() as fd:
        a = fd.define_tensor([-1, -1], contiguity=True)
        y = a + 1.0
        fd.add_output(y, alias_input=a)
        fd.add_output(fd.ops.sum(y, [0]))
        fd.add_output(fd.ops.sum(y, [1]))
    storage = _integers((80,), target)
    for offset in (0, 1, 4, 2, 0, 3, 1):
        x = storage[offset : offset + 64].view(8, 8)
        expected = x + 1
        columns, rows = fd.execute([x])
        assert torch.equal(x, expected)
        _check_equal(columns, expected.double().sum(0))
        _check_equal(rows, expected.double().sum(1))


# ---- the memory format that results keep -------------------------------------------------------------------


def _format_cases() -> dict[str, tuple[list[torch.Tensor], Any, Any]]:
    x = _integers((2, 8, 5, 6), torch.device("cpu"))
    last, turned = (
        x.to(memory_format=torch.channels_last),
        x.permute(2, 3, 0, 1).contiguous().permute(2, 3, 0, 1),
    )
    bias, image = _integers((8, 1, 1), x.device), _integers((5, 6), x.device)
    return {
        "relu": ([last], lambda o, a: o.relu(a), torch.relu),
        "permuted": ([turned], lambda o, a: o.relu(a) * 2.0, lambda a: a.relu() * 2),
        "first of two": ([last, x], lambda o, a, b: o.add(a, b), torch.add),
        "row-major first": ([x, last], lambda o, a, b: o.add(a, b), torch.add),
        "bias": ([bias, last], lambda o, a, b: o.mul(a, b), torch.mul),
        "image": ([image, last], lambda o, a, b: o.mul(a, b), torch.mul),
        "copy": ([last], lambda o, a: o.set(a), torch.clone),
        "where": (
            [last, turned],
            lambda o, a, b: o.where(a > b, b, 0.0),
            lambda a, b: torch.where(a > b, b, 0.0),
        ),
        "squeezed": ([last[:1]], lambda o, a: -o.squeeze(a, [0]), lambda a: -a.squeeze(0)),
    }


@pytest.mark.parametrize("name", _format_cases())
def test_elementwise_results_lie_as_torchs(name: str, target: torch.device) -> None:
    given, build, reference = _format_cases()[name]
    inputs = [x.to(target) for x in given]
    with FusionDefinition() as fd:
        out = build(fd.ops, *map(fd.from_pytorch, inputs))
        fd.add_output(out)
        fd.add_output(fd.ops.sum(fd.ops.segment_set(out), [out.ndim - 1]))
    found, total = fd.execute(inputs)
    expected = reference(*inputs)
    assert torch.equal(found, expected)
    assert found.stride() == expected.stride()
    assert torch.equal(total, expected.sum(-1))


def test_a_stated_order_wins_over_the_inputs(target: torch.device) -> None:
    x = _integers((2, 8, 5, 6), target).to(memory_format=torch.channels_last)
    with FusionDefinition() as fd:
        t = fd.from_pytorch(x)
        fd.add_output(t * 2.0, stride_order=[3, 2, 1, 0])
        fd.add_output(fd.ops.stride_order(t, [3, 2, 1, 0]))
        fd.add_output(fd.ops.permute(t * 2.0, [0, 2, 3, 1]))  # a permutation is a change of layout
    doubled, copy, permuted = fd.execute([x])
    for out, expected in ((doubled, 2 * x), (copy, x), (permuted, 2 * x.permute(0, 2, 3, 1))):
        assert torch.equal(out, expected) and out.is_contiguous()


def test_normalizations_and_moves_lie_as_torchs(target: torch.device) -> None:
    x = _integers((2, 8, 4, 6), target).to(memory_format=torch.channels_last)
    with FusionDefinition() as fd:
        t, o = fd.define_tensor(list(x.shape), contiguity=True, stride_order=list(CHANNELS_LAST)), fd.ops
        rows = o.layer_norm(o.permute(t, [0, 2, 3, 1]), [8])[0]
        for out in (
            o.batch_norm(t, None, None, None, None, 0.1, 1e-5, True)[0],
            o.group_norm(t, 4)[0],
            o.permute(rows, [0, 3, 1, 2]) * 2.0,
            o.exp(o.cat([o.slice(t, [0, 2, 0, 0], [2, 5, 4, 6]), o.flip(t, [1])], 1)),
            o.exp(o.pad(t, [1, 1])),
            o.exp(o.reshape(t, [2, 2, 4, 24])),  # strides lead to it
            o.exp(o.reshape(t, [2, 32, 6])),  # they do not
        ):
            fd.add_output(out)
    functional = torch.nn.functional
    normalized = functional.layer_norm(x.permute(0, 2, 3, 1), [8]).permute(0, 3, 1, 2)
    expected = (
        functional.batch_norm(x, None, None, training=True),
        functional.group_norm(x, 4).to(memory_format=torch.channels_last),
        normalized * 2,
        torch.cat([x[:, 2:5], x.flip(1)], 1).exp(),
        functional.pad(x, [1, 1]).exp(),
        x.reshape(2, 2, 4, 24).exp(),
        x.reshape(2, 32, 6).exp(),
    )
    for i, (found, wanted) in enumerate(zip(fd.execute([x]), expected, strict=True)):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
        assert found.stride() == wanted.stride(), i


@pytest.mark.parametrize("order", [(3, 2, 1, 0), CHANNELS_LAST])
def test_what_passes_between_kernels_lies_as_the_inputs(order: tuple[int, ...], target: torch.device) -> None:
    x = _laid_out(_integers((2, 8, 4, 6), target), order)
    with FusionDefinition() as fd:
        t = fd.from_pytorch(x)
        between = fd.ops.segment_set(t * 2.0)
        fd.add_output(fd.ops.permute(between, [0, 2, 3, 1]) + 1.0)
    (out,) = fd.validate([x])
    assert out.is_contiguous()
    program = fd._leaf.executor.last_program
    (tensor,) = program.plans[0].segment.outputs
    places = [tensor.shape.index(axis) for axis in tensor.allocation]
    assert places == sorted(range(4), key=lambda dim: -order[dim])


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_a_reduction_between_kernels_lies_as_its_source(order: tuple[int, ...], target: torch.device) -> None:
    """One that is returned is row-major."""
    with FusionDefinition() as fd:
        a = fd.define_tensor([-1, -1, -1], contiguity=True, stride_order=list(order))
        total = fd.ops.sum(a, [1])
        fd.add_output(fd.ops.max(fd.ops.segment_set(total), [1]))
        fd.add_output(fd.ops.sum(a * 2.0, [1]))
    x = _laid_out(_integers((6, 5, 9), target), order)
    written = [t for kernel in fd.kernels_for([x]) for t in kernel.tensors if t.is_written]
    between = next(t.strides for t in written if t.shape == (6, 9))
    assert between == ((9, 1) if order[0] > order[2] else (1, 6))
    largest, doubled = fd.execute([x])
    assert doubled.stride() == (9, 1)
    _check_equal(largest, x.double().sum(1).amax(1))
    _check_equal(doubled, 2 * x.double().sum(1))


def test_rows_are_summed_beside_long_columns(target: torch.device) -> None:
    """Elements are counted along rows: places in columns are products beyond 32 bits, less others."""
    rows, columns = 65536, 28
    # Both begin off vectors, so that a thread reads one element at a time.
    x, bias = _integers((rows * columns + 1,), target)[1:], _integers((columns + 1,), target)[1:]
    x = x.view(rows, columns)
    y = (torch.arange(x.numel(), device=target) % 3 == 0).view(columns, rows).T
    with FusionDefinition() as fd:
        a, b = (fd.define_tensor([*each.shape], contiguity=True) for each in (x, bias))
        c = fd.define_tensor([rows, columns], contiguity=True, dtype=DataType.Bool, stride_order=[0, 1])
        fd.add_output(fd.ops.sum(a * b + fd.ops.where(c, 1.0, 0.0)))
    _check_equal(fd.execute([x, bias, y])[0], (x.double() * bias + y).sum())
