"""A plugin of pytest that dumps the kernels of the tests of any revision; it runs in that revision.

`revisions` starts pytest with a copy of it under another name, and with FUSEWRIGHT_DUMP_DIR.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fusewright.frontend.recorded.cache import FusionCache

#: The file in the dump folder that says how the tests ended. `revisions` has its own copy of the name,
#: since it does without pytest.
OUTCOME = "tests.json"
DUMP_VARIABLE = "FUSEWRIGHT_DUMP_DIR"


class _NoCheck:
    """Stands for the check of every kernel in tests/conftest.py, which takes most of the time."""

    test = ""

    def compile(self, least: int = 1) -> None:
        pass

    def raise_misread(self) -> None:
        pass


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
