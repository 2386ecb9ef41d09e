"""Seeds from a reviewed table in JSON. The table is written from a journal, and entries are selected by
guards.

    {"format": "fusewright-seeds", "version": 1, "seeds": [
        {"scheduler": "inner_persistent", "hardware": "NVIDIA H200",
         "when": {"length": [1024, 4096], "element_bytes": [2, 2]},
         "params": {"batches_per_block_inner_reduction": 4}, "why": "softmax 16384 x 2048"}]}

`when` has inclusive limits for facts of a problem; `params` has the fields that differ from the formula's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fusewright.core.errors import ParamsError, TuneError
from fusewright.core.serialization import to_dict
from fusewright.tune.changes import fields_by_path, with_differences
from fusewright.tune.document import entries_of, read_document
from fusewright.tune.entry import Entry
from fusewright.tune.facts import ProblemFacts, ReductionFacts, TransposeFacts
from fusewright.tune.heuristic import AutotunerHeuristic
from fusewright.tune.problem import Problem
from fusewright.tune.table import params_types

FORMAT, VERSION = "fusewright-seeds", 1
#: Numbers of a problem that guards may limit, beside those of its reduction or transpose.
NUMBERS = (
    "bytes",
    "points",
    "element_bytes",
    "least_element_bytes",
    "slots",
    "inputs",
    "outputs",
    "broadcasts",
)


@dataclass(frozen=True)
class TableSeed:
    """One entry.

    Attributes:
        when: by the name of a fact, its least and greatest value.
    """

    scheduler: str
    params: dict[str, Any]
    when: dict[str, tuple[float, float]]
    hardware: str = ""
    why: str = ""

    def matches(self, problem: Problem) -> bool:
        if self.scheduler != problem.scheduler or problem.facts is None:
            return False
        if self.hardware and self.hardware != problem.hardware.name:
            return False
        known = numbers_of(problem.facts)
        return all(name in known and low <= known[name] <= high for name, (low, high) in self.when.items())


class SeedTable(AutotunerHeuristic):
    """The first entry of a table that matches a problem, applied to the formula's params.

    Raises:
        TuneError: a table that cannot be read; it names the file and the entry.
    """

    def __init__(self, path: Path) -> None:
        self.name = f"table {path.name}"
        self.seeds = read_seeds(path)

    def is_eligible(self, problem: Problem) -> bool | str:
        if problem.formula is None:
            return "nothing is known of the formula's params"
        return self._match(problem) is not None or "no entry matches"

    def get_seed_params(self, problem: Problem) -> Any | None:
        found = self._match(problem)
        assert found is not None
        return with_differences(problem.formula, fields_by_path(found.params))

    def _match(self, problem: Problem) -> TableSeed | None:
        return next((seed for seed in self.seeds if seed.matches(problem)), None)


def numbers_of(facts: ProblemFacts) -> dict[str, float]:
    """The facts that guards may limit."""
    found = {name: float(getattr(facts, name)) for name in NUMBERS}
    for part in (facts.reduction, facts.transpose):
        if part is not None:
            own = {f.name: getattr(part, f.name) for f in fields(part)}
            found.update({name: float(value) for name, value in own.items() if isinstance(value, int)})
    return found


_FACTS = {*NUMBERS, *(f.name for part in (ReductionFacts, TransposeFacts) for f in fields(part))}


def read_table(path: Path) -> list[TableSeed]:
    """The entries of a table, whose schedulers, fields and limits are not checked."""
    document = read_document(path, "table of seeds", FORMAT, VERSION)
    return entries_of(document, "seeds", TableSeed, f"the table of seeds {path}")


def read_seeds(path: Path) -> tuple[TableSeed, ...]:
    """The entries of a table. TuneError for anything else than that."""
    where = f"the table of seeds {path}"
    seeds = read_table(path)
    for i, seed in enumerate(seeds):
        try:
            _check(seed)
        except ParamsError as error:
            raise TuneError(f"{where}, seeds[{i}]: {error}") from None
    return tuple(seeds)


def _check(seed: TableSeed) -> None:
    """Raises ParamsError for facts, limits, a scheduler or params that there are not."""
    for name, (least, greatest) in seed.when.items():
        if name not in _FACTS:
            raise ParamsError(path=f"when.{name}", expected=" or ".join(sorted(_FACTS)), given=name)
        if least > greatest:
            raise ParamsError(path=f"when.{name}", expected="least and greatest", given=[least, greatest])
    known = params_types()
    if seed.scheduler not in known:
        raise ParamsError(path="scheduler", expected=" or ".join(known), given=repr(seed.scheduler))
    with_differences(known[seed.scheduler](), fields_by_path(seed.params))


# Entries of a table hold for sizes up to so many times as large and as small as those that were measured.
AROUND = 1.5
#: Facts that an entry limits to what was measured, and those that it limits to what lies around.
SAME, NEAR = (
    ("element_bytes", "inputs", "outputs", "broadcasts"),
    ("bytes", "rows", "length", "size1", "size2"),
)


def seeds_from(entries: Iterable[Entry]) -> tuple[TableSeed, ...]:
    """Params that were better than the formula's, as entries of a table; guarded by facts near those of the
    problem.
    """
    found = []
    for entry in entries:
        if not entry.change:
            continue
        known = numbers_of(entry.facts)
        when = {name: (known[name], known[name]) for name in SAME}
        when.update({name: (known[name] / AROUND, known[name] * AROUND) for name in NEAR if name in known})
        nested: dict[str, Any] = {}
        for path, value in entry.change.items():
            name, _, inside = path.partition(".")
            if inside:
                nested.setdefault(name, {})[inside] = value
            else:
                nested[name] = value
        why = f"{entry.name}: {entry.speedup:.3f}x the formula's speed"
        found.append(TableSeed(entry.scheduler, nested, when, entry.hardware, why))
    return tuple(found)


def table_text(seeds: tuple[TableSeed, ...]) -> str:
    """A table, one entry a line."""
    head = json.dumps({"format": FORMAT, "version": VERSION})[:-1]
    entries = ",\n  ".join(json.dumps(to_dict(seed)) for seed in seeds)
    return f'{head}, "seeds": [\n  {entries}]}}\n'
