"""The commands as users run them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from fusewright.cli.main import main
from fusewright.ops import OPS

SRC = Path(__file__).parents[2] / "src"
# The bounds: 10 s for the demo. Subprocesses of parallel tests share the cores with the others.
PATIENCE_SECONDS = 120
# A fusion's part begins with its title, filled up with a line.
SECTIONS = re.compile(r"^(?=.+ ─{20,}$)", re.MULTILINE)

# Commands that are run one after the other in one process, which imports torch once: name, arguments and what
# they have in their environment. "CACHE" stands for an empty directory.
COMMANDS: dict[str, tuple[list[str], dict[str, str]]] = {
    "demo --json": (["demo", "--json"], {"FUSEWRIGHT_SIM_DEVICE": "a100"}),
    "info": (["info"], {"FUSEWRIGHT_CACHE_DIR": "CACHE", "FUSEWRIGHT_SIM_DEVICE": "l4"}),
    "info --json": (["info", "--json"], {"FUSEWRIGHT_CACHE_DIR": "CACHE"}),
    "info on an unknown GPU": (["info"], {"FUSEWRIGHT_SIM_DEVICE": "h900"}),
    "no command": ([], {}),
}
# What runs them: prints their statuses and what they wrote as JSON.
_RUN_ALL = """
import contextlib, io, json, os, sys
from fusewright.cli.main import main

before = dict(os.environ)
results = {}
for name, (arguments, environment) in json.load(sys.stdin).items():
    os.environ.clear()
    os.environ.update(before, **environment)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(arguments)
        except SystemExit as exit:
            status = exit.code
    results[name] = status, out.getvalue(), err.getvalue()
print(json.dumps(results))
"""


class Result(NamedTuple):
    """How a command ended."""

    status: int
    stdout: str
    stderr: str


def _python(*arguments: str, given: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """`python <arguments>`, where Fusewright finds no GPU."""
    path = os.pathsep.join([str(SRC), *filter(None, sys.path)])
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "", **environment},
        input=given,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


@pytest.fixture(scope="module")
def demo() -> str:
    result = _python("-m", "fusewright", "demo", "--no-color")
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def results(cache: str) -> dict[str, Result]:
    """Of each of COMMANDS."""
    given = json.dumps(COMMANDS).replace('"CACHE"', json.dumps(cache))
    done = _python("-c", _RUN_ALL, given=given)
    assert done.returncode == 0, done.stderr
    return {name: Result(*result) for name, result in json.loads(done.stdout).items()}


@pytest.mark.parametrize("title", ["softmax", "residual + layer norm + GELU"])
def test_demo_shows_every_stage_of(demo: str, title: str) -> None:
    [shown] = [part for part in SECTIONS.split(demo) if part.startswith(title)]
    for text in (
        "fd.add_output(",
        "scheduler  inner_persistent",
        "persistent_kernel=True",
        "reason: ",
        "def schedule(fd):",
        "fd.sched.parallelize(",
        "__global__",
        "NVRTC for sm_90a",
        "bytes spill stores",
        "first call",
        "lower",
        "run  on simulated NVIDIA H200",
    ):
        assert text in shown, f"{text!r} is not shown"


def test_demo_finds_both_results_right(demo: str) -> None:
    summary = demo[demo.index("summary ─") :]
    assert summary.count(": right") == 2
    assert summary.count(": 1 kernel,") == 2


def test_demo_without_a_terminal_has_no_escapes_and_no_padding(demo: str) -> None:
    assert "\x1b" not in demo
    code = [line for line in demo.splitlines() if line.lstrip().startswith(("s.", "fd.", "#include", "T"))]
    assert all(line == line.rstrip() for line in code)


def test_demo_as_json_on_another_simulated_gpu(results: dict[str, Result]) -> None:
    result = results["demo --json"]
    assert result.status == 0, result.stderr
    softmax, fused = json.loads(result.stdout)
    assert softmax["title"] == "softmax"
    for report in (softmax, fused):
        assert report["correct"] is True
        assert 0 < report["error_of_allowed"] <= 1
        [kernel] = report["kernels"]
        assert kernel["arch"] == "sm_80"
        assert kernel["resources"]["registers"] > 0
        assert kernel["resources"]["spill_stores"] == 0
        assert kernel["params"]["reason"] == kernel["reason"] != ""
        assert report["stages"]["first call"]["seconds"] == report["first_call_seconds"]
        assert report["bandwidth"] is None


def test_info_names_what_is_there(results: dict[str, Result]) -> None:
    result = results["info"]
    assert result.status == 0, result.stderr
    for text in (
        "fusewright",
        "torch",
        "NVRTC",
        "driver",
        "NVIDIA L4 (sm_89)",
        "0 kernels",
        "FUSEWRIGHT_CACHE_DIR",
    ):
        assert text in result.stdout


def test_info_as_json(results: dict[str, Result], cache: str) -> None:
    facts = json.loads(results["info --json"].stdout)
    assert facts["target"] == "simulator"
    assert facts["nvrtc"]["version"].startswith("13.")
    assert facts["simulated_gpu"]["arch"] == "sm_90a"
    assert facts["cache"]["directory"] == cache
    assert facts["cache"]["entries"] == 0


def test_unknown_simulated_gpu_is_said_without_a_traceback(results: dict[str, Result]) -> None:
    result = results["info on an unknown GPU"]
    assert result.status == 1
    assert "OptionError" in result.stderr and "h200" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_closed_output_is_no_fault(tmp_path: Path) -> None:
    command = f"{sys.executable} -m fusewright info --json >&-; echo status $? >{tmp_path / 'status'}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert (tmp_path / "status").read_text() == "status 0\n"
    assert not done.stderr


def test_without_a_command_it_says_how_it_is_used(results: dict[str, Result]) -> None:
    result = results["no command"]
    assert result.status == 2
    assert "demo" in result.stderr


# ---- ops ---------------------------------------------------------------------------------------------------

THROUGH_TORCH = {
    "aten",
    *("matmul", "linear", "grouped_mm", "scaled_mm"),
    *("sdpfa_fwd", "sdpfa_bwd"),
    *("argsort", "sort", "topk"),
}


@pytest.fixture
def listed(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    assert main(["ops", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_only_contractions_attention_and_sorting_go_through_torch(
    listed: dict[str, dict[str, object]],
) -> None:
    assert list(listed) == list(OPS)
    assert {name for name, row in listed.items() if row["computed"] == "torch"} == THROUGH_TORCH
    assert "Blackwell" in str(listed["cutlass_nvfp4_grouped_mm"]["computed"])


def test_types_are_those_that_operations_take(listed: dict[str, dict[str, object]]) -> None:
    types = {name: row["dtypes"] for name, row in listed.items()}
    assert types["nextafter"] == ["Double", "Float"]
    assert types["var_mean"] == ["Double", "Float", "ComplexFloat", "ComplexDouble"]
    assert "Int" in types["masked_fill"] and "Half" in types["gather"] and "Bool" in types["full"]
    # The survey has found arguments for every operation that has types.
    assert types["nv_block_quantize"] == ["Float", "Half", "BFloat16"]
    blackwells = {name for name, row in listed.items() if "Blackwell" in str(row["computed"])}
    assert {name for name, dtypes in types.items() if not dtypes} == {"at", *blackwells}


def test_ops_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops"]) == 0
    lines = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()}
    assert lines["matmul"][:3] == ["torch", "all", "Half"]
    assert lines["reshape"][0] == "generated"
    assert lines["nextafter"] == ["generated", "all", "Double", "Float"]
