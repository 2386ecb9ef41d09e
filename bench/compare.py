"""Two runs of the benchmark of operations beside each other, by the ratio to a copy's speed."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.report import Cell, text_table

HEADER = ("operation", "shape", "of copy, old", "of copy, new", "new over old", "")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("old", type=Path, help="JSON file that `bench operations` wrote")
    parser.add_argument("new", type=Path, help="JSON file of the run to check")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=0.05,
        help="a row may lose this part of its speed, relative to a copy's (0.05)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the rows of both; 1 where one became slower than is tolerated, failed, or is missing."""
    try:
        old, new = (_ratios(path) for path in (arguments.old, arguments.new))
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"bench compare: expected two files of `bench operations`: {type(error).__name__}: {error}")
        return 2
    cells: list[tuple[Cell, ...]] = []
    for (operation, shape), before in old.items():
        after = new.get((operation, shape))
        ratio = None if after is None else after / before
        verdict = "missing" if ratio is None else "slower" if ratio < 1 - arguments.tolerance else ""
        cells.append((operation, shape, before, after, ratio, verdict))
    for (operation, shape), after in new.items():
        if (operation, shape) not in old:
            cells.append((operation, shape, None, after, None, "new"))
    bad = [cell for cell in cells if cell[-1] in ("missing", "slower")]
    if arguments.json:
        print(json.dumps({"rows": [dict(zip(KEYS, cell)) for cell in cells], "bad": len(bad)}, indent=1))
    else:
        print(text_table(HEADER, cells))
        print(f"{len(bad)} of {len(old)} rows are missing, or slower by more than {arguments.tolerance:.0%}")
    return 1 if bad else 0


KEYS = ("operation", "shape", "old", "new", "ratio", "verdict")


def _ratios(path: Path) -> Mapping[tuple[str, str], float]:
    """The fraction of a copy's speed, by operation and shape."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return {
        (row["operation"], "x".join(map(str, row["shape"]))): float(row["of_copy"]) for row in content["rows"]
    }
