"""Which segments are one launch: small ones with no path between them, that touch no memory of each other."""

from __future__ import annotations

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.ir import Fusion
from fusewright.schedulers.expr_eval import ExprEvalScheduler
from fusewright.segment import SegmentedFusion
from fusewright.segment.bundles import MAX_PARTS
from tests.segment.graphs import Graph, at_most
from tests.segment.test_selection import Costed, select

SMALL, LARGE = 5e-6, 1.0


def partition(fusion: Fusion, seconds: float = SMALL) -> SegmentedFusion:
    """Of a node each, each of which takes so long."""
    planned, _ = select(fusion, Costed(at_most(1), lambda f: seconds), ExprEvalScheduler())
    return planned.partition


def check(partition: SegmentedFusion) -> list[list[str]]:
    """What each launch computes; each is after all that it reads."""
    assert sorted(i for members in partition.launches for i in members) == list(
        range(len(partition.segments))
    )
    there = set(partition.fusion.inputs)
    for members in partition.launches:
        for i in members:
            assert set(partition.segments[i].inputs) <= there
        there.update(tensor for i in members for tensor in partition.segments[i].outputs)
    return [[t.name for i in m for t in partition.segments[i].outputs] for m in partition.launches]


def test_independent_segments_are_one_launch_and_the_text_says_so():
    g = Graph()
    fusion = g.output(*[g.op(g.input()) for _ in range(3)])
    result = partition(fusion)
    assert result.launches == ((0, 1, 2),)
    assert "one launch: segments 0, 1, 2" in str(result)


def test_transposes_share_launches_with_each_other_alone():
    """Their blocks take more registers and shared memory than others would have room for beside them."""
    shapes = [(64, 256), (96, 128), (128, 64), (160, 128)]
    with FusionDefinition() as fd:
        inputs = [torch.randn(*shape) for shape in shapes]
        a, b, c, d = map(fd.from_pytorch, inputs)
        for tensor in (a, b):
            fd.add_output(tensor * 2.0)
        for tensor in (c, d):
            fd.add_output(fd.ops.set(fd.ops.permute(tensor, [1, 0])))
    launches = [[part.scheduler for part in kernel.parts] for kernel in fd.kernels_for(inputs)]
    assert sorted(launches) == [["pointwise"] * 2, ["transpose"] * 2]


def test_a_transpose_shares_no_launch_with_blocks_of_as_many_threads():
    """Tiles with vectors of one side alone have as many threads as blocks of elementwise kernels."""
    with FusionDefinition() as fd:
        rows = [torch.randn(257, 640).half() for _ in range(3)]
        columns = torch.randn(640, 257).half().t()
        a, b, c, d = map(fd.from_pytorch, [*rows, columns])
        for first, second in ((a, b), (c, d)):
            fd.add_output(fd.ops.cast(first * 1.5 + second, DataType.Half))
    kernels = fd.kernels_for([*rows, columns])
    assert [kernel.scheduler for kernel in kernels] == ["pointwise", "transpose"]
    assert {kernel.launch.block for kernel in kernels} == {(128, 1, 1)}


def test_large_ones_are_launched_by_themselves():
    g = Graph()
    fusion = g.output(*[g.op(g.input()) for _ in range(3)])
    assert partition(fusion, LARGE).launches == ((0,), (1,), (2,))


def test_a_launch_has_a_limit():
    g = Graph()
    fusion = g.output(*[g.op(g.input()) for _ in range(MAX_PARTS + 2)])
    assert [len(members) for members in partition(fusion).launches] == [MAX_PARTS, 2]


def test_segments_on_a_path_are_not_one_launch():
    g = Graph()
    x, y = g.op(g.input()), g.op(g.input())
    fusion = g.output(g.op(x, y), g.op(g.op(y)))
    assert len(check(partition(fusion))) == 3


def test_what_many_read_later_is_made_early_and_what_nothing_waits_for_late():
    """A chain of torch's operations: each reads a tensor of its own, or hands one to an update."""
    first, last = Graph(), Graph()
    value, parameters = first.input(), [first.op(first.input()) for _ in range(4)]
    for parameter in parameters:
        value = first.whole(value, parameter)
    assert len(check(partition(first.output(value)))) == 1 + 4
    value, updates = last.input(), []
    for _ in range(4):
        value = last.whole(value)
        updates.append(last.op(value, last.input()))
    assert len(check(partition(last.output(*updates)))) == 4 + 1


@pytest.mark.parametrize("writer_first", [True, False])
def test_who_writes_an_input_and_who_reads_it_keep_their_order(writer_first: bool):
    g = Graph()
    x = g.input()
    other = g.op(x, g.input()) if not writer_first else None
    written = g.op(x)
    other = other or g.op(x, g.input())
    g.fusion.add_output(written, x)
    g.fusion.add_output(other)
    order = [name for names in check(partition(g.fusion)) for name in names]
    assert len(partition(g.fusion).launches) == 2
    assert (order.index(written.name) < order.index(other.name)) == writer_first
