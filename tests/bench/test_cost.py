"""`python -m bench cost`: what it collects of the corpus, and how it judges decisions."""

import json

import pytest
import torch

from bench.__main__ import main
from bench.cost import decision_summary, summary, verdict


@pytest.mark.parametrize(
    "without, with_, taken, expected",
    [
        (10.0, 5.0, True, "right"),
        (10.0, 5.0, False, "wrong"),
        (5.0, 10.0, True, "wrong"),
        (5.0, 10.0, False, "right"),
        (10.0, 9.8, False, "tie"),
        (None, 5.0, True, None),
    ],
)
def test_a_decision_is_right_if_what_was_chosen_is_not_slower(without, with_, taken, expected):
    assert verdict(without, with_, taken) == expected


def test_errors_are_relative_to_the_time():
    rows = [
        {"scheduler": "a", "estimate_us": 8.0, "us": 10.0},
        {"scheduler": "b", "estimate_us": 9, "us": None},
    ]
    name, count, error = summary(rows)[0][:3]
    assert (name, count) == ("all", 1) and error == pytest.approx(0.2)
    assert [row[0] for row in summary(rows)] == ["all", "a"]


def test_decisions_are_counted_by_kind():
    rows = [{"kind": "merge", "verdict": v} for v in ("right", "tie", "wrong", "right", None)]
    assert [tuple(row) for row in decision_summary(rows)][1] == ("merge", "75.0% right", 4, 2, 1, 1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="measures there")
def test_segments_and_decisions_of_a_block_run_in_the_simulator(capsys, tmp_path):
    assert main(["cost"]) == 1
    assert "--check runs" in capsys.readouterr().out
    output = tmp_path / "cost"
    assert main(["cost", "--check", "--only", "resnet50", "--output", str(output)]) == 0
    found = json.loads(output.with_suffix(".json").read_text())
    assert {row["scheduler"] for row in found["segments"]} >= {"inner_persistent", "pointwise"}
    assert all(row["estimate_us"] > 0 and row["us"] is None for row in found["segments"])
    kinds = {row["kind"] for row in found["decisions"]}
    assert {"merge", "redefinition", "horizontal"} <= kinds
    merges = [row for row in found["decisions"] if row["kind"] == "merge"]
    assert all(len(row["without"]["kernels"]) == 2 and len(row["with"]["kernels"]) == 1 for row in merges)
