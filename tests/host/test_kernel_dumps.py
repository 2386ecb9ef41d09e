"""Dump folders: what their files are called, what is in them and in the index, and who may write at once."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from fusewright import FusionDefinition
from fusewright.core.dump_folder import INDEX, DumpFolder
from fusewright.core.errors import OptionError
from fusewright.core.options import Options
from fusewright.cuda import nvrtc
from fusewright.runtime.identity import NAME_DIGITS


def options(path: Path, stages: str = "cuda") -> Options:
    return Options.from_environment({"FUSEWRIGHT_DUMP_DIR": str(path), "FUSEWRIGHT_DUMP": stages})


def exp_definition(options: Options, scale: float) -> FusionDefinition:
    with FusionDefinition(options=options) as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        fd.add_output(fd.ops.exp(x * scale))
    return fd


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / INDEX).read_text().splitlines()]


def test_names_and_index(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    """Two kernels in one program, another runtime for other sizes, and a second fusion."""
    asked = options(tmp_path)
    with FusionDefinition(options=asked) as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        total = fd.ops.sum(fd.ops.sqrt(fd.ops.sum(x * x, dims=[1])), dims=[0])
        fd.add_output(fd.ops.exp(x) * total)
    for shape in ((8, 64), (8, 64), (3, 5), (16, 64)):
        fd.execute([torch.randn(shape)])
    exp_definition(asked, 2.0).execute([torch.randn(4, 4)])
    found = entries(tmp_path)
    lines = []
    for entry in found:
        text = (tmp_path / entry["files"]["cuda"]).read_text()
        assert entry["kernel"] in text
        assert entry["kernel"][:-NAME_DIGITS] == f"fusewright_{entry['scheduler']}_"
        assert entry["test"].endswith("::test_names_and_index") and entry["options"]["arch"] == "sm_90a"
        assert entry["launch"].keys() == {"grid", "block", "shared"}
        numbers = [entry[name] for name in ("fusion", "concretization", "runtime", "segment")]
        lines.append(f"{entry['base']}: {entry['scheduler']} {numbers}")
    files = sorted(path.name for path in tmp_path.iterdir())
    assert [name for name in files if name.startswith("tmp")] == []
    golden("host/dump_names", "\n".join([*lines, "", *files]))


def test_each_stage_has_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, stages, scale in (("all", "", 3.0), ("some", "ptx,cubin,params", 4.0)):
        exp_definition(options(tmp_path / name, stages), scale).execute([torch.randn(4, 8)])
    [entry] = entries(tmp_path / "all")
    expected = {"cuda", "ptx", "cubin", "ptxas"} | ({"sass"} if nvrtc.disassembler() else set())
    assert entry["files"].keys() == expected
    assert len({name.partition(".")[0] for name in entry["files"].values()}) == 1
    read = {stage: (tmp_path / "all" / name).read_bytes() for stage, name in entry["files"].items()}
    assert read["cubin"][:4] == b"\x7fELF" and f".entry {entry['kernel']}".encode() in read["ptx"]
    assert json.loads(read["ptxas"])["registers"] > 0
    [entry] = entries(tmp_path / "some")
    assert entry["files"].keys() == {"ptx", "cubin"}
    printed = capsys.readouterr().err
    assert "params" in printed and "ptx" not in printed


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    fd = exp_definition(options(tmp_path / "file"), 5.0)
    with pytest.raises(OptionError, match=r"FUSEWRIGHT_DUMP_DIR: .*file cannot be made"):
        fd.execute([torch.randn(4, 4)])


def test_cubin_is_no_text() -> None:
    with pytest.raises(OptionError, match="FUSEWRIGHT_DUMP_DIR"):
        Options.from_environment({"FUSEWRIGHT_DUMP": "cubin"})


def test_threads_and_processes_write_at_once(tmp_path: Path) -> None:
    """Every fusion has a number of its own, and every line of the index is whole."""
    fd = exp_definition(options(tmp_path), 1.0)
    fd.execute([torch.randn(4, 4)])
    sys.stdout.flush()
    child = os.fork()
    if child == 0:  # it goes on with a fusion that its parent has a number for
        try:
            fd.execute([torch.randn(64, 5000)])
            os._exit(0)
        finally:
            os._exit(1)
    with ThreadPoolExecutor(4) as pool:
        numbers = list(pool.map(lambda i: DumpFolder(tmp_path).add_fusion(str(i)), range(100)))
    assert os.waitpid(child, 0)[1] == 0
    found = entries(tmp_path)
    assert len({entry["base"] for entry in found}) == len(found) == 2
    assert len(set(numbers) | {entry["fusion"] for entry in found}) == 102
