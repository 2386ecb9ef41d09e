"""Choices by the position that later choices imply: they go where they are implied, and stay elsewhere."""

from __future__ import annotations

import torch

from fusewright.ir import Fusion
from fusewright.ir.node import Choose
from fusewright.ops.build_elementwise import apply_to_tensor
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_resize import cat, slice_
from fusewright.ops.evaluate import evaluate_fusion
from fusewright.rewrite import canonicalize
from fusewright.schedule import Schedule
from tests.lower.running import run


def test_a_rotation_by_halves_chooses_once():
    fusion = Fusion()
    x = define_tensor(fusion, [-1, 8])
    first, second = slice_(fusion, x, [0, 0], [5, 4]), slice_(fusion, x, [0, 4], [5, 8])
    negative = apply_to_tensor(fusion, "neg", apply_to_tensor(fusion, "exp", second))
    add_output(fusion, cat(fusion, [negative, apply_to_tensor(fusion, "exp", first)], 1))
    value = torch.randn(5, 8)
    (wanted,) = evaluate_fusion(fusion, [value])
    canonicalize(fusion)
    assert sum(isinstance(node, Choose) for node in fusion.nodes) == 1
    torch.testing.assert_close(run(Schedule(fusion), [value])[0], wanted)
