"""The inner-outer scheduler: sizes at which little is left of rows or columns, what it leaves to others, and
where the partition asks it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition, InnerOuterParams, LaunchParams, ParamsError
from fusewright.ir import Fusion
from fusewright.ir.value import TensorView
from fusewright.kernel import ir as k
from fusewright.schedule import Schedule
from fusewright.schedulers import InnerOuterScheduler, Reject, apply
from tests.integration.tolerance import assert_close
from tests.lower.running import lowered, run
from tests.schedulers import proposals as p

Body = Callable[[FusionDefinition, Any], None]


def _fusion(body: Body, rank: int = 2) -> Fusion:
    with FusionDefinition() as fd:
        body(fd, fd.define_tensor([-1] * rank, contiguity=True))
    leaf = fd._leaf
    assert leaf is not None
    return leaf.fusion


def _sums(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.sum(x, [1]))
    fd.add_output(fd.ops.sum(x, [0]))


def test_sizes_of_one_and_of_none(target: torch.device) -> None:
    with FusionDefinition() as fd:
        _sums(fd, fd.define_tensor([-1, -1], contiguity=True))
    for shape in ((1, 200), (200, 1), (1, 1), (0, 5), (5, 0), (33, 12)):
        x = torch.randn(shape, device=target)
        for out, dim in zip(fd.execute([x]), (1, 0)):
            assert_close(out, x.double().sum(dim), 200)
        if x.numel():  # a sum of nothing needs no kernel of both
            assert [kernel.scheduler for kernel in fd._last_kernels()] == ["inner_outer"]


def test_sums_of_columns_beside_a_maximum_of_all(target: torch.device) -> None:
    """Lanes that wait for other blocks come back to those that do not before they exchange sums (49 x 32)."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        rounded = fd.ops.cast(x * fd.define_tensor([]), DataType.Float8_e5m2)
        fd.add_output(rounded)
        fd.add_output(fd.ops.set(fd.ops.permute(rounded, [1, 0])))
        fd.add_output(fd.ops.sum(x, [0]))
        fd.add_output(fd.ops.max(fd.ops.abs(x)))
    for shape in ((49, 32), (33, 12), (129, 64), (700, 48)):
        x, scale = torch.randn(shape, device=target), torch.tensor(0.5, device=target)
        for _ in range(2):  # also where the words of an earlier call are still there
            *_, sums, greatest = fd.execute([x, scale])
            assert_close(sums, x.double().sum(0), 200)
            assert greatest == x.abs().max()


def _again(fd: FusionDefinition, x: Any) -> None:
    _sums(fd, x)
    fd.add_output(x - fd.ops.mean(x, [1], keepdim=True))


def _both_results(fd: FusionDefinition, x: Any) -> None:
    rows, columns = fd.ops.sum(x, [1], keepdim=True), fd.ops.sum(x, [0], keepdim=True)
    fd.add_output(rows / columns)


def _total_of_rows(fd: FusionDefinition, x: Any) -> None:
    rows = fd.ops.sum(x, [1])
    fd.add_output(fd.ops.sum(rows, [0]))
    fd.add_output(fd.ops.sum(x, [0]))


def _overlapping(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.sum(x, [0, 1]))
    fd.add_output(fd.ops.sum(x, [1, 2]))


@pytest.mark.parametrize(
    "body, rank, reason",
    [
        (lambda fd, x: fd.add_output(fd.ops.sum(x, [1])), 2, "less than two reductions"),
        (lambda fd, x: [fd.add_output(fd.ops.sum(y, [1])) for y in (x, fd.ops.exp(x))], 2, "the same dim"),
        (_again, 2, "uses a reduced dimension again after the reduction"),
        (_both_results, 2, "depends on reductions of different dimensions"),
        (_total_of_rows, 2, "have different dimensions"),
        (_overlapping, 3, "not two groups that have none in common"),
    ],
    ids=["one", "same", "again", "both_results", "total_of_rows", "overlapping"],
)
def test_what_it_does_not_take(body: Body, rank: int, reason: str) -> None:
    verdict = InnerOuterScheduler().prepare(_fusion(body, rank))
    assert isinstance(verdict, Reject) and reason in verdict.reason


