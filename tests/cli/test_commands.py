"""The commands as users run them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fusewright.cli.main import main
from fusewright.ops import OPS

SRC = Path(__file__).parents[2] / "src"
# The bounds: 10 s for the demo. Subprocesses of parallel tests share the cores with the others.
PATIENCE_SECONDS = 120
# A fusion's part begins with its title, filled up with a line.
SECTIONS = re.compile(r"^(?=.+ ─{20,}$)", re.MULTILINE)


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`fusewright <arguments>` on the simulator."""
    path = os.pathsep.join([str(SRC), *filter(None, sys.path)])
    return subprocess.run(
        [sys.executable, "-m", "fusewright.cli", *arguments],
        env={**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "", **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


@pytest.fixture(scope="module")
def demo() -> str:
    result = run("demo", "--no-color")
    assert result.returncode == 0, result.stderr
    return result.stdout


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


def test_demo_as_json() -> None:
    result = run("demo", "--json")
    assert result.returncode == 0, result.stderr
    softmax, fused = json.loads(result.stdout)
    assert softmax["title"] == "softmax"
    for report in (softmax, fused):
        assert report["correct"] is True
        assert 0 < report["error_of_allowed"] <= 1
        [kernel] = report["kernels"]
        assert kernel["arch"] == "sm_90a"
        assert kernel["resources"]["registers"] > 0
        assert kernel["resources"]["spill_stores"] == 0
        assert kernel["params"]["reason"] == kernel["reason"] != ""
        assert report["stages"]["first call"]["seconds"] == report["first_call_seconds"]
        assert report["bandwidth"] is None


def test_demo_on_another_simulated_gpu() -> None:
    result = run("demo", "--json", FUSEWRIGHT_SIM_DEVICE="a100")
    assert result.returncode == 0, result.stderr
    assert {kernel["arch"] for report in json.loads(result.stdout) for kernel in report["kernels"]} == {
        "sm_80"
    }


def test_info_names_what_is_there(tmp_path: Path) -> None:
    result = run("info", FUSEWRIGHT_CACHE_DIR=str(tmp_path), FUSEWRIGHT_SIM_DEVICE="l4")
    assert result.returncode == 0, result.stderr
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


def test_info_as_json(tmp_path: Path) -> None:
    facts = json.loads(run("info", "--json", FUSEWRIGHT_CACHE_DIR=str(tmp_path)).stdout)
    assert facts["target"] == "simulator"
    assert facts["nvrtc"]["version"].startswith("13.")
    assert facts["simulated_gpu"]["arch"] == "sm_90a"
    assert facts["cache"]["directory"] == str(tmp_path)
    assert facts["cache"]["entries"] == 0


def test_unknown_simulated_gpu_is_said_without_a_traceback() -> None:
    result = run("info", FUSEWRIGHT_SIM_DEVICE="h900")
    assert result.returncode == 1
    assert "OptionError" in result.stderr and "h200" in result.stderr
    assert "Traceback" not in result.stderr


def test_without_a_command_it_says_how_it_is_used() -> None:
    result = run()
    assert result.returncode == 2
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
