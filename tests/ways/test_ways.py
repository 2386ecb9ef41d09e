"""How a definition is written does not matter: each normalization and its gradient, in several ways.

All ways take as many kernels, which move as many bytes, are scheduled alike, and compute the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from fusewright.ops.evaluate import evaluate_fusion
from fusewright.rewrite import simplified
from tests.ways.channels import CHANNELS
from tests.ways.computation import Computation
from tests.ways.images import IMAGES
from tests.ways.row_gradients import ROW_GRADIENTS
from tests.ways.rows import ROWS

COMPUTATIONS = (*ROWS, *ROW_GRADIENTS, *CHANNELS, *IMAGES)
# Of the fewest bytes that a way moves: statistics are passed on by some, and computed again by others.
MOST_BYTES = 1.02
# The same of the time that is estimated: some ways compute more for each element.
MOST_SECONDS = 1.06
# Params that say how they were found, and what a kernel assumes of sizes, which the dimensions decide.
_OF_SIZES = frozenset({"reason", "assumed_reduction_sizes", "assumed_sizes"})
#: Ways that are scheduled otherwise: by computation, the first of the sizes, and what is particular.
APART = {
    # Has a sum more.
    ("layer_norm_backward", 64, "chain rule mean"),
    # Expands what it multiplies by, which keeps the dimensions of images apart.
    ("batch_norm", 16, "var mean in dim"),
    # Rows of groups that vectors do not divide, of which a channel's weight is read by quotient.
    ("group_norm", 256, "aten"),
    # Reads the sums of groups by quotient, which keeps the dimensions of images apart.
    ("group_norm_backward", 16, "over channels"),
    ("group_norm_backward", 32, "over channels"),
    # Rows of groups have one dimension, those of the other ways two, with vectors through both.
    *(("group_norm", 16, way) for way in ("aten", "scale and shift", "scale and shift of channels")),
}


def _of_sizes(computation: Computation) -> list[Any]:
    def named(sizes: Mapping[str, int]) -> str:
        return f"{computation.name}-{'x'.join(map(str, sizes.values()))}"

    return [pytest.param(computation, sizes, id=named(sizes)) for sizes in computation.sizes]


@pytest.mark.sampled(0.4, "computation")
@pytest.mark.parametrize("computation, sizes", [case for c in COMPUTATIONS for case in _of_sizes(c)])
def test_all_ways_take_as_many_kernels_and_bytes(computation: Computation, sizes: Mapping[str, int]):
    planned = {way: computation.planned(way, sizes) for way in computation.ways}
    costs = {way: each for way, (_, each) in planned.items()}
    counts = {way: len(each) for way, each in costs.items()}
    least = min(counts.values())
    assert counts == dict.fromkeys(counts, least) and least <= computation.kernels
    moved = {way: sum(cost.bytes for cost in each) for way, each in costs.items()}
    assert max(moved.values()) <= MOST_BYTES * min(moved.values()), moved
    alike = [way for way in planned if (computation.name, next(iter(sizes.values())), way) not in APART]
    seconds = {way: sum(cost.seconds for cost in costs[way]) for way in alike}
    assert max(seconds.values()) <= MOST_SECONDS * min(seconds.values()), seconds
    params = {way: sorted(_schedule(each.params) for each in planned[way][0].proposals) for way in alike}
    for way in alike:
        assert params[way] == params[alike[0]], f"{way} is not scheduled as {alike[0]}"


def _schedule(params: Any) -> str:
    """Params as text, without those that are of one way to write a computation alone."""
    fields = dataclasses.fields(params)
    return str({field.name: getattr(params, field.name) for field in fields if field.name not in _OF_SIZES})


@pytest.mark.parametrize("computation", COMPUTATIONS, ids=lambda computation: computation.name)
@pytest.mark.sampled(0.5)
def test_all_ways_are_right(computation: Computation, target: torch.device):
    """As written and as simplified; and the last way's kernels are."""
    inputs = computation.example()
    wanted = computation.reference(*[x.double() for x in inputs])
    for way in computation.ways:
        fd, fusion = computation.fusion(way)
        for name, graph in (("as written", fusion), ("simplified", simplified(fusion))):
            _check(evaluate_fusion(graph, inputs), wanted, f"{way}, {name}")
    found = fd.execute([x.to(target) for x in inputs])
    _check(found, wanted, f"{way}, by kernels")


def _check(found: list[torch.Tensor], wanted: list[torch.Tensor], what: str) -> None:
    for ours, exact in zip(found, wanted, strict=True):
        # Rounded once, or a few times in Float.
        rounding = torch.finfo(ours.dtype).eps if ours.dtype is torch.bfloat16 else 1e-4
        torch.testing.assert_close(
            ours.cpu().double(), exact, rtol=rounding, atol=rounding, msg=lambda text: f"{what}: {text}"
        )
