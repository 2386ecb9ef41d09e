"""Reads that go backward through memory or take every n-th element of it: their elements are in aligned
vectors of the source, from which registers take them.

    x[n - 1 - i], i = 4 q ..        of  x[n - 4 q - 4:+4], from the last to the first
    x[2 i + 1], i = 4 q ..          of  x[8 q:+8], elements 1, 3, 5, 7
    x[i, 2], i = 4 q .., of three   of  x[4 q:+4, 0:3], elements 2, 5, 8, 11
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusewright.analyze.runs import (
    dense_groups,
    divisors,
    expression_run,
    is_stride,
    multiples,
    parts_along,
)
from fusewright.analyze.vectorize import lane_axis, unit_stride_axis
from fusewright.core.enums import MemoryType
from fusewright.core.hardware import MAX_VECTOR_BYTES
from fusewright.ir.axis import IterDomain
from fusewright.ir.node import Indexed, Node
from fusewright.ir.value import TensorView
from fusewright.sym import ZERO, Expr, as_int, const, product

#: Steps from each element to the next that vectors are read for: backward, or every n-th element.
STEPS = (-1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class SteppedRun:
    """How neighbouring positions read a source, `step` elements of memory apart.

    `w` positions, from a multiple of `w` on, read elements of the `w * block` from a multiple of that on, if
    `w` divides all of `sizes`.

    Attributes:
        joined: the source's dimensions along which they are read as along one.
        offset: the element that the first position reads, from that multiple on, if `step` is positive.
    """

    step: int
    sizes: tuple[Expr, ...]
    joined: tuple[IterDomain, ...]
    offset: int

    @property
    def block(self) -> int:
        """The elements of memory for each position."""
        return abs(self.step)

    def first(self, width: int) -> int:
        """The element of a block that the first of `width` positions reads."""
        return width - 1 if self.step < 0 else self.offset

    def source_width(self, element_bytes: int, width: int) -> int:
        """The elements of each aligned vector from which `width` positions are read."""
        return min(self.block * width, MAX_VECTOR_BYTES // element_bytes)


def stepped_run(node: Indexed, dim: int) -> SteppedRun | None:
    """How an indexed read goes through its source along dimension `dim` of the result, in steps of `STEPS`;
    None if it goes otherwise. The condition under which it reads must not change within a vector.
    """
    there = expression_run(node.map.pred, dim)
    if there is None or any(not t.shape[dim].is_broadcast for t in node.index_tensors):
        return None
    runs = (
        _run_through(node, dim, there.sizes, joined)
        for joined in dense_groups(node.source, unit_stride_axis(node.source))
    )
    return next((run for run in runs if run is not None), None)


def _run_through(
    node: Indexed, dim: int, sizes: Sequence[Expr], joined: tuple[IterDomain, ...]
) -> SteppedRun | None:
    """The run if nothing but the place along the dimensions `joined`, which are contiguous, varies."""
    indices = {axis: i for axis, i in zip(node.source.shape, node.map.indices) if not axis.is_broadcast}
    place: Expr = ZERO
    for axis in joined:
        place = place * axis.extent + indices[axis]
    step, own, rest = parts_along(place, dim) or (None, (), [])
    if step is None or step not in STEPS:
        return None
    starts, row = _starts(step, rest, place.constant), _row(node.source, joined, abs(step))
    if starts is None or row is None:
        return None
    needed = dict.fromkeys((*sizes, *own, *starts, *row))
    for axis, index in indices.items():
        if axis not in joined:
            along = expression_run(index, dim)
            if along is None or along.moves:
                return None
            needed.update(dict.fromkeys(along.sizes))
    return SteppedRun(step, tuple(needed), joined, place.constant % abs(step))


def _starts(step: int, rest: Sequence[tuple[Expr, int]], constant: int) -> tuple[Expr, ...] | None:
    """What a width has to divide for its blocks to start at multiples of their size, or None."""
    if step == -1:
        return multiples(rest, constant + 1)
    if any(coefficient % step for _, coefficient in rest):
        return None
    return multiples([(core, coefficient // step) for core, coefficient in rest], constant // step)


def _row(source: TensorView, joined: Sequence[IterDomain], block: int) -> tuple[Expr, ...] | None:
    """What a width has to divide for whole blocks to make up the source's contiguous dimensions, or None."""
    size = product([axis.extent for axis in joined])
    if block == 1:
        return divisors(size) if is_stride(source, joined) else ()
    number = as_int(size)
    return None if number is None or number % block else (const(number // block),)


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
