"""Rows whose vectors begin at aligned addresses, whatever their length and their place.

The rows of a tensor of 8191 x 4097 elements begin anywhere. Shifted by how far each begins beyond an aligned
address, its vectors are aligned, but for the first and the last, which are not whole. Tensors whose rows lie
otherwise (weights, other strides or addresses) are loaded in vectors that start at any element.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fusewright.analyze.vectorize import unit_stride_axis
from fusewright.core.hardware import KIB, MAX_VECTOR_BYTES
from fusewright.core.once import cached_property
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.schedulers.base import Facts
from fusewright.schedulers.io import (
    FRESH_ALIGNMENT,
    UNALIGNED_COST,
    VectorLimits,
    Vectors,
    are_long,
    unaligned_pieces,
)
from fusewright.schedulers.params import ReductionParams
from fusewright.schedulers.reduction_space import ReductionSpace
from fusewright.schedulers.reference_map import Access
from fusewright.sym import Expr

# Elements of a row below which its two edges cost more than vectors save.
LEAST_SHIFTED = 512
# Bytes of an access from which on shifted vectors are not known to be faster (of 2 bytes they are: softmax),
# and of rows of so many bytes. (An H200, softmax by vectors of 16 bytes and of 4, of a copy's speed: 4,097
# floats 1.00 and 0.94, 50,257 floats 0.95 and 0.58, 50,258 bfloat16 0.95 and 0.76.)
ENOUGH_BYTES, ENOUGH_OF_LONG_ROWS, LONG_ROW = 4, 8, 16 * KIB


def is_narrow(width: int, other: Vectors, enough: int = ENOUGH_BYTES) -> bool:
    """Whether vectors of `width` elements are so narrow that `other` ones, of 16 bytes, pay. `enough`: bytes
    from which on they do not.
    """
    return width * MAX_VECTOR_BYTES < enough * other.width


def is_narrow_to_stage(width: int, other: Vectors, shares_loads: bool) -> bool:
    """Whether vectors of `width` elements are so narrow that rows pay that are staged in `other` ones.

    So they are of 4 bytes, too, unless rows read something in common (an H200: softmax of 258 elements 0.90
    of a copy's speed so, 0.82 by pairs, 1002 0.96 and 0.88, 257 floats 0.99 and 0.87; layer norm of 514 0.75
    and 0.78).
    """
    return is_narrow(width, other, ENOUGH_BYTES if shares_loads else ENOUGH_BYTES + 1)


def wider_vectors(
    fusion: Fusion,
    space: ReductionSpace,
    limits: VectorLimits | None,
    shifted: ShiftedRows,
    aligned: int,
    facts: Facts,
    enough: int = ENOUGH_BYTES,
) -> tuple[Vectors, bool] | None:
    """Vectors of rows that pay where aligned ones are narrow; None where there are none, or aligned ones of
    `enough` bytes do (of ENOUGH_BYTES, where some would be loaded from any element on).

    The bool says whether the vectors of each row begin at an aligned address of its own.

    Inputs with unaligned vectors have an element for each point: those of weights cost more than they save
    (layer norm on an H200).

    aligned: elements of the aligned ones.
    """
    anywhere = limits.vectors(facts, aligned) if limits is not None else None
    for found, shifts in ((anywhere, False), (shifted.vectors(facts), True)):
        if found is None or not is_narrow(aligned, found, ENOUGH_BYTES if found.unaligned else enough):
            continue
        if space.are_read_in_full([fusion.inputs[i] for i in found.unaligned]):
            return found, shifts
    return None


def with_wider_vectors(params: ReductionParams, vectors: Vectors, shifts: bool) -> ReductionParams:
    """As `params`, with vectors that `wider_vectors` found."""
    how = "aligned by the start of each row" if shifts else "loaded from any element on"
    return replace(
        params, shift_rows=shifts, unaligned_inputs=vectors.unaligned, reason=f"{params.reason}; {how}"
    )


def aligned_rows(space: ReductionSpace) -> TensorView | None:
    """At whose aligned addresses vectors begin: an output of all dimensions, else the main load."""
    access = _aligned(space)
    return access.tensor if access is not None else None


def _aligned(space: ReductionSpace) -> Access | None:
    full = [access for access in space.stores if space.has_every_element(access.tensor)]
    if full:
        return full[0]
    return space.main if space.main is not None and space.is_full(space.main) else None


@dataclass(frozen=True)
class _Port:
    """An access along the rows.

    Attributes:
        element_bytes: of its dtype.
        position: of the input that it reads; None for fresh memory.
        is_full: whether it has an element for each point.
        is_alike: whether its rows lie as the aligned ones do, if its address is aligned.
        pieces: that vectors may start at any element instead: the sizes at whose multiples they are parted;
            None: they may not.
    """

    element_bytes: int
    position: int | None
    is_full: bool
    is_alike: bool
    pieces: tuple[Expr, ...] | None

    def is_aligned(self, width: int, facts: Facts) -> bool:
        """Whether its vectors are aligned where those of the aligned rows are."""
        at = FRESH_ALIGNMENT if self.position is None else facts.alignment[self.position]
        return self.is_alike and at % (width * self.element_bytes) == 0


class ShiftedRows:
    """What shifted vectors a fusion can have along its rows.

    Args:
        axes: the reference's, in the order of its dimensions.
        inner: that which vectors go along.
        accesses: all loads and stores that are no broadcasts of one element.
        aligned: that at whose aligned addresses vectors begin. None: there are no shifted vectors.
        as_one: whether all dimensions are one row, of which vectors go across the ends of `inner`.
    """

    def __init__(
        self,
        fusion: Fusion,
        axes: Sequence[IterDomain],
        inner: IterDomain | None,
        accesses: Sequence[Access],
        aligned: Access | None,
        as_one: bool = False,
    ) -> None:
        self._ports: list[_Port] = []
        self._count = len(accesses)
        points = [axis for axis in axes if not axis.is_broadcast]
        self._order: list[IterDomain] = []
        self._full = sum(access.concrete.issuperset(points) for access in accesses)
        if aligned is None or inner is None or aligned.by_index:
            return
        order = _memory_order(aligned, axes)
        if not order or order[-1] is not inner:
            return
        if [aligned.axes.get(axis) for axis in axes] != list(aligned.tensor.shape):
            return  # whose dimensions are others than the loops'
        self._order = order
        outputs = {output.tensor: output.alias for output in fusion.outputs if output.alias is not None}
        for access in accesses:
            unit = unit_stride_axis(access.tensor)
            if unit is None or access.axes.get(inner) is not unit:
                continue  # element by element
            is_input = fusion.is_input(access.tensor)
            pieces = unaligned_pieces(fusion, access, inner)
            if as_one and pieces is not None:
                pieces = (*pieces, inner.extent)
            is_own = access.tensor not in outputs and access.tensor not in outputs.values()
            self._ports.append(
                _Port(
                    access.tensor.dtype.size,
                    fusion.inputs.index(access.tensor) if is_input else None,
                    access.concrete.issuperset(points),
                    is_own and not access.by_index and _memory_order(access, axes) == order,
                    pieces,
                )
            )

    @property
    def are_all(self) -> bool:
        """Whether all loads and stores go along the rows."""
        return len(self._ports) == self._count

    def vectors(self, facts: Facts) -> Vectors | None:
        """The widest ones of all accesses that go along the rows; None if there are none in this call."""
        if not self._ports:
            return None
        width = _narrowest(self._ports)
        unaligned: set[int] = set()
        across = 0
        for port in self._ports:
            if port.is_aligned(width, facts):
                continue
            if port.position is None or not are_long(port.pieces, facts):
                return None
            unaligned.add(port.position)
            across += 1
        return self._found(width, unaligned, (self._count + (UNALIGNED_COST - 1) * across) / width)

    def run(self, axes: Iterable[IterDomain], facts: Facts) -> int:
        """The elements of vectors along rows that follow one another in memory, as one run over `axes`; 0 if
        there are none, as something of all points lies otherwise.
        """
        full = self._full_ports
        if not full or len(full) < self._full or [a for a in axes if not a.is_broadcast] != self._order:
            return 0
        width = _narrowest(full)
        return width if all(port.is_aligned(width, facts) for port in full) else 0

    @cached_property
    def _full_ports(self) -> list[_Port]:
        return [port for port in self._ports if port.is_full]

    @staticmethod
    def _found(width: int, unaligned: set[int], cost: float) -> Vectors | None:
        return Vectors(width, tuple(sorted(unaligned)), cost) if width > 1 else None


def _narrowest(ports: Sequence[_Port]) -> int:
    """Elements of vectors of which no access takes more than one."""
    return min([MAX_VECTOR_BYTES // port.element_bytes for port in ports])


def _memory_order(access: Access, axes: Sequence[IterDomain]) -> list[IterDomain] | None:
    """The reference's axes as they lie in memory without gaps; None if they do not, or some are absent."""
    tensor = access.tensor
    if not all(dense for dense in tensor.contiguity if dense is not None):
        return None
    if not access.concrete.issuperset(axis for axis in axes if not axis.is_broadcast):
        return None
    ours: dict[IterDomain, IterDomain] = {theirs: axis for axis, theirs in access.axes.items()}
    memory: Sequence[IterDomain] = [axis for axis in tensor.allocation if not axis.is_broadcast]
    return [ours[axis] for axis in memory] if all(axis in ours for axis in memory) else None


def rows_of_reductions(fusion: Fusion, space: ReductionSpace) -> ShiftedRows:
    """The shifted vectors along reduced rows, which are one run of memory each."""
    inner = space.inner_axis if space.is_inner else None
    accesses, axes = (*space.loads, *space.stores), space.reference.logical
    aligned = _aligned(space)
    if aligned is not None:
        order = _memory_order(aligned, axes) or []
        if set(order[len(order) - len(space.reduction) :]) != set(space.reduction):
            aligned = None
    return ShiftedRows(fusion, axes, inner, accesses, aligned)
