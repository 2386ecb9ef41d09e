"""What reads an input at the same positions is one load."""

from __future__ import annotations

import torch

from fusewright.ir import Indexed
from fusewright.ops.evaluate import evaluate_fusion
from fusewright.rewrite import canonicalize
from tests.ops.definition import Definition


def test_reshapes_that_meet_at_a_load_are_one():
    d, x, y = Definition(), torch.randn(2, 3, 8), torch.randn(2, 3, 8)
    a, b = d.input(x), d.input(y)
    rows = [d.mul(d.size(a, 0), d.size(a, 1)), d.size(a, 2)]
    d.add_output(d.sum(d.reshape(d.mul(d.exp(a), b), rows), [0]))
    d.add_output(d.sum(d.reshape(d.exp(a), rows), [0]))
    d.add_output(d.sum(d.reshape(d.slice(a, [0, 0, 0], [2, 3, 4]), [6, 4]), [0]))
    d.fusion.unify_extents()
    wanted = evaluate_fusion(d.fusion, [x, y])
    canonicalize(d.fusion)
    reads = [node.source for node in d.fusion.nodes if isinstance(node, Indexed)]
    assert sorted(tensor.name for tensor in reads) == sorted([a.name, b.name, a.name])
    for ours, theirs in zip(evaluate_fusion(d.fusion, [x, y]), wanted, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_reads_that_differ_in_dimensions_of_one_point_are_one():
    d, x = Definition(), torch.randn(2, 3, 8)
    rows = d.reshape(d.input(x), [1, 6, 8])
    centered = d.sub(rows, d.mean(rows, [0, 2], keepdim=True))
    d.add_output(d.reshape(centered, [2, 3, 8]))
    # A column and a row of one outer product are read along dimensions of their own.
    flat = d.input(x)
    d.add_output(d.mul(d.reshape(flat, [48, 1]), d.reshape(flat, [1, 48])))
    d.fusion.unify_extents()
    wanted = evaluate_fusion(d.fusion, [x, x])
    canonicalize(d.fusion)
    reads = [node.source.name for node in d.fusion.nodes if isinstance(node, Indexed)]
    assert sorted(map(reads.count, set(reads))) == [1, 2]
    for ours, theirs in zip(evaluate_fusion(d.fusion, [x, x]), wanted, strict=True):
        torch.testing.assert_close(ours, theirs)
