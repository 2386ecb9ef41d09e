"""Checks the preconditions of lowering on a scheduled fusion, so that the rules need not check them."""

from __future__ import annotations

from collections.abc import Iterable

from fusewright.analyze.axis_map import sibling_keys
from fusewright.analyze.scan_axes import scanned_root
from fusewright.core.errors import InternalError, ScheduleError
from fusewright.ir.axis import IterDomain, ancestors, transforms_between
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node, Reduction, Scan
from fusewright.ir.verify import verify_fusion
from fusewright.schedule.completion import accumulated_in_memory


def check_scheduled(fusion: Fusion) -> None:
    """Checks the work of `Schedule.complete` and of the user.

    Raises:
        ScheduleError: tensors that one node computes are scheduled differently, or a reduction or scan is
            shifted along an axis that it accumulates over.
        VerifyError: the scheduler has made a fusion that is not well-formed.
        InternalError: the schedule was not completed.
    """
    verify_fusion(fusion, "scheduling")
    for node in fusion.nodes:
        if not node.is_scalar:
            _check_siblings(node)
        if isinstance(node, (Reduction, Scan)):
            _check_shifts(node)
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


def _check_shifts(node: Reduction | Scan) -> None:
    """Raises ScheduleError if the position in the result depends on the step of the accumulation."""
    out, scans = node.output, isinstance(node, Scan)
    root = out.maybe_root
    along = {scanned_root(node)} if isinstance(node, Scan) else {axis for axis in root if axis.is_reduction}

    def accumulated(axes: Iterable[IterDomain]) -> set[IterDomain]:
        # Axes that rfactor left are not accumulated here: a later reduction does that.
        steps = (axis for axis in axes if scans or axis.is_reduction)
        return {found for axis in steps for found in ancestors(axis, root) if found in along}

    for transform in transforms_between(root, out.loop):
        steps = accumulated(transform.reads)
        if steps and not accumulated(transform.inputs):
            by, moved = next(iter(steps)), transform.inputs[0]
            how = "scanned" if scans else "reduced"
            raise ScheduleError(
                f"{out.name} is {how} along {by}, and {moved} is shifted by the place along that",
                expected="an axis of the result at the same element in each step",
                given=str(transform),
                hint=f"shifted_split is for the axis that {out.name} is {how} along",
            )
