"""A plugin of pytest that has the tests of any revision dump their kernels; it runs in that revision.

`revisions` starts pytest with it, a copy under another name, and with FUSEWRIGHT_DUMP_DIR. A revision from
before dump folders gets the two modules that write them, copied beside this file, and the call of them.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import os
import sys
import threading
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fusewright.core.options import Options
from fusewright.core.tracing import SILENT
from fusewright.cuda import nvrtc
from fusewright.frontend.cache import FusionCache

#: The file in the dump folder that says how the tests ended. `revisions` has its own copy of the name,
#: since it does without pytest.
OUTCOME = "tests.json"
#: The modules of a dump folder, in the order in which one imports another.
MODULES = ("fusewright.core.dump_folder", "fusewright.host.kernel_dumps")
DUMP_VARIABLE = "FUSEWRIGHT_DUMP_DIR"


class _NoCheck:
    """Stands for the check of every kernel in tests/conftest.py, which takes most of the time."""

    test = ""

    def compile(self, least: int = 1) -> None:
        pass

    def raise_misread(self) -> None:
        pass


def pytest_configure(config: pytest.Config) -> None:
    if all(field.name != "dump_dir" for field in fields(Options)):
        _add_dumps()


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> _NoCheck | None:
    if fixturedef.argname != "compile_check":
        return None
    check = _NoCheck()
    fixturedef.cached_result = check, fixturedef.cache_key(request), None  # type: ignore[arg-type]
    return check


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A definition that an earlier test of this process had is compiled again, so that each test has all."""
    FusionCache.reset()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """In the process that reports: with workers none of them."""
    failed = [
        report.nodeid for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, ())
    ]
    passed = len(terminalreporter.stats.get("passed", ()))
    folder = Path(os.environ[DUMP_VARIABLE])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / OUTCOME).write_text(json.dumps({"passed": passed, "failed": failed}), encoding="utf-8")


# ---- revisions from before dump folders


def _add_dumps() -> None:
    """Has executors write dump folders. Their options have no place for one: those that are made from the
    environment are marked, as newer revisions would.
    """
    # Newer revisions, which need none of this, may have these elsewhere.
    executor: Any = importlib.import_module("fusewright.host.executor").FusionExecutor
    compiler: Any = importlib.import_module("fusewright.runtime.compiler")
    parameters = inspect.signature(executor._bind).parameters
    if "plans" not in parameters or all(field.name != "parts" for field in fields(compiler.CompiledKernel)):
        pytest.exit("this revision of Fusewright is too old to have its kernels dumped", returncode=3)
    *_, dumps = [_load(name) for name in MODULES]
    marked: Any = Options
    marked.dump_dir = None
    _mark_options(marked)

    call = threading.local()
    compiler.CompiledKernel.code = lambda kernel, threads: _Code(call.setting.compiler, kernel)
    _wrap_executor(executor, dumps, call)


class _Code:
    """What newer kernels have as `code`: their compiler makes it there."""

    def __init__(self, compiler: Any, kernel: Any) -> None:
        params = (kernel.parts or (kernel,))[0].params
        self.name, self.text = kernel.name, kernel.full_text
        self.options = compiler._nvrtc_options(params, kernel.hardware.arch)
        self._compiler, self._kernel = compiler, kernel

    def cubin(self) -> Any:
        return self._compiler.cubin(self._kernel, tracer=SILENT)

    def resources(self) -> Any:
        return self.cubin().resources[self._kernel.name]

    def ptx(self) -> str:
        return nvrtc.compile_ptx(self.text, self.options)

    def sass(self) -> str:
        return nvrtc.sass(self.cubin())


def _mark_options(options: Any) -> None:
    from_environment, with_switches = options.from_environment, options.with_switches

    def marked(environ: Any = None) -> Any:
        made = from_environment(environ)
        variables = os.environ if environ is None else environ
        object.__setattr__(made, "dump_dir", variables.get(DUMP_VARIABLE) or None)
        return made

    def switched(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = with_switches(self, *args, **kwargs)
        object.__setattr__(made, "dump_dir", self.dump_dir)
        return made

    options.from_environment, options.with_switches = staticmethod(marked), switched


def _wrap_executor(executor: Any, dumps: Any, call: Any) -> None:
    """Has executors dump; `call.setting` is that of the call that is being compiled."""
    compiled, bind = executor._compiled, executor._bind

    def with_setting(self: Any, setting: Any, *args: Any) -> Any:
        call.setting = setting
        return compiled(self, setting, *args)

    def with_dump(self: Any, place: Any, plans: Any, binding: Any, memory: Any, *args: Any) -> Any:
        program = bind(self, place, plans, binding, memory, *args)
        setting = call.setting
        if setting.options.dump_dir is not None:
            dumps.dump_kernels(self.fusion, program, memory, setting.options)
        return program

    executor._compiled, executor._bind = with_setting, with_dump


def _load(name: str) -> ModuleType:
    """A module of Fusewright that this revision lacks, from the copy beside this file."""
    path = Path(__file__).with_name(f"{name.rpartition('.')[2]}.py")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
