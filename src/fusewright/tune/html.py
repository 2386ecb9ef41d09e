"""A report of searches as one HTML page: of each kernel all times, and how they depend on each field."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from fusewright.tune.journal import SearchRecord
from fusewright.tune.plot import BEST, DOT, svg
from fusewright.tune.policy import Policy
from fusewright.tune.report import Outcome

WIDTH, HEIGHT, MARGIN = 180, 110, 26
STYLE = (
    "body{font:14px sans-serif;max-width:1100px;margin:2em auto} pre{background:#f4f4f4;padding:.6em;"
    "white-space:pre-wrap} svg{margin:0 8px 8px 0}"
)


def page(found: Sequence[Outcome], searches: Mapping[str, SearchRecord | None], policy: Policy) -> str:
    """The page. It needs no other file."""
    parts = [
        "<!doctype html>",
        f'<html><head><meta charset="utf-8"><title>Fusewright: tuning</title><style>{STYLE}</style></head>',
        f"<body><h1>Tuning</h1><h2>Rules</h2><pre>{escape(policy.rules_text())}</pre>",
    ]
    for outcome in found:
        parts += _section(outcome, searches.get(outcome.problem.key))
    return "\n".join([*parts, "</body></html>", ""])


def _section(outcome: Outcome, search: SearchRecord | None) -> list[str]:
    lines = [f"<h2>{escape(outcome.problem.name)}</h2>", svg([outcome])]
    if search is not None:
        said = "\n".join([f"stopped: {search.stop}", "autotuner heuristics:", *search.asked])
        lines.append(f"<pre>{escape(said)}</pre>")
    changes = "\n".join(f"{path}: {old} -> {new}" for path, (old, new) in outcome.changed().items())
    lines.append(f"<pre>the best has\n{escape(changes or 'the formula’s params')}</pre>")
    return [*lines, *_fields(outcome)]


def _fields(outcome: Outcome) -> list[str]:
    """A plot for each field that configurations differ in: its values to the right, times up."""
    times: dict[str, list[tuple[Any, float]]] = {}
    for trial in outcome.trials:
        if trial.seconds is not None:
            for path, value in _flat(json.loads(trial.params)).items():
                times.setdefault(path, []).append((value, trial.seconds))
    return [_plot(path, points) for path, points in times.items() if len({str(v) for v, _ in points}) > 1]


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, own in value.items():
        found.update(_flat(own, f"{prefix}{name}.") if isinstance(own, dict) else {prefix + name: own})
    return found


def _plot(path: str, points: Sequence[tuple[Any, float]]) -> str:
    values = sorted({str(value) for value, _ in points}, key=lambda text: (len(text), text))
    low, high = min(seconds for _, seconds in points), max(seconds for _, seconds in points)
    lines = [
        f'<svg width="{WIDTH + 2 * MARGIN}" height="{HEIGHT + 2 * MARGIN}" font-size="10">',
        f'<g transform="translate({MARGIN},{MARGIN})">',
        f'<text y="-10" font-weight="bold">{escape(path)}</text>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#ccc"/>',
    ]
    for i, value in enumerate(values):
        x = round(WIDTH * (i + 0.5) / len(values), 1)
        lines.append(f'<text x="{x}" y="{HEIGHT + 14}" text-anchor="middle">{escape(value)}</text>')
        for seconds in sorted(s for v, s in points if str(v) == value):
            up = math.log(seconds / low) / math.log(high / low) if high > low else 0.0
            color = BEST if seconds == low else DOT
            y = round(HEIGHT * (1 - up), 1)
            title = f"<title>{seconds * 1e6:.2f} us</title>"
            lines.append(f'<circle cx="{x}" cy="{y}" r="2.5" fill="{color}">{title}</circle>')
    return "\n".join([*lines, "</g></svg>"])
