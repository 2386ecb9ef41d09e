"""Rows whose vectors start at aligned addresses, whatever their length and position.

The rows of a tensor of 8191 x 4097 elements have any alignment. If each row is shifted by the distance of its
start from an aligned address, all its vectors are aligned, and all except the first and the last are whole.
Tensors whose rows have another alignment (weights, other strides or addresses) are loaded in vectors that
start at any element.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fusewright.analyze.vectorize import unit_stride_axis
from fusewright.core.hardware import KIB, MAX_VECTOR_BYTES
from fusewright.core.once import cached_property
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.schedulers.base import Facts
from fusewright.schedulers.reference_map import Access
from fusewright.schedulers.vector_limits import (
    FRESH_ALIGNMENT,
    UNALIGNED_COST,
    Vectors,
    are_long,
    unaligned_pieces,
)
from fusewright.sym import Expr

# Bytes of an access from which on shifted vectors are not known to be faster; the same of rows of LONG_ROW
# bytes or more.
#   H200, softmax by vectors of 16 bytes and of 4, of a copy's speed: 4097 float 1.00 and 0.94, 50257 float
#   0.95 and 0.58, 50258 bf16 0.95 and 0.76. Of accesses of 2 bytes they are faster. Sums of float, us by
#   vectors and by element: 1024x32769 40.0 and 44.9, 4096x8193 37.1 and 40.9, 16384x4097 70.9 and 72.2; three
#   sums of two inputs (dice) 77.5 and 94.6, 16384x4097 161 and 195.
ENOUGH_BYTES = 4  # bytes of an access
ENOUGH_OF_LONG_ROWS = 8  # bytes of an access to a long row
LONG_ROW = 16 * KIB  # bytes of a row
# The same of rows that are scanned, of which threads pass on a sum of each vector.
#   H200, bf16, running sums so and by element, us: 65536 rows of 257 25 and 39, 131072 of 129 28 and 48, 4096
#   of 4097 25 and 46, 262144 of 65 28 and 51, 524288 of 33 34 and 84; of float 4097 39 and 48, 1023 38 and
#   43; 257 normalized probabilities 30 and 37.
ENOUGH_TO_SCAN = 8
# Elements of a scanned row from which on it is shifted.
LEAST_SCANNED = 32


def enough_bytes(row_bytes: int) -> int:
    """Bytes of an access from which on shifted vectors of rows of `row_bytes` are not known to be faster."""
    return ENOUGH_OF_LONG_ROWS if row_bytes >= LONG_ROW else ENOUGH_BYTES


def is_narrow(width: int, other: Vectors, enough: int = ENOUGH_BYTES) -> bool:
    """Whether vectors of `width` elements are so narrow that `other` ones, of 16 bytes, pay.

    enough: bytes of a vector from which on they do not.
    """
    return width * MAX_VECTOR_BYTES < enough * other.width


@dataclass(frozen=True)
class _Port:
    """An access along the rows.

    Attributes:
        element_bytes: the size of an element.
        position: the position of the input that it reads; None for fresh memory.
        is_full: whether it has an element for each point.
        is_alike: whether its rows have the alignment of the aligned tensor's, if its address is aligned.
        pieces: if vectors may start at any element: the sizes at whose multiples they are split. None: they
            may not.
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
    """The possible shifted vectors of a fusion along its rows.

    Args:
        axes: the reference's axes, in the order of its dimensions.
        inner: the axis along which vectors go.
        accesses: all loads and stores that are not broadcasts of one element.
        aligned: the access at whose aligned addresses vectors start. None: there are no shifted vectors.
        as_one: whether all dimensions are one row, whose vectors cross the ends of `inner`.
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
        order = memory_order(aligned, axes)
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
                    is_own and not access.by_index and memory_order(access, axes) == order,
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
            if port.position is None or not are_long(port.pieces, port.element_bytes, facts):
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


def memory_order(access: Access, axes: Sequence[IterDomain]) -> list[IterDomain] | None:
    """The reference's axes as they lie in memory without gaps; None if they do not, or some are absent."""
    tensor = access.tensor
    if not all(dense for dense in tensor.contiguity if dense is not None):
        return None
    if not access.concrete.issuperset(axis for axis in axes if not axis.is_broadcast):
        return None
    ours: dict[IterDomain, IterDomain] = {theirs: axis for axis, theirs in access.axes.items()}
    memory: Sequence[IterDomain] = [axis for axis in tensor.allocation if not axis.is_broadcast]
    return [ours[axis] for axis in memory] if all(axis in ours for axis in memory) else None
