"""A policy: what calls without tuning use in the place of the formula's params, learned from a journal.

In this order: the best params of an equal call; what the rules say, for schedulers whose rules proved
themselves on held-out problems; what was best for an equal kernel of nearly the same sizes; the formula.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log2
from pathlib import Path
from typing import Any

from fusewright.core.errors import ParamsError, TuneError
from fusewright.core.hardware import HardwareInfo
from fusewright.core.once import cached_property
from fusewright.core.serialization import from_dict, to_dict
from fusewright.schedulers import Facts, type_name
from fusewright.segment import Segment
from fusewright.tune.entry import Entry, entry_of
from fusewright.tune.facts import ProblemFacts, facts_of
from fusewright.tune.rules import Fitted, Rule, features_of, fit
from fusewright.tune.table import Measurements, with_differences

FORMAT, VERSION = "fusewright-policy", 1
# How many times as large a number of another problem's facts may be, for it to be a neighbour.
NEAR = 1.5
VERSION_DIGITS = 16


@dataclass(frozen=True, eq=False)
class Policy:
    """See above. Immutable; equal to those of the same version.

    Attributes:
        rules: of each scheduler, used or not.
    """

    entries: tuple[Entry, ...] = ()
    rules: tuple[Fitted, ...] = ()

    @cached_property
    def version(self) -> str:
        """Equal for policies that choose alike; part of the keys of what is cached."""
        return hashlib.sha256(self.text().encode()).hexdigest()[:VERSION_DIGITS]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Policy) and self.version == other.version

    def __hash__(self) -> int:
        return hash(self.version)

    # ---- choosing

    def choose(self, segment: Segment, facts: Facts, hardware: HardwareInfo, params: Any) -> Any | None:
        """The params for a call of a segment, given the formula's. None: these are the ones."""
        known = facts_of(segment, facts, hardware)
        change = self.change(type_name(segment.scheduler.type), known, hardware)
        if change is None or not change[0]:
            return None
        try:
            chosen = with_differences(params, change[0])
            for name, value in getattr(segment.scheduler, "fixed_params", {}).items():
                chosen.expect(name, value)
            chosen.validate(hardware)
        except ParamsError:  # the formula says something else here than where it was measured
            return None
        return _with_reason(chosen, f"{change[1]}; without it: {params.reason}")

    def change(
        self, scheduler: str, facts: ProblemFacts, hardware: HardwareInfo
    ) -> tuple[dict[str, Any], str] | None:
        """What to change in the formula's params, and who says so. None: nobody knows."""
        exact = self._by_segment.get((hardware.name, facts.segment))
        if exact is not None:
            return exact.change, f"measured for {exact.name}"
        features = features_of(facts, hardware)
        for rule in self._used.get(scheduler, ()):
            if rule.holds(features):
                return rule.change, f"rule: {rule}"
        near = self._neighbour(scheduler, facts, hardware)
        return None if near is None else (near.change, f"measured for {near.name}, which is near")

    def _neighbour(self, scheduler: str, facts: ProblemFacts, hardware: HardwareInfo) -> Entry | None:
        same = self._by_structure.get((hardware.name, scheduler, facts.structure), ())
        apart = [(_apart(entry.facts, facts), i) for i, entry in enumerate(same)]
        nearest = min(apart, default=None)
        return same[nearest[1]] if nearest is not None and nearest[0] <= log2(NEAR) else None

    @cached_property
    def _by_segment(self) -> dict[tuple[str, str], Entry]:
        return {(entry.hardware, entry.facts.segment): entry for entry in self.entries}

    @cached_property
    def _by_structure(self) -> dict[tuple[str, str, str], list[Entry]]:
        found: dict[tuple[str, str, str], list[Entry]] = {}
        for entry in self.entries:
            found.setdefault((entry.hardware, entry.scheduler, entry.facts.structure), []).append(entry)
        return found

    @cached_property
    def _used(self) -> dict[str, tuple[Rule, ...]]:
        return {fitted.scheduler: fitted.rules for fitted in self.rules if fitted.is_used}

    # ---- as text

    def text(self) -> str:
        """As JSON that a person can review: an entry, or a rule, a line."""
        lines = [f'{{"format": {json.dumps(FORMAT)}, "version": {VERSION},', '"rules": [']
        lines.append(",\n".join(json.dumps(to_dict(fitted), sort_keys=True) for fitted in self.rules))
        lines += ["],", '"entries": [']
        lines.append(",\n".join(json.dumps(to_dict(entry), sort_keys=True) for entry in self.entries))
        return "\n".join([*lines, "]}", ""])

    def rules_text(self) -> str:
        """The rules for reading, with what they were worth where they were not fitted."""
        lines: list[str] = []
        for fitted in self.rules:
            verdict = "used" if fitted.is_used else "not used, as the formula does as well"
            lines.append(
                f"{fitted.scheduler}: {verdict}; {fitted.problems} problems, each held out once: "
                f"{fitted.held_out:.3f}x the formula's speed, at worst {fitted.worst:.3f}x"
            )
            lines += [f"  {rule}" for rule in fitted.rules]
        return "\n".join(lines)


def policy_of(measured: Iterable[Measurements]) -> Policy:
    """What measurements say: an entry for each problem, and rules."""
    known = list(measured)
    entries = [entry for each in known if (entry := entry_of(each)) is not None]
    return Policy(tuple(entries), tuple(fit(known)))


def read_policy(path: Path) -> Policy:
    """The policy of a file. TuneError for anything else than what `Policy.text` wrote."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TuneError(f"the policy {path} cannot be read: {error}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("version") != VERSION:
        raise TuneError(
            f"{path} is no policy",
            expected=f'"format": "{FORMAT}", "version": {VERSION}',
            given=json.dumps(data)[:80],
        )
    lists = {"rules": Fitted, "entries": Entry}
    found: dict[str, tuple[Any, ...]] = {}
    for name, kind in lists.items():
        items: Sequence[Any] = data.get(name, ())
        if not isinstance(items, list):
            raise TuneError(f"the policy {path}", expected=f'a list "{name}"', given=repr(items)[:80])
        read: list[Any] = []
        for i, item in enumerate(items):
            try:
                read.append(from_dict(kind, item))
            except ParamsError as error:
                raise TuneError(f"the policy {path}, {name}[{i}]: {error}") from None
        found[name] = tuple(read)
    return Policy(found["entries"], found["rules"])


def _apart(one: ProblemFacts, other: ProblemFacts) -> float:
    """Of two calls of a kernel: how many powers of two their sizes are apart, at most."""
    pairs = [(one.bytes, other.bytes), (one.points, other.points)]
    if one.reduction is not None and other.reduction is not None:
        pairs.append((one.reduction.rows, other.reduction.rows))
        pairs.append((one.reduction.length, other.reduction.length))
    if one.transpose is not None and other.transpose is not None:
        pairs.append((one.transpose.size1, other.transpose.size1))
        pairs.append((one.transpose.size2, other.transpose.size2))
    return max(abs(log2(max(1, a) / max(1, b))) for a, b in pairs)


def _with_reason(params: Any, reason: str) -> Any:
    return from_dict(type(params), {**to_dict(params), "reason": reason})
