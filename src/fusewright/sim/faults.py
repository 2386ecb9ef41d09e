"""Faults of a lane, before the machine adds their position."""

from __future__ import annotations

from fusewright.core.errors import SimulationError


class Fault(Exception):
    """Raised by the parts of the simulator; the machine converts it to a `kind` with its position.

    Args:
        kind: the class of error to raise.
        problem: the sentence that describes it; a `{other}` in it is replaced by the other party of a race.
        lane: linear number of the lane, block * threads + thread; None is the first active lane.
        facts: further facts of the error. `other_block` and `other_thread` are linear, None for "several".
    """

    def __init__(
        self, kind: type[SimulationError], problem: str, lane: int | None = None, **facts: object
    ) -> None:
        super().__init__(problem)
        self.kind, self.problem, self.lane, self.facts = kind, problem, lane, facts
