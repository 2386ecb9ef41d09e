"""Every operation, type and shape of the matrix against torch, with computed error bounds.

The run by default takes some cells, the same each time, in which every operation occurs; `--matrix=all` takes
all.
"""

from __future__ import annotations

import pytest
import torch

from fusewright.cuda.printer import print_kernel
from fusewright.runtime import compiler
from tests.fuzz import running
from tests.fuzz.programs import to_script
from tests.fuzz.shrinking import shrink
from tests.matrix.cells import Place, chosen, places, program

# Of each so many cells one has its kernels compiled by NVRTC, as those of all other tests are.
COMPILED_EACH = 20
SECONDS_TO_SHRINK = 5.0


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "place" in metafunc.fixturenames:
        found = list(places()) if metafunc.config.getoption("--matrix") == "all" else chosen()
        metafunc.parametrize("place", found, ids=str)


def test_cell(target: torch.device, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    written = program(place.operations, place.dtype, place.shape)
    if not written.outputs:
        return
    if place.digest % COMPILED_EACH:
        monkeypatch.setattr(compiler, "print_kernel", print_kernel)
    found = running.run(written, target.type).finding
    if found is not None:
        smaller, shown = shrink(written, found, lambda p: running.run(p, target.type), SECONDS_TO_SHRINK)
        pytest.fail(f"{shown.message}\n\n{to_script(smaller, target.type)}", pytrace=False)
