"""What planners of reductions derive from a fusion, once for all calls."""

from __future__ import annotations

from dataclasses import dataclass

from fusewright.core.hardware import MAX_VECTOR_BYTES
from fusewright.core.once import cached_property
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Reduction
from fusewright.ir.value import TensorView
from fusewright.schedulers.base import Facts
from fusewright.schedulers.cost import CostModel
from fusewright.schedulers.reduction.space import ReductionSpace
from fusewright.schedulers.reduction.step_loads import StepLoads
from fusewright.schedulers.reduction.wider_vectors import (
    DimensionsInside,
    SeveralDimensions,
    dimensions_inside,
    rows_of_reductions,
)
from fusewright.schedulers.shifted_rows import ShiftedRows
from fusewright.schedulers.vector_limits import VectorLimits, shared_width


@dataclass(frozen=True, eq=False)
class ReductionPlanner:
    """A base of planners, which derive params from the sizes of a call."""

    fusion: Fusion
    space: ReductionSpace

    @cached_property
    def _cost(self) -> CostModel:
        return CostModel(self.fusion, self.space.sectors(self.fusion))

    @cached_property
    def _cost_along_memory(self) -> CostModel:
        """The costs of threads that go along rows of memory and on to the next, whichever dimension is
        reduced.
        """
        return CostModel(self.fusion, self.space.sectors_along_memory(self.fusion))

    @cached_property
    def step_loads(self) -> StepLoads:
        return StepLoads(self.fusion, self.space)

    @cached_property
    def _vectors(self) -> VectorLimits | None:
        return self.space.vector_limits(self.fusion)

    @cached_property
    def _shifted(self) -> ShiftedRows:
        return rows_of_reductions(self.fusion, self.space)

    @cached_property
    def state_bytes(self) -> int:
        """The bytes that the reductions across a block exchange for each of its threads."""
        states = {
            tuple(out.dtype for out in n.outputs) for n in self.fusion.nodes if isinstance(n, Reduction)
        }
        return sum(dtype.size for dtypes in states for dtype in dtypes)

    @cached_property
    def chain(self) -> int:
        """The length of the longest chain of dependent reductions: how often data that is not held is read
        again.
        """
        depth: dict[TensorView, int] = {}
        for node in self.fusion.ordered_nodes():
            before = max((depth[t] for t in node.tensor_inputs if t in depth), default=0)
            for out in node.outputs:
                if isinstance(out, TensorView):
                    depth[out] = before + isinstance(node, Reduction)
        return max(depth.values(), default=0)

    @cached_property
    def reductions(self) -> int:
        """The number of reductions."""
        return sum(isinstance(node, Reduction) for node in self.fusion.nodes)

    @cached_property
    def _inside(self) -> DimensionsInside | None:
        return dimensions_inside(self.fusion, self.space)

    def _through_several(self, facts: Facts) -> SeveralDimensions | None:
        """Returns vectors through several dimensions, where those along one are narrower; else None."""
        return self._inside.through_several(self._width(facts), facts) if self._inside is not None else None

    def _width(self, facts: Facts) -> int:
        """Returns the elements of the widest vector that is aligned in every row."""
        return self._vectors.width(facts) if self._vectors is not None else self._shared_width(facts)

    def _shared_width(self, facts: Facts) -> int:
        """Returns the elements of the widest vector for which each load is one element, such as that of eight
        elements that are transformed together; 1 if neighbours load different ones.

        H200, 8192x4096 bf16 transformed so, and the maximum of each row: 33 us in vectors of 8, 74 by
        element.
        """
        inner = next((a for a in reversed(self.space.reduction) if not a.is_broadcast), None)
        loads = self.space.full_loads
        if inner is None or not loads:
            return 1
        stores = VectorLimits(self.fusion, inner, filter(self.space.is_full, self.space.stores))
        most = MAX_VECTOR_BYTES // max(load.tensor.dtype.size for load in loads)
        return min(stores.width(facts), most, *(shared_width(load, inner, facts) for load in loads))
