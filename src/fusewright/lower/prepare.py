"""Checks the preconditions of lowering on a scheduled fusion, so that the rules need not check them."""

from __future__ import annotations

from fusewright.analyze.axis_map import sibling_keys
from fusewright.core.errors import InternalError, ScheduleError
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node
from fusewright.ir.verify import verify_fusion
from fusewright.schedule.completion import accumulated_in_memory


def check_scheduled(fusion: Fusion) -> None:
    """Checks the work of `Schedule.complete` and of the user.

    Raises:
        ScheduleError: results that one statement computes are scheduled differently.
        VerifyError: the fusion is not well-formed, because of its scheduler.
        InternalError: the schedule was not completed.
    """
    verify_fusion(fusion, "scheduling")
    for node in fusion.nodes:
        if not node.is_scalar:
            _check_siblings(node)
    for tensor in accumulated_in_memory(fusion):
        raise InternalError(problem=f"{tensor.name} is to be accumulated outside of registers")


def _check_siblings(node: Node) -> None:
    first, *others = node.tensor_outputs
    for other in others:
        ours, theirs = sibling_keys(first, other)
        bound, elsewhere = ([a.parallel for a in t.loop] for t in (first, other))
        if ours != theirs or bound != elsewhere:
            raise ScheduleError(
                f"{other.name} is computed together with {first.name} but transformed differently",
                expected=str(first),
                given=str(other),
                hint=f"transform_like and parallelize_like make {other.name} follow {first.name}",
            )
