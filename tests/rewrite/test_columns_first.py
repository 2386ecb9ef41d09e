"""Reductions of rows in short runs of memory, cut in two: across the runs, then along what a run was of."""

from __future__ import annotations

import pytest
import torch

from fusewright.ir import Reduction
from fusewright.rewrite.proposed.columns_first import (
    can_be_cut,
    dims_across,
    reduced_in_steps,
)
from tests.ops.definition import Definition
from tests.reference import reference


def cut(d: Definition):
    """The definition's fusion with all its reductions in two steps, and what it computed before."""
    d.fusion.unify_extents()
    new, _ = d.fusion.clone()
    for node in [n for n in new.ordered_nodes() if isinstance(n, Reduction)]:
        across = dims_across(node.tensor_inputs[0], node.reduced_dims)
        assert can_be_cut(new, node, across)
        for old, made in reduced_in_steps(new, node, across).items():
            for use in list(old.uses):
                if use not in made.uses:
                    new.replace_inputs(use, {old: made})
    return new


@pytest.mark.parametrize("name", ["sum", "max", "prod"])
def test_what_combines_elements(name):
    d, x = Definition(), torch.randn(3, 7, 4, 5)
    d.add_output(d.neg(getattr(d, name)(d.input(x), [1, 3])))
    new = cut(d)
    reduced = [node.reduced_dims for node in new.ordered_nodes() if isinstance(node, Reduction)]
    assert (1,) in reduced and (2,) in reduced
    for ours, wanted in zip(reference(new, [x]), reference(d.fusion, [x]), strict=True):
        torch.testing.assert_close(ours, wanted)


def test_moments_are_as_accurate_as_in_one_step():
    """Means far apart from each other, and from 0, beside small deviations."""
    d, x = Definition(), torch.randn(3, 50, 4, 5) + 1000 * torch.randn(3, 1, 4, 5)
    variance, mean = d.var_mean(d.input(x), [1, 3], correction=0)
    d.add_output(d.neg(variance))
    d.add_output(d.neg(mean))
    wide = x.double()
    for ours, wanted in zip(
        reference(cut(d), [x]), (-wide.var((1, 3), correction=0), -wide.mean((1, 3))), strict=True
    ):
        torch.testing.assert_close(ours.double(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "dims, across",
    [((1, 3), [1]), ((0, 1, 3), [0, 1]), ((1, 2, 3), []), ((3,), []), ((0, 1), [0, 1]), ((0, 2, 3), [0])],
)
def test_dimensions_across_are_those_that_kept_ones_stand_inside_of(dims, across):
    d = Definition()
    assert dims_across(d.input(torch.randn(3, 7, 4, 5)), dims) == across


def test_what_is_expanded_stays():
    d = Definition()
    x = d.expand(d.input(torch.randn(3, 1, 4, 5)), [3, 7, 4, 5])
    d.add_output(d.sum(x, [1, 3]))
    d.fusion.unify_extents()
    [node] = [node for node in d.fusion.nodes if isinstance(node, Reduction)]
    assert not can_be_cut(d.fusion, node, [1])
