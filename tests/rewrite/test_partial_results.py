"""Reductions that go on from what another one of the same operand has found, and those that do not."""

from __future__ import annotations

import pytest
import torch

from fusewright.ir import Reduction
from fusewright.ops.evaluate import evaluate_fusion
from fusewright.rewrite import simplified
from tests.ops.definition import Definition


def rows_and_all(d: Definition, x):
    return d.sum(x, [2]), d.sum(x, [0, 1, 2])


def rows_columns_and_both(d: Definition, x):
    return d.sum(x, [2], keepdim=True), d.sum(x, [1], keepdim=True), d.sum(x, [2, 1], keepdim=True)


def written_first(d: Definition, x):
    return d.max(x, [0, 1, 2]), d.max(x, [0, 1]), d.max(x, [1])


def others(d: Definition, x):
    return d.sum(x, [0, 1]), d.sum(x, [1, 2]), d.max(x, [0, 1, 2]), d.argmax(x, 1), d.sum(d.exp(x), [0, 1, 2])


@pytest.mark.parametrize(
    "build, read",
    [
        (rows_and_all, ["2"]),
        (rows_columns_and_both, ["1", "2"]),
        (written_first, ["1"]),
        (others, ["0 1", "0 1 2", "0 1 2", "1", "1 2"]),
    ],
)
def test_what_all_elements_are_read_for(build, read):
    """read: the dimensions that are reduced of a tensor of three."""
    d, x = Definition(), torch.randn(3, 4, 5)
    for out in build(d, d.input(x)):
        d.add_output(out)
    d.fusion.unify_extents()
    new = simplified(d.fusion)
    reductions = [n for n in new.nodes if isinstance(n, Reduction) and n.tensor_inputs[0].ndim == 3]
    assert sorted(" ".join(map(str, sorted(n.reduced_dims))) for n in reductions) == read
    for ours, wanted in zip(evaluate_fusion(new, [x]), evaluate_fusion(d.fusion, [x]), strict=True):
        assert ours.shape == wanted.shape
        torch.testing.assert_close(ours, wanted)


def test_the_result_that_leaves_the_innermost_dimension_goes_on():
    d, x = Definition(), torch.randn(3, 4, 5)
    for out in rows_columns_and_both(d, d.input(x)):
        d.add_output(out)
    d.fusion.unify_extents()
    (again,) = (
        n for n in simplified(d.fusion).nodes if isinstance(n, Reduction) and n.tensor_inputs[0].ndim == 2
    )
    assert again.tensor_inputs[0].definition.reduced_dims == (1,)
