"""What serves calls of one fusion whose sizes are new, but that are decided as calls before them were.

Planners take some fifty microseconds a kernel, and binding a program tens. So a few calls are recorded
(`core.recorded`), from the sizes of their inputs to what their program is bound to: a call that answers all
questions of a recording as the recorded one did has the same steps, and all else that its program needs is
computed by straight code.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fusewright.core.collector import paused_collector
from fusewright.core.errors import InternalError
from fusewright.core.recorded import Recorder, RecordingError
from fusewright.host.inputs.binding import Binding
from fusewright.host.program.programs import BoundProgram, Template
from fusewright.host.reuse.rebinding import Numbers, Rebinding
from fusewright.host.reuse.stable_sizes import StableSizes
from fusewright.sym import Symbol

logger = logging.getLogger("fusewright")

# Calls of one kind that are recorded at most: a recording takes some milliseconds, and whether it holds a
# microsecond or more.
MAX_RECORDINGS = 8

#: What decides a call, asked with recorded numbers: the program before it is bound, and what to bind it to.
#: None: it is another than what was decided, or planners may read more than they are told.
Decide = Callable[[Binding], tuple[Template, tuple[Any, ...]] | None]


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call that others are served as.

    Attributes:
        values: what the program of a call is bound to, by its numbers; None: it is no such call.
        template: that program. stable: the sizes that it takes to be constant.
    """

    values: Callable[[Sequence[int]], tuple[Any, ...] | None]
    template: Template
    stable: frozenset[Symbol]


class Kind:
    """Calls whose inputs differ in nothing but their numbers (`Rebinding.split`), with the same options.

    Safe to use from several threads without a lock: what one of them adds, another may at worst replace.

    Attributes:
        first: what the first one is bound to.
        recorded: those of them that were recorded.
    """

    __slots__ = ("first", "recorded", "_left", "_is_due")

    def __init__(self, first: Binding) -> None:
        self.first = first
        self.recorded: tuple[RecordedCall, ...] = ()
        self._left = MAX_RECORDINGS
        self._is_due = False

    def find(self, numbers: Numbers, rebinding: Rebinding, stable_sizes: StableSizes) -> BoundProgram | None:
        """The program of a call that is decided as a recorded one was.

        Raises:
            ScheduleError: the launch is refused; the call is to be decided anew.
        """
        for each in self.recorded:
            if each.stable and not stable_sizes.are_still(each.stable):
                continue
            values = each.values(numbers)
            if values is not None:
                binding = partial(rebinding.bound, self.first, numbers)
                return BoundProgram(each.template, values, each.stable, binding)
        return None

    def note(
        self,
        numbers: Numbers,
        rebinding: Rebinding,
        stable: frozenset[Symbol],
        decide: Decide,
        repro: Callable[[], str],
    ) -> None:
        """Records the second call of its kind that comes here, and later each second one.

        repro: a script that reproduces the call, for faults.
        """
        if not self._left:
            return
        if not self._is_due:
            self._is_due = True
            return
        self._left, self._is_due = self._left - 1, False
        recorder = Recorder(numbers, rebinding.ranges(numbers))
        try:
            with paused_collector():
                decided = decide(rebinding.bound(self.first, recorder.numbers, stable))
                recorded = (
                    None
                    if decided is None
                    else RecordedCall(recorder.compiled(decided[1]), decided[0], stable)
                )
        except RecordingError:
            recorded = None
        except Exception as error:
            # A planner, or the binding, does with a number what there are no words for.
            problem = f"a call cannot be recorded: {error}\nCalls like it are decided one by one."
            logger.error("%s", InternalError(problem=problem, repro=repro()), exc_info=error)
            recorded = None
        if recorded is None:
            self._left = 0
        else:
            self.recorded = (*self.recorded, recorded)
