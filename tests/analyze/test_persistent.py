"""Which tensors outlive a reduction."""

from __future__ import annotations

import pytest

from fusewright.analyze.persistent import Reachability, persistent_tensors
from fusewright.ir import Fusion, TensorView
from fusewright.ops.build_elementwise import apply_to_tensor, copy_tensor
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_reduction import sum_, var_mean
from fusewright.ops.build_shape import broadcast


@pytest.fixture
def fusion() -> Fusion:
    return Fusion()


def row_sum(fusion: Fusion, x: TensorView) -> TensorView:
    return broadcast(fusion, sum_(fusion, x, [1]), [False, True])


def op(fusion: Fusion, name: str, *operands: TensorView) -> TensorView:
    return apply_to_tensor(fusion, name, *operands)


def test_softmax_holds_its_exponentials(fusion):
    x = copy_tensor(fusion, define_tensor(fusion, [-1, -1], True))
    weights = op(fusion, "exp", x)
    total = row_sum(fusion, weights)
    add_output(fusion, op(fusion, "div", weights, total))
    found = persistent_tensors(fusion)
    assert list(found) == [weights] and found[weights] == [weights.consumers[0]]


def test_inputs_are_not_computed_and_so_not_listed(fusion):
    x = define_tensor(fusion, [-1, -1], True)
    add_output(fusion, op(fusion, "sub", x, row_sum(fusion, x)))
    assert not persistent_tensors(fusion)


def test_nothing_persists_past_a_reduction_whose_result_is_only_stored(fusion):
    x = copy_tensor(fusion, define_tensor(fusion, [-1, -1], True))
    add_output(fusion, sum_(fusion, op(fusion, "neg", x), [1]))
    add_output(fusion, op(fusion, "exp", x))
    assert not persistent_tensors(fusion)


def test_two_reductions_are_both_named(fusion):
    x = copy_tensor(fusion, define_tensor(fusion, [-1, -1], True))
    a, b = row_sum(fusion, x), row_sum(fusion, op(fusion, "neg", x))
    add_output(fusion, op(fusion, "add", op(fusion, "mul", x, a), b))
    assert [t.is_reduction for t in persistent_tensors(fusion)[x]] == [True, True]


def test_outputs_of_one_node_are_reached_together(fusion):
    x = copy_tensor(fusion, define_tensor(fusion, [-1, -1], True))
    var, mean = var_mean(fusion, x, [1], 1, True)
    # Only the mean is used: the row still waits for the node that makes both.
    out = op(fusion, "sub", x, mean)
    add_output(fusion, out)
    add_output(fusion, var)
    reachability = Reachability(fusion)
    first, second = x.uses[0].outputs[:2]
    assert (
        reachability.reaches(first, out)
        and reachability.reaches(second, out)
        and not reachability.reaches(out, first)
    )
    assert list(persistent_tensors(fusion)) == [x]
