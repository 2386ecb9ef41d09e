"""Work at the borders of groups that is done again: by the group that reads it, or by each of its parts."""

from __future__ import annotations

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.host.executor import FusionExecutor
from fusewright.segment.recompute import recompute_borders
from tests.segment.graphs import Graph


def heads(batch: int, length: int, count: int, size: int) -> FusionDefinition:
    """Queries, transposed keys and values of a product."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([batch * length, 3 * count * size], True, DataType.BFloat16)
        split = fd.ops.permute(fd.ops.reshape(x, [batch, length, 3, count, size]), [2, 0, 3, 1, 4])
        for i in range(3):
            part = fd.ops.select(split, index=i, dim=0)
            fd.add_output(fd.ops.set(fd.ops.permute(part, [0, 1, 3, 2]) if i == 1 else part))
    return fd


def schedulers(executor: FusionExecutor) -> list[str]:
    return sorted(str(segment.scheduler.type.name) for segment in executor.segments().segments)


@pytest.mark.parametrize("sizes", [(2, 32, 2, 16), (2, 33, 3, 20)], ids=str)
def test_parts_of_a_group_compute_for_themselves_what_the_whole_cannot(sizes: tuple[int, ...]) -> None:
    """No scheduler takes all reads of the product as one kernel, and a copy of it would be read by one."""
    batch, length, count, size = sizes
    x = torch.randn(batch * length, 3 * count * size).bfloat16()
    executor = FusionExecutor(heads(*sizes)._finished().fusion)
    results = executor.execute([x])
    q, k, v = x.reshape(batch, length, 3, count, size).permute(2, 0, 3, 1, 4)
    assert all(map(torch.equal, results, (q, k.transpose(-1, -2), v)))
    assert schedulers(executor) == ["pointwise", "pointwise", "transpose"]


@pytest.mark.parametrize(
    "readers, shares, is_split",
    [(2, False, True), (3, False, True), (2, True, True), (3, True, False), (4, False, False)],
)
def test_parts_move_no_more_bytes_than_the_whole(readers: int, shares: bool, is_split: bool) -> None:
    """A tensor made by one group, and its readers in another; those that share an input read it once each."""
    g = Graph()
    shared, made = g.input(), g.op(g.input())
    results = [g.op(made, shared) if shares else g.op(made) for _ in range(readers)]
    fusion = g.output(*results)
    maker, *nodes = (tensor.definition for tensor in (made, *results))
    position = {node: i for i, node in enumerate([maker, *nodes])}
    found = recompute_borders(fusion, [[maker], nodes], position, lambda nodes, _: len(nodes) <= 2)
    assert found == ([[], [[maker, node] for node in nodes]] if is_split else [[[maker]], [nodes]])
