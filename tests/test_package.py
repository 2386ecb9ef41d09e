"""The package root: cheap to import, and every name it promises is there."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fusewright

SRC = str(Path(fusewright.__file__).parents[1])


def test_import_loads_no_heavy_package() -> None:
    code = (
        f"import sys; sys.path.insert(0, {SRC!r}); import fusewright; "
        "print([m for m in ('torch', 'numpy', 'cuda', 'msgspec', 'rich') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


ALIASES = {"ResizeParams": "PointwiseParams"}


@pytest.mark.parametrize("name", fusewright.__all__)
def test_public_name_resolves(name: str) -> None:
    value = getattr(fusewright, name)
    assert name == "__version__" or value.__name__ == ALIASES.get(name, name)
    assert name in dir(fusewright)


def test_type_checkers_see_what_is_loaded_on_first_use() -> None:
    tree = ast.parse(Path(fusewright.__file__).read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    declared = [
        (alias.asname, node.module)
        for block in blocks
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    assert sorted(declared) == sorted(fusewright._EXPORTS.items())


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'fusewright' has no attribute 'fusion'"):
        fusewright.fusion  # noqa: B018
