"""Finds the primitive of a schedule that causes an error at lowering."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence

from fusewright.core.call_sites import location_of
from fusewright.core.errors import FusewrightError
from fusewright.ir.fusion import Fusion
from fusewright.schedule.schedule import Schedule, replay
from fusewright.schedule.text import call_text
from fusewright.schedule.trace import Call

# Each call is tried twice at most, so a longer schedule has its last calls tried.
MAX_CALLS = 128

_TENSOR = re.compile(r"\bT\d+\w*")


def name_primitive(error: FusewrightError, schedule: Schedule, lower: Callable[[Fusion], object]) -> None:
    """Has an error that lowering a schedule raised tell which primitive leads to it, if one does."""
    found = _at_fault(schedule, error, lower)
    if found is None:
        return
    how, i = found
    site = schedule.call_sites[i]
    where = "" if site is None else f" at {location_of(site).place}"
    error.primitive = f"{how} {call_text(schedule.trace()[i], schedule.name_of)}{where}"


def _at_fault(
    schedule: Schedule, error: FusewrightError, lower: Callable[[Fusion], object]
) -> tuple[str, int] | None:
    """How a primitive leads to an error, and its place in the trace.

    That is the last one without which the schedule lowers, else the one after which this error stays. None:
    the unscheduled fusion has the error, too.
    """
    trace = schedule.trace()

    def outcome(calls: Sequence[Call]) -> Hashable:
        try:
            part = replay(schedule.original, calls)
            part.complete()
            lower(part.fusion)
        except Exception as other:  # whatever a schedule with a gap leads to
            return _kind(other)
        return None

    wanted = _kind(error)
    if outcome(()) == wanted:
        return None
    places = range(len(trace) - 1, max(-1, len(trace) - 1 - MAX_CALLS), -1)
    for i in places:
        # Without one that makes tensors, the numbers of later ones mean other tensors.
        if not trace[i].added and outcome((*trace[:i], *trace[i + 1 :])) is None:
            return "caused by", i
    return next((("there since", i) for i in places if outcome(trace[:i]) != wanted), None)


def _kind(error: Exception) -> Hashable:
    """Equal for errors that are raised for one reason: at one line, about the same tensors."""
    trace = error.__traceback__
    line = None
    while trace is not None:
        line = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
    return type(error), line, frozenset(_TENSOR.findall(str(error.args[0]) if error.args else ""))
