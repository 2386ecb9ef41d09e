"""Reductions of what one reduction alone reads of another, and those that stay."""

from __future__ import annotations

import pytest
import torch

from fusewright.core.dtype import DataType
from fusewright.ir import Indexed, Reduction
from fusewright.ops.evaluate import evaluate_fusion
from fusewright.rewrite import simplified
from tests.ops.definition import Definition


def in_turn(d: Definition, x):
    return d.sum(d.sum(x, [2]), [0])


def kept_in_turn(d: Definition, x):
    return d.max(d.max(x, [0], keepdim=True), [1], keepdim=True)


def permuted_between(d: Definition, x):
    return d.prod(d.permute(d.prod(x, [1]), [1, 0]), [0])


def rounded_between(d: Definition, x):
    return d.sum(d.cast(d.cast(d.sum(x, [0]), DataType.BFloat16), DataType.Float), [0])


def another_operation(d: Definition, x):
    return d.max(d.sum(x, [0]), [0])


@pytest.mark.parametrize(
    "build, count",
    [(in_turn, 1), (kept_in_turn, 1), (permuted_between, 1), (rounded_between, 2), (another_operation, 2)],
)
def test_reductions_in_turn_are_one(build, count):
    d, x = Definition(), torch.randn(3, 4, 5)
    out = build(d, d.input(x))
    d.add_output(out)
    # Somebody computes with it, too.
    d.add_output(d.mul(out, 2.0))
    d.fusion.unify_extents()
    new = simplified(d.fusion)
    assert sum(isinstance(node, Reduction) for node in new.nodes) == count
    for ours, wanted in zip(evaluate_fusion(new, [x]), evaluate_fusion(d.fusion, [x]), strict=True):
        assert ours.shape == wanted.shape
        torch.testing.assert_close(ours, wanted)


def test_a_sum_that_is_needed_by_itself_is_read_again():
    d, x = Definition(), torch.randn(3, 4)
    rows = d.sum(d.input(x), [1])
    d.add_output(d.exp(rows))
    d.add_output(d.sum(rows, [0]))
    d.fusion.unify_extents()
    assert simplified(d.fusion) is d.fusion


def losses_of_rows(d: Definition, x):
    losses = d.sum(d.exp(d.sub(x, d.max(x, [2], keepdim=True))), [2])
    return d.sum(losses, [0, 1])


def in_one_step(d: Definition, x):
    return d.sum(d.exp(d.sub(x, d.max(x, [2], keepdim=True))), [0, 1, 2])


def of_two_kinds(d: Definition, x):
    rows, columns = (d.max(x, [dim], keepdim=True) for dim in (2, 1))
    return d.sum(d.exp(d.sub(d.sub(x, rows), columns)), [0, 1, 2])


@pytest.mark.parametrize("build, reduced", [(losses_of_rows, 1), (in_one_step, 1), (of_two_kinds, 3)])
def test_what_follows_from_a_reduction_of_rows_reduces_the_rows_first(build, reduced):
    d, x = Definition(), torch.randn(3, 4, 5)
    d.add_output(build(d, d.input(x)))
    d.fusion.unify_extents()
    new = simplified(d.fusion)
    after = next(n for n in new.ordered_nodes() if isinstance(n, Reduction) and n.op.name == "sum")
    assert sum(axis.is_reduction for axis in after.output.logical) == reduced
    for ours, wanted in zip(evaluate_fusion(new, [x]), evaluate_fusion(d.fusion, [x]), strict=True):
        assert ours.shape == wanted.shape
        torch.testing.assert_close(ours, wanted)


def merged(d: Definition, x):
    return d.sum(d.neg(d.flatten(d.exp(x), 0, 1)), [0])


def merged_in_all(d: Definition, x):
    return d.max(d.flatten(d.exp(x)), [0])


def merged_with_what_stays(d: Definition, x):
    return d.sum(d.flatten(d.exp(x), 1, 2), [0])


def read_by_others(d: Definition, x):
    y = d.flatten(d.exp(x), 0, 1)
    return d.add(d.sum(y, [0]), y)


def first_of_a_row(d: Definition, x):
    return d.sum(d.neg(d.slice(d.exp(x), [0, 0, 0], [d.size(x, 0), d.size(x, 1), 2])), [2])


def first_rows(d: Definition, x):
    return d.max(d.slice(x, [0, 0, 0], [2, d.size(x, 1), d.size(x, 2)]), [0], keepdim=True)


@pytest.mark.parametrize(
    "build, count",
    [
        (merged, 0),
        (merged_in_all, 0),
        (merged_with_what_stays, 1),
        (read_by_others, 1),
        # Its elements are where those of a reshape would be, but it has not all of them.
        (first_of_a_row, 1),
        (first_rows, 1),
    ],
)
def test_what_a_reshape_merged_is_reduced_before_it(build, count):
    d, x = Definition(), torch.randn(3, 4, 5)
    d.add_output(d.mul(build(d, d.input(x)), 2.0))
    d.fusion.unify_extents()
    new = simplified(d.fusion)
    assert sum(isinstance(node, Indexed) for node in new.nodes) == count
    (ours,), (wanted,) = evaluate_fusion(new, [x]), evaluate_fusion(d.fusion, [x])
    torch.testing.assert_close(ours, wanted)
