"""Prints a comparison: the counts, a table of what changed, and the diffs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from fusewright.cli.codediff.comparison import Comparison, Group, Row

# Kernels named below a group's first, and lines printed of one diff; --html and --json have all.
MAX_NAMED = 5
MAX_LINES = 200
HEADER = ("", "kernels", "registers", "spilled", "shared", "instructions", "first of them")
_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def print_comparison(console: Console, comparison: Comparison, with_diffs: bool) -> None:
    for line in summary(comparison):
        _print(console, line)
    if not comparison.groups:
        return
    _print(console, "")
    for line in aligned([HEADER, *(_cells(i, group) for i, group in enumerate(comparison.groups, 1))]):
        _print(console, line)
    if not with_diffs:
        return
    for i, group in enumerate(comparison.groups, 1):
        _print(console, "")
        for line in _details(i, group):
            _print(console, line)
        for line in group.diff[:MAX_LINES]:
            _print(console, line, _STYLES.get(line[:1], ""))
        if len(group.diff) > MAX_LINES:
            _print(console, f"... {len(group.diff) - MAX_LINES} lines more (--html FILE shows all)")


def summary(comparison: Comparison) -> Iterator[str]:
    counts = comparison.counts
    yield f"{comparison.old} -> {comparison.new}"
    yield f"{len(comparison.rows)} kernels: " + ", ".join(f"{n} {status}" for status, n in counts.items())
    if counts["text only"]:
        yield "text only: the text differs, the machine code does not"
    if counts["renamed only"]:
        yield "renamed only: the text differs in names of variables and in comments (--json lists these)"
    if comparison.language:
        yield f"instructions are those of {comparison.language}"
    for note in comparison.notes:
        yield f"note: {note}"


def sides(row: Row) -> dict[str, str]:
    """What a kernel takes in the old and in the new dump, by the headings of a table."""
    launches = [None if k is None else k.use.launch for k in (row.old, row.new)]
    codes = [row.old_code, row.new_code]
    dynamic = [launch["shared"] if launch else 0 for launch in launches]
    known = [code if code is not None and not code.problem else None for code in codes]
    return {
        "registers": _beside([None if c is None else c.registers for c in known]),
        "spilled": _beside([None if c is None else c.spilled for c in known]),
        "shared": _beside([None if c is None else c.shared + d for c, d in zip(known, dynamic)]),
        "instructions": _beside([None if c is None else c.instructions for c in known]),
    }


def _beside(values: Sequence[int | None]) -> str:
    """One number where both are equal."""
    old, new = ["-" if value is None else str(value) for value in values]
    return old if old == new else f"{old} -> {new}"


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The rows as lines, the columns below each other."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()


def _cells(number: int, group: Group) -> tuple[str, ...]:
    row = group.rows[0]
    return f"{number} {group.status}", str(len(group.rows)), *sides(row).values(), row.kernel.label


def _details(number: int, group: Group) -> Iterator[str]:
    yield f"==== {number}: {group.status}, {len(group.rows)} kernels ===="
    for row in group.rows[:MAX_NAMED]:
        yield row.kernel.label
    if len(group.rows) > MAX_NAMED:
        yield f"and {len(group.rows) - MAX_NAMED} more"
    yield from (line for line in group.rows[0].differences if line != "text")
    for name, code in (("old", group.rows[0].old_code), ("new", group.rows[0].new_code)):
        if code is not None and code.problem:
            yield f"{name}: {code.problem}"


def _print(console: Console, line: str, style: str = "") -> None:
    console.print(Text(line, style), soft_wrap=True)
