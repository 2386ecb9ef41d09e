"""Which cases a benchmark is told to take, and what it says to those that there are not."""

from __future__ import annotations

import argparse
import re

import pytest
import torch

from bench import selection
from bench.fusion_catalogue import CATALOGUE
from bench.operation import Inputs
from bench.operations import OPERATIONS


def _selected(*given: str) -> list[tuple[str, tuple[int, ...]]]:
    parser = argparse.ArgumentParser()
    selection.add_arguments(parser)
    arguments = parser.parse_args(given)
    again = parser.parse_args(selection.options(arguments))
    found, repeated = (
        [(each.name, shape) for each, shape in selection.cases(one, CATALOGUE)] for one in (arguments, again)
    )
    assert found == repeated
    return found


def test_cases_are_named_one_by_one():
    found = _selected("--cases", "mish:6x40,mish:5x7:float16:misaligned,outer_sum:6x8:float32:mixed7")
    assert found == [
        ("mish bfloat16 plain", (6, 40)),
        ("mish float16 misaligned", (5, 7)),
        ("outer_sum float32 mixed7", (6, 8)),
    ]


def test_a_named_case_has_its_type_and_layout():
    case, shape = selection.named_case("mish:5x7:float16:misaligned", CATALOGUE)
    inputs = case.inputs(shape, Inputs(torch.device("cpu")))
    assert {each.dtype for each in inputs} == {torch.float16}
    assert all(each.storage_offset() == 1 for each in inputs)


@pytest.mark.parametrize("given", [["--drawn", "3"], ["--reductions", "3"], ["--only", "mish,outer_sum"]])
def test_the_same_arguments_select_the_same_cases(given):
    assert len(_selected(*given, "--count", "4")) == (2 if given[0] == "--only" else 4)


def test_drawn_cases_lie_in_the_layouts_that_are_named():
    found = _selected("--drawn", "3", "--count", "6", "--layouts", "mixed")
    assert all(re.search(r" mixed\d+$", name) for name, _ in found)
    with pytest.raises(ValueError, match="no layout odd; there are: plain, tr"):
        _selected("--drawn", "3", "--layouts", "odd,plain")


def test_first_shapes_come_first():
    shapes = {each.name: each.shapes for each in CATALOGUE}
    firsts = [shape == shapes[name][0] for name, shape in _selected()]
    assert firsts == sorted(firsts, reverse=True) and not all(firsts)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mish", "a case is NAME:SHAPE, .*; 'mish' was given"),
        ("mish:4x4:float16:plain:5", "a case is NAME:SHAPE, "),
        ("mist:4x4", "no fusion mist; there are: .*mish"),
        ("softmax:4x4", "no fusion softmax; "),
        ("mish:4x:float16", "a shape is sizes with an x between, .*; '4x' was given"),
        ("mish:4x4:float64", "no type float64; there are: bfloat16, "),
        ("mish:4x4:float16:odd", "no layout odd; there are: plain, transposed, misaligned, mixedN"),
        ("mish:4x4:float16:mixed", "no layout mixed; "),
    ],
)
def test_a_case_that_there_is_not(text, message):
    with pytest.raises(ValueError, match=message):
        selection.named_case(text, (*OPERATIONS, *CATALOGUE))