def test_the_proposal_fills_the_gpu() -> None:
    fusion = _fusion(_sums)
    for shape in ((16384, 8192), (2048, 65536), (4194304, 64), (100, 100)):
        params, launch = p.propose(InnerOuterScheduler(), fusion, p.facts_of(fusion, [shape]))
        assert launch.shared_bytes <= (48 if launch.threads <= 256 else 128) * 1024
        read_by_block = params.rows_per_block * params.columns_per_block
        blocks = launch.grid[0] * launch.grid[1]
        wanted = 2 * p.H200.sm_count if launch.threads <= 256 else 0.9 * p.H200.sm_count
        assert blocks >= min(wanted, shape[0] * shape[1] // read_by_block)
        assert launch.grid[0] <= 32 * params.lparams.bdimz


@pytest.mark.parametrize("shape", [(6000, 3072), (2000, 12000), (2554, 11072), (16384, 4096), (40000, 2048)])
def test_no_block_waits_for_a_second_turn(shape: tuple[int, int]) -> None:
    fusion = _fusion(_sums)
    params, _ = p.propose(InnerOuterScheduler(), fusion, p.facts_of(fusion, [shape]))
    launch = params.lparams
    blocks = -(-shape[1] // params.columns_per_block) * -(-shape[0] // params.rows_per_block)
    threads = launch.bdimx * launch.bdimy * launch.bdimz
    assert blocks * threads <= 1024 * p.H200.sm_count
    assert blocks * threads > 1024 * p.H200.sm_count // 2


@pytest.mark.parametrize(
    "shape, dtype, threads, resident",
    [
        ((1272, 5504), DataType.BFloat16, 256, 3),  # 80 registers a thread
        ((2491, 4416), DataType.Float, 256, 4),
        ((39054, 576), DataType.BFloat16, 512, 2),  # one warp a row
        ((3000, 576), DataType.BFloat16, 256, 4),  # too little for blocks of 512
    ],
)
def test_blocks_are_as_many_as_registers_let_be_resident(
    shape: tuple[int, int], dtype: DataType, threads: int, resident: int
) -> None:
    with FusionDefinition() as fd:
        _sums(fd, fd.ops.cast(fd.define_tensor([-1, -1], contiguity=True, dtype=dtype), DataType.Float))
    assert fd._leaf is not None
    fusion = fd._leaf.fusion
    facts = p.facts_of(fusion, [shape])
    stable = dataclasses.replace(facts, stable=frozenset(facts.sizes))
    params = p.schedulers.propose(InnerOuterScheduler(), fusion, stable, p.H200)
    assert isinstance(params, InnerOuterParams)
    launch = params.lparams
    assert launch.bdimx * launch.bdimy * launch.bdimz == threads
    blocks = -(-shape[1] // params.columns_per_block) * -(-shape[0] // params.rows_per_block)
    assert resident * p.H200.sm_count // 3 < blocks <= resident * p.H200.sm_count


def test_rows_of_too_many_blocks_are_left_to_others() -> None:
    fusion = _fusion(_sums)
    planner = InnerOuterScheduler().prepare(fusion)
    assert not isinstance(planner, Reject)
    verdict = planner(p.facts_of(fusion, [(64, 4194304)]), p.H200)
    assert isinstance(verdict, Reject) and "rows of 4194304 are spread over" in verdict.reason


def test_a_row_that_is_needed_again_stays_with_its_reduction() -> None:
    """The backward pass of RMS norm: a sum of each row, what is made of it, and a sum of each column."""
    with FusionDefinition() as fd:
        dy, x, rstd, weight = (
            fd.define_tensor(
                sizes, contiguity=[None if n == 1 else True for n in sizes], dtype=DataType.Float
            )
            for sizes in ([-1, -1], [-1, -1], [-1, 1], [1, -1])
        )
        normalized = x * rstd
        scaled = dy * weight
        fd.add_output(rstd * (scaled - normalized * fd.ops.mean(scaled * normalized, [1], keepdim=True)))
        fd.add_output(fd.ops.sum(dy * normalized, [0]))
    leaf = fd._leaf
    assert leaf is not None
    taken = {segment.scheduler.type.name for segment in leaf.executor.segments().segments}
    assert taken == {"inner_outer_persistent"}


def test_sums_of_what_torch_computes_are_one_kernel() -> None:
    """No scheduler takes the whole: the partition asks for the merge once nothing else merges."""
    with FusionDefinition() as fd:
        x, w = (fd.define_tensor([-1, -1], contiguity=True) for _ in range(2))
        normal, *_ = fd.ops.layer_norm(x, [x.size(1)])
        _sums(fd, fd.ops.matmul(normal, w))
    leaf = fd._leaf
    assert leaf is not None
    taken = [segment.scheduler.type.name for segment in leaf.executor.segments().segments]
    assert taken == ["inner_persistent", "expr_eval", "inner_outer"]


def test_rows_and_columns_of_separate_work_are_one_kernel(target: torch.device) -> None:
    """Each side has elementwise work of its own, which nothing but the input joins."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        fd.add_output(fd.ops.log(fd.ops.sum(fd.ops.exp(x), [1])))
        fd.add_output(fd.ops.max(fd.ops.abs(x), [0]) + 1.0)
    value = torch.randn(40, 300, device=target)
    rows, columns = fd.execute([value])
    assert_close(rows, value.double().exp().sum(1).log(), 300)
    assert_close(columns, value.double().abs().amax(0) + 1)
    assert [kernel.scheduler for kernel in fd._last_kernels()] == ["inner_outer"]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_dimension_of_one_element_is_neither_row_nor_column(place: int, target: torch.device) -> None:
    """Such as a batch of one: with it, too, rows and columns of one tensor are read once."""
    shape = [40, 300]
    shape.insert(place, 1)
    rows, columns = [dim for dim in range(3) if dim != place]
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape, contiguity=True)
        fd.add_output(fd.ops.relu(x))
        fd.add_output(fd.ops.sum(x, [columns], keepdim=True))
        fd.add_output(fd.ops.sum(x, sorted([rows, place])))
        fd.add_output(fd.ops.max(x))
    value = torch.randn(shape, device=target)
    above, of_rows, of_columns, largest = fd.execute([value])
    assert torch.equal(above, value.relu()) and largest == value.max()
    assert_close(of_rows, value.double().sum(columns, keepdim=True), 300)
    assert_close(of_columns, value.double().sum(sorted([rows, place])), 300)
    assert [kernel.scheduler for kernel in fd._last_kernels()] == ["inner_outer"]


@pytest.mark.parametrize("prefetch", [False, True])
def test_sizes_as_constants(prefetch: bool) -> None:
    """A kernel for sizes that have not changed has no guard along rows and columns that fill its blocks."""
    fusion, x = _fusion(_sums), torch.randn(64, 512)
    facts = p.facts_of(fusion, [x.shape])
    (given,) = (value for value in fusion.inputs if isinstance(value, TensorView))
    extents = frozenset(axis.extent for axis in given.logical)
    stable = dataclasses.replace(facts, stable=extents)
    params, _ = p.propose(InnerOuterScheduler(), fusion, stable)
    assert params.assumed_sizes == (64, 512)
    schedule = Schedule(fusion)
    params = dataclasses.replace(params, rows_per_block=32, unroll_factor=2, prefetch_rows=prefetch)
    apply(InnerOuterScheduler(), schedule, params, p.H200)
    for out, dim in zip(run(schedule, [x]), (1, 0)):
        assert_close(out, x.double().sum(dim), 512)
    body = lowered(schedule).kernel.body
    guards = [stmt for stmt in k.walk(body) if isinstance(stmt, k.Copy) and stmt.pred is not k.TRUE]
    assert bool(guards) == prefetch  # but for the rows after the last
    for field, wrong in (("assumed_sizes", (64,)), ("rows_per_block", 16)):
        changed = dataclasses.replace(params, prefetch_rows=True, **{field: wrong})
        with pytest.raises(ParamsError, match=r"assumed_sizes|prefetch_rows"):
            apply(InnerOuterScheduler(), Schedule(fusion), changed, p.H200)


def test_what_is_computed_one_by_one_is_no_run() -> None:
    """A variance over columns of what the reduction of rows computes in the same loop."""
    with FusionDefinition() as fd:
        x = fd.ops.exp(fd.define_tensor([-1, -1], contiguity=True))
        fd.add_output(fd.ops.var(x, [0, 1], 0))
        fd.add_output(fd.ops.max(x, [1]))
    x = torch.randn(264, 2)
    variance, top = fd.execute([x])
    torch.testing.assert_close(variance.double(), x.double().exp().var(correction=0), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(top, x.exp().amax(1))


def test_rows_of_no_elements_are_not_loaded() -> None:
    """A launch has one block at least: loads that are brought forward keep what says that there are none."""

    class Scheduled(FusionDefinition):
        def definition(self) -> None:
            x = self.define_tensor([-1, -1, -1], contiguity=False, dtype=DataType.BFloat16)
            y = self.ops.permute(x, [2, 1, 0])
            self.add_output(self.ops.sum(y, [0]))
            self.add_output(self.ops.mean(y, [0, 1, 2]))

        def schedule(self) -> None:
            block = LaunchParams(bdimx=1, bdimy=256, bdimz=1)
            self.sched.schedule(InnerOuterParams(unroll_factor=8, rows_per_block=2048, lparams=block))

    sums, mean = Scheduled().execute([torch.ones(130, 31, 0, dtype=torch.bfloat16)])
    assert sums.shape == (31, 130) and not sums.any() and mean.isnan()


def test_rows_stay_rows_where_caches_change_who_computes_a_result() -> None:
    """Neither input has all dimensions: the reductions say which are rows, and caches make others of them."""
    with FusionDefinition() as fd:
        y = fd.define_tensor([7, -1], contiguity=[True, None], dtype=DataType.BFloat16, stride_order=[0, 1])
        x = fd.define_tensor([-1, -1], contiguity=[True, None], dtype=DataType.Half)
        product = fd.ops.mul(x, y)
        fd.add_output(fd.ops.sum(product, [0]))
        fd.add_output(fd.ops.sub(x, fd.ops.mul(y, fd.ops.sum(product, [1], keepdim=True))))
    for columns in (5, 4):  # the second may have vectors along the columns, but not along the seven rows
        y = torch.randn(columns).bfloat16().expand(7, columns)
        x = torch.randn(7).half()[:, None].expand(7, columns)
        fd.validate([y, x])


@pytest.mark.parametrize("shape", [(5, 1000003, 7), (2, 3000001, 2), (3, 100, 5000)])
def test_blocks_have_no_more_rows_than_they_may(shape: tuple[int, int, int]) -> None:
    """Few columns of many rows."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=list(shape), contiguity=True)
        fd.add_output(fd.ops.mean(x, [1]))
        fd.add_output(fd.ops.sum(x, [0, 2]))
    leaf = fd._leaf
    assert leaf is not None
    params, launch = p.propose(InnerOuterScheduler(), leaf.fusion, p.facts_of(leaf.fusion, [shape]))
    params.validate(p.H200)
    assert launch.threads <= 1024
