"""Environment variables that nothing reads are warned of, once."""

import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import fusewright
from fusewright.core import environment
from fusewright.core.environment import VARIABLES, UnknownVariableWarning
from fusewright.core.options import Options


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    monkeypatch.setattr(environment, "_warned", set())


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("FUSEWRIGHT_DUMPS", "FUSEWRIGHT_DUMP"),
        ("FUSEWRIGHT_DISABEL", "FUSEWRIGHT_DISABLE"),
        ("FUSEWRIGHT_CACHEDIR", "FUSEWRIGHT_CACHE_DIR"),
        ("FUSEWRIGHT_SIMDEVICE", "FUSEWRIGHT_SIM_DEVICE"),
        ("fusewright_dump_dir", "FUSEWRIGHT_DUMP_DIR"),
    ],
)
def test_a_misspelt_name_is_warned_of_once(name, meant):
    with pytest.warns(UnknownVariableWarning, match=rf"{name}: did you mean {meant}\?") as found:
        assert Options.from_environment({name: "cuda"}) == Options()
    assert len(found) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Options.from_environment({name: "cuda"})


def test_a_name_that_is_like_no_other_is_told_all():
    with pytest.warns(UnknownVariableWarning, match="XYZZY: there are FUSEWRIGHT_CACHE_DIR, .*TUNE_JOURNAL"):
        Options.from_environment({"FUSEWRIGHT_XYZZY": "1"})


def test_known_names_and_those_of_others_are_not_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in (*VARIABLES, "FUSEWRIGHT_TEST_ANYTHING", "FUSEWRIGHT_PYTHON", "PATH", "FUSEWRIGHTS"):
            Options.from_environment({name: ""})


def test_every_variable_that_is_read_is_known():
    source = Path(fusewright.__file__).parent
    read = {
        name
        for path in source.rglob("*.py")
        for name in re.findall(r"FUSEWRIGHT_[A-Z_]*[A-Z]", path.read_text())
        if path.name != "environment.py"
    }
    assert {name for name in read if not name.startswith(environment._OF_DEVELOPERS)} <= set(VARIABLES)


def test_an_import_reads_none():
    code = "import warnings; warnings.simplefilter('error'); import fusewright; print('imported')"
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"FUSEWRIGHT_DUMPP": "cuda", "PYTHONPATH": str(Path(fusewright.__file__).parents[1])},
    )
    assert found.stdout == "imported\n", found.stderr
