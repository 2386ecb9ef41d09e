"""Fusions whose kernels the mutation tests alter, with sizes at which every guard decides something."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fusewright import DataType, FusionDefinition
from tests.sim.launches import Define

Inputs = Callable[[], list[torch.Tensor]]
Reference = Callable[..., Sequence[torch.Tensor]]


@dataclass(frozen=True)
class Case:
    """A fusion, what it is called with, and what torch computes (in place: the input as it should become).

    others: inputs of other sizes, at which what holds of the kernel for reasons other than its size must hold
    too.
    """

    define: Define
    inputs: Inputs
    reference: Reference
    others: Sequence[Inputs] = ()


def _random(*shapes: Sequence[int]) -> Inputs:
    return lambda: [torch.randn(*shape) for shape in shapes]


def _peaks(rows: int, columns: int) -> torch.Tensor:
    """Columns whose maxima lie in every sixth row, from the last up."""
    x = torch.randn(rows, columns)
    x[rows - 1 - 6 * torch.arange(columns), torch.arange(columns)] = 9.0
    return x


def _padded(rows: int, columns: int, pitch: int) -> torch.Tensor:
    return torch.randn(rows, pitch)[:, :columns]


def _pointwise(fd: FusionDefinition, t: list[Any]) -> None:
    y = t[0] * t[1] + 1.0
    fd.add_output(y)
    fd.add_output(fd.ops.exp(y))


def _transpose(fd: FusionDefinition, t: list[Any]) -> None:
    fd.add_output(fd.ops.permute(t[0], [1, 0]) + 1.0)


def _add_transposed(fd: FusionDefinition, t: list[Any]) -> None:
    fd.add_output(t[1] + fd.ops.permute(t[0], [1, 0]))
    fd.add_output(fd.ops.neg(t[1]))


def _sum(*dims: int) -> Define:
    def define(fd: FusionDefinition, t: list[Any]) -> None:
        fd.add_output(fd.ops.sum(t[0] * 2.0, list(dims)))

    return define


def _sum_and_max(fd: FusionDefinition, t: list[Any]) -> None:
    fd.add_output(fd.ops.sum(t[0], [0]))
    fd.add_output(fd.ops.max(t[0], [0]))


def _var_mean(dim: int) -> Define:
    def define(fd: FusionDefinition, t: list[Any]) -> None:
        for output in fd.ops.var_mean(t[0], [dim], 0, False):
            fd.add_output(output)

    return define


def _softmax(fd: FusionDefinition, t: list[Any]) -> None:
    e = fd.ops.exp(t[0] - fd.ops.max(t[0], [1], keepdim=True))
    fd.add_output(e / fd.ops.sum(e, [1], keepdim=True))


def _layer_norm(fd: FusionDefinition, t: list[Any]) -> None:
    variance, mean = fd.ops.var(t[0], [1], 0, True), fd.ops.mean(t[0], [1], True)
    fd.add_output((t[0] - mean) * fd.ops.rsqrt(variance + 1e-5) * t[1])
    fd.add_output(mean)


def _below_maximum(fd: FusionDefinition, t: list[Any]) -> None:
    """The maxima of columns, and then sums of rows: two kernels."""
    fd.add_output(fd.ops.sum(t[0] - fd.ops.max(t[0], [0], keepdim=True), [1]))


def _scan(dim: int) -> Define:
    def define(fd: FusionDefinition, t: list[Any]) -> None:
        fd.add_output(fd.ops.cumsum(t[0] * 2.0, dim))

    return define


def _in_place(fd: FusionDefinition, t: list[Any]) -> None:
    fd.add_output(t[0] * 2.0 + t[1], t[0])


def _scattered_sum(fd: FusionDefinition, t: list[Any]) -> None:
    fd.add_output(fd.ops.index_put_accumulate(t[0] * 2.0, t[1], t[2] * 2.0))


def _elements_and_places(places: int, count: int) -> Inputs:
    return lambda: [torch.randn(places), torch.randint(places, (count,)), torch.randn(count)]


def _norm(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
    variance, mean = torch.var_mean(x, 1, correction=0, keepdim=True)
    return [(x - mean) * torch.rsqrt(variance + 1e-5) * w, mean]


def _sizes(*shapes: tuple[int, int]) -> list[Inputs]:
    return [_random(shape) for shape in shapes]


def _add_exp(x: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
    return [x * b + 1, (x * b + 1).exp()]


def _eight_bits(fd: FusionDefinition, t: list[Any]) -> None:
    fd.add_output(fd.ops.cast(t[0] / fd.ops.max(t[0], [1], keepdim=True), DataType.Float8_e4m3fn))


# Lengths of rows that are even, as the vectors of the first ones' kernel need.
ROWS = _sizes((5, 1024), (5, 1026), (3, 1536), (2, 1790))
COLUMNS = _sizes((64, 61), (65, 57), (70, 64), (71, 58))
# Whole steps of their loops, and a last one that is not.
LONG_COLUMNS = _sizes((384, 61), (380, 57), (370, 64), (320, 58))
# Enough rows that a block which holds one shares its SM with others: its threads have two vectors each.
MANY_ROWS = 80
HELD_ROWS = "bundle", "eight bits", "softmax", "layer norm"


def _bundle(fd: FusionDefinition, t: list[Any]) -> None:
    """Two equal updates in place and rows that are held in registers: one launch."""
    fd.add_output(t[0] + t[1], t[0])
    fd.add_output(t[2] + t[3], t[2])
    fd.add_output(t[4] - fd.ops.max(t[4], [1], True))


CASES: dict[str, Case] = {
    "bundle": Case(
        _bundle,
        _random((3, 37), (3, 37), (5, 45), (5, 45), (MANY_ROWS, 509)),
        lambda a, b, c, d, x: [x - x.amax(1, keepdim=True)],
    ),
    "pointwise": Case(_pointwise, _random((3, 77), (77,)), _add_exp),
    "vectors": Case(_pointwise, _random((3, 1028), (1028,)), _add_exp),
    "unaligned vectors": Case(
        _pointwise, lambda: [torch.randn(3, 1041)[:, 3:1039], torch.randn(1036)], _add_exp
    ),
    "column broadcast": Case(_pointwise, _random((5, 33), (5, 1)), _add_exp),
    "padded rows": Case(_pointwise, lambda: [_padded(5, 37, 40), torch.randn(37)], _add_exp),
    "padded vectors": Case(_pointwise, lambda: [_padded(3, 1028, 1032), torch.randn(1028)], _add_exp),
    "in place": Case(_in_place, lambda: [_padded(5, 37, 40), torch.randn(5, 37)], lambda x, y: [x * 2 + y]),
    "transpose": Case(_transpose, _random((45, 70)), lambda x: [x.T + 1]),
    "transpose of two": Case(_add_transposed, _random((45, 37), (37, 45)), lambda x, y: [y + x.T, -y]),
    "inner sum": Case(
        _sum(1), _random((2, 9350)), lambda x: [(2 * x).sum(1)], _sizes((2, 9346), (3, 9350), (3, 9990))
    ),
    "inner sum by element": Case(
        _sum(1), _random((2, 3701)), lambda x: [(2 * x).sum(1)], _sizes((2, 3703), (3, 4003))
    ),
    "inner sum of shifted rows": Case(
        _sum(1), _random((3, 9351)), lambda x: [(2 * x).sum(1)], _sizes((3, 9347), (4, 9991))
    ),
    "outer sum": Case(_sum(0), _random((383, 61)), lambda x: [(2 * x).sum(0)], LONG_COLUMNS),
    "grid sum": Case(
        _sum(0, 1),
        _random((37, 1001)),
        lambda x: [(2 * x).sum()],
        _sizes((37, 1000), (37, 999), (35, 1001), (64, 601)),
    ),
    "outer grid sum": Case(
        _sum(0), _random((1003, 61)), lambda x: [(2 * x).sum(0)], _sizes((1000, 61), (999, 57), (1010, 63))
    ),
    "sum and maximum": Case(
        _sum_and_max, lambda: [_peaks(383, 61)], lambda x: [x.sum(0), x.amax(0)], LONG_COLUMNS
    ),
    "inner variance": Case(
        _var_mean(1), _random((5, 1030)), lambda x: torch.var_mean(x, 1, correction=0), ROWS
    ),
    "outer variance": Case(
        _var_mean(0), _random((767, 61)), lambda x: torch.var_mean(x, 0, correction=0), LONG_COLUMNS
    ),
    "eight bits": Case(
        _eight_bits,
        _random((MANY_ROWS, 1032)),  # rows whose maximum lies in any element of a vector
        lambda x: [(x * (1 / x.amax(1, keepdim=True))).to(torch.float8_e4m3fn)],
        _sizes((MANY_ROWS - 1, 1028), (MANY_ROWS - 2, 1536)),
    ),
    "two kernels": Case(
        _below_maximum,
        _random((191, 4701)),
        lambda x: [(x - x.amax(0, keepdim=True)).sum(1)],
        _sizes((190, 4703), (189, 4999)),
    ),
    "scan": Case(
        _scan(0), _random((1100, 20)), lambda x: [(2 * x).cumsum(0)], _sizes((1095, 18), (1200, 17))
    ),
    "softmax": Case(
        _softmax,
        _random((MANY_ROWS, 301)),
        lambda x: [x.softmax(1)],
        _sizes((MANY_ROWS, 299), (MANY_ROWS - 1, 257)),
    ),
    "scattered sum": Case(
        _scattered_sum,
        _elements_and_places(301, 1030),
        lambda x, i, y: [(2 * x).index_put((i,), 2 * y, accumulate=True)],
        [_elements_and_places(299, 1026), _elements_and_places(257, 770)],
    ),
    "layer norm": Case(
        _layer_norm,
        _random((MANY_ROWS, 1028), (1028,)),
        _norm,
        [_random((MANY_ROWS - 1, 1032), (1032,)), _random((MANY_ROWS - 2, 1280), (1280,))],
    ),
}
