"""What no kernel computes: a single operation that torch evaluates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from fusewright.core.enums import SchedulerType
from fusewright.core.errors import ScheduleError
from fusewright.core.hardware import HardwareInfo
from fusewright.core.once import cached_property
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import LibraryCall, Node
from fusewright.ir.value import TensorView
from fusewright.rewrite.proposed.split_k import is_plain_product, split_k
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.base import BuiltInScheduler, Facts, Part, Planner, Proposal, Reject, Rewrite
from fusewright.schedulers.contraction import ContractionCost, Product, is_contraction, product_of
from fusewright.schedulers.cost import KERNEL_SECONDS
from fusewright.schedulers.params import HeuristicParams
from fusewright.schedulers.sizes import power_of_two_at_most

# The least length of a part that a product is cut into: a tile's pipeline of loads is filled and drained once
# for each.
LEAST_PART = 512


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
        return _Planner(fusion, nodes[0])

    def apply(self, schedule: Schedule, params: object) -> None:
        raise ScheduleError(
            "the scheduler expr_eval makes no kernel: torch computes the operation",
            hint="execute the fusion without a schedule of your own",
        )

    def propose_redefinition(self, part: Part, facts: Facts, hardware: HardwareInfo) -> Rewrite | None:
        """A product of few tiles as the sum of the products of parts."""
        (node,) = part.nodes
        if not is_plain_product(node) or not isinstance(node, LibraryCall):
            return None
        if not isinstance(part.planner, _Planner) or (costs := part.planner.costs) is None:
            return None
        cost = costs(facts, hardware)
        product = _rounded(product_of(costs.node, facts))
        parts = min(hardware.sm_count // max(1, product.tiles), product.inner // LEAST_PART)
        if parts < 2 or cost.seconds <= cost.least_seconds + KERNEL_SECONDS:
            return None
        count = power_of_two_at_most(parts)

        def replace(graph: Fusion) -> dict[TensorView, TensorView]:
            return split_k(graph, node, count)

        reason = f"{product.tiles} tile(s) leave most of the GPU idle: {count} parts of what is summed over"
        return Rewrite("split-K", replace, reason)


@dataclass(frozen=True, eq=False)
class _Planner:
    """There is nothing to plan; contractions have a cost besides their bytes."""

    fusion: Fusion
    node: Node

    @cached_property
    def costs(self) -> ContractionCost | None:
        node = self.node
        if not is_contraction(node) or not isinstance(node, LibraryCall):
            return None
        return ContractionCost(self.fusion, node)

    def __call__(self, facts: Facts, hardware: HardwareInfo) -> Proposal:
        estimate = None if self.costs is None else partial(self.costs, facts, hardware)
        return Proposal(HeuristicParams(reason="torch computes the operation as a whole"), estimate)


def _rounded(product: Product) -> Product:
    """The same for all calls of a size class, whose sums then do not depend on which of them came first."""
    rows, columns = power_of_two_at_most(product.rows), power_of_two_at_most(product.columns)
    return Product(product.batch, rows, columns, power_of_two_at_most(product.inner))
