"""The widest vectors of a kernel along one dimension, as sizes, strides and addresses allow in a call."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from fusewright.analyze.runs import divisors, is_long
from fusewright.analyze.vectorize import power_of_two_divisor, unit_stride_axis, widest_aligned
from fusewright.core.hardware import MAX_VECTOR_BYTES
from fusewright.core.recorded import gcd
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.schedulers.base import Facts
from fusewright.schedulers.reference_map import Access
from fusewright.sym import Const, Expr, product

# Bytes to which torch's allocator aligns a fresh tensor at least: more than any vector needs.
FRESH_ALIGNMENT = 256


@dataclass(frozen=True, slots=True)
class _Limit:
    """The limits on vectors of one access along the unit-stride dimension of a tensor in global memory.

    Attributes:
        element_bytes: the size of an element.
        size: the extent of that dimension.
        position: the position of the input that it reads or may be stored in; None for fresh memory.
        outer: that input's other dimensions, and their extents.
        sizes: further numbers that a vector must divide.
        dense: for a store that may be in an input, the extents from the inside, for separate memory.
        pieces: if vectors may start at any element, at the cost of two accesses: the sizes at whose multiples
            they are split. None: they may not.
        is_split: whether a vector may be several accesses.
    """

    element_bytes: int
    size: Expr
    position: int | None
    outer: tuple[tuple[int, Expr], ...]
    dense: tuple[Expr, ...] = ()
    sizes: tuple[Expr, ...] = ()
    pieces: tuple[Expr, ...] | None = None
    is_split: bool = False

    def width(self, facts: Facts, limit: int) -> int:
        """Returns the widest vector up to `limit`, a power of two, whose addresses are its multiples in this
        call.
        """
        return gcd(limit, *self.multiples(facts))

    def multiples(self, facts: Facts) -> list[int]:
        """Returns the numbers that a vector of a power of two has to divide in this call."""
        alignment = FRESH_ALIGNMENT if self.position is None else facts.alignment[self.position]
        splits = self.is_split and alignment % MAX_VECTOR_BYTES == 0
        widest = MAX_VECTOR_BYTES if splits else widest_aligned(self.element_bytes, alignment)
        found = [widest, facts.value(self.size)]
        if self.position is not None:
            own = facts.strides[self.position]
            found += [own[dim] for dim, size in self.outer if facts.value(size) > 1]
            if self.dense:
                found += _steps([facts.value(size) for size in self.dense])
        if self.sizes:
            found += [facts.value(each) for each in self.sizes]
        return found

    def starts_beside(self, width: int) -> bool:
        """Whether its vectors start at no multiple of their width, whatever the sizes."""
        return any(isinstance(each, Const) and each.value % width for each in self.sizes)

    def starts_anywhere(self, facts: Facts) -> bool:
        """Whether its vectors may start at any element in this call."""
        return are_long(self.pieces, self.element_bytes, facts)


@dataclass(frozen=True, slots=True)
class Vectors:
    """The vectors of a kernel.

    Attributes:
        width: in elements.
        unaligned: positions of the inputs whose vectors may start at any element.
        cost: accesses per element, of all loads and stores along the vectors together.
        keeps_aligned: whether those of `unaligned` that start at multiples of a vector are plain vectors.
        picked: positions of the inputs from whose vectors single elements are taken, backward or every n-th.
    """

    width: int
    unaligned: tuple[int, ...]
    cost: float
    keeps_aligned: bool = False
    picked: tuple[int, ...] = ()


# Cost of a vector that may start anywhere, in accesses: two loads, and as many instructions as a third.
UNALIGNED_COST = 3
# The same if it starts beside aligned vectors, since neighbours share the vectors from which theirs are
# chosen.
#   H200, the seven neighbours in 258x514x258 float: 85 us by vectors of 2 of which five start so, 106 by
#   vectors of 4 that start anywhere.
BESIDE_COST = 1.5


def unaligned_pieces(fusion: Fusion, access: Access, inner: IterDomain) -> tuple[Expr, ...] | None:
    """Returns the sizes at whose multiples vectors of a load along the reference's axis `inner` are split, if
    they may start at any element; None if they may not.

    They may not if an output is stored in the input: neighbouring elements may be written meanwhile.
    """
    tensor = access.tensor
    if not fusion.is_input(tensor) or any(output.alias is tensor for output in fusion.outputs):
        return None
    return access.pieces_along(inner)


def picked_width(fusion: Fusion, access: Access, inner: IterDomain | None, facts: Facts) -> int:
    """Returns the most elements, a power of two, that a load may take from aligned vectors along the
    reference's axis `inner` in this call; it may take fewer, too. 1 if it does not go backward or in steps
    along it, or an output is stored in the input, as for vectors that start anywhere (`unaligned_pieces`).
    """
    tensor = access.tensor
    run = None if inner is None else access.stepped.get(inner)
    if run is None or any(output.alias is tensor for output in fusion.outputs):
        return 1
    position = fusion.inputs.index(tensor)
    apart = ((n, a) for n, a in zip(facts.strides[position], tensor.shape) if a not in run.joined)
    outer = [stride for stride, axis in apart if facts.value(axis.extent) > 1]
    width = MAX_VECTOR_BYTES // tensor.dtype.size
    for size in run.sizes:
        width = power_of_two_divisor(facts.value(size), width)
    while width > 1:
        chunk = run.source_width(tensor.dtype.size, width)
        if facts.alignment[position] % (chunk * tensor.dtype.size) == 0 and gcd(chunk, *outer) == chunk:
            break
        width //= 2
    return width


def are_long(pieces: Iterable[Expr] | None, element_bytes: int, facts: Facts) -> bool:
    """Whether few vectors go across the ends of such pieces in this call."""
    return pieces is not None and all(is_long(facts.value(each), element_bytes) for each in pieces)


def shared_width(access: Access, axis: IterDomain | None, facts: Facts) -> int:
    """Returns the elements of the widest vector along an axis of the reference that read one element of a
    tensor; 1 if neighbours read different ones.
    """
    if axis is None or axis not in access.shared:
        return 1
    width = MAX_VECTOR_BYTES
    for each in access.shared[axis]:
        width = power_of_two_divisor(facts.value(each), width)
    return width


class VectorLimits:
    """The limits on the width of vectors along one dimension of a fusion's iteration space.

    Args:
        inner: the dimension, of the reference.
        accesses: the loads and stores that may be vectors. An access with another unit-stride dimension is
            done element by element and sets no limit.
        split: accesses whose elements are wider than others', so that a vector of them may be several
            accesses.
    """

    def __init__(
        self,
        fusion: Fusion,
        inner: IterDomain,
        accesses: Iterable[Access],
        split: Collection[Access] = (),
    ) -> None:
        #: what must be multiples of the width for the dimension to be one
        self._sizes = divisors(inner.extent)
        accesses = list(accesses)
        self._extents = list({axis.extent: None for access in accesses for axis in access.axes})
        aliases = {output.tensor: output.alias for output in fusion.outputs if output.alias is not None}
        self._limits: list[_Limit] = []
        for access in accesses:
            unit = unit_stride_axis(access.tensor)
            if unit is not None and access.axes.get(inner) is unit:
                home = aliases.get(access.tensor, access.tensor)
                position = fusion.inputs.index(home) if fusion.is_input(home) else None
                joined = access.joined.get(inner, (unit,))
                limit = _limit(access.tensor, joined, position, home is not access.tensor)
                if inner in access.sizes:  # goes along only a part of that dimension, perhaps
                    limit = replace(limit, size=inner.extent, sizes=access.sizes[inner])
                pieces = unaligned_pieces(fusion, access, inner) if home is access.tensor else None
                self._limits.append(replace(limit, pieces=pieces, is_split=access in split))
        sizes = (MAX_VECTOR_BYTES // limit.element_bytes for limit in self._limits if not limit.is_split)
        self._widest = max(1, min(sizes, default=1))

    def width(self, facts: Facts) -> int:
        """Returns the widest vector, in elements, that all of the accesses allow in this call."""
        if self._is_empty(facts):
            return 1  # nothing is accessed, and nothing is known of the other sizes
        return gcd(self._divided(facts), *[each for limit in self._limits for each in limit.multiples(facts)])

    def _is_empty(self, facts: Facts) -> bool:
        return 0 in [facts.value(extent) for extent in self._extents]

    def _divided(self, facts: Facts) -> int:
        """Returns the widest vector that divides the dimension."""
        width = 1 if self._sizes is None else MAX_VECTOR_BYTES
        for each in self._sizes or ():
            width = power_of_two_divisor(facts.value(each), width)
        return width

    def vectors(self, facts: Facts, width: int | None = None) -> Vectors:
        """Returns the vectors with the fewest accesses, if loads may start at any element.

        Args:
            width: of the aligned vectors.
        """
        width = self.width(facts) if width is None else width
        aligned = Vectors(width, (), len(self._limits) / width)
        if width >= self._widest or self._is_empty(facts):
            return aligned
        wide = self._divided(facts)
        for limit in self._limits:
            most = max(1, min(wide, MAX_VECTOR_BYTES // limit.element_bytes))
            wide = most if limit.starts_anywhere(facts) else limit.width(facts, wide)
        wide = max(1, wide)
        widths = [each for each in (2**n for n in range(wide.bit_length())) if width < each <= wide]
        found = [self._from_anywhere(facts, each) for each in reversed(widths)]
        return min([aligned, *found], key=lambda vectors: vectors.cost)

    def _from_anywhere(self, facts: Facts, width: int) -> Vectors:
        """Returns the vectors of a width at which not all accesses are aligned."""
        across = [limit for limit in self._limits if limit.width(facts, width) < width]
        positions = {limit.position for limit in across if limit.position is not None}
        read = [limit for limit in self._limits if limit.position in positions]
        plain = [limit for limit in read if limit.width(facts, width) >= width]
        keeps = bool(plain) and all(limit in plain or limit.starts_beside(width) for limit in read)
        each = BESIDE_COST if keeps else UNALIGNED_COST
        cost = (len(self._limits) + (each - 1) * len(across)) / width
        return Vectors(width, tuple(sorted(positions)), cost, keeps)


def _limit(
    tensor: TensorView, inner: Collection[IterDomain], position: int | None, may_be_elsewhere: bool
) -> _Limit:
    """Returns the limits of a tensor's access.

    Args:
        inner: the dimensions that vectors go along, as through one.
        position: the position of the input that it reads or may be stored in; None for fresh memory.
        may_be_elsewhere: whether it may be stored in that input or in memory of its own.
    """
    size = product([axis.extent for axis in inner])
    if position is None:
        return _Limit(tensor.dtype.size, size, None, ())
    axes = enumerate(tensor.shape)
    outer = tuple((dim, a.extent) for dim, a in axes if a not in inner and not a.is_broadcast)
    order = [a.extent for a in reversed(tensor.allocation) if not a.is_broadcast and not a.is_reduction]
    return _Limit(tensor.dtype.size, size, position, outer, tuple(order) if may_be_elsewhere else ())


def _steps(sizes: Sequence[int]) -> list[int]:
    """Returns the strides of dense memory, from the inside, without the innermost dimension's."""
    steps, step = [], 1
    for size in sizes[:-1]:
        step *= max(size, 1)
        steps.append(step)
    return steps
