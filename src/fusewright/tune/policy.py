"""A policy: params learned from a journal, which calls without tuning use instead of the formula's.

It uses the first that applies: the best params of an equal call; rules, for schedulers whose rules were
validated on held-out problems of this GPU; a change by which near sizes of an equal kernel gained, if that
was validated, too; the formula.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusewright.core.errors import ParamsError, TuneError
from fusewright.core.hardware import HardwareInfo
from fusewright.core.once import cached_property
from fusewright.core.serialization import from_dict, to_dict
from fusewright.schedulers import Facts, type_name
from fusewright.segment import Segment
from fusewright.tune.changes import Change, fields_by_path, with_changes, with_differences
from fusewright.tune.document import entries_of, read_document
from fusewright.tune.entry import Entry, chosen_entries
from fusewright.tune.facts import ProblemFacts, facts_of
from fusewright.tune.near import NEAR, MeasuredSizes, is_alike, kernels, nearest_of
from fusewright.tune.rule_fitting import fit
from fusewright.tune.rules import Fitted, HeldOut, Rule, features_of, held_out
from fusewright.tune.table import Measurements, params_types

FORMAT, VERSION = "fusewright-policy", 7
VERSION_DIGITS = 16


@dataclass(frozen=True, eq=False)
class Policy:
    """A policy, as described above. It is immutable, and policies of the same version are equal.

    Attributes:
        rules: of each scheduler and GPU, whether used or not.
        near: for each scheduler and GPU, the validated gain of changes for near sizes, whether used or not.
    """

    entries: tuple[Entry, ...] = ()
    rules: tuple[Fitted, ...] = ()
    near: tuple[HeldOut, ...] = ()

    @cached_property
    def version(self) -> str:
        """Equal for policies that make the same choices; part of the cache keys."""
        return hashlib.sha256(self.text().encode()).hexdigest()[:VERSION_DIGITS]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Policy) and self.version == other.version

    def __hash__(self) -> int:
        return hash(self.version)

    # ---- choosing

    def choose(self, segment: Segment, facts: Facts, hardware: HardwareInfo, params: Any) -> Any | None:
        """The params for a call of a segment, given the formula's. None: the formula's.

        Raises:
            ParamsError: the params measured for this call are not legal, for example because they are from
                another version.
        """
        known = facts_of(segment, facts, hardware)
        exact = self._by_segment.get((hardware.name, known.segment))
        try:
            if exact is not None:
                chosen, why = from_dict(type(params), exact.params), f"measured for {exact.name}"
            else:
                found = self.change(type_name(segment.scheduler.type), known, hardware, params)
                if found is None or not found[0]:
                    return None
                length = None if known.reduction is None else known.reduction.length
                chosen, why = with_changes(params, found[0], length), found[1]
            for name, value in getattr(segment.scheduler, "fixed_params", {}).items():
                chosen.expect(name, value)
            chosen.validate(hardware)
        except ParamsError:
            if exact is not None:
                raise
            return None  # the formula says something else here than where it was measured
        return None if chosen == params else _with_reason(chosen, f"{why}; without it: {params.reason}")

    def change(
        self, scheduler: str, facts: ProblemFacts, hardware: HardwareInfo, formula: Any
    ) -> tuple[dict[str, Any], str] | None:
        """The change of the formula's params for a call that was not measured, and its source.

        None: there is no change.
        """
        features = features_of(facts, hardware, formula)
        for rule in self._used.get((scheduler, hardware.name), ()):
            if rule.holds(features):
                try:
                    return rule.change.fields(formula), f"rule: {rule}"
                except ParamsError:  # as when it was fitted, the formula serves then
                    return None
        entry = self._neighbour(scheduler, facts, hardware, formula)
        if entry is None or entry.near is None:
            return None
        return entry.near.fields, f"sizes near {entry.name} gained by it"

    def _neighbour(
        self, scheduler: str, facts: ProblemFacts, hardware: HardwareInfo, formula: Any
    ) -> Entry | None:
        """The entry of the nearest sizes.

        None where neighbours do not beat the formula, and where the formula chose otherwise for those sizes
        than it does for this call.
        """
        if (scheduler, hardware.name) not in self._trusted_neighbours:
            return None
        own = self._by_structure.get((hardware.name, scheduler, facts.structure), [])
        nearest = next(iter(nearest_of(own, facts, NEAR)), None)
        if nearest is None:
            return None
        then = with_differences(from_dict(type(formula), nearest.params), nearest.formula)
        length = None if facts.reduction is None else facts.reduction.length
        return nearest if is_alike(then, formula, length) else None

    @cached_property
    def _trusted_neighbours(self) -> frozenset[tuple[str, str]]:
        return frozenset((each.scheduler, each.hardware) for each in self.near if each.beats_formula)

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
    def _used(self) -> dict[tuple[str, str], tuple[Rule, ...]]:
        return {(fitted.scheduler, fitted.hardware): fitted.rules for fitted in self.rules if fitted.is_used}

    def over(self, other: Policy | None) -> Policy:
        """This policy's answers, and another policy's where it has none."""
        if other is None:
            return self
        own = {(entry.hardware, entry.facts.segment) for entry in self.entries}
        used = {(fitted.scheduler, fitted.hardware) for fitted in self.rules if fitted.is_used}
        near = {(each.scheduler, each.hardware) for each in self.near}
        return Policy(
            self.entries + tuple(e for e in other.entries if (e.hardware, e.facts.segment) not in own),
            tuple(f for f in self.rules if f.is_used)
            + tuple(f for f in other.rules if (f.scheduler, f.hardware) not in used),
            self.near + tuple(n for n in other.near if (n.scheduler, n.hardware) not in near),
        )

    # ---- as text

    def text(self) -> str:
        """As JSON that a person can review: an entry, or a rule, a line."""
        lists = {"rules": self.rules, "near": self.near, "entries": self.entries}
        parts = [f'"format": {json.dumps(FORMAT)}, "version": {VERSION}']
        for name, items in lists.items():
            lines = ",\n".join(json.dumps(to_dict(item), sort_keys=True) for item in items)
            parts.append(f'"{name}": [\n{lines}\n]')
        return "{" + ",\n".join(parts) + "}\n"

    def rules_text(self) -> str:
        """The rules as readable text, with their held-out results."""
        lines: list[str] = []
        for fitted in self.rules:
            verdict = "used" if fitted.is_used else "not used, as the formula does as well"
            lines.append(f"{fitted.scheduler} on {fitted.hardware}: {verdict}; {fitted.text()}")
            lines += [f"  {rule}" for rule in fitted.rules]
        for near in self.near:
            verdict = "used" if near.beats_formula else "not used, as the formula does as well"
            lines.append(
                f"changes by near sizes of {near.scheduler} on {near.hardware}: {verdict}; {near.text()}"
            )
        for entry in self.entries:
            if entry.near is not None:
                change, gains = Change(entry.near.fields), ", ".join(f"{g:.3f}x" for g in entry.near.gains)
                lines.append(f"  near {entry.name}: {change}  # {gains}")
        return "\n".join(lines)


def policy_of(measured: Iterable[Measurements]) -> Policy:
    """The policy from measurements: an entry for each problem, rules, and the gains of near sizes."""
    known = list(measured)
    return Policy(tuple(chosen_entries(known)), tuple(fit(known)), tuple(_neighbours(known)))


def _neighbours(known: Sequence[Measurements]) -> list[HeldOut]:
    """What near sizes say of each problem without it, where they say something."""
    results: dict[tuple[str, str], list[float]] = {}
    for (hardware, scheduler, _), numbers in kernels(known).items():
        sizes = MeasuredSizes([known[i] for i in numbers])
        own = [result for i in range(len(numbers)) if (result := sizes.held_out(i)) is not None]
        if own:
            results.setdefault((scheduler, hardware), []).extend(own)
    return [held_out(scheduler, hardware, found) for (scheduler, hardware), found in sorted(results.items())]


def read_policy(path: Path) -> Policy:
    """The policy in a file. TuneError for anything that `Policy.text` did not write."""
    where = f"the policy {path}"
    data = read_document(path, "policy", FORMAT, VERSION)
    entries = entries_of(data, "entries", Entry, where)
    rules = entries_of(data, "rules", Fitted, where)
    near = entries_of(data, "near", HeldOut, where)
    changes: list[tuple[str, str, dict[str, Any]]] = []
    for i, entry in enumerate(entries):
        changes.append((f"entries[{i}], params", entry.scheduler, fields_by_path(entry.params)))
        changes.append((f"entries[{i}], change", entry.scheduler, entry.change))
        changes.append((f"entries[{i}], formula", entry.scheduler, entry.formula))
        near_fields = {} if entry.near is None else entry.near.fields
        changes.append((f"entries[{i}], near", entry.scheduler, near_fields))
    for i, fitted in enumerate(rules):
        for j, rule in enumerate(fitted.rules):
            change = {**rule.change.values, **dict.fromkeys(rule.change.factors, 1)}
            changes.append((f"rules[{i}].rules[{j}], change", rule.scheduler, change))
    known = params_types()
    for place, scheduler, change in changes:
        try:
            if scheduler in known:
                with_differences(known[scheduler](), change)
        except ParamsError as error:
            raise TuneError(f"{where}, {place}: {error}") from None
    return Policy(tuple(entries), tuple(rules), tuple(near))


def _with_reason(params: Any, reason: str) -> Any:
    return from_dict(type(params), {**to_dict(params), "reason": reason})
