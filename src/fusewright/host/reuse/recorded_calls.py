"""Serves calls of one fusion whose sizes are new, if all decisions are those of an earlier call.

Planners take tens of microseconds per kernel, and so does binding a program. So a few calls are recorded
(`core.recorded`), from the sizes of their inputs to the values that their program is bound to. If the
conditions that a recording tested have the same results for another call, that call has the same steps, and
straight-line code computes all values that its program needs.
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

# The most calls of one kind that are recorded. To make a recording takes milliseconds, and to test whether it
# serves a call takes a microsecond or more.
MAX_RECORDINGS = 8

#: Decides a call with recorded numbers. Returns the program before it is bound, and the values to bind it to.
#: Returns None if the decision differs from the original one, or if a planner may read more than its
#: arguments.
Decide = Callable[[Binding], tuple[Template, tuple[Any, ...]] | None]


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """The recording of one call, which serves other calls.

    Attributes:
        values: a function from the numbers of a call to the values that its program is bound to. It returns
            None for a call that the recording does not serve.
        template: the program before it is bound.
        stable: the sizes that are constants in the program.
    """

    values: Callable[[Sequence[int]], tuple[Any, ...] | None]
    template: Template
    stable: frozenset[Symbol]


class Kind:
    """Calls whose inputs differ only in their numbers (`Rebinding.split`), with the same options.

    Several threads may use it without a lock: at worst, one replaces what another has added.

    Attributes:
        first: the binding of the first call.
        recorded: the recordings of some of the calls.
    """

    __slots__ = ("first", "recorded", "_left", "_is_due")

    def __init__(self, first: Binding) -> None:
        self.first = first
        self.recorded: tuple[RecordedCall, ...] = ()
        self._left = MAX_RECORDINGS
        self._is_due = False

    def find(self, numbers: Numbers, rebinding: Rebinding, stable_sizes: StableSizes) -> BoundProgram | None:
        """The program of a call that a recording serves; None if none does.

        Raises:
            ScheduleError: the launch is refused. The caller must decide the call anew.
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
        """Records every second call that no recording serves, up to MAX_RECORDINGS.

        repro: makes a script that reproduces the call, for faults.
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
            # A planner, or the binding, applies an operation to a number that `Recorder` does not support.
            problem = f"a call cannot be recorded: {error}\nCalls like it are decided one by one."
            logger.error("%s", InternalError(problem=problem, repro=repro()), exc_info=error)
            recorded = None
        if recorded is None:
            self._left = 0
        else:
            self.recorded = (*self.recorded, recorded)
