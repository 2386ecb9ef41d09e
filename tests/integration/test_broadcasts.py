"""Dimensions of one point, expanded ones and rank 0 around reductions: small fusions that fuzzing found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition
from tests.integration.tolerance import assert_close

Tensor = torch.Tensor
Define = Callable[[FusionDefinition, Any], None]


def _sum_beside_a_constant_row(fd: FusionDefinition, o: Any) -> None:
    x = fd.define_tensor([2], contiguity=True)
    fd.add_output(o.where(x > 0.0, x, o.mean(x - 0.5, [0], keepdim=True)))


def _kept_and_squeezed(fd: FusionDefinition, o: Any) -> None:
    x = fd.define_tensor([-1, -1], contiguity=True)
    top = o.max(x, [1], keepdim=True)
    fd.add_output(x - top)
    fd.add_output(o.squeeze(top, [1]))


def _reduced_again_along_its_one_point(fd: FusionDefinition, o: Any) -> None:
    x = fd.define_tensor([-1], contiguity=True)
    mean = o.mean(x, [0], keepdim=True)
    fd.add_output(x * mean)
    fd.add_output(mean * o.mean(mean + 1.0, [0], keepdim=True))


def _vector_of_a_reduced_broadcast(fd: FusionDefinition, o: Any) -> None:
    x = fd.define_tensor([-1], contiguity=True)
    column = o.broadcast(x, [False, True])
    fd.add_output(o.le(o.max(o.sum(column, [0]), [0]), column))


def _normalized_expansion(fd: FusionDefinition, o: Any) -> None:
    x = fd.define_tensor([-1], contiguity=True)
    wide = o.broadcast_in_dim(x, [5, o.size(x, 0)], [1])
    e = o.exp(wide - o.max(wide, [1], keepdim=True))
    fd.add_output(e / o.sum(e, [1], keepdim=True))


def _maximum_along_an_expansion(fd: FusionDefinition, o: Any) -> None:
    x = fd.define_tensor([-1], contiguity=True)
    wide = o.stride_order(o.broadcast_in_dim(x, [o.size(x, 0), 3], [0]), [0, 1])
    fd.add_output(wide - o.max(wide, [1], keepdim=True))
    fd.add_output(wide)


def _sizes_that_meet_in_a_broadcast(fd: FusionDefinition, o: Any) -> None:
    x, y = fd.define_tensor([-1, -1], contiguity=True), fd.define_tensor([-1, -1], contiguity=True)
    total = o.sum(x, [0, 1], keepdim=True)
    fd.add_output(x * total)
    fd.add_output(y + o.max(total, [0, 1], keepdim=True))


def _reductions_of_different_ranks(fd: FusionDefinition, o: Any) -> None:
    x, y = fd.define_tensor([-1, -1], contiguity=True), fd.define_tensor([-1, -1, -1], contiguity=True)
    row = o.broadcast(x, [True, False, False])
    fd.add_output(y - (row - o.max(row, [2], keepdim=True)))
    fd.add_output(y * o.mean(y, [2], keepdim=True))


def _statistics_beside_elementwise_work(fd: FusionDefinition, o: Any) -> None:
    x = fd.define_tensor([-1, -1], contiguity=True)
    chosen = o.where(x > 0.0, o.trunc(x), 1.5)
    fd.add_output(o.cast(chosen, DataType.Int32) > chosen)
    fd.add_output(o.sum(x, [1]))


def _sequence_of_one(fd: FusionDefinition, o: Any) -> None:
    x = fd.define_tensor([-1], contiguity=True)
    fd.add_output(x + o.iota(1, 3, 2))


def _sequence_in_two_shapes(fd: FusionDefinition, o: Any) -> None:
    x = fd.define_tensor([31], contiguity=True)
    steps = o.iota(31, 0.5, 0.25, DataType.Float)
    column = o.broadcast(steps, [False, True])
    fd.add_output(o.squeeze(column, [1]))
    fd.add_output(o.broadcast(column, [False, False, True]) / o.cast(o.le(steps, x), DataType.Float))


def _permuted_beside_a_longer_output(fd: FusionDefinition, o: Any) -> None:
    x, y = fd.define_tensor([32, 3, 1], contiguity=True), fd.define_tensor([-1, -1], contiguity=True)
    fd.add_output(o.maximum(o.permute(y, [1, 0]), x))
    fd.add_output(x * 2.0)


CASES: dict[str, tuple[Define, list[tuple[int, ...]], Callable[..., list[Tensor]]]] = {
    "sum_beside_a_constant_row": (
        _sum_beside_a_constant_row,
        [(2,)],
        lambda x: [torch.where(x > 0, x, (x - 0.5).mean())],
    ),
    "kept_and_squeezed": (_kept_and_squeezed, [(16, 2)], lambda x: [x - x.amax(1, True), x.amax(1)]),
    "reduced_again_along_its_one_point": (
        _reduced_again_along_its_one_point,
        [(1000,)],
        lambda x: [x * x.mean(), (x.mean() * (x.mean() + 1)).reshape(1)],
    ),
    "vector_of_a_reduced_broadcast": (
        _vector_of_a_reduced_broadcast,
        [(4,)],
        lambda x: [x.sum() <= x[:, None]],
    ),
    "normalized_expansion": (_normalized_expansion, [(256,)], lambda x: [x.softmax(0).expand(5, -1)]),
    "maximum_along_an_expansion": (
        _maximum_along_an_expansion,
        [(7,)],
        lambda x: [torch.zeros(7, 3), x[:, None].expand(7, 3)],
    ),
    "sizes_that_meet_in_a_broadcast": (
        _sizes_that_meet_in_a_broadcast,
        [(100, 8), (33, 12)],
        lambda x, y: [x * x.sum(), y + x.sum()],
    ),
    "reductions_of_different_ranks": (
        _reductions_of_different_ranks,
        [(5, 2), (16, 5, 2)],
        lambda x, y: [y - (x - x.amax(1, True)), y * y.mean(2, True)],
    ),
    "statistics_beside_elementwise_work": (
        _statistics_beside_elementwise_work,
        [(3, 500)],
        lambda x: [_truncated(x).int() > _truncated(x), x.sum(1)],
    ),
    "sequence_of_one": (_sequence_of_one, [(5,)], lambda x: [x + 3]),
    "sequence_in_two_shapes": (_sequence_in_two_shapes, [(31,)], lambda x: _two_shapes(x)),
    "permuted_beside_a_longer_output": (
        _permuted_beside_a_longer_output,
        [(32, 3, 1), (32, 3)],
        lambda x, y: [torch.maximum(y.t(), x), 2 * x],
    ),
}


def _truncated(x: Tensor) -> Tensor:
    return torch.where(x > 0, x.trunc(), 1.5)


def _two_shapes(x: Tensor) -> list[Tensor]:
    steps = 0.5 + 0.25 * torch.arange(31)
    return [steps, steps[:, None, None] / (steps <= x).double()]


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_torch(name: str, target: torch.device) -> None:
    define, shapes, reference = CASES[name]
    with FusionDefinition() as fd:
        define(fd, fd.ops)
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(shape, generator=generator) for shape in shapes]
    outputs = fd.execute([x.to(target) for x in inputs])
    expected = reference(*[x.double() for x in inputs])
    assert len(outputs) == len(expected)
    for actual, value in zip(outputs, expected):
        assert_close(actual, value, max(x.numel() for x in inputs))


@pytest.mark.parametrize("rank0", ["tensor", "host"])
def test_rank_0_beside_its_reduction(target: torch.device, rank0: str) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([], [], is_cpu=rank0 == "host")
        row = fd.ops.broadcast(x, [True, True]) * 2.0
        fd.add_output(row * fd.ops.mean(row, [0], keepdim=True))
        fd.add_output(row)
    value = torch.tensor(1.5, device="cpu" if rank0 == "host" else target)
    product, row = fd.execute([value], device=target)
    assert product.tolist() == [[9.0]] and row.tolist() == [[3.0]]


@pytest.mark.parametrize("sizes", [(40, 0, 2), (0, 0, 3)])
def test_expansion_to_no_points(target: torch.device, sizes: tuple[int, ...]) -> None:
    """Sizes that are 0 in the definition fold away, and what is stored once a broadcast must not be."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([1, -1], contiguity=True)
        fd.add_output(fd.ops.expand(fd.ops.broadcast(x, [False, True, False]), [-1, 0, -1]))
        fd.add_output(fd.ops.full(sizes, 0.5, DataType.Float) + 1.0)
        fd.add_output(x * 2.0)
        fd.add_output(fd.ops.max(fd.ops.expand(x, [0, -1]), [0]))
    t = torch.randn(1, 3, device=target)
    empty, filled, doubled, nothing = fd.execute([t])
    assert empty.shape == (1, 0, 3) and filled.shape == sizes
    assert torch.equal(doubled, t * 2)
    assert nothing.tolist() == [-torch.inf] * 3
