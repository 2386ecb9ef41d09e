"""Updates of one place along a dimension become choices, and others stay updates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.dtype import from_torch
from fusewright.ir import Fusion, Update
from fusewright.ops.evaluate import evaluate_fusion
from fusewright.rewrite import simplified
from tests.ops.definition import Definition

Build = Callable[..., Any]
COLUMN, ROW = torch.tensor([[2], [0], [3]]), torch.tensor([[2, 0, 1, 1]])


VALUES = torch.tensor([[5.0], [6.0], [7.0]])


def defined(build: Build, given: Sequence[torch.Tensor]) -> Fusion:
    """A definition of these sizes."""
    d = Definition()
    handles = [d.define_tensor(list(each.shape), dtype=from_torch(each.dtype)) for each in given]
    d.add_output(build(d, *handles))
    d.fusion.unify_extents()
    assert updates(d.fusion)
    return d.fusion


def updates(fusion: Fusion) -> list[Update]:
    return [node for node in fusion.nodes if isinstance(node, Update)]


@pytest.mark.parametrize(
    "build, given",
    [
        (lambda d, x, index: d.scatter(x, index, 2.0, 1), [torch.randn(3, 4), COLUMN]),
        (lambda d, x, index: d.scatter(d.exp(x), index, 0.5, 0), [torch.randn(3, 4), ROW]),
        (lambda d, x, index, v: d.sum(d.scatter(x, index, v, 1), [1]), [torch.randn(3, 4), COLUMN, VALUES]),
        (
            lambda d, x, index, v: d.index_put_accumulate(x, index, v),
            [torch.randn(3, 4), torch.tensor([2]), torch.ones(1, 4)],
        ),
        (lambda d, g, index: d.embedding_bwd(g, index, 5), [torch.randn(1, 4), torch.tensor([3])]),
    ],
    ids=["column", "row", "reduced", "one row added", "one token"],
)
def test_one_place_along_a_dimension_is_a_choice(build: Build, given: list[torch.Tensor]) -> None:
    fusion = defined(build, given)
    new = simplified(fusion)
    assert not updates(new)
    for ours, wanted in zip(evaluate_fusion(new, given), evaluate_fusion(fusion, given), strict=True):
        torch.testing.assert_close(ours, wanted)


@pytest.mark.parametrize(
    "index", [COLUMN[:2], torch.tensor([[2, 1], [0, 0], [3, 3]])], ids=["some rows", "two places"]
)
def test_other_updates_stay(index: torch.Tensor) -> None:
    fusion = defined(lambda d, x, i: d.scatter(x, i, 2.0, 1), [torch.randn(3, 4), index])
    assert updates(simplified(fusion))


def test_what_is_written_into_an_input_stays_an_update(target: torch.device) -> None:
    """It stores one row, not all of them."""
    x, index = torch.randn(6, 4, device=target), torch.tensor([[2, 0, 5, 1]], device=target)
    with FusionDefinition() as fd:
        a, i = fd.from_pytorch(x), fd.from_pytorch(index)
        fd.add_output(fd.ops.scatter(a, i, 2.0, 0), alias_input=a)
    wanted = x.scatter(0, index, 2.0)
    fd.execute([x, index])
    torch.testing.assert_close(x, wanted)
    [*_, last] = fd.kernels_for([x, index])
    assert last.tensors[-1].is_written and "atomic" not in last.cuda_text
    assert last.launch is not None and last.launch.grid[0] * last.launch.block[0] <= 128


def test_a_result_is_computed_with_in_one_kernel(target: torch.device) -> None:
    """The greatest of the others: the place of the greatest is filled, and the rest reduced."""
    x = torch.randn(8, 64, device=target)
    with FusionDefinition() as fd:
        a = fd.define_tensor([-1, -1], dtype=DataType.Float)
        i = fd.ops.argmax(a, 1, keepdim=True)
        low = fd.ops.scatter(a, i, float("-inf"), 1)
        fd.add_output(fd.ops.max(low, [1]))
    [found] = fd.execute([x])
    torch.testing.assert_close(found, x.scatter(1, x.argmax(1, keepdim=True), float("-inf")).amax(1))
    assert len(fd.kernels_for([x])) == 1
