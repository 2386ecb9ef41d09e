"""`fusewright sweep`: everything but how long kernels take."""

from __future__ import annotations

import json

import pytest
import torch

from fusewright.cli.main import main

SCRIPT = """
import torch
from fusewright import FusionDefinition

x = torch.rand(64, 32)
with FusionDefinition() as doubled:
    doubled.add_output(doubled.ops.add(doubled.from_pytorch(x), 1.5))
doubled.execute([x])
doubled.execute([x])
"""


def test_a_sweep_is_recorded_and_goes_on_where_it_was(tmp_path, capfd):
    script, journal, plot = (tmp_path / name for name in ("s.py", "j.sqlite", "p.svg"))
    script.write_text(SCRIPT)

    def sweep(*more: str) -> tuple[dict[str, object], str]:
        command = ["sweep", *more, "--journal", str(journal), "--json", "--jobs", "1"]
        assert main(command) == 0
        out, err = capfd.readouterr()
        [outcome] = json.loads(out)
        return outcome, err

    first, _ = sweep(str(script), "--points", "2")
    assert first["name"] == "doubled" and first["scheduler"] == "pointwise"
    tried = sum(first["counts"].values())
    known = "measured" if torch.cuda.is_available() else "compiled"
    assert 2 <= tried <= 3 and first["counts"].get(known, 0) >= 1  # a point may be the heuristic's
    again, text = sweep(str(script), "--points", "2", "--plot", str(plot))
    assert f"{tried} of {tried} tried ({tried} known" in text
    assert again == first and ("nothing measured" in plot.read_text()) == (known == "compiled")
    shown, _ = sweep("--show")
    assert shown == first


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "which SCRIPT?"),
        (["missing.py"], "there is no script missing.py"),
        (["--show"], "there is no journal"),
        (["fails.py"], "fails.py failed in line 1: ZeroDivisionError: division by zero"),
        (["empty.py"], "executed no fusion"),
        (["empty.py", "--plot", "none/p.svg"], "none/p.svg cannot be written: there is no folder"),
    ],
)
def test_what_cannot_be_swept_is_said(arguments, problem, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fails.py").write_text("1 / 0")
    (tmp_path / "empty.py").write_text("")
    assert main(["sweep", *arguments]) == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize("given", ["0", "-1", "x", "1.5", "1000001", "9" * 30])
def test_numbers_that_are_no_counts(given, capsys):
    with pytest.raises(SystemExit):
        main(["sweep", "--points", given, "script.py"])
    assert f"expected an integer of 1 to 1000000, got {given}" in capsys.readouterr().err
