"""Reads that go backward through memory or take every n-th element of it: their elements are in aligned
vectors of the source, from which registers take them.

    x[n - 1 - i], i = 4 q ..        of  x[n - 4 q - 4:+4], from the last to the first
    x[2 i + 1], i = 4 q ..          of  x[8 q:+8], elements 1, 3, 5, 7
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusewright.analyze.runs import divisors, expression_run, is_stride, multiples, parts_along
from fusewright.analyze.vectorize import lane_axis, unit_stride_axis
from fusewright.core.enums import MemoryType
from fusewright.core.hardware import MAX_VECTOR_BYTES
from fusewright.ir.axis import IterDomain
from fusewright.ir.node import Indexed, Node
from fusewright.ir.value import TensorView
from fusewright.sym import Expr, as_int, const

#: Steps from each element to the next that vectors are read for: backward, or every n-th element.
STEPS = (-1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class SteppedRun:
    """How neighbouring positions read a source along its contiguous dimension, `step` elements apart.

    `w` positions, from a multiple of `w` on, read elements of the `w * block` from a multiple of that on, if
    `w` divides all of `sizes`.
    """

    step: int
    sizes: tuple[Expr, ...]

    @property
    def block(self) -> int:
        """The elements of memory for each position."""
        return abs(self.step)

    def source_width(self, element_bytes: int, width: int) -> int:
        """The elements of each aligned vector from which `width` positions are read."""
        return min(self.block * width, MAX_VECTOR_BYTES // element_bytes)


def stepped_run(node: Indexed, dim: int) -> SteppedRun | None:
    """How an indexed read goes through its source along dimension `dim` of the result, in steps of `STEPS`;
    None if it goes otherwise. The condition under which it reads must not change within a vector.
    """
    source = node.source
    unit = unit_stride_axis(source)
    there = expression_run(node.map.pred, dim)
    if unit is None or there is None or any(not t.shape[dim].is_broadcast for t in node.index_tensors):
        return None
    sizes = dict.fromkeys(there.sizes)
    step: int | None = None
    for axis, index in zip(source.shape, node.map.indices):
        if axis is unit:
            step, own, rest = parts_along(index, dim) or (None, (), [])
            if step is None or step not in STEPS:
                return None
            found = _starts(step, rest, index.constant)
            if found is None:
                return None
            sizes.update(dict.fromkeys((*own, *found)))
        elif not axis.is_broadcast:
            along = expression_run(index, dim)
            if along is None or along.moves:
                return None
            sizes.update(dict.fromkeys(along.sizes))
    if step is None:
        return None
    row = _row(source, unit, abs(step))
    return None if row is None else SteppedRun(step, tuple(dict.fromkeys((*sizes, *row))))


def _starts(step: int, rest: Sequence[tuple[Expr, int]], constant: int) -> tuple[Expr, ...] | None:
    """What a width has to divide for its blocks to start at multiples of their size, or None."""
    if step == -1:
        return multiples(rest, constant + 1)
    if any(coefficient % step for _, coefficient in rest):
        return None
    return multiples([(core, coefficient // step) for core, coefficient in rest], constant // step)


def _row(source: TensorView, unit: IterDomain, block: int) -> tuple[Expr, ...] | None:
    """What a width has to divide for whole blocks to make up the source's contiguous dimension, or None."""
    if block == 1 and not is_stride(source, (unit,)):
        return ()
    if block == 1:
        return divisors(unit.extent)
    size = as_int(unit.extent)
    return None if size is None or size % block else (const(size // block),)


def stepped_along_lane(node: Node, width: int) -> SteppedRun | None:
    """The run along which a load reads vectors of `width` positions from aligned ones, or None."""
    lane = lane_axis(node.output, width)
    if not isinstance(node, Indexed) or lane is None or node.source.memory is not MemoryType.global_:
        return None
    if width * node.source.dtype.size > MAX_VECTOR_BYTES:
        return None
    run = stepped_run(node, node.output.maybe_root.index(lane))
    numbers = (as_int(size) for size in run.sizes) if run is not None else ()
    return None if any(n % width for n in numbers if n is not None) else run
