"""What planners of reductions derive from a fusion, once for all calls."""

from __future__ import annotations

from dataclasses import dataclass

from fusewright.core.once import cached_property
from fusewright.ir.fusion import Fusion
from fusewright.schedulers.base import Facts
from fusewright.schedulers.cost import CostModel
from fusewright.schedulers.held_rows import longest_chain, state_bytes
from fusewright.schedulers.io import VectorLimits
from fusewright.schedulers.reduction_space import ReductionSpace
from fusewright.schedulers.shifted_rows import ShiftedRows, rows_of_reductions


@dataclass(frozen=True, eq=False)
class ReductionPlanner:
    """A base of planners, which derive params from the sizes of a call."""

    fusion: Fusion
    space: ReductionSpace

    @cached_property
    def _cost(self) -> CostModel:
        return CostModel(self.fusion, self.space.sectors(self.fusion))

    @cached_property
    def _vectors(self) -> VectorLimits | None:
        return self.space.vector_limits(self.fusion)

    @cached_property
    def _shifted(self) -> ShiftedRows:
        return rows_of_reductions(self.fusion, self.space)

    @cached_property
    def state_bytes(self) -> int:
        """Of what a thread passes on to the others that share its reductions."""
        return state_bytes(self.fusion)

    @cached_property
    def chain(self) -> int:
        """How many reductions depend on one another: how often what is not held is read again."""
        return longest_chain(self.fusion)

    def _width(self, facts: Facts) -> int:
        """Elements of the widest vector that is aligned in every row."""
        return self._vectors.width(facts) if self._vectors is not None else 1
