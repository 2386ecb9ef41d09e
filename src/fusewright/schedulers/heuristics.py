"""A user's heuristics, which choose params instead of a scheduler's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from fusewright.core.enums import SchedulerType
from fusewright.core.errors import SchedulerError
from fusewright.core.hardware import HardwareInfo
from fusewright.core.serialization import from_dict
from fusewright.ir.fusion import Fusion
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.base import (
    Facts,
    Part,
    Planner,
    Proposal,
    Reject,
    Rewrite,
    Scheduler,
    heuristic_name,
    naming,
    plan,
    prepare,
    type_name,
)

#: The params that the heuristic before it chooses for a call.
Default = Callable[[Facts, HardwareInfo], Any]
#: `heuristic(facts, hardware, default)` returns params, a dict of what to change in those of the default, a
#: `Proposal`, or a `Reject`. It is asked where the scheduler takes the call, and reads its arguments alone.
Heuristic = Callable[[Facts, HardwareInfo, Default], Any]


@dataclass(frozen=True, eq=False)
class TunedScheduler:
    """An unchanged scheduler whose params `heuristics` choose. Each heuristic wraps those before it."""

    base: Scheduler
    heuristics: tuple[Heuristic, ...]

    @property
    def type(self) -> SchedulerType | str:
        return self.base.type

    @property
    def params_type(self) -> Any:
        return self.base.params_type

    @property
    def fixed_params(self) -> Mapping[str, Any]:
        return getattr(self.base, "fixed_params", {})

    @property
    def merges_last(self) -> bool:
        return bool(getattr(self.base, "merges_last", False))

    def prepare(self, fusion: Fusion) -> Planner | Reject:
        answer = prepare(self.base, fusion)
        return answer if isinstance(answer, Reject) else self.planner(answer)

    def planner(self, own: Planner) -> Planner:
        """The planner that asks the heuristics, given the scheduler's own."""

        def planned(facts: Facts, hardware: HardwareInfo) -> Proposal | Reject:
            return plan(self.base, own, facts, hardware)

        return TunedPlanner(own, self._chain(planned))

    def _chain(self, planner: Planner) -> Planner:
        for heuristic in self.heuristics:
            planner = self._asking(heuristic, planner)
        return planner

    def _asking(self, heuristic: Heuristic, before: Planner) -> Planner:
        def planner(facts: Facts, hardware: HardwareInfo) -> Proposal | Reject:
            usual = before(facts, hardware)
            if isinstance(usual, Reject):
                return usual

            def default(asked: Facts, on: HardwareInfo) -> Any:
                same = asked is facts and on is hardware
                answer = usual if same else before(asked, on)
                return answer.params if isinstance(answer, Proposal) else answer

            step = f"the heuristic {heuristic_name(heuristic)}"
            with naming(self, step):
                answer = heuristic(facts, hardware, default)
                return self._checked(answer, usual, heuristic, step, hardware)

        return planner

    def _checked(
        self, answer: Any, usual: Proposal, heuristic: Heuristic, step: str, hardware: HardwareInfo
    ) -> Proposal | Reject:
        """What a heuristic answered as a proposal, whose reason says who chose it.

        Without an estimate of its own it has that of the default: nothing better is known.
        """
        who, estimate = heuristic_name(heuristic), usual.estimate
        if isinstance(answer, Reject):
            return Reject(f"{answer.reason} (the heuristic {who})")
        if isinstance(answer, Proposal):
            answer, estimate = answer.params, answer.estimate or estimate
        if isinstance(answer, Mapping):
            answer = _changed(usual.params, answer)
        if not isinstance(answer, self.params_type):
            expected = f"{self.params_type.__name__}, a dict of its fields, Proposal or Reject"
            raise SchedulerError(
                scheduler=type_name(self.type), step=step, problem=f"expected {expected}, got {answer!r}"
            )
        answer.validate(hardware)
        own = answer.reason if answer.reason != usual.params.reason else ""
        reason = ": ".join(filter(None, (f"chosen by the heuristic {who}", own)))
        changes = ", ".join(_changes(usual.params, answer))
        reason += f" (changed {changes}; without it: {usual.params.reason})" if changes else ", as without it"
        return Proposal(replace(answer, reason=reason), estimate)

    def apply(self, schedule: Schedule, params: Any) -> None:
        self.base.apply(schedule, params)

    def propose_redefinition(self, part: Part, facts: Facts, hardware: HardwareInfo) -> Rewrite | None:
        propose = getattr(self.base, "propose_redefinition", None)
        if propose is None:
            return None
        planner = part.planner
        own = planner.own if isinstance(planner, TunedPlanner) else planner
        return propose(_PartOf(part.graph, part.nodes, part.fusion, own), facts, hardware)


@dataclass(frozen=True, eq=False)
class TunedPlanner:
    """A planner with a user's heuristics.

    Attributes:
        own: the scheduler's planner, which its `propose_redefinition` receives.
        tuned: the planner with the heuristics.
    """

    own: Planner
    tuned: Planner

    def __call__(self, facts: Facts, hardware: HardwareInfo) -> Proposal | Reject:
        return self.tuned(facts, hardware)


@dataclass(frozen=True, eq=False)
class _PartOf:
    """A `Part` with the scheduler's own planner."""

    graph: Fusion
    nodes: tuple[Any, ...]
    fusion: Fusion
    planner: Planner


def untuned(scheduler: Scheduler) -> Scheduler:
    """The scheduler without a user's heuristics: kernels follow from it and the params."""
    return scheduler.base if isinstance(scheduler, TunedScheduler) else scheduler


def key_of(scheduler: Scheduler) -> tuple[int, ...]:
    """Equal for schedulers that make the same decisions, as long as they live: the same one with the same
    heuristics.
    """
    if isinstance(scheduler, TunedScheduler):
        return id(scheduler.base), *map(id, scheduler.heuristics)
    return (id(scheduler),)


def _changed(params: Any, changes: Mapping[str, Any]) -> Any:
    """Params with other values in these fields; dicts within change fields of what is nested.

    Raises:
        ParamsError: an unknown field, or a value of a wrong type; with its path.
    """
    return from_dict(type(params), _merged(params, changes))


def _merged(params: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {item.name: getattr(params, item.name) for item in fields(params)}
    for name, value in changes.items():
        old = merged.get(name)
        nested = isinstance(value, Mapping) and is_dataclass(old)
        merged[name] = _merged(old, value) if nested else value
    return merged


def _changes(old: Any, new: Any, prefix: str = "") -> list[str]:
    """`vectorization_factor 4 -> 2`: the fields that take part in equality and differ."""
    found: list[str] = []
    for item in fields(new):
        if not item.compare:
            continue
        before, after = getattr(old, item.name, None), getattr(new, item.name)
        if is_dataclass(after) and type(before) is type(after):
            found += _changes(before, after, f"{prefix}{item.name}.")
        elif before != after:
            found.append(f"{prefix}{item.name} {before} -> {after}")
    return found
