"""A user's schedules once they are finished: what a call is given in place of automatic ones."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from fusewright.schedule import Schedule
from fusewright.schedulers import HeuristicParams


class FinishedSchedule:
    """A schedule of a whole fusion that nobody changes any more. Compared by identity.

    Args:
        params: what an automatic scheduler applied to it at the user's request, if one did; the compiler
            takes the index type and the limit of registers from there.

    Attributes:
        text: the printed primitives, which replay: equal for schedules of one fusion that are lowered to
            the same kernel.
        key: equal for those that are compiled to the same one: the text, and what of the params the compiler
            reads.
    """

    def __init__(self, schedule: Schedule, params: Any = None) -> None:
        self.schedule = schedule
        self.params = params
        cparams = params.cparams if isinstance(params, HeuristicParams) else None
        self.text = schedule.to_python()
        self.key: Hashable = self.text, cparams


@dataclass(frozen=True, slots=True)
class SegmentSchedules:
    """How some segments of a call are scheduled; the others are automatic.

    Attributes:
        by_index: the place of a segment in launch order and, for it, params of its scheduler, or a function
            that schedules the `Schedule` it is given. Functions are compared by identity.
    """

    by_index: tuple[tuple[int, HeuristicParams | Callable[[Schedule], object]], ...]
