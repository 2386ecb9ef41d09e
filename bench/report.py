"""Tables of measurements: text for the terminal, markdown for the documentation, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import fusewright

# Where results go unless told otherwise; git ignores it.
OUTPUT = Path("build/bench")

Cell = str | int | float | None


def cell_text(value: Cell) -> str:
    """Three significant digits for numbers between 0.001 and 1000; a dash for what was not measured."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


def text_table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Columns aligned: the first two to the left, numbers to the right."""
    lines = [list(header), *([cell_text(c) for c in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return "\n".join(
        "  ".join(t.ljust(w) if i < 2 else t.rjust(w) for i, (t, w) in enumerate(zip(line, widths))).rstrip()
        for line in lines
    )


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    lines = [list(header), ["---", "---", *["---:"] * (len(header) - 2)]]
    lines += [[cell_text(c) for c in row] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def environment() -> dict[str, Any]:
    """What the figures depend on."""
    facts: dict[str, Any] = {
        "fusewright": fusewright.__version__,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        facts |= {"device": properties.name, "sms": properties.multi_processor_count}
    return facts


def write(path: Path, content: Mapping[str, Any], markdown: str) -> None:
    """`path`.json and `path`.md."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    facts = ", ".join(f"{name} {value}" for name, value in environment().items())
    path.with_suffix(".md").write_text(f"{facts}\n\n{markdown}\n", encoding="utf-8")
    print(f"written: {path.with_suffix('.json')}, {path.with_suffix('.md')}")
