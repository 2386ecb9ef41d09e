"""A comparison as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from fusewright.cli.codediff.comparison import Comparison, Group, Row
from fusewright.cli.codediff.text import sides, summary

HEADINGS = ("kernel", "scheduler", "registers", "spilled bytes", "shared bytes", "instructions", "differs")
_STYLE = """
body { font-family: system-ui, sans-serif; margin: 2em; color: #222; background: #fff; }
table { border-collapse: collapse; margin: .5em 0; font-size: .9em; }
th, td { border: 1px solid #ccc; padding: .2em .6em; text-align: left; vertical-align: top; }
td.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
summary { cursor: pointer; padding: .3em 0; }
pre { background: #f7f7f7; padding: .6em; overflow-x: auto; }
pre span { display: block; min-height: 1.2em; }
.add { background: #d9f7dd; } .remove { background: #fbdddd; } .hunk { color: #0a6a8a; }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #181818; } th, td { border-color: #444; } pre { background: #202020; }
  .add { background: #123d1a; } .remove { background: #4a1a1a; } .hunk { color: #6ac; }
}
"""
_CLASSES = {"+": "add", "-": "remove", "@": "hunk"}


def page(comparison: Comparison) -> str:
    """The page's text: a table of the groups, each group's kernels and diff, and what is not shown."""
    title = escape(f"codediff {comparison.old} {comparison.new}")
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            f'<head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style></head>',
            "<body>",
            f"<h1>{title}</h1>",
            *(f"<p>{escape(line)}</p>" for line in summary(comparison)),
            *_overview(comparison),
            *(line for i, group in enumerate(comparison.groups, 1) for line in _group(i, group)),
            *_listed(comparison, "renamed only", "kernels have other names of variables alone"),
            *_listed(comparison, "same", "kernels are the same"),
            "</body>",
            "</html>",
            "",
        ]
    )


def _overview(comparison: Comparison) -> Iterator[str]:
    if not comparison.groups:
        return
    yield "<table>"
    yield _line("th", ("", "kernels", *HEADINGS))
    for i, group in enumerate(comparison.groups, 1):
        link = f'<a href="#g{i}">{i} {group.status}</a>'
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in (str(len(group.rows)), *_cells(group.rows[0])))
        yield f"<tr><td>{link}</td>{cells}</tr>"
    yield "</table>"


def _group(number: int, group: Group) -> Iterator[str]:
    yield f'<details open="open" id="g{number}">'
    yield f"<summary>{number}: {group.status}, {len(group.rows)} kernels</summary>"
    yield "<table>"
    yield _line("th", HEADINGS)
    for row in group.rows:
        yield _line("td", _cells(row))
    yield "</table>"
    if group.diff:
        yield "<pre>" + "".join(map(_diff_line, group.diff)) + "</pre>"
    elif group.status in ("added", "removed"):
        yield f"<pre>{escape(group.rows[0].kernel.text)}</pre>"
    yield "</details>"


def _listed(comparison: Comparison, status: str, told: str) -> Iterator[str]:
    rows = comparison.of_status(status)
    if rows:
        yield f"<details><summary>{len(rows)} {told}</summary><table>"
        yield _line("th", ("kernel", "scheduler"))
        for row in rows:
            yield _line("td", (row.kernel.label, row.kernel.use.scheduler))
        yield "</table></details>"


def _cells(row: Row) -> tuple[str, ...]:
    problems = [code.problem for code in (row.old_code, row.new_code) if code is not None and code.problem]
    differs = "; ".join([*row.differences, *problems])
    return row.kernel.label, row.kernel.use.scheduler, *sides(row).values(), differs


def _line(tag: str, cells: tuple[str, ...]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def _diff_line(line: str) -> str:
    kind = _CLASSES.get(line[:1])
    attribute = f' class="{kind}"' if kind else ""
    return f"<span{attribute}>{escape(line)}</span>"
