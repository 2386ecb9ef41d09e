"""Relabelings move up to the loads: structure before and after, and the same numbers."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
import torch

from fusewright import FusionDefinition
from fusewright.core.errors import VerifyError
from fusewright.core.options import Options
from fusewright.core.tracing import Tracer
from fusewright.ir import (
    Broadcast,
    Expand,
    Fusion,
    Permute,
    Pointwise,
    Reduction,
    Relabel,
    Squeeze,
    TensorView,
    verify_fusion,
)
from fusewright.ops.build_elementwise import apply_to_tensor, copy_tensor, segment_set
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_reduction import sum_
from fusewright.ops.build_reshape import reshape
from fusewright.ops.build_shape import broadcast, expand, permute, squeeze
from fusewright.ops.evaluate import evaluate_fusion
from fusewright.rewrite import canonicalize
from fusewright.schedule import Schedule
from tests.lower.running import run

RELABELS = (Broadcast, Squeeze, Permute, Relabel)


@pytest.fixture
def fusion() -> Fusion:
    return Fusion()


def op(fusion: Fusion, name: str, *operands: TensorView) -> TensorView:
    return apply_to_tensor(fusion, name, *operands)


def rewritten(fusion: Fusion, inputs: Sequence[torch.Tensor]) -> Fusion:
    """`fusion` after all rewrites, checked to compute what it did."""
    wanted = evaluate_fusion(fusion, inputs)
    ends = [*fusion.inputs, *fusion.output_tensors()]
    canonicalize(fusion)
    verify_fusion(fusion, "canonicalize")
    assert ends == [*fusion.inputs, *fusion.output_tensors()]
    schedule = Schedule(fusion)
    for got, right in zip(run(schedule, inputs), wanted):
        torch.testing.assert_close(got, right)
    return fusion


def reads_inputs_only(fusion: Fusion) -> bool:
    return all(fusion.is_input(n.inputs[0]) for n in fusion.ordered_nodes() if isinstance(n, RELABELS))


def test_broadcast_moves_above_elementwise_work(fusion):
    x, y = define_tensor(fusion, [3], True), define_tensor(fusion, [2, 3], True)
    wide = broadcast(fusion, op(fusion, "exp", op(fusion, "neg", x)), [True, False])
    add_output(fusion, op(fusion, "add", wide, y))
    rewritten(fusion, [torch.randn(3), torch.randn(2, 3)])
    assert reads_inputs_only(fusion)
    assert [type(n) for n in fusion.ordered_nodes()] == [Relabel] + [Pointwise] * 3
    assert all(len(n.output.logical) == 2 for n in fusion.ordered_nodes())


def test_a_tensor_with_other_users_is_computed_in_both_shapes(fusion):
    x = define_tensor(fusion, [3], True)
    y = define_tensor(fusion, [2, 3], True)
    narrow = op(fusion, "exp", x)
    add_output(fusion, op(fusion, "neg", narrow))
    add_output(fusion, op(fusion, "add", broadcast(fusion, narrow, [True, False]), y))
    rewritten(fusion, [torch.randn(3), torch.randn(2, 3)])
    assert reads_inputs_only(fusion)
    assert sum(n.label == "exp" for n in fusion.ordered_nodes()) == 2


def test_what_was_computed_for_the_broadcast_only_is_gone(fusion):
    x = define_tensor(fusion, [3], True)
    y = define_tensor(fusion, [2, 3], True)
    add_output(fusion, op(fusion, "add", broadcast(fusion, op(fusion, "exp", x), [True, False]), y))
    rewritten(fusion, [torch.randn(3), torch.randn(2, 3)])
    assert sum(n.label == "exp" for n in fusion.nodes) == 1


def test_what_follows_a_reduction_stays_narrow(fusion):
    x = define_tensor(fusion, [2, 3], True)
    total = op(fusion, "exp", sum_(fusion, x, [1]))
    add_output(fusion, op(fusion, "mul", x, broadcast(fusion, total, [False, True])))
    before = str(fusion)
    rewritten(fusion, [torch.randn(2, 3)])
    assert str(fusion) == before


def test_a_broadcast_before_a_reduction_moves(fusion):
    x, y = define_tensor(fusion, [3], True), define_tensor(fusion, [2, 3], True)
    wide = broadcast(fusion, op(fusion, "exp", x), [True, False])
    add_output(fusion, sum_(fusion, op(fusion, "mul", y, wide), [1]))
    rewritten(fusion, [torch.randn(3), torch.randn(2, 3)])
    assert reads_inputs_only(fusion) and any(isinstance(n, Reduction) for n in fusion.nodes)


def test_an_output_keeps_its_shape(fusion):
    x = define_tensor(fusion, [3], True)
    y = define_tensor(fusion, [2, 3], True)
    narrow = op(fusion, "exp", x)
    add_output(fusion, narrow)
    add_output(fusion, op(fusion, "add", broadcast(fusion, narrow, [True, False]), y))
    rewritten(fusion, [torch.randn(3), torch.randn(2, 3)])
    assert len(fusion.output_tensors()[0].logical) == 1


def test_relabelings_in_a_row_become_one(fusion):
    x = define_tensor(fusion, [2, 3], True)
    y = permute(fusion, broadcast(fusion, copy_tensor(fusion, x), [False, True, False]), [2, 1, 0])
    add_output(fusion, op(fusion, "neg", squeeze(fusion, y, [1])))
    rewritten(fusion, [torch.randn(2, 3)])
    found = [n for n in fusion.ordered_nodes() if isinstance(n, RELABELS)]
    assert [n.axis_map(0) for n in found] == [(1, 0)]


def test_permutations_of_a_shared_tensor_reach_the_loads(fusion):
    x = define_tensor(fusion, [3, 3], True)
    y = op(fusion, "exp", x)
    add_output(fusion, op(fusion, "add", y, permute(fusion, y, [1, 0])))
    rewritten(fusion, [torch.randn(3, 3)])
    assert reads_inputs_only(fusion)


def test_nothing_moves_across_a_boundary_that_the_user_set(fusion):
    x = define_tensor(fusion, [3], True)
    y = define_tensor(fusion, [2, 3], True)
    wide = broadcast(fusion, segment_set(fusion, op(fusion, "exp", x)), [True, False])
    add_output(fusion, op(fusion, "add", wide, y))
    before = str(fusion)
    canonicalize(fusion)
    assert str(fusion) == before


def test_expanded_axes_stay_expanded(fusion):
    x = define_tensor(fusion, [1, 3], True)
    wide = permute(fusion, op(fusion, "neg", expand(fusion, x, [4, 3])), [1, 0])
    add_output(fusion, op(fusion, "exp", copy_tensor(fusion, wide)))
    wanted = evaluate_fusion(fusion, [torch.ones(1, 3)])[0]
    canonicalize(fusion)
    verify_fusion(fusion)
    assert wanted.shape == (3, 4)
    assert [str(e) for e in fusion.output_tensors()[0].extents] == ["3", "4"]
    assert any(isinstance(n, Expand) for n in fusion.ordered_nodes())


def test_a_view_that_leads_back_reads_what_is_there(fusion):
    """An output that is stored beside a reduced view reads what that view reads, computed once."""
    x = define_tensor(fusion, [4, 16], True)
    cut = op(fusion, "exp", reshape(fusion, x, [8, 8]))
    add_output(fusion, sum_(fusion, cut, [1]))
    add_output(fusion, op(fusion, "neg", reshape(fusion, cut, [4, 16])))
    rewritten(fusion, [torch.randn(4, 16)])
    labels = [node.label for node in fusion.ordered_nodes()]
    assert labels.count("exp") == 1 and labels.count("Reshape") == 1


def test_a_rewrite_is_dumped_and_verified_where_it_changed_something(fusion):
    add_output(fusion, permute(fusion, op(fusion, "exp", define_tensor(fusion, [2, 3], True)), [1, 0]))
    stream = io.StringIO()
    canonicalize(fusion, Tracer(Options.from_environment({"FUSEWRIGHT_DUMP": "rewrite"}), stream))
    assert stream.getvalue().startswith("==== fusewright rewrite: store beside views ====")
    assert "==== fusewright rewrite: lift views ====" in stream.getvalue()
    assert str(fusion).rstrip() in stream.getvalue()
    fusion.inputs[0].uses.clear()
    canonicalize(fusion)  # has nothing to lift, so nothing is looked at
    add_output(fusion, permute(fusion, op(fusion, "neg", fusion.output_tensors()[0]), [1, 0]))
    with pytest.raises(VerifyError, match="after lift views"):
        canonicalize(fusion)


def test_a_factor_with_dimensions_beyond_a_sum_is_in_the_sums_kernel(target: torch.device) -> None:
    """As the weights of channels that are normalized in groups: [N, G, C] between [N, G] and [N, G, C, X]."""
    with FusionDefinition() as fd:
        x = fd.from_pytorch(torch.empty(2, 4, 3, 12))
        weights = fd.ops.broadcast(fd.from_pytorch(torch.empty(4, 3)), [True, False, False])
        total = fd.ops.broadcast(fd.ops.sum(x, [2, 3]), [False, False, True])
        scale = fd.ops.mul(total, weights)
        shift = fd.ops.sub(weights, fd.ops.mul(total, scale))
        wide = [fd.ops.broadcast(t, [False, False, False, True]) for t in (scale, shift)]
        fd.add_output(fd.ops.add(fd.ops.mul(x, wide[0]), wide[1]))
    given, factor = torch.randn(2, 4, 3, 12, device=target), torch.randn(4, 3, device=target)
    (found,) = fd.execute([given, factor])
    sums = given.double().sum((2, 3))[..., None]
    scales = sums * factor
    wanted = given * scales[..., None] + (factor - sums * scales)[..., None]
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-3)
    assert len(fd._last_kernels()) == 1
