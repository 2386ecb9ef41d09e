"""Bars of ratios, one a measured row, as one SVG file."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

WIDTH, BAR, LABEL, TOP = 420, 15, 260, 46
REACHED, MISSED, GOAL = "#8b8", "#e99", "#333"
# Where the axis ends, as a ratio.
MOST = 1.2


def bars(title: str, rows: Sequence[tuple[str, float, float]]) -> str:
    """A bar for each (label, ratio, goal): green where the goal is reached; a line marks the goal."""
    width, height = LABEL + WIDTH + 70, TOP + BAR * len(rows) + 12
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="8" y="18" font-size="13" font-weight="bold">{escape(title)}</text>',
    ]
    for tick in (0.25, 0.5, 0.75, 1.0):
        x = LABEL + _across(tick)
        lines.append(f'<line x1="{x}" x2="{x}" y1="{TOP - 6}" y2="{height - 8}" stroke="#ddd"/>')
        lines.append(f'<text x="{x}" y="{TOP - 10}" text-anchor="middle" fill="#555">{tick:g}</text>')
    for index, (label, ratio, wanted) in enumerate(rows):
        y = TOP + BAR * index
        color = REACHED if ratio >= wanted else MISSED
        mark = LABEL + _across(wanted)
        lines += [
            f'<text x="{LABEL - 6}" y="{y + 11}" text-anchor="end">{escape(label)}</text>',
            f'<rect x="{LABEL}" y="{y + 2}" width="{_across(ratio)}" height="{BAR - 4}" fill="{color}"/>',
            f'<line x1="{mark}" x2="{mark}" y1="{y + 1}" y2="{y + BAR - 1}" stroke="{GOAL}"/>',
            f'<text x="{LABEL + WIDTH + 6}" y="{y + 11}" fill="#555">{ratio:.2f}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def _across(ratio: float) -> float:
    return round(WIDTH * min(ratio, MOST) / MOST, 1)
