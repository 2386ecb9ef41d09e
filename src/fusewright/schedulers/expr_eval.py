"""What no kernel computes: a single operation that torch evaluates."""

from __future__ import annotations

from fusewright.core.enums import SchedulerType
from fusewright.core.errors import ScheduleError
from fusewright.core.hardware import HardwareInfo
from fusewright.ir.fusion import Fusion
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.base import BuiltInScheduler, Facts, Planner, Proposal, Reject
from fusewright.schedulers.params import HeuristicParams


class ExprEvalScheduler(BuiltInScheduler):
    """Takes a fusion of one node that torch computes: one of a library, or an update where no kernel may be.

    There is no kernel, so nothing to schedule.
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
        return _plan

    def apply(self, schedule: Schedule, params: object) -> None:
        raise ScheduleError(
            "the scheduler expr_eval makes no kernel: torch computes the operation",
            hint="execute the fusion without a schedule of your own",
        )


def _plan(facts: Facts, hardware: HardwareInfo) -> Proposal:
    return Proposal(HeuristicParams(reason="torch computes the operation as a whole"))
