"""Tensors of one value are scalars where elementwise operations read them."""

from __future__ import annotations

import torch

from fusewright.core.dtype import DataType
from fusewright.ir import Full, Pointwise, TensorView
from fusewright.ops.evaluate import evaluate_fusion
from fusewright.rewrite import simplified
from tests.ops.definition import Definition


def test_the_count_of_welford_is_a_size():
    d, x = Definition(), torch.randn(3, 50)
    mean, m2, count = d.welford(d.input(x), [1])
    variance = d.truediv(m2, count)
    d.add_output(variance)
    d.add_output(mean)
    d.fusion.unify_extents()
    new = simplified(d.fusion)
    (division,) = (n for n in new.nodes if isinstance(n, Pointwise) and n.op.name == "truediv")
    assert sum(isinstance(value, TensorView) for value in division.inputs) == 1
    torch.testing.assert_close(evaluate_fusion(new, [x])[0], x.var(1, correction=0))


def test_filled_tensors_are_read_as_scalars_where_others_have_the_shape():
    d, x = Definition(), torch.randn(3, 1)
    given = d.input(x)
    small = d.broadcast(d.full([3], 2.0, DataType.Float), [False, True])
    wide = d.full([3, 4], 5.0, DataType.Float)
    d.add_output(d.mul(given, small))
    d.add_output(d.add(given, wide))  # the sum has its shape of it
    d.fusion.unify_extents()
    new = simplified(d.fusion)
    assert sum(isinstance(node, Full) for node in new.nodes) == 1
    for ours, wanted in zip(evaluate_fusion(new, [x]), (x * 2, x + torch.full((3, 4), 5.0)), strict=True):
        torch.testing.assert_close(ours, wanted)


def test_a_filled_output_stays():
    d = Definition()
    ones = d.full([3], 1.0, DataType.Float)
    d.add_output(ones)
    d.add_output(d.add(d.input(torch.ones(3)), ones))
    d.fusion.unify_extents()
    found = evaluate_fusion(simplified(d.fusion), [torch.ones(3)])
    assert [t.tolist() for t in found] == [[1.0] * 3, [2.0] * 3]
