"""The inner-outer scheduler with batches of matrices, each of which is reduced by itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition, InnerOuterParams, LaunchParams
from fusewright.ir import Fusion
from fusewright.schedulers import InnerOuterScheduler, Reject
from fusewright.schedulers.inner_outer.batches import Matrices, best_tile
from tests.integration.tolerance import assert_close
from tests.schedulers import proposals as p

Body = Callable[[FusionDefinition, Any], None]

TYPES = {torch.float32: DataType.Float, torch.bfloat16: DataType.BFloat16, torch.float16: DataType.Half}


def _both_ways(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.sum(x, [2]))
    fd.add_output(fd.ops.max(x, [1]))


def _fusion(body: Body, sizes: list[int]) -> Fusion:
    with FusionDefinition() as fd:
        body(fd, fd.define_tensor(sizes, contiguity=True))
    leaf = fd._leaf
    assert leaf is not None
    return leaf.fusion


@pytest.mark.parametrize("dtype", list(TYPES))
@pytest.mark.parametrize(
    "shape", [(3, 40, 72), (5, 33, 127), (1, 64, 64), (7, 32, 32), (2, 300, 9), (2, 3, 600), (3, 1, 40)]
)
def test_rows_and_columns_of_each_matrix(
    shape: tuple[int, ...], dtype: torch.dtype, target: torch.device
) -> None:
    with FusionDefinition() as fd:
        x = fd.ops.cast(fd.define_tensor(list(shape), contiguity=True, dtype=TYPES[dtype]), DataType.Float)
        _both_ways(fd, x)
    x = torch.randn(shape, device=target).to(dtype)
    rows, columns = fd.execute([x])
    assert_close(rows, x.double().sum(2), shape[2])
    assert_close(columns, x.double().amax(1))


def test_the_partition_reads_matrices_once(target: torch.device) -> None:
    with FusionDefinition() as fd:
        _both_ways(fd, fd.define_tensor([500, 96, 128], contiguity=True))
    x = torch.empty(500, 96, 128, device="meta")
    assert [kernel.scheduler for kernel in fd.kernels_for([x], device="cuda")] == ["inner_outer"]


def _with_stores(fd: FusionDefinition, x: Any) -> None:
    y = fd.ops.relu(x)
    fd.add_output(y)
    _both_ways(fd, y)


def _two_a_side(fd: FusionDefinition, x: Any) -> None:
    _both_ways(fd, x)
    fd.add_output(fd.ops.var(x, [2], 1))
    fd.add_output(fd.ops.exp(fd.ops.sum(fd.ops.abs(x), [1])))


def _of_each_and_of_its_rows(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.sum(x, [1, 2]))
    fd.add_output(fd.ops.max(x, [2]))


def _all_sides(fd: FusionDefinition, x: Any) -> None:
    _both_ways(fd, x)
    fd.add_output(fd.ops.mean(x, [1, 2]))


def _variances(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.var(x, [1], 1))
    fd.add_output(fd.ops.var(fd.ops.exp(x), [2], 0))


BODIES: list[Body] = [_both_ways, _with_stores, _two_a_side, _of_each_and_of_its_rows, _all_sides, _variances]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
@pytest.mark.parametrize("rows_per_block", [8, 64])
@pytest.mark.parametrize("sizes", ["known", "assumed", "any"])
def test_kernels_of_params(body: Body, rows_per_block: int, sizes: str, target: torch.device) -> None:
    """By one block for each matrix and by several, along and down, whatever the planner would choose."""
    shape = (3, 50, 70)
    params = InnerOuterParams(
        vectorization_factor=2,
        unroll_factor=2,
        rows_per_block=rows_per_block,
        assumed_sizes=shape[1:] if sizes == "assumed" else (),
        prefetch_rows=sizes == "assumed" and rows_per_block > 8,
        lparams=LaunchParams(bdimx=16, bdimy=4, bdimz=2),
    )

    class Scheduled(FusionDefinition):
        def definition(self) -> None:
            known = list(shape) if sizes == "known" else [-1, -1, -1]
            body(self, self.define_tensor(known, contiguity=True))

        def schedule(self) -> None:
            self.sched.schedule(params)

    x = torch.randn(shape, device=target)
    for ours, theirs in zip(Scheduled().execute([x]), _expected(body, x.double())):
        assert_close(ours, theirs, shape[1] * shape[2])


def _expected(body: Body, x: torch.Tensor) -> list[torch.Tensor]:
    if body is _with_stores:
        y = x.relu()
        return [y, y.sum(2), y.amax(1)]
    both = [x.sum(2), x.amax(1)]
    return {
        _both_ways: both,
        _two_a_side: [*both, x.var(2), x.abs().sum(1).exp()],
        _of_each_and_of_its_rows: [x.sum((1, 2)), x.amax(2)],
        _all_sides: [*both, x.mean((1, 2))],
        _variances: [x.var(1), x.exp().var(2, correction=0)],
    }[body]


@pytest.mark.parametrize(
    "rows, columns", [([0], [2]), ([0, 3], [1]), ([1, 2], [3]), ([1], [3]), ([2], [1, 3])]
)
def test_batches_anywhere(rows: list[int], columns: list[int], target: torch.device) -> None:
    """Of several dimensions, around rows and columns or between them, which have several, too."""
    shape = (6, 20, 5, 24)
    value = torch.randn(shape, device=target)
    function = lambda x: (x.sum(columns), x.amax(rows))  # noqa: E731
    fd = p.definition(function, torch.empty(shape))
    for ours, theirs in zip(fd.execute([value]), function(value.double())):
        assert_close(ours, theirs, 500)


@pytest.mark.parametrize("order", [(1, 0, 2), (0, 2, 1), (2, 1, 0), (1, 2, 0)])
def test_inputs_in_other_memory_orders(order: tuple[int, ...], target: torch.device) -> None:
    value = torch.randn(12, 40, 24, device=target).permute(*order)
    function = lambda x: (x.sum(2), x.amax(1))  # noqa: E731
    fd = p.definition(function, torch.empty_strided(value.shape, value.stride()))
    for ours, theirs in zip(fd.execute([value]), function(value.double())):
        assert_close(ours, theirs, 40)


def test_strided_matrices_beside_weights(target: torch.device) -> None:
    """Every second matrix, with one weight for all rows and one for those of each matrix."""
    value = torch.randn(12, 40, 24, device=target)[::2]
    of_rows, of_each = torch.randn(40, device=target), torch.randn(6, 24, device=target)

    def function(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        weighted = x * a[:, None] * b[:, None, :]
        return weighted.sum(2), weighted.var(1), weighted.amax((1, 2))

    fd = p.definition(function, torch.empty_strided(value.shape, value.stride()), of_rows, of_each)
    expected = function(*(each.double() for each in (value, of_rows, of_each)))
    for ours, theirs in zip(fd.execute([value, of_rows, of_each]), expected):
        assert_close(ours, theirs, 40)


def test_what_it_does_not_take() -> None:
    def innermost_kept(fd: FusionDefinition, x: Any) -> None:
        fd.add_output(fd.ops.sum(x, [0]))
        fd.add_output(fd.ops.sum(x, [1]))

    verdict = InnerOuterScheduler().prepare(_fusion(innermost_kept, [-1, -1, -1]))
    assert isinstance(verdict, Reject) and "keep the dimension that is contiguous" in verdict.reason

    def beside_all(fd: FusionDefinition, x: Any) -> None:
        _both_ways(fd, x)
        fd.add_output(fd.ops.max(x))

    verdict = InnerOuterScheduler().prepare(_fusion(beside_all, [-1, -1, -1]))
    assert isinstance(verdict, Reject) and "not two groups" in verdict.reason


def test_sizes_that_change_are_left_to_others() -> None:
    """Only the number of matrices may."""
    fusion = _fusion(_both_ways, [-1, -1, -1])
    planner = InnerOuterScheduler().prepare(fusion)
    assert not isinstance(planner, Reject)
    facts = p.facts_of(fusion, [(200, 64, 64)])
    verdict = planner(facts, p.H200)
    assert isinstance(verdict, Reject) and "of other sizes in other calls" in verdict.reason
    (x,) = fusion.inputs
    of_matrices = frozenset(axis.extent for axis in x.logical[1:])  # type: ignore[union-attr]
    stable = dataclasses.replace(facts, stable=of_matrices)  # type: ignore[arg-type]
    params, launch = p.propose(InnerOuterScheduler(), fusion, stable)
    assert params.assumed_sizes == (64, 64) and launch.grid == (200, 1, 1)


def test_the_number_of_matrices_may_vary(target: torch.device) -> None:
    with FusionDefinition() as fd:
        _both_ways(fd, fd.define_tensor([-1, -1, -1], contiguity=True))
    for count in (3, 7, 40, 41, 42, 43, 7, 1, 0, 90):
        x = torch.randn(count, 24, 32, device=target)
        rows, columns = fd.execute([x])
        assert_close(rows, x.double().sum(2), 32)
        assert_close(columns, x.double().amax(1))
    assert [kernel.scheduler for kernel in fd._last_kernels()] == ["inner_outer"]


@pytest.mark.parametrize("body", [_both_ways, _two_a_side, _all_sides, _variances])
@pytest.mark.parametrize("shape", [(128, 512, 512), (16, 2048, 4096), (4, 9000, 1024), (2000, 33, 127)])
def test_blocks_have_the_shared_memory_that_the_planner_counts(body: Body, shape: tuple[int, ...]) -> None:
    fusion = _fusion(body, list(shape))
    _, launch = p.propose(InnerOuterScheduler(), fusion, p.facts_of(fusion, [shape]))
    assert launch.shared_bytes <= p.H200.shared_memory_per_block_optin
    assert launch.grid[0] == shape[0] and launch.threads <= 1024


@pytest.mark.parametrize("shape", [(128, 512, 512), (40, 2048, 2048), (3000, 64, 64), (100000, 32, 32)])
@pytest.mark.parametrize("state_bytes", [4, 12])
def test_tiles_fill_the_gpu(shape: tuple[int, int, int], state_bytes: int) -> None:
    count, rows, columns = shape
    matrices = Matrices(count, rows, columns, 4, 4, state_bytes, state_bytes, 1, 0.0)
    tile = best_tile(matrices, p.H200)
    assert tile is not None
    resident = min(count * tile.blocks, tile.resident(p.H200) * p.H200.sm_count)
    assert resident * tile.threads >= 0.75 * 512 * p.H200.sm_count
    assert tile.rows * tile.x * tile.z * 4 <= 2 * rows * max(columns, 4 * tile.x * tile.z)
    assert tile.blocks == 1 or count < 4 * p.H200.sm_count


def test_many_small_matrices_exchange_nothing() -> None:
    for rows, columns in ((32, 32), (64, 48), (17, 100)):
        tile = best_tile(Matrices(50000, rows, columns, 4, 4, 4, 4, 1, 0.0), p.H200)
        assert tile is not None and tile.blocks == 1
