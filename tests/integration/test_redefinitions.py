"""What the built-in redefinitions make of a call is right, and in as many kernels as they say."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.ir import Fusion, Reduction, Scalar, TensorView
from fusewright.ir.index_map import IndexMap, positions
from fusewright.ops.build_indexed import indexed, sized_axis
from fusewright.ops.build_reduction import reduce_states
from fusewright.schedulers import (
    Facts,
    Part,
    Proposal,
    ReductionScheduler,
    Registry,
    Reject,
    Rewrite,
    default_registry,
)
from fusewright.segment import decision
from fusewright.sym import ceildiv, const, lt
from tests.integration.tolerance import assert_close


def steps(fd: FusionDefinition) -> list[str]:
    """What computes each segment: a library's function, or a scheduler's kernel."""
    plans = fd._last_program().plans
    segments = [part.segment for plan in plans for part in getattr(plan, "parts", (plan,))]
    return [
        segment.evaluated.label
        if segment.evaluated is not None
        else getattr(segment.scheduler.type, "name", segment.scheduler.type)
        for segment in segments
    ]


# ---- reductions --------------------------------------------------------------------------------------------


CHUNK = 1024


class OneBlockReductions(ReductionScheduler):
    """Reductions that blocks do not share: in two kernels where one block would have much to do."""

    type = "one_block"  # type: ignore[assignment]

    def prepare(self, fusion: Fusion) -> Any:
        planner = super().prepare(fusion)
        if isinstance(planner, Reject):
            return planner

        def plan(facts: Facts, hardware: Any) -> Proposal:
            shared = planner(facts, hardware)
            estimate, blocks = shared.estimate(), shared.params.lparams.gdimy
            params = replace(shared.params, lparams=replace(shared.params.lparams, gdimy=1))
            return Proposal(params, lambda: replace(estimate, seconds=estimate.seconds * blocks))

        return plan

    def propose_redefinition(self, part: Part, facts: Facts, hardware: Any) -> Rewrite | None:
        nodes = [node for node in part.nodes if isinstance(node, Reduction) and len(node.outputs) == 1]
        inputs = [v for v in part.fusion.inputs if isinstance(v, TensorView)]
        if any(facts.value(tensor.extents[-1]) <= CHUNK for tensor in inputs):
            return None

        def in_chunks(graph: Fusion) -> dict[TensorView, TensorView]:
            found = {}
            for node in nodes:
                fill = graph.new_scalar(DataType.Float, node.op.identity(DataType.Float)[0])
                chunks = chunked(graph, node.tensor_inputs[0], fill)
                (partial_results,) = reduce_states(graph, node.op, [chunks], [2])
                (found[node.output],) = reduce_states(graph, node.op, [partial_results], [1])
            return found

        return Rewrite("chunks", in_chunks, "blocks do not share a reduction")


def chunked(fusion: Fusion, x: TensorView, fill: Scalar) -> TensorView:
    """[M, N] as [M, ceil(N / CHUNK), CHUNK], which is a size that no input has; the rest is filled."""
    rows, row = (axis.extent for axis in x.shape)
    axes = [sized_axis(fusion, extent) for extent in (rows, ceildiv(row, CHUNK), const(CHUNK))]
    row_place, chunk, place = positions([axis.extent for axis in axes])
    place = chunk * CHUNK + place
    return indexed(fusion, "Chunks", x, axes, IndexMap((row_place, place), lt(place, row)), fill=fill)


def test_a_reduction_in_two_kernels_where_blocks_cannot_share_one(target: torch.device) -> None:
    """A user's scheduler, whose rewrite adds a size that the definition does not have."""
    given = torch.randn(2, 300_001, device=target)
    for schedulers, expected in (
        ([OneBlockReductions()], ["one_block"] * 3),
        ([], ["reduction"]),
    ):
        kept = [s for s in default_registry() if not schedulers or s.type.name != "reduction"]
        with FusionDefinition(registry=Registry([*schedulers, *kept])) as fd:
            e = fd.ops.exp(fd.from_pytorch(given))
            fd.add_output(fd.ops.sum(e, [1]))
            fd.add_output(fd.ops.max(e, [1]))
        total, most = fd.execute([given])
        assert_close(total, given.double().exp().sum(1), 300_001)
        assert_close(most, given.double().exp().amax(1), 1)
        assert steps(fd) == expected


@pytest.mark.parametrize("channels", [8, 6])
def test_rows_in_short_runs_of_memory(
    channels: int, monkeypatch: pytest.MonkeyPatch, target: torch.device
) -> None:
    """Columns first, whatever the estimates say of these sizes."""
    monkeypatch.setattr(
        decision, "is_better", lambda before, after, *_: len(after.segments) > len(before.segments)
    )
    given = (3 + torch.randn(2, 250, 5, channels, device=target)).bfloat16()
    with FusionDefinition() as fd:
        wide = fd.ops.cast(fd.from_pytorch(given), DataType.Float)
        var, mean = fd.ops.var_mean(wide, [1, 3], 0, True)
        fd.add_output((wide - mean) * fd.ops.rsqrt(var))
        fd.add_output(fd.ops.max(wide, [1, 3]))
    normal, most = fd.execute([given])
    exact = given.double()
    mean, var = (f((1, 3), keepdim=True) for f in (exact.mean, partial(exact.var, correction=0)))
    assert_close(normal, (exact - mean) * var.rsqrt(), 250 * channels)
    assert_close(most, exact.amax((1, 3)), 1)
    assert len(steps(fd)) > 2
