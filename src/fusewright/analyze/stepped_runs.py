"""Reads that go backward through memory or take every n-th element of it: their elements are in aligned
vectors of the source, from which registers take them.

    x[n - 1 - i], i = 4 q ..        of  x[n - 4 q - 4:+4], from the last to the first
    x[2 i + 1], i = 4 q ..          of  x[8 q:+8], elements 1, 3, 5, 7
    x[i, 2], i = 4 q .., of three   of  x[4 q:+4, 0:3], elements 2, 5, 8, 11
    x[i, j], i = 4 q .., of three   of  x[4 q:+4, 0:3], elements j, j + 3, j + 6, j + 9, for all j of a thread
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from fusewright.analyze.runs import (
    constant_elsewhere,
    dense_groups,
    divisors,
    expression_run,
    is_stride,
    multiples,
    parts_along,
    place_along,
)
from fusewright.analyze.vectorize import (
    divides_numbers,
    is_shifted,
    lane_axis,
    unit_stride_axis,
    unrolled_axes,
)
from fusewright.core.enums import MemoryType
from fusewright.core.hardware import MAX_VECTOR_BYTES
from fusewright.core.recorded import gcd
from fusewright.ir.axis import IterDomain
from fusewright.ir.index_map import position_of
from fusewright.ir.node import Indexed, Node
from fusewright.ir.value import TensorView
from fusewright.sym import ZERO, Expr, as_int, const, product

#: Steps from each element to the next that vectors are read for: backward, or every n-th element.
STEPS = (-1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class SteppedRun:
    """How neighbouring positions read a source, `step` elements of memory apart.

    `w` positions, from a multiple of `w` on, read elements of a block: the `w * block` from a multiple of
    that on, if `w` divides all of `sizes`. All narrower powers of two then divide them as well.

    Attributes:
        joined: the source's dimensions along which they are read as along one.
        offset: the element of a block that its first position reads, if `step` is positive.
        varying: the other dimensions of the result along which the offset differs. Registers are taken by
            number, so a thread has all places along these.
    """

    step: int
    sizes: tuple[Expr, ...]
    joined: tuple[IterDomain, ...]
    offset: Expr
    varying: frozenset[int] = frozenset()

    @property
    def block(self) -> int:
        """The elements of memory for each position."""
        return abs(self.step)

    def first(self, width: int) -> Expr:
        """The element of a block that the first of `width` positions reads."""
        return const(width - 1) if self.step < 0 else self.offset

    def source_width(self, element_bytes: int, width: int) -> int:
        """The elements of each vector of a block of `width` positions, a power of two."""
        return gcd(self.block * width, MAX_VECTOR_BYTES // element_bytes)


def stepped_run(node: Indexed, dim: int) -> SteppedRun | None:
    """How an indexed read goes through its source along dimension `dim` of the result, in steps of `STEPS`;
    None if it goes otherwise. The condition under which it reads must not change within a vector.
    """
    there = expression_run(node.map.pred, dim)
    if there is None or any(not t.shape[dim].is_broadcast for t in node.index_tensors):
        return None
    source = node.source
    indices = {axis: i for axis, i in zip(source.shape, node.map.indices) if not axis.is_broadcast}
    # A step goes along one group: along more dimensions it would be as long as a row.
    for joined in dense_groups(source, unit_stride_axis(source)):
        run = _run_through(source, indices, dim, joined)
        if run is not None:
            return replace(run, sizes=tuple(dict.fromkeys((*there.sizes, *run.sizes))))
    return None


def _run_through(
    source: TensorView, indices: Mapping[IterDomain, Expr], dim: int, joined: tuple[IterDomain, ...]
) -> SteppedRun | None:
    """The run if nothing but the place along the dimensions `joined`, which are contiguous, varies."""
    within = _place_in_block(indices[joined[-1]], dim) if joined else ZERO
    place = place_along(indices, joined) - within
    step, own, rest = parts_along(place, dim) or (None, (), [])
    others = constant_elsewhere(indices, joined, dim)
    if step is None or step not in STEPS or others is None:
        return None
    if within is not ZERO and as_int(joined[-1].extent) != step:
        return None
    block = abs(step)
    offset = place.constant % block
    starts = _blocks(rest, place.constant + 1 if step < 0 else place.constant - offset, block)
    size = product([axis.extent for axis in joined])
    if block > 1:
        row = _blocks(size.terms, size.constant, block)
    else:
        row = divisors(size) if is_stride(source, joined) else ()
    if starts is None or row is None:
        return None
    dims = map(position_of, within.free_symbols)
    varying = frozenset(dim for dim in dims if dim is not None)
    return SteppedRun(step, (*own, *others, *starts, *row), joined, within + offset, varying)


def _place_in_block(index: Expr, dim: int) -> Expr:
    """The index along a block of places if other positions than along `dim` determine it, else 0."""
    positions = {position_of(symbol) for symbol in index.free_symbols}
    return index if positions and positions.isdisjoint((dim, None)) else ZERO


def _blocks(terms: Iterable[tuple[Expr, int]], constant: int, block: int) -> tuple[Expr, ...] | None:
    """What a width has to divide for a sum to be a multiple of blocks of so many elements each, or None."""
    terms = list(terms)
    if constant % block or any(coefficient % block for _, coefficient in terms):
        return None
    return multiples([(core, coefficient // block) for core, coefficient in terms], constant // block)


def picked_run(node: Node, width: int) -> SteppedRun | None:
    """The run along which a load to registers may take vectors of `width` positions from aligned ones, or
    None. Each such vector fits an access.
    """
    out = node.output
    if not isinstance(node, Indexed) or out.unaligned or is_shifted(out):
        return None
    if out.memory is not MemoryType.local or node.source.memory is not MemoryType.global_:
        return None
    lane = lane_axis(out, width)
    if lane is None or width * out.dtype.size > MAX_VECTOR_BYTES:
        return None
    run = stepped_run(node, out.maybe_root.index(lane))
    if run is None or not divides_numbers(width, run.sizes):
        return None
    return run if unrolled_axes(out).issuperset(out.maybe_root[dim] for dim in run.varying) else None
