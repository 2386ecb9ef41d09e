"""Choices by the position that later choices imply: they go where they are implied, and stay elsewhere."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from fusewright import FusionDefinition
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


def test_indices_that_are_read_at_themselves_stay_a_copy() -> None:
    """A table read twice at the same indices, beside a join of the result.

    No node reads a tensor by index and as the index, so one of the two is a copy, though it reads the whole.
    """
    x, index = torch.randn(33, 5, 16).half(), torch.randint(33, (33, 1, 1))
    with FusionDefinition() as fd:
        table, places = (fd.from_pytorch(each, static_sizes=True) for each in (x, index))
        twice = fd.ops.gather(fd.ops.take_along_axis(table, places, dim=0), places, dim=0)
        joined = fd.ops.cat([twice, twice, twice], dim=-1)
        fd.add_output(fd.ops.slice(joined, [2, 0, 0], [6, 16, 3], [1, 1, 1]))
        fd.add_output(fd.ops.pad(fd.ops.sum(fd.ops.reshape(twice, [33, 1, 1, 1]), [3]), [2, 0]))
    parts, padded = fd.execute([x, index])
    expected = torch.take_along_dim(x, index, 0).gather(0, index)
    assert torch.equal(parts, expected[2:6].expand(4, 1, 3))
    assert torch.equal(padded, F.pad(expected, [2, 0]))
