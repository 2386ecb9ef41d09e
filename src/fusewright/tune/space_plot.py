"""Plots of one problem's search, as SVG: its progress, and how times depend on fields of the params."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from html import escape
from itertools import combinations
from typing import Any

from fusewright.tune.changes import fields_by_path
from fusewright.tune.plot import BEST, COPY, DOT, HEURISTIC, MOST
from fusewright.tune.report import Outcome

WIDTH, HEIGHT, LEFT, ABOVE, BELOW = 190, 110, 56, 24, 24
# Colors of a heat map, from the best to what is `MOST` times as slow: hue and lightness in HSL.
HUES, LIGHTNESS = (130, 0), (38, 88)

#: A configuration that ran: its fields by path, and seconds.
Point = tuple[dict[str, Any], float]


def progress_plot(outcome: Outcome) -> str:
    """The best time after each configuration, in the order in which they were tried."""
    times = [trial.seconds for trial in outcome.trials if trial.seconds is not None]
    if not times:
        return ""
    best = [min(times[: i + 1]) for i in range(len(times))]
    axis = _Axis([*best, *filter(None, [outcome.heuristic, outcome.copy_seconds])])
    step = WIDTH / len(best)
    path = " ".join(
        f"{round(i * step, 1)},{axis.y(s)} {round((i + 1) * step, 1)},{axis.y(s)}" for i, s in enumerate(best)
    )
    lines = axis.lines()
    for seconds, color in ((outcome.heuristic, HEURISTIC), (outcome.copy_seconds, COPY)):
        if seconds is not None:
            y = axis.y(seconds)
            lines.append(
                f'<line x1="0" x2="{WIDTH}" y1="{y}" y2="{y}" stroke="{color}" stroke-dasharray="5 4"/>'
            )
    lines.append(f'<polyline points="{path}" fill="none" stroke="{BEST}" stroke-width="1.5"/>')
    lines.append(f'<text x="{WIDTH}" y="{HEIGHT + 14}" text-anchor="end">{len(best)} configurations</text>')
    return _framed("the best so far", lines)


def space_plots(outcome: Outcome) -> list[str]:
    """A plot for each field in which configurations differ, and a map of the two that decide the most."""
    points = [
        (fields_by_path(json.loads(trial.params)), trial.seconds)
        for trial in outcome.trials
        if trial.seconds is not None
    ]
    if len(points) < 2:
        return []
    paths = [path for path in points[0][0] if len({str(fields.get(path)) for fields, _ in points}) > 1]
    formula = (
        None if outcome.heuristic_params is None else fields_by_path(json.loads(outcome.heuristic_params))
    )
    found = [_field_plot(path, points, formula) for path in paths]
    pairs = sorted(combinations(paths, 2), key=lambda pair: -_weight(pair, points))
    return [*found, *(_map(*pair, points) for pair in pairs[:1])]


# ---- one field, two fields


def _field_plot(path: str, points: Sequence[Point], formula: dict[str, Any] | None) -> str:
    """Values of a field to the right, times up."""
    axis = _Axis([seconds for _, seconds in points])
    values = _values(path, points)
    lines = axis.lines()
    for i, value in enumerate(values):
        x = _middle(i, len(values))
        lines.append(f'<text x="{x}" y="{HEIGHT + 14}" text-anchor="middle">{escape(value)}</text>')
    for fields, seconds in sorted(points, key=lambda point: -point[1]):
        color, radius = DOT, 2.5
        if fields == formula:
            color, radius = HEURISTIC, 4
        if seconds == axis.low:
            color, radius = BEST, 4
        x = _middle(values.index(str(fields.get(path))), len(values))
        lines.append(
            f'<circle cx="{x}" cy="{axis.y(seconds)}" r="{radius}" fill="{color}">'
            f"<title>{seconds * 1e6:.2f} us</title></circle>"
        )
    return _framed(path, lines)


def _map(across: str, up: str, points: Sequence[Point]) -> str:
    """The best time by the values of two fields, in colors; where nothing ran it is white."""
    columns, rows = _values(across, points), _values(up, points)
    low = min(seconds for _, seconds in points)
    width, height = WIDTH / len(columns), HEIGHT / len(rows)
    lines = []
    for (x, y), seconds in _best_by((across, up), points).items():
        part = math.log(min(seconds / low, MOST)) / math.log(MOST)
        hue, light = (a + (b - a) * part for a, b in (HUES, LIGHTNESS))
        at = columns.index(x) * width, HEIGHT - (rows.index(y) + 1) * height
        lines.append(
            f'<rect x="{at[0]:.1f}" y="{at[1]:.1f}" width="{width:.1f}" height="{height:.1f}" '
            f'fill="hsl({hue:.0f},45%,{light:.0f}%)"><title>{escape(x)}, {escape(y)}: {seconds * 1e6:.2f} us'
            "</title></rect>"
        )
        if height > 12 and width > 28:
            middle = f'x="{at[0] + width / 2:.1f}" y="{at[1] + height / 2 + 4:.1f}"'
            color = "#fff" if part < 0.3 else "#222"
            lines.append(f'<text {middle} text-anchor="middle" fill="{color}">{seconds * 1e6:.4g}</text>')
    for i, value in enumerate(columns):
        x_ = _middle(i, len(columns))
        lines.append(f'<text x="{x_}" y="{HEIGHT + 14}" text-anchor="middle">{escape(value)}</text>')
    for i, value in enumerate(rows):
        y_ = round(HEIGHT - (i + 0.5) * height + 4, 1)
        lines.append(f'<text x="-6" y="{y_}" text-anchor="end">{escape(value)}</text>')
    return _framed(f"{up} by {across}", lines)


def _weight(paths: tuple[str, str], points: Sequence[Point]) -> float:
    """How much the best time depends on two fields: the mean logarithm of what their values cost at least."""
    low = min(seconds for _, seconds in points)
    best = _best_by(paths, points).values()
    return sum(math.log(min(seconds / low, MOST)) for seconds in best) / len(best)


def _best_by(paths: tuple[str, str], points: Sequence[Point]) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    for fields, seconds in points:
        at = str(fields.get(paths[0])), str(fields.get(paths[1]))
        found[at] = min(seconds, found.get(at, seconds))
    return found


# ---- parts


class _Axis:
    """Times up, in logarithmic scale; slower ones than `MOST` times the best are at the upper edge."""

    def __init__(self, times: Sequence[float]) -> None:
        self.low = min(times)
        self._high = min(max(times), MOST * self.low)

    def y(self, seconds: float) -> float:
        if self._high <= self.low:
            return HEIGHT / 2
        part = math.log(min(seconds, self._high) / self.low) / math.log(self._high / self.low)
        return round(HEIGHT * (1 - part), 1)

    def lines(self) -> list[str]:
        """The frame, with the least and the greatest time."""
        ends = [self.low] if self._high <= self.low else [self.low, self._high]
        return [
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#ccc"/>',
            *(
                f'<text x="-6" y="{self.y(s) + 4}" text-anchor="end" fill="#555">{s * 1e6:.4g} us</text>'
                for s in ends
            ),
        ]


def _framed(title: str, lines: Sequence[str]) -> str:
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + LEFT + 16}" '
        f'height="{HEIGHT + ABOVE + BELOW}" font-family="sans-serif" font-size="10">',
        f'<g transform="translate({LEFT},{ABOVE})">',
        f'<text x="{4 - LEFT}" y="-8" font-weight="bold">{escape(title)}</text>',
    ]
    return "\n".join([*head, *lines, "</g></svg>"])


def _middle(i: int, count: int) -> float:
    return round(WIDTH * (i + 0.5) / count, 1)


def _values(path: str, points: Sequence[Point]) -> list[str]:
    """In order: numbers by size, then the rest."""
    values = {str(fields.get(path)): fields.get(path) for fields, _ in points}
    return sorted(values, key=lambda text: _order(values[text]))


def _order(value: Any) -> tuple[bool, float, str]:
    is_number = isinstance(value, (int, float))
    return not is_number, float(value) if is_number else 0.0, str(value)
