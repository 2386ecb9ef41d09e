"""Every switch that is listed with an effect changes what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusewright.core.options import DISABLE_OPTIONS, ENABLE_OPTIONS, Options
from fusewright.runtime.compiler import KernelCompiler
from fusewright.runtime.disk_cache import open_cache

ARGUMENTS = {
    "fast_math": "--use_fast_math",
    "kernel_debug": "--device-debug",
    "kernel_lineinfo": "--generate-line-info",
    "fma": "--fmad=false",
}
# Tested below, in test_compiler.py, tests/integration/test_library.py, tests/host/test_stable_sizes.py and
# tests/host/test_bundles.py.
OTHERS = {"constant_sizes", "horizontal_fusion", "matmul_expr_eval", "nvrtc_caching", "parallel_compile"}


def test_every_effect_is_tested() -> None:
    listed = {name for table in (ENABLE_OPTIONS, DISABLE_OPTIONS) for name, effect in table.items() if effect}
    assert listed == {*ARGUMENTS, *OTHERS}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_switches_of_the_compiler(name: str) -> None:
    def arguments(options: Options) -> list[str]:
        return [str(a) for a in KernelCompiler(options).nvrtc_options("sm_90a").arguments()]

    switched = Options().with_switches(**{"enable" if name in ENABLE_OPTIONS else "disable": name})
    assert ARGUMENTS[name] in arguments(switched)
    assert ARGUMENTS[name] not in arguments(Options())


def test_caching(tmp_path: Path) -> None:
    options = Options(cache_dir=str(tmp_path))
    assert open_cache(options).directory is not None
    assert open_cache(options.with_switches(disable="nvrtc_caching")).directory is None
