"""Measurements of a GPU as a document that people review: made once, and read on machines without a GPU.

    {"format": "fusewright-measurements", "version": 1, "made_by": "an H200, ...",
    "fields": ["lparams.bdimx", "vectorization_factor", ..],
    "hardware": {"NVIDIA H200": {..}},
    "problems": [
    {"problem": {.., "hardware": "NVIDIA H200"}, "copy_us": 21.3, "formula": {..}, "plain": "1=1",
    "trials": ["25.1;24.8 0=256;- 0=64 1=16", ..]}, ..]}

A trial is microseconds, or "-" if the params were rejected, and the fields that differ from the formula's, by
position in `fields`.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fusewright.core.errors import FusewrightError, TuneError
from fusewright.core.hardware import HardwareInfo
from fusewright.core.serialization import from_dict, to_dict
from fusewright.tune.changes import differences, with_differences
from fusewright.tune.document import read_document
from fusewright.tune.problem import Problem
from fusewright.tune.table import Measurements, params_types

FORMAT, VERSION = "fusewright-measurements", 1
# Of a time in microseconds.
DIGITS = 4
WIDTH = 110


def recording_text(tables: Sequence[Measurements], made_by: str) -> str:
    """The document. It raises nothing: it can represent all params."""
    fields: dict[str, int] = {}
    hardware: dict[str, Any] = {}
    problems = []
    for table in tables:
        own = table.problem.hardware
        hardware[own.name] = to_dict(own)
        trials = [_trial(f"{s * 1e6:.{DIGITS}g}", table.formula, p, fields) for p, s in table.seconds.items()]
        trials += sorted(_trial("-", table.formula, params, fields) for params in table.refused)
        # Spaces of values would be places to break a line.
        lines = textwrap.wrap("; ".join(trials), WIDTH, break_long_words=False, break_on_hyphens=False)
        head = {
            "problem": {**table.problem.to_dict(), "hardware": own.name},
            "copy_us": None if table.copy_seconds is None else round(table.copy_seconds * 1e6, 2),
            "formula": to_dict(replace(table.formula, reason="")),
            "plain": None if table.plain is None else _trial("", table.formula, table.plain, fields).strip(),
        }
        text = json.dumps(head)[:-1]
        problems.append(f'{text}, "trials": [\n' + ",\n".join(map(json.dumps, lines)) + "]}")
    start = {"format": FORMAT, "version": VERSION, "made_by": made_by, "fields": list(fields)}
    parts = [json.dumps(start)[:-1], f'"hardware": {json.dumps(hardware)}']
    listed = ",\n".join(problems)
    return ",\n".join(parts) + f',\n"problems": [\n{listed}]}}\n'


def _trial(what: str, formula: Any, params: Any, fields: dict[str, int]) -> str:
    changes = differences(formula, params).items()
    texts = [
        f"{fields.setdefault(path, len(fields))}={json.dumps(value, separators=(',', ':'))}"
        for path, value in changes
    ]
    return " ".join([what, *texts])


def read_recording(path: Path) -> list[Measurements]:
    """The tables of a document.

    Raises:
        TuneError: a file that is no such document, or one with params that there are not.
    """
    data = read_document(path, "table of measurements", FORMAT, VERSION)
    try:
        kinds, fields = params_types(), list(map(str, data["fields"]))
        hardware = {name: from_dict(HardwareInfo, each) for name, each in data["hardware"].items()}
        made_by = str(data["made_by"])
        return [_table(each, kinds, fields, hardware, made_by) for each in data["problems"]]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, FusewrightError) as error:
        raise TuneError(
            f"the table of measurements {path} cannot be read: {type(error).__name__}: {error}"
        ) from None


def _table(
    data: Mapping[str, Any],
    kinds: Mapping[str, type],
    fields: Sequence[str],
    hardware: Mapping[str, HardwareInfo],
    made_by: str,
) -> Measurements:
    own = hardware[data["problem"]["hardware"]]
    problem = Problem.from_dict({**data["problem"], "hardware": to_dict(own)})
    formula: Any = from_dict(kinds[problem.scheduler], data["formula"])

    def params_of(changes: Sequence[str]) -> Any:
        found = [change.split("=", 1) for change in changes]
        return with_differences(formula, {fields[int(i)]: json.loads(value) for i, value in found})

    seconds: dict[Any, float] = {}
    refused = []
    for trial in " ".join(data["trials"]).split(";"):
        what, *changes = trial.split()
        if what == "-":
            refused.append(params_of(changes))
        else:
            seconds[params_of(changes)] = float(what) / 1e6
    copy, plain = data["copy_us"], data["plain"]
    return Measurements(
        problem,
        formula,
        seconds,
        frozenset(refused),
        None if copy is None else copy / 1e6,
        made_by,
        None if plain is None else params_of(plain.split()),
    )
