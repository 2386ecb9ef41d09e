"""The package root: cheap to import, and every name it promises is there."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import torch

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
# Types of annotations, which have no name of their own.
UNIONS = {"Default", "Planner", "ScalarLike"}


def test_objects_print_what_they_are() -> None:
    """No address: a session shows what a user holds."""
    with fusewright.FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        size, sizes = x.size(0), fd.define_vector([2, 3])
        fd.add_output(x + 1.0)
    inputs = [torch.zeros(4)]
    kernel = fd.kernels_for(inputs)[0]
    fd._setup_schedule(inputs)
    objects = [
        fd,
        x,
        size,
        sizes,
        fd.ops,
        fd.sched,
        fd.sched.tensors(),
        fd.sched.compute_pointwise_heuristics(),
    ]
    objects += [kernel, kernel.kernel, kernel.code, kernel.kernel.schedule, kernel.kernel.schedule.fusion]
    objects += [fusewright.default_registry(), *fusewright.default_registry()]
    objects += [
        fusewright.FusionCache.get(),
        fusewright.DeviceMesh([0]),
        kernel.params,
        fusewright.described("h200"),
    ]
    assert [text for text in map(repr, objects) if " at 0x" in text] == []
    with fusewright.heuristics({"pointwise": test_objects_print_what_they_are}):
        assert "pointwise with test_objects_print_what_they_are" in repr(fusewright.default_registry())
    assert "fd.sched.split(" not in repr(fd.sched)
    fd.sched.split(fd.sched.tensors()[0], 0, 4)
    assert "fd.sched.split(" in repr(fd.sched)


@pytest.mark.parametrize("name", fusewright.__all__)
def test_public_name_resolves(name: str) -> None:
    value = getattr(fusewright, name)
    assert name in ("__version__", *UNIONS) or value.__name__ == ALIASES.get(name, name)
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
