"""Vectors along several dimensions that are merged to one loop.

A tensor of 16384 x 4095 elements without gaps is one contiguous run, so vectors of 8 can cross its rows
although 8 does not divide them. A tensor that is not contiguous along these dimensions, such as the other
side of a pad, is read or stored element by element within the vector's loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fusewright.analyze.runs import Run, divisors, merged_indexed_run
from fusewright.analyze.vectorize import are_one_run, power_of_two_divisor, unit_stride_axis, widest_aligned
from fusewright.core.hardware import MAX_VECTOR_BYTES, WARP_SIZE
from fusewright.core.recorded import gcd
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Choose, Indexed, Node
from fusewright.ir.value import Val
from fusewright.schedulers.base import Facts
from fusewright.schedulers.reference_map import Access
from fusewright.schedulers.vector_limits import FRESH_ALIGNMENT, UNALIGNED_COST, Vectors
from fusewright.sym import ZERO, Const, Expr, Symbol, as_int, product

# ---- vectors beside accesses by element ----

# Elements of a vector beside accesses by element at most, or those of so many bytes if these are more.
# Accesses by element lie a vector apart in neighbouring threads: with 8 bytes, those of a warp span two cache
# lines of 128 bytes, twice as many as elements of 4 bytes need.
#   H200, joins of three odd rows of float, of a copy's speed: 0.98 with vectors of 4, 0.79 with vectors of 2.
MIXED_ELEMENTS = 4  # elements
MIXED_BYTES = 8  # bytes
# Loads by element of one tensor, a window of it, from which on they are what takes time; and the bytes of a
# vector beside them. Those that a warp makes at once lie a vector apart, and the L1 cache serves a line a
# cycle, which has all of them if a vector has no more bytes than this.
#   H200, us, by vectors of 4 and of 1: eleven taps along rows of 159991 float 71 and 39, 3 x 3 pixels of
#   720x1279 float 162 and 113. Of bytes vectors of 8 are as fast as any.
MANY_IN_A_WINDOW = 4  # loads of one tensor
WINDOW_BYTES = 4  # bytes of a vector beside them

# ---- inputs that come from the caches ----

# Cost of an access to an input of fewer dimensions, as a share of one to memory.
#   H200, rows of 4097 bf16 and a bias, of a copy's speed: 0.99 with the bias by element, 0.91 with vectors of
#   the bias, which start at any element.
CACHED_COST = 0.1
# The same for each byte of a vector that is read by element: what a warp reads at once lies a vector apart,
# and the L1 cache serves a line of 128 bytes a cycle. The elements of a short input are all in a few lines.
#   H200: two vectors of bf16 and two of float beside three tensors of bf16 take twice as long as memory does.
#   Two of bf16 beside rows of 4095 of two tensors: 105 us by vectors of 8, 88 by vectors of 4. Points of
#   three and a matrix: 31.1 us by vectors of 2, 29.1 by vectors of 4.
CACHED_BYTE_COST = 0.02


@dataclass(frozen=True, slots=True)
class MergedVectors:
    """The vectors that can cross the dimensions from `dim` on of a fusion's iteration space.

    Attributes:
        dim: the outermost of these dimensions.
        vectors: their width, and their cost together with all other loads and stores.
    """

    dim: int
    vectors: Vectors


class MergedVectorLimits:
    """The possible vectors across several dimensions of a fusion's iteration space.

    Vectors divide the size of the outermost dimension; with `divide_product`, the product of all.

    There are none across broadcasts, sizes that are products or sums of sizes, or in the memory of an input
    that an output may be written into, since lowering cannot prove more of them yet.
    """

    def __init__(
        self,
        fusion: Fusion,
        axes: Sequence[IterDomain],
        accesses: Sequence[Access],
        divide_product: bool = False,
    ) -> None:
        self._extents = [axis.extent for axis in axes]
        #: from the innermost dimensions on: where what is read by index goes along, and where it does not
        self._lanes: list[tuple[_Lanes, _Lanes]] = []
        if any(output.alias is not None for output in fusion.outputs):
            return
        for dim in range(len(axes) - 2, -1, -1):
            if any(axis.is_broadcast or not isinstance(axis.extent, (Symbol, Const)) for axis in axes[dim:]):
                break
            whole = (product([axis.extent for axis in axes[dim:]]),)
            sizes = whole if divide_product else divisors(axes[dim].extent)
            plain = [access for access in accesses if _is_run(access, axes[dim:])]
            indexed = [access for access in accesses if _indexed_run(access, axes[dim:]) is not None]
            without = _lanes(fusion, axes, dim, accesses, plain, sizes)
            along = without
            if indexed:
                along = _lanes(fusion, axes, dim, accesses, [*plain, *indexed], sizes, is_aligned=True)
            self._lanes.append((along, without))

    def vectors(self, first: int, facts: Facts) -> list[MergedVectors]:
        """Returns the vectors of a call that go through none of the dimensions left of `first`."""
        if any(facts.value(extent) == 0 for extent in self._extents):
            return []
        found = []
        for along, without in self._lanes:
            if along.dim >= first:
                own, others = along.vectors(facts), without.vectors(facts)
                wider = None
                if others.vectors.width > own.vectors.width:
                    wider = along.with_unaligned(others, facts)
                found.append(wider or own)
        return found


@dataclass(frozen=True, slots=True)
class _Run:
    """An access to which some dimensions are one contiguous run of memory.

    Attributes:
        element_bytes: the size of an element.
        most: the largest number of elements of a vector.
        position: the position of the input that it reads; None for fresh memory, whose other strides are
            multiples of the run's length.
        outer: that input's other dimensions, and their extents.
        sizes: what a vector by index must divide besides; 0 where that is not known.
        by_index: whether the input is read by index.
    """

    element_bytes: int
    most: int
    position: int | None
    outer: tuple[tuple[int, Expr], ...]
    sizes: tuple[int, ...] = ()
    by_index: bool = False

    def width(self, facts: Facts, limit: int) -> int:
        """Returns the widest vector up to `limit` whose addresses are its multiples in this call."""
        return self._aligned(facts, min(limit, self.most))

    def is_aligned(self, width: int, facts: Facts) -> bool:
        """Whether the addresses of vectors of this width are multiples of their size in this call."""
        return self._aligned(facts, width) == width

    def _aligned(self, facts: Facts, width: int) -> int:
        alignment, strides = FRESH_ALIGNMENT, []
        if self.position is not None:
            alignment, own = facts.alignment[self.position], facts.strides[self.position]
            strides = [own[dim] for dim, extent in self.outer if facts.value(extent) > 1]
        return gcd(width, widest_aligned(self.element_bytes, alignment), *strides, *self.sizes)


@dataclass(frozen=True, slots=True)
class _Cached:
    """An access by element that the caches serve.

    Attributes:
        element_bytes: the size of an element.
        count: the number of elements that differ; 0 if neighbours read the same one.
    """

    element_bytes: int
    count: Expr

    def cost(self, width: int, facts: Facts) -> float:
        """Returns the cost per element beside vectors of `width`: by the bytes from what a thread of a warp
        reads to what the next one reads.
        """
        apart = self.element_bytes * min(width, facts.value(self.count) / WARP_SIZE)
        return max(CACHED_COST, CACHED_BYTE_COST * apart)


@dataclass(frozen=True, slots=True)
class _Lanes:
    """The dimensions from `dim` on.

    Attributes:
        sizes: the numbers that a vector must divide.
        runs: the accesses that can be vectors.
        spared: how many of these an element does not need, as they are other parts of a join.
        single: the cost per element of accesses that cannot be vectors, except those served by the caches.
        cached: those.
        widest: the most elements of a vector that all loads among them allow.
        is_aligned: whether every vector starts at an aligned element.
    """

    dim: int
    sizes: tuple[Expr, ...]
    runs: tuple[_Run, ...]
    spared: int
    single: float
    cached: tuple[_Cached, ...] = ()
    widest: int = MAX_VECTOR_BYTES
    is_aligned: bool = False

    def vectors(self, facts: Facts) -> MergedVectors:
        """Returns the vectors of the fewest accesses, if loads may start at any element."""
        if not self.runs:
            return MergedVectors(self.dim, Vectors(1, (), self._by_element(1, facts)))
        divided = MAX_VECTOR_BYTES
        for each in self.sizes:
            divided = power_of_two_divisor(facts.value(each), divided)
        width = divided
        for run in self.runs:
            width = run.width(facts, width)
        widths = [2**n for n in range(width.bit_length())] if self.cached else [width]
        needed = len(self.runs) - self.spared
        found = [Vectors(n, (), needed / n + self._by_element(n, facts)) for n in widths]
        aligned = min(reversed(found), key=lambda vectors: vectors.cost)
        if self.is_aligned or width >= min(divided, self.widest):
            return MergedVectors(self.dim, aligned)
        wide = min(divided, self.widest)
        for run in self.runs:
            if run.position is None:
                wide = run.width(facts, wide)
        across = [run.position for run in self.runs if run.width(facts, wide) < wide]
        positions = tuple(sorted({position for position in across if position is not None}))
        cost = (needed + (UNALIGNED_COST - 1) * len(across)) / wide + self._by_element(wide, facts)
        return MergedVectors(self.dim, Vectors(wide, positions, cost) if cost < aligned.cost else aligned)

    def with_unaligned(self, merged: MergedVectors, facts: Facts) -> MergedVectors | None:
        """Returns the same vectors, if reads by index that are misaligned in this call may start at any
        element; None if the vector is too wide for one access.

        The schedule vectorizes a read by index if its index allows it, and does not know addresses.
        """
        width = merged.vectors.width
        across = set(merged.vectors.unaligned)
        for run in self.runs:
            own = min(width, MAX_VECTOR_BYTES // run.element_bytes)
            is_known = run.by_index and all(size and size % width == 0 for size in run.sizes)
            if not is_known or run.position is None or run.is_aligned(own, facts):
                continue
            if own < width:
                return None
            across.add(run.position)
        return replace(merged, vectors=replace(merged.vectors, unaligned=tuple(sorted(across))))

    def _by_element(self, width: int, facts: Facts) -> float:
        """Returns the cost per element of the accesses that are no vectors, if others are of `width`."""
        return self.single + sum(each.cost(width, facts) for each in self.cached)


def _lanes(
    fusion: Fusion,
    axes: Sequence[IterDomain],
    dim: int,
    accesses: Sequence[Access],
    runs: Sequence[Access],
    sizes: tuple[Expr, ...] | None,
    is_aligned: bool = False,
) -> _Lanes:
    """Returns the vectors across the dimensions from `dim` on.

    Args:
        runs: the accesses that can be vectors.
        sizes: the numbers that a vector must divide; None: there is no vector.
        is_aligned: whether every vector starts at an aligned element.
    """
    lanes = axes[dim:]
    if sizes is None or not runs:
        return _Lanes(dim, (), (), 0, len(accesses))
    single = [access for access in accesses if access not in runs]
    from_memory = [access for access in single if not is_cached(fusion, access, axes)]
    cached = tuple(
        [
            _Cached(access.tensor.dtype.size, product(access.tensor.extents) if differs else ZERO)
            for access, differs in ((access, axes[-1] in access.concrete) for access in single)
            if access not in from_memory
        ]
    )
    others = len(from_memory) - max(0, len(parts_of_joins(fusion, from_memory)) - 1)
    most = _most_beside_windows(fusion, from_memory)
    found = tuple([_run(fusion, each, lanes, most, mixed=others > 0) for each in runs])
    widest = min((run.most for run in found if run.position is not None), default=MAX_VECTOR_BYTES)
    spared = spared_parts(fusion, parts_of_joins(fusion, runs))
    return _Lanes(dim, sizes, found, spared, others, cached, widest, is_aligned)


def parts_of_joins(fusion: Fusion, accesses: Sequence[Access]) -> list[Access]:
    """Returns the loads of a join's parts, of which each element needs one. It needs all of the neighbours
    that a pad has.
    """
    if not any(isinstance(node, Choose) for node in fusion.nodes):
        return []
    return [each for each in accesses if isinstance(each.node, Indexed) and each.node.filled]


def spared_parts(fusion: Fusion, parts: Sequence[Access]) -> int:
    """Returns how many of these parts of joins an element does not need: all but one, unless it needs several
    elements of a join, as a window of it has, or elements of several joins.
    """
    return len(parts) - 1 if count_needed(fusion, parts) == 1 else 0


def count_needed(fusion: Fusion, parts: Sequence[Access]) -> int:
    """Returns how many of these parts of joins an element needs at most: of each choice between them one."""
    # The parts, or choices between parts, of which a value needs one each.
    needed: dict[Val, frozenset[Node]] = {
        part.node.output: frozenset([part.node]) for part in parts if part.node is not None
    }
    nothing: frozenset[Node] = frozenset()
    for node in fusion.ordered_nodes() if needed else ():
        if node.outputs[0] in needed:
            continue
        found = [needed.get(value, nothing) for value in node.inputs]
        if isinstance(node, Choose):
            either = max(found[:2], key=len)
            found[:2] = [frozenset([node]) if len(either) == 1 else either]
        needed.update(dict.fromkeys(node.outputs, nothing.union(*found)))
    return len(nothing.union(*[needed.get(out, nothing) for out in fusion.output_tensors()]))


def is_cached(fusion: Fusion, access: Access, axes: Sequence[IterDomain]) -> bool:
    """Whether an access reads an input of fewer of these dimensions, each of its elements again and again."""
    return fusion.is_input(access.tensor) and any(
        not axis.is_broadcast and axis not in access.concrete for axis in axes
    )


def _is_run(access: Access, lanes: Sequence[IterDomain]) -> bool:
    """Whether an access goes through these dimensions as through one run of memory."""
    if access.by_index:
        return False
    ours = [access.axes.get(axis) for axis in lanes]
    present = [axis for axis in ours if axis is not None]
    return len(present) == len(lanes) and are_one_run(access.tensor, present)


def _indexed_run(access: Access, lanes: Sequence[IterDomain]) -> Run | None:
    """Returns how a load by index goes through these dimensions as through one; None if it does not."""
    if not isinstance(access.node, Indexed) or any(axis not in access.dims for axis in lanes):
        return None
    dims = [access.dims[axis] for axis in lanes]
    run = merged_indexed_run(access.node, dims, unit_stride_axis(access.tensor))
    return run if run is not None and run.moves else None


def mixed_width(element_bytes: int) -> int:
    """Returns the elements of vectors beside accesses by element."""
    return min(MAX_VECTOR_BYTES // element_bytes, max(MIXED_ELEMENTS, MIXED_BYTES // element_bytes))


def _most_beside_windows(fusion: Fusion, single: Sequence[Access]) -> int:
    """Returns the most elements of a vector beside these accesses by element, of which several may be of one
    tensor.
    """
    parts = parts_of_joins(fusion, single)
    counts = Counter(
        access.tensor for access in single if access not in parts and fusion.is_input(access.tensor)
    )
    sizes = [tensor.dtype.size for tensor, count in counts.items() if count >= MANY_IN_A_WINDOW]
    return min((max(1, WINDOW_BYTES // size) for size in sizes if size > 1), default=MAX_VECTOR_BYTES)


def _run(
    fusion: Fusion, access: Access, lanes: Sequence[IterDomain], beside_windows: int, mixed: bool
) -> _Run:
    tensor = access.tensor
    most = mixed_width(tensor.dtype.size) if mixed else MAX_VECTOR_BYTES // tensor.dtype.size
    most = min(most, beside_windows)
    if not fusion.is_input(tensor):
        return _Run(tensor.dtype.size, most, None, ())
    run = _indexed_run(access, lanes) if access.by_index else None
    inside = {access.axes[axis] for axis in lanes} if run is None else set(run.joined)
    outer = tuple(
        (dim, axis.extent)
        for dim, axis in enumerate(tensor.shape)
        if not axis.is_broadcast and axis not in inside
    )
    sizes = () if run is None else tuple([as_int(size) or 0 for size in run.sizes])
    return _Run(tensor.dtype.size, most, fusion.inputs.index(tensor), outer, sizes, run is not None)
