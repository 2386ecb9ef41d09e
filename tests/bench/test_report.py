"""The benchmark's tables and its behaviour without a GPU."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bench import compile
from bench.__main__ import main
from bench.code_size import Size, count
from bench.plot import bars
from bench.report import markdown_table, text_table
from bench.throughput import Row, summary

ROW = Row("softmax", (512, 768), 1572864, 4.0, 8.0, 5.0, 3.0, first_call_s=0.1, error=0.5)


def test_ratios() -> None:
    assert ROW.of_copy == 0.75
    assert ROW.to_inductor == 0.8
    assert replace(ROW, autotuned_us=2.0).to_inductor == 2.0


def test_text_table_aligns_numbers_to_the_right() -> None:
    assert text_table(("op", "shape", "us"), [("softmax", "2x3", 1234.5), ("sum", "1", None)]) == (
        "op       shape    us\nsoftmax  2x3    1234\nsum      1         -"
    )


def test_markdown_table() -> None:
    assert markdown_table(("op", "shape", "us"), [("sum", "2x3", 0.12345)]) == (
        "| op | shape | us |\n| --- | --- | ---: |\n| sum | 2x3 | 0.123 |"
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_operations_say_that_they_need_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["operations", "--quick"]) == 1
    assert "GPU times need one" in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_host_runs_without_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["host", "--output", str(tmp_path / "host")]) == 0
    content = json.loads((tmp_path / "host.json").read_text())
    assert [row["operation"] for row in content["rows"]] == ["silu_mul", "softmax", "rmsnorm"]
    assert all(0 < row["fusewright_us"] < 1000 for row in content["rows"])
    assert content["first_call"]["first call"]["seconds"] > 0
    assert "first call/nvrtc" in content["first_call"]
    assert "| silu_mul | 64x64 |" in (tmp_path / "host.md").read_text()
    assert "Python part" in capsys.readouterr().out


def test_compile_counts_kernels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: dict[str, Any] = {"ROUNDS": 1, "LAYERS": 3, "MANY_LAYERS": 1, "CHAINS": {8: 1.0}}
    sizes |= {"EQUAL_UPDATES": 3, "OPTIMIZED_LAYERS": 1}
    for name, value in sizes.items():
        monkeypatch.setattr(compile, name, value)
    assert main(["compile", "--json", str(tmp_path / "compile.json")]) == 0
    rows = json.loads((tmp_path / "compile.json").read_text())["rows"]
    counts = {row["what"]: row["measured"] for row in rows if row["graph"] == "3 equal layers"}
    assert counts["kernels"] == 6 and counts["names"] == counts["texts"] == 2
    assert counts["kernels made for a layer more"] == counts["texts that the next process compiles"] == 0
    assert "seconds before NVRTC" in capsys.readouterr().out


SASS = """
        /*0000*/                   LDG.E R0, [R2.64] ;
.L_x_1:
        /*0010*/              @!P0 LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;
        /*0020*/                   FADD R0, R0, R4 ;
        /*0030*/               @P0 BRA `(.L_x_1) ;
.L_x_2:
        /*0040*/                   BRA `(.L_x_2);
        /*0050*/                   NOP;
"""
PTX = """
    ld.global.nc.f32 %f1, [%rd1];
$L__BB0_1:
    @%p1 bra $L__BB0_2;
    ld.global.nc.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];
$L__BB0_2:
    add.f32 %f1, %f1, %f2;
    @%p2 bra $L__BB0_1;
    ret;
"""


def test_the_loop_that_loads_most_is_counted() -> None:
    assert count(SASS, "SASS") == Size("SASS", 5, 3, 16, 1)
    assert count(PTX, "PTX") == Size("PTX", 6, 4, 16, 2)
    assert count("        /*0000*/   EXIT ;", "SASS") == Size("SASS", 1, 1, 0, 0)


def test_code_size_needs_no_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["code-size", "transpose_add"]) == 0
    printed = capsys.readouterr().out
    assert "instructions of" in printed and "| transpose_add | 8192x16384 | transpose |" in printed


def test_a_run_is_summed_up() -> None:
    rows = [ROW, replace(ROW, operation="layernorm", copy_us=4.0)]
    assert summary(rows).splitlines() == [
        "0.866 of a copy's speed in geometric mean; worst 0.750 (softmax 512x768)",
        "0.800 of torch.compile's time in geometric mean; worst 0.800 (softmax 512x768)",
        "1 of 2 rows reach their goal",
    ]
    assert "layernorm 512x768" in bars("speed", [(row.label, row.of_copy, 0.97) for row in rows])


def test_runs_are_compared_by_ratio(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [ROW, replace(ROW, operation="layernorm")]
    for name, copy_us in (("old", 3.0), ("new", 2.0)):
        content = {"rows": [replace(rows[0], copy_us=copy_us).record(), rows[1].record()]}
        (tmp_path / name).write_text(json.dumps(content))
    files = [str(tmp_path / name) for name in ("old", "new")]
    assert main(["compare", *files]) == 1
    out = capsys.readouterr().out
    assert "softmax" in out
    assert "1 of 2 rows are missing, or slower by more than 5%" in out
    assert main(["compare", "--tolerance", "0.5", *files]) == 0
    (tmp_path / "old").write_text("[]")
    assert main(["compare", *files]) == 2
