"""Every operation, type and shape of the matrix against torch, with computed error bounds.

The run by default takes some cells, the same each time, in which every operation occurs; `--thorough` takes
all.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fusewright.cli.survey import TESTED, survey
from fusewright.cuda.printer import print_kernel
from fusewright.ops import OPS
from fusewright.runtime import compiled_kernel
from tests.fuzz import running
from tests.fuzz.operations import OPERATIONS
from tests.fuzz.programs import to_script
from tests.fuzz.shrinking import shrink
from tests.matrix.cells import Place, chosen, places, program, shown_in, types_shown
from tests.matrix.rows import ROWS

# Of each so many cells one has its kernels compiled by NVRTC, as those of all other tests are.
COMPILED_EACH = 20
SECONDS_TO_SHRINK = 5.0


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "place" in metafunc.fixturenames:
        found = list(places()) if metafunc.config.getoption("--thorough") else chosen()
        metafunc.parametrize("place", found, ids=str)


def test_cell(target: torch.device, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    written = program(place.operations, place.dtype, place.shape)
    if not written.outputs:
        pytest.skip("none of its operations takes this type and shape")
    if place.digest % COMPILED_EACH:
        monkeypatch.setattr(compiled_kernel, "print_kernel", print_kernel)
    found = running.run(written, target.type).finding
    if found is not None:
        smaller, shown = shrink(written, found, lambda p: running.run(p, target.type), SECONDS_TO_SHRINK)
        pytest.fail(f"{shown.message}\n\n{to_script(smaller, target.type)}", pytrace=False)


# ---- the table ---------------------------------------------------------------------------------------------


def test_every_operation_has_a_row_and_a_reference() -> None:
    """But for those that only other GPUs can do, which `test_errors` sees refused."""
    elsewhere = {row.name for row in survey() if row.through.startswith("needs")}
    assert ROWS.keys() == OPERATIONS.keys() == OPS.keys() - elsewhere


def test_every_operation_is_shown_in_the_run_by_default() -> None:
    assert ROWS.keys() <= {op for place in chosen() for op in shown_in(place)}


def test_ops_prints_what_the_matrix_shows(golden: Callable[[str | Path, str], None]) -> None:
    shown = types_shown()
    assert all(shown.values())
    lines = [f"  {json.dumps(op)}: {json.dumps(types)}" for op, types in shown.items()]
    golden(TESTED, "{\n" + ",\n".join(lines) + "\n}\n")
