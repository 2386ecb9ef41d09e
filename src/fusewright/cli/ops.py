"""`fusewright ops`: every operation, its types, whether kernels are generated for it, and what is tested."""

from __future__ import annotations

import importlib
import json
import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fusewright.cli.survey import TYPES, Surveyed, survey
from fusewright.core.dtype import DataType
from fusewright.core.errors import FusewrightError, OptionError
from fusewright.frontend.stubs import registered_text

# Types that an operation may lack for its list to be written as what it lacks.
FEW = 3
# Columns; what an operation needs that is not supported takes more than one line.
COMPUTED_WIDTH = 24


def ops(console: Console, *, as_json: bool, plugins: Sequence[str] = (), typed: str | None = None) -> None:
    """Print the table, or one JSON object with an entry an operation.

    Args:
        plugins: modules, or Python files, that register operations: they are imported first.
        typed: the file to write instead: a module that declares the registered operations.

    Raises:
        OptionError: one of them cannot be imported; or there is nothing to declare, or no such folder.
    """
    for plugin in plugins:
        _import(plugin)
    if typed is not None:
        text = registered_text()
        try:
            Path(typed).write_text(text, encoding="utf-8")
        except OSError as error:
            raise OptionError(
                option="typed", given=str(error), expected="a file that can be written"
            ) from error
        return
    rows = survey()
    if as_json:
        print(json.dumps({row.name: _plain(row) for row in rows}, indent=2))
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title, width in (("operation", None), ("computed", COMPUTED_WIDTH)):
        table.add_column(title, no_wrap=width is None, max_width=width)
    for title in ("tested", "types"):
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(row.name, row.through, _tested(row), _types(row))
    console.print(table)


def _import(plugin: str) -> None:
    try:
        if plugin.endswith(".py"):
            runpy.run_path(plugin)
        else:
            importlib.import_module(plugin)
    except FusewrightError:
        raise
    except Exception as error:
        raise OptionError(
            option="plugin", given=f"{plugin} ({type(error).__name__}: {error})", expected="modules and files"
        ) from error


def _plain(row: Surveyed) -> dict[str, Any]:
    types = None if row.dtypes is None else [dtype.name for dtype in row.dtypes]
    return {"dtypes": types, "computed": row.through, "tested": [dtype.name for dtype in row.tested]}


def _tested(row: Surveyed) -> str:
    """Which of its types; nothing where there is nothing to compare."""
    return _listed(row.tested, row.dtypes or row.tested) if row.tested else ""


def _types(row: Surveyed) -> str:
    return "" if row.dtypes is None else _listed(row.dtypes, TYPES)


def _listed(types: Sequence[DataType], whole: Sequence[DataType]) -> str:
    """Types by what they lack of the whole, if that is little."""
    missing = [dtype for dtype in whole if dtype not in types]
    if not missing:
        return "all"
    few = len(missing) <= FEW
    return ("all but " if few else "") + " ".join(dtype.name for dtype in (missing if few else types))
