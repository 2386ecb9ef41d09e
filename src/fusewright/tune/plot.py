"""A plot of a sweep: for each problem all configurations that ran, fastest first, as one SVG file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from fusewright.tune.report import Outcome

WIDTH, HEIGHT, MARGIN, TITLE, FOOT = 420, 260, 56, 40, 40
COLUMNS = 2
DOT, HEURISTIC, BEST, COPY = "#8aa", "#d33", "#282", "#36c"
# Slower configurations than this, as a multiple of the best, are drawn at the upper edge.
MOST = 16.0


def svg(found: Sequence[Outcome]) -> str:
    """The picture. A dot is a configuration: its rank to the right, its time up, in logarithmic scale."""
    rows, columns = math.ceil(len(found) / COLUMNS), min(COLUMNS, len(found))
    width, height = columns * (WIDTH + MARGIN) + MARGIN, rows * (HEIGHT + TITLE + FOOT) + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for i, outcome in enumerate(found):
        x, y = MARGIN + i % COLUMNS * (WIDTH + MARGIN), TITLE + i // COLUMNS * (HEIGHT + TITLE + FOOT)
        lines += [f'<g transform="translate({x},{y})">', *_panel(outcome), "</g>"]
    return "\n".join([*lines, "</svg>", ""])


def _panel(outcome: Outcome) -> list[str]:
    measured = sorted((t for t in outcome.trials if t.seconds is not None), key=lambda t: t.seconds or 0)
    title = f"{outcome.problem.name}: {outcome.problem.scheduler}"
    counts = ", ".join(f"{count} {status}" for status, count in outcome.counts.items())
    lines = [
        f'<text x="0" y="-20" font-size="13" font-weight="bold">{escape(title)}</text>',
        f'<text x="0" y="-6" fill="#555">{escape(counts)}</text>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#ccc"/>',
    ]
    if not measured:
        return [
            *lines,
            f'<text x="{WIDTH / 2}" y="{HEIGHT / 2}" text-anchor="middle">nothing measured</text>',
        ]
    times = [t.seconds or 0.0 for t in measured]
    low = min(times[0], outcome.copy_seconds or times[0], outcome.best or times[0]) / 1.05
    high = min(times[-1], MOST * low) * 1.05

    def up(seconds: float) -> float:
        part = math.log(min(seconds, high) / low) / math.log(high / low)
        return round(HEIGHT * (1 - part), 1)

    for tick in _ticks(low, high):
        lines.append(f'<line x1="0" x2="{WIDTH}" y1="{up(tick)}" y2="{up(tick)}" stroke="#eee"/>')
        label = f"{tick * 1e6:g}"
        lines.append(f'<text x="-6" y="{up(tick) + 4}" text-anchor="end" fill="#555">{label} us</text>')
    for rank, trial in enumerate(measured):
        x = round(WIDTH * (rank + 0.5) / len(measured), 1)
        is_chosen = trial.params == outcome.heuristic_params
        color, radius = (HEURISTIC, 5) if is_chosen else (DOT, 2.5)
        changed = outcome.changed_by(trial.params).items()
        label = "\n".join(
            [
                f"{(trial.seconds or 0) * 1e6:.2f} us",
                *(f"{path}: {old} -> {new}" for path, (old, new) in changed),
            ]
        )
        lines.append(
            f'<circle cx="{x}" cy="{up(trial.seconds or 0)}" r="{radius}" fill="{color}">'
            f"<title>{escape(label)}</title></circle>"
        )
    marks = [
        ("formula", outcome.heuristic, HEURISTIC),
        ("best", outcome.best, BEST),
        ("copy of as many bytes", outcome.copy_seconds, COPY),
    ]
    at = 0
    for name, seconds, color in marks:
        if seconds is None:
            continue
        y = up(seconds)
        lines.append(f'<line x1="0" x2="{WIDTH}" y1="{y}" y2="{y}" stroke="{color}" stroke-dasharray="5 4"/>')
        text = f"{name} {seconds * 1e6:.2f} us"
        lines.append(f'<text x="{at}" y="{HEIGHT + 16}" fill="{color}">{text}</text>')
        at += 7 * len(text) - 14
    return lines


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers between two limits: 1, 2, 5, 10, ...; where these are few, finer ones."""
    for steps in ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7), tuple(1 + i / 10 for i in range(90))):
        first = math.floor(math.log10(low))
        ticks = [s * 10**e for e in range(first, math.ceil(math.log10(high)) + 1) for s in steps]
        found = [tick for tick in ticks if low <= tick <= high]
        if len(found) >= 3:
            break
    return found[:: max(1, len(found) // 8)]
