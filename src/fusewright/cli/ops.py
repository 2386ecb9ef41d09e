"""`fusewright ops`: every operation, the types that it takes, and whether kernels are generated for it."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.table import Table

from fusewright.cli.survey import TYPES, Surveyed, survey

# Types that an operation may lack for its list to be written as what it lacks.
FEW = 3
# Columns; what an operation needs that is not supported takes more than one line.
COMPUTED_WIDTH = 24


def ops(console: Console, *, as_json: bool) -> None:
    """Print the table, or one JSON object with an entry an operation."""
    rows = survey()
    if as_json:
        print(json.dumps({row.name: _plain(row) for row in rows}, indent=2))
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title, width in (("operation", None), ("computed", COMPUTED_WIDTH), ("tests", None)):
        table.add_column(title, no_wrap=width is None, max_width=width)
    table.add_column("types", overflow="fold")
    for row in rows:
        table.add_row(row.name, row.through, row.tested, _types(row))
    console.print(table)


def _plain(row: Surveyed) -> dict[str, Any]:
    types = None if row.dtypes is None else [dtype.name for dtype in row.dtypes]
    return {"dtypes": types, "computed": row.through, "tests": row.tested}


def _types(row: Surveyed) -> str:
    if row.dtypes is None:
        return ""
    missing = [dtype for dtype in TYPES if dtype not in row.dtypes]
    if not missing:
        return "all"
    few = len(missing) <= FEW
    return ("all but " if few else "") + " ".join(dtype.name for dtype in (missing if few else row.dtypes))
