"""A report of searches as one HTML page: all times of each kernel, and how they depend on each field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from fusewright.tune.journal import SearchRecord
from fusewright.tune.plot import svg
from fusewright.tune.policy import Policy
from fusewright.tune.report import Outcome, roofline_of
from fusewright.tune.space_plot import progress_plot, space_plots

# Of the configurations, those that are listed: the fastest.
LISTED = 10
STYLE = (
    "body{font:14px sans-serif;max-width:1150px;margin:2em auto;padding:0 1em} pre{background:#f4f4f4;"
    "padding:.6em;white-space:pre-wrap} svg{margin:0 8px 8px 0;vertical-align:top} td,th{text-align:right;"
    "padding:.15em .7em;border-bottom:1px solid #eee} td:first-child,th:first-child,td:last-child,"
    "th:last-child{text-align:left} table{border-collapse:collapse;margin:.6em 0}"
)


def page(found: Sequence[Outcome], searches: Mapping[str, SearchRecord | None], policy: Policy) -> str:
    """The page. It needs no other file."""
    rules = policy.rules_text()
    parts = [
        "<!doctype html>",
        f'<html><head><meta charset="utf-8"><title>Fusewright: tuning</title><style>{STYLE}</style></head>',
        "<body><h1>Tuning</h1>",
        _summary(found, searches),
        f"<h2>Rules</h2><pre>{escape(rules)}</pre>" if rules else "",
    ]
    for i, outcome in enumerate(found):
        parts += _section(i, outcome, searches.get(outcome.problem.key))
    return "\n".join([*parts, "</body></html>", ""])


def _summary(found: Sequence[Outcome], searches: Mapping[str, SearchRecord | None]) -> str:
    heads = ("kernel", "scheduler", "tried", "formula us", "best us", "faster", "of roofline", "stopped")
    rows = []
    for i, outcome in enumerate(found):
        search = searches.get(outcome.problem.key)
        faster = "" if outcome.speedup is None else f"{outcome.speedup:.3f}x"
        limit = roofline_of(outcome)
        share = "" if limit is None or not outcome.best else f"{limit / outcome.best:.0%}"
        name = f'<a href="#kernel{i}">{escape(outcome.problem.name)}</a>'
        times = (_us(outcome.heuristic), _us(outcome.best), faster, share)
        stop = "" if search is None else escape(search.stop)
        rows.append([name, escape(outcome.problem.scheduler), str(len(outcome.trials)), *times, stop])
    return _table(heads, rows)


def _section(i: int, outcome: Outcome, search: SearchRecord | None) -> list[str]:
    lines = [
        f'<h2 id="kernel{i}">{escape(outcome.problem.name)}</h2>',
        svg([outcome]),
        progress_plot(outcome),
    ]
    if search is not None:
        said = "\n".join([f"stopped: {search.stop}", "autotuner heuristics:", *search.asked])
        lines.append(f"<pre>{escape(said)}</pre>")
    changes = "\n".join(f"{path}: {old} -> {new}" for path, (old, new) in outcome.changed().items())
    lines.append(f"<pre>the best has\n{escape(changes or 'the formula’s params')}</pre>")
    if outcome.failures():
        lines.append(f"<pre>{escape(chr(10).join(outcome.failures()))}</pre>")
    return [*lines, *space_plots(outcome), _fastest(outcome)]


def _fastest(outcome: Outcome) -> str:
    ran = sorted((seconds, i) for i, trial in enumerate(outcome.trials) if (seconds := trial.seconds))
    rows = []
    for seconds, i in ran[:LISTED]:
        trial = outcome.trials[i]
        changed = outcome.changed_by(trial.params).items()
        text = ", ".join(f"{path}: {old} -> {new}" for path, (old, new) in changed)
        registers = str((trial.resources or {}).get("registers", ""))
        rows.append([escape(trial.origin), _us(seconds), registers, escape(text or "the formula’s params")])
    heads = ("from", "us", "registers", "differs from the formula in")
    return f"<details><summary>the fastest</summary>{_table(heads, rows)}</details>" if rows else ""


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are HTML."""
    lines = ["<table><tr>", *(f"<th>{head}</th>" for head in heads), "</tr>"]
    for cells in rows:
        lines += ["<tr>", *(f"<td>{cell}</td>" for cell in cells), "</tr>"]
    return "".join([*lines, "</table>"])


def _us(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e6:.2f}"
