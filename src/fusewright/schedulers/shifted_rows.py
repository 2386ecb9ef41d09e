"""Rows whose vectors begin at aligned addresses, whatever their length and their place.

The rows of a tensor of 8191 x 4097 elements begin anywhere. Shifted by how far each begins beyond an aligned
address, its vectors are aligned, but for the first and the last, which are not whole. Tensors whose rows lie
otherwise (weights, other strides or addresses) are loaded in vectors that start at any element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusewright.analyze.vectorize import unit_stride_axis
from fusewright.core.hardware import MAX_VECTOR_BYTES
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.schedulers.base import Facts
from fusewright.schedulers.io import FRESH_ALIGNMENT, UNALIGNED_COST, Vectors, may_start_anywhere
from fusewright.schedulers.reduction_space import ReductionSpace
from fusewright.schedulers.reference_map import Access


def aligned_rows(space: ReductionSpace) -> TensorView | None:
    """At whose aligned addresses vectors begin: an output of all dimensions, else the main load."""
    access = _aligned(space)
    return access.tensor if access is not None else None


def _aligned(space: ReductionSpace) -> Access | None:
    full = [access for access in space.stores if space.is_full(access)]
    if full:
        return full[0]
    return space.main if space.main is not None and space.is_full(space.main) else None


@dataclass(frozen=True)
class _Port:
    """An access along the rows.

    Attributes:
        element_bytes: of its dtype.
        position: of the input that it reads; None for fresh memory.
        is_alike: whether its rows lie as the aligned ones do, if its address is aligned.
        anywhere: whether vectors may start at any element instead.
    """

    element_bytes: int
    position: int | None
    is_alike: bool
    anywhere: bool


class ShiftedRows:
    """What shifted vectors a fusion can have along its rows."""

    def __init__(self, fusion: Fusion, space: ReductionSpace) -> None:
        self._ports: list[_Port] | None = None
        aligned, inner = _aligned(space), space.inner_axis
        if aligned is None or inner is None or not space.is_inner or aligned.by_index:
            return
        order = _memory_order(aligned, space)
        if order is None or [aligned.axes[axis] for axis in space.reference.logical] != list(
            aligned.tensor.shape
        ):
            return
        homes = {output.alias for output in fusion.outputs if output.alias is not None}
        self._ports = []
        for access in (*space.loads, *space.stores):
            unit = unit_stride_axis(access.tensor)
            if unit is None or access.axes.get(inner) is not unit:
                continue  # element by element
            is_input = fusion.is_input(access.tensor)
            aliased = any(out.tensor is access.tensor and out.alias is not None for out in fusion.outputs)
            is_alike = not access.by_index and not aliased and _memory_order(access, space) == order
            self._ports.append(
                _Port(
                    access.tensor.dtype.size,
                    fusion.inputs.index(access.tensor) if is_input else None,
                    is_alike and access.tensor not in homes,
                    is_input and may_start_anywhere(fusion, access, inner),
                )
            )

    def vectors(self, facts: Facts) -> Vectors | None:
        """The widest ones; None if there are none in this call."""
        if not self._ports:
            return None
        width = min(MAX_VECTOR_BYTES // port.element_bytes for port in self._ports)
        unaligned: set[int] = set()
        across = 0
        for port in self._ports:
            at = FRESH_ALIGNMENT if port.position is None else facts.alignment[port.position]
            if port.is_alike and at % (width * port.element_bytes) == 0:
                continue
            if not port.anywhere or port.position is None:
                return None
            unaligned.add(port.position)
            across += 1
        cost = (len(self._ports) + (UNALIGNED_COST - 1) * across) / width
        return Vectors(width, tuple(sorted(unaligned)), cost) if width > 1 else None


def _memory_order(access: Access, space: ReductionSpace) -> list[IterDomain] | None:
    """The reference's axes as they lie in memory without gaps; None if they do not."""
    tensor = access.tensor
    if not space.is_full(access) or not all(dense for dense in tensor.contiguity if dense is not None):
        return None
    ours: dict[IterDomain, IterDomain] = {theirs: axis for axis, theirs in access.axes.items()}
    memory: Sequence[IterDomain] = [axis for axis in tensor.allocation if not axis.is_broadcast]
    return [ours[axis] for axis in memory] if all(axis in ours for axis in memory) else None
