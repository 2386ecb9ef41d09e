"""The reference evaluation knows every kind of node, and a whole fusion equals its segments in sequence."""

from __future__ import annotations

import pytest
import torch

from fusewright import FusionDefinition
from fusewright.core.dtype import DataType
from fusewright.ir import Fusion, Relabel, Scalar, Stored, TensorView
from fusewright.lower.nodes import RULES as LOWERED
from fusewright.ops.build_elementwise import apply_to_tensor
from fusewright.ops.build_factory import iota
from fusewright.ops.build_inputs import add_output, define_scalar, define_tensor
from fusewright.ops.build_shape import broadcast, permute, squeeze
from fusewright.ops.evaluate import RULES, bind_sizes, evaluate_fusion, evaluate_values
from fusewright.rewrite import canonicalize
from fusewright.schedulers import default_registry
from fusewright.segment import partition
from fusewright.sym import evaluate
from tests.integration.cases import CASES, Case
from tests.ir.kinds import HOST_KINDS, KINDS


def test_every_kind_of_node_is_evaluated_and_lowered():
    assert set(RULES) == set(KINDS)
    assert set(LOWERED) == set(KINDS) - set(HOST_KINDS), "kinds that the host does not compute run in kernels"


def test_what_is_stored_elsewhere_is_scattered():
    """A reshape and a slice of a sum move to its store when the segment is rewritten."""
    with FusionDefinition() as fd:
        total = fd.ops.sum(fd.define_tensor([-1, 3], contiguity=True), [1])
        fd.add_output(fd.ops.reshape(total, [2, 5]) * 2.0)
        fd.add_output(fd.ops.slice(total, [2], [9], [3]))
        fd.add_output(fd.ops.set(total))
    x = torch.randn(10, 3)
    fusion, _ = fd._finished().fusion.clone()
    canonicalize(fusion)
    assert any(isinstance(node, Stored) for node in fusion.nodes)
    expected = [2 * x.sum(1).view(2, 5), x.sum(1)[2:9:3], x.sum(1)]
    for out, wanted in zip(evaluate_fusion(fusion, [x]), expected):
        torch.testing.assert_close(out, wanted)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_segments_in_sequence_give_the_values_of_the_whole(case: Case):
    """Each segment's fusion was cut out and rewritten; what it computes is the same."""
    fusion = case.definition()._finished().fusion
    inputs = case.inputs(torch.device("cpu"))
    whole, sizes = evaluate_values(fusion, inputs), bind_sizes(fusion, inputs)
    known = {v: x for v, x in whole.items() if isinstance(v, Scalar) or fusion.is_input(v)}
    for segment in partition(fusion, default_registry()).segments:
        own = segment.own_sizes(sizes)
        given = [_seen_as(known[v], value, own) for v, value in zip(segment.inputs, segment.fusion.inputs)]
        values = evaluate_values(segment.fusion, given, sizes=own)
        known.update((v, values[segment.to_segment[v]].reshape(whole[v].shape)) for v in segment.outputs)
    for tensor in fusion.output_tensors():
        torch.testing.assert_close(known[tensor], whole[tensor], equal_nan=True)


def _seen_as(value, own: TensorView | Scalar, sizes):
    """As a segment sees an input: in dimensions that may be others (`rewrite.border`)."""
    if isinstance(own, Scalar):
        return value
    return value.reshape([evaluate(extent, sizes) for extent in own.extents])


def test_relabels_at_once_are_what_they_are_one_by_one():
    fusion = Fusion()
    x = define_tensor(fusion, [2, 1, 3], True)
    y = permute(fusion, broadcast(fusion, squeeze(fusion, x, [1]), [False, True, False]), [2, 1, 0])
    add_output(fusion, y)
    merged = fusion.new_like(y)
    fusion.add_node(Relabel(x, merged, [2, None, 0]))
    add_output(fusion, merged)
    given = torch.randn(2, 1, 3)
    one_by_one, at_once = evaluate_fusion(fusion, [given])
    assert torch.equal(one_by_one, given.permute(2, 1, 0)) and torch.equal(at_once, one_by_one)


@pytest.mark.parametrize("length", [1, 5])
def test_a_lifted_iota_has_its_values_along_its_dimension(length):
    fusion = Fusion()
    x = define_tensor(fusion, [-1, length, -1], True)
    ramp = apply_to_tensor(fusion, "neg", iota(fusion, length, 3, define_scalar(fusion, None, DataType.Int)))
    add_output(fusion, apply_to_tensor(fusion, "add", x, broadcast(fusion, ramp, [True, False, True])))
    inputs = [torch.randn(2, length, 4), 2]
    whole = evaluate_fusion(fusion, inputs)
    canonicalize(fusion)
    lifted = next(t for t in fusion.tensors() if t.definition is not None and t.definition.label == "Iota")
    assert isinstance(lifted, TensorView) and lifted.ndim == 3
    torch.testing.assert_close(evaluate_fusion(fusion, inputs), whole)
    wanted = inputs[0] - (3 + 2 * torch.arange(length))[:, None]
    torch.testing.assert_close(whole[0], wanted)
