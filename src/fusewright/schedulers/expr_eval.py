"""The scheduler of operations without a kernel: single operations that torch evaluates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from fusewright.core.enums import SchedulerType
from fusewright.core.errors import ScheduleError
from fusewright.core.hardware import HardwareInfo
from fusewright.core.once import cached_property
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Join, LibraryCall, Node
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.base import BuiltInScheduler, Cost, Facts, Planner, Proposal, Reject
from fusewright.schedulers.contraction import ContractionCost, is_contraction
from fusewright.schedulers.params import HeuristicParams


class ExprEvalScheduler(BuiltInScheduler):
    """Accepts a fusion of one node that torch computes: a library call, or an update that no kernel may
    compute. Or of a join, for which nothing is left to do.

    It has no kernel and schedules nothing.
    """

    type = SchedulerType.expr_eval
    params_type = HeuristicParams

    def prepare(self, fusion: Fusion) -> Planner | Reject:
        nodes = [node for node in fusion.nodes if not node.is_scalar]
        others = [node for node in nodes if not (node.traits.whole or node.traits.updates)]
        if others:
            node = others[0]
            return Reject(f"{node.label}, which computes {node.output.name}, belongs in a kernel")
        if len(nodes) != 1:
            return Reject(f"it computes one operation at a time, not {len(nodes)}")
        return _Planner(fusion, nodes[0])

    def apply(self, schedule: Schedule, params: object) -> None:
        raise ScheduleError(
            "the scheduler expr_eval makes no kernel: torch computes the operation",
            hint="execute the fusion without a schedule of your own",
        )


@dataclass(frozen=True, eq=False)
class _Planner:
    """The planner: it has nothing to plan. Contractions have a cost besides their bytes."""

    fusion: Fusion
    node: Node

    @cached_property
    def costs(self) -> ContractionCost | None:
        node = self.node
        if not is_contraction(node) or not isinstance(node, LibraryCall):
            return None
        return ContractionCost(self.fusion, node)

    def __call__(self, facts: Facts, hardware: HardwareInfo) -> Proposal:
        if isinstance(self.node, Join):
            return Proposal(HeuristicParams(reason="the pieces lie where they belong"), _nothing)
        estimate = None if self.costs is None else partial(self.costs, facts, hardware)
        return Proposal(HeuristicParams(reason="torch computes the operation as a whole"), estimate)


def _nothing() -> Cost:
    return Cost(0, 0.0, 0.0)
