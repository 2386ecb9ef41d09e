"""Serves calls of one fusion whose sizes are new but decided like earlier ones.

Planners take some fifty microseconds per kernel, and binding a program takes tens. So a few calls are
recorded (`core.recorded`), from the sizes of their inputs to the values that their program is bound to. A
call that answers all questions of a recording like the recorded call has the same steps, and straight-line
code computes all other values that its program needs.
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

#: Decides a call with recorded numbers: returns the program before it is bound, and the values to bind it to.
#: None: the decision differs from the original one, or planners may read more than their arguments.
Decide = Callable[[Binding], tuple[Template, tuple[Any, ...]] | None]


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call like which others are served.

    Attributes:
        values: the values that the program of a call is bound to, as a function of its numbers; None: it is
            not such a call.
        template: that program.
        stable: the sizes that it has as constants.
    """

    values: Callable[[Sequence[int]], tuple[Any, ...] | None]
    template: Template
    stable: frozenset[Symbol]


class Kind:
    """Calls whose inputs differ only in their numbers (`Rebinding.split`), with the same options.

    Several threads may use it without a lock: at worst, one replaces what another has added.

    Attributes:
        first: the values that the first one is bound to.
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
