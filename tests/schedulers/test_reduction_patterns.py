"""Reductions that are not along one run of memory: how they are cut up, and that the kernels are right."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from fusewright import DataType, FusionDefinition, ParamsError
from fusewright.core.dtype import from_torch
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.kernel.text import kernel_text
from fusewright.ops.build_elementwise import apply_to_tensor, convert_tensor
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_reduction import sum_
from fusewright.schedule import Schedule, replay
from fusewright.schedulers import LaunchParams, ReductionParams, ReductionScheduler, apply
from tests.lower.running import lowered, run
from tests.schedulers import proposals as p

SCHEDULER = ReductionScheduler()


def proposed(
    shape: Sequence[int], dims: Sequence[int], dtype: DataType = DataType.BFloat16
) -> ReductionParams:
    fusion = p.reduced(dims, len(shape), dtype)
    params, launch = p.propose(SCHEDULER, fusion, p.facts_of(fusion, [shape]))
    assert launch.threads <= 1024
    return params


def test_short_columns_are_summed_by_one_thread_each() -> None:
    params = proposed((1024, 3, 4096), (1,))
    assert params.lparams.bdimy == 1
    assert (params.unroll_factor_inner_reduction, params.unroll_factor_iter_dom) == (3, 8)


def test_short_columns_of_what_all_have_in_common_are_reduced_by_one_thread_each() -> None:
    """Threads down a column read the rest of a line of memory, if memory has a row at all."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[1 << 20], contiguity=[True], dtype=DataType.Float)
        levels = fd.define_tensor(shape=[16], contiguity=[True], dtype=DataType.Float)
        far = fd.ops.abs(fd.ops.broadcast(x, [False, True]) - fd.ops.broadcast(levels, [True, False]))
        fd.add_output(fd.ops.argmin(far, dim=1))
    [kernel] = fd.kernels_for([torch.zeros(1 << 20), torch.zeros(16)])
    assert kernel.params.lparams.bdimy == 1 and kernel.params.unroll_factor_inner_reduction == 16


@pytest.mark.parametrize(("rows", "threads"), [(1000, 32), (100_000, 128)])
def test_blocks_of_narrow_rows_are_a_warp_unless_so_many_start_slowly(rows: int, threads: int) -> None:
    """100000 rows of 105 elements, one by one, would be 328125 blocks of a warp."""
    params = proposed((rows, 11, 105), (1,))
    assert (params.lparams.bdimx, params.unroll_factor_iter_dom) == (threads, 1)


@pytest.mark.parametrize("shape", [(1024, 4096, 8), (64, 100_000, 8)])
def test_a_row_of_one_vector_has_its_neighbours_in_the_next_lanes(shape: Sequence[int]) -> None:
    params = proposed(shape, (1,))
    assert params.lanes_down_columns and params.lparams.bdimx > params.lparams.bdimy


def test_a_narrow_tile_is_as_wide_as_a_row_of_memory() -> None:
    params = proposed((4, 200_000, 16), (1,))
    assert params.lparams.bdimx * params.unroll_factor_iter_dom == 16
    assert params.unroll_factor_iter_dom == 8


def test_elements_of_short_rows_that_are_stored_leave_room_for_more_threads() -> None:
    x = torch.empty(128, 2048, 64, dtype=torch.bfloat16, device="meta")

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        positive = x.float().relu()
        return positive.sum(1), positive.to(x.dtype)

    [kernel] = p.definition(function, x).kernels_for([x], device="cuda")
    assert (kernel.params.unroll_factor_inner_reduction, kernel.params.lparams.gdimy) == (8, 4)


def test_columns_without_vectors_have_more_rows_in_flight() -> None:
    params = proposed((1024, 1023, 33), (1,))
    launch = params.lparams
    assert (launch.bdimx, launch.bdimy, params.unroll_factor_inner_reduction) == (128, 2, 32)
    # and registers for them
    assert params.streams_inputs and params.cparams.maxrregcount == 128


def test_threads_go_along_a_short_contiguous_dimension_alone() -> None:
    assert proposed((256, 2048, 49), (0, 2)).schedule_3d
    assert proposed((64, 64, 128, 63), (1, 3)).schedule_3d
    # A thread reduces a square.
    squares = proposed((2048, 56, 2, 56, 2), (2, 4))
    assert (squares.lparams.bdimx, squares.unroll_factor_top_of_vectorization) == (1, 2)
    # Vectors divide by its size seldom enough.
    assert not proposed((64, 64, 128, 64), (1, 3)).schedule_3d
    assert not proposed((64, 256, 3136), (0, 2)).schedule_3d
    assert not proposed((64, 256, 3136), (1, 2)).schedule_3d


def test_inputs_that_the_cache_does_not_hold_leave_it_first() -> None:
    assert proposed((16384, 4096), (0,)).streams_inputs
    assert proposed((16384, 4096), (0,), DataType.Float).streams_inputs  # the result is the output itself
    assert not proposed((1024, 4096), (0,)).streams_inputs


SPLIT = ReductionParams(
    fastest_dim=True,
    schedule_3d=True,
    unroll_factor_inner_reduction=4,
    vectorize_inner_reduction=True,
    unroll_factor_top_of_vectorization=3,
    streams_inputs=True,
    lparams=LaunchParams(bdimx=2, bdimy=4, gdimy=1),
)
LANES = ReductionParams(
    lanes_down_columns=True,
    unroll_factor_inner_reduction=2,
    unroll_factor_iter_dom=4,
    vectorize_iter_dom=True,
    lparams=LaunchParams(bdimx=8, bdimy=4, gdimy=2),
)
JOINED = ReductionParams(
    joined_rows=4,
    unroll_factor_inner_reduction=2,
    unroll_factor_iter_dom=4,
    vectorize_iter_dom=True,
    lparams=LaunchParams(bdimx=7, bdimy=3),
)


@pytest.mark.parametrize(
    "shape, dims, params",
    [
        ((7, 5, 12), (0, 2), SPLIT),
        ((9, 5, 12), (0, 2), replace(SPLIT, lparams=LaunchParams(bdimx=4, bdimy=1, gdimy=2))),
        ((5, 70, 4), (1,), LANES),
        ((5, 64, 7), (1,), JOINED),
        ((64, 7), (0,), JOINED),
        ((5, 64, 7), (1,), replace(JOINED, lparams=LaunchParams(bdimx=7, bdimy=3, gdimy=2))),
        ((76, 7), (0,), replace(JOINED, lparams=LaunchParams(bdimx=7, bdimy=1, gdimy=3))),
        ((76, 7), (0,), replace(JOINED, blocks_per_cluster=2)),
        ((5, 70, 4), (1,), replace(LANES, blocks_per_cluster=3, lparams=LaunchParams(bdimx=8, bdimy=4))),
    ],
    ids=[
        "split",
        "split over blocks",
        "lanes down columns",
        "joined rows",
        "joined rows, one block",
        "joined rows over blocks",
        "joined rows of all blocks",
        "joined rows over a cluster",
        "over a cluster",
    ],
)
def test_kernels(shape: tuple[int, ...], dims: tuple[int, ...], params: ReductionParams) -> None:
    fusion = p.reduced(dims, len(shape))
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    schedule = Schedule(fusion)
    apply(SCHEDULER, schedule, params, p.H200)
    (result,) = run(schedule, [x])
    torch.testing.assert_close(result, x.sum(dims), rtol=1e-5, atol=1e-5)
    again = replay(fusion, schedule.trace())
    assert kernel_text(lowered(again).kernel) == kernel_text(lowered(schedule).kernel)


def test_neighbours_in_memory_are_not_split() -> None:
    with pytest.raises(ParamsError, match=r"schedule_3d.*neighbours in memory"):
        apply(SCHEDULER, Schedule(p.reduced((1, 2), 3)), SPLIT, p.H200)


def test_a_cluster_or_the_grid_shares_a_reduction() -> None:
    with pytest.raises(
        ParamsError, match=r"lparams.gdimy.*expected 1 where a cluster shares a reduction, got 2"
    ):
        replace(LANES, blocks_per_cluster=3).validate(p.H200)


def test_rows_that_vectors_do_not_divide_are_joined() -> None:
    params = proposed((4096, 512, 33), (1,))
    assert (params.joined_rows, params.unroll_factor_iter_dom) == (8, 8)
    assert proposed((4096, 508, 33), (1,)).joined_rows < 8
    assert proposed((4096, 512, 32), (1,)).joined_rows == 1
    with pytest.raises(ParamsError, match=r"joined_rows.*expected 1 where rows of memory do not follow"):
        apply(SCHEDULER, Schedule(p.reduced((0, 2), 3)), JOINED, p.H200)


@pytest.mark.parametrize("keepdim", [False, True], ids=["", "keepdim"])
def test_rows_are_joined_whatever_order_dimensions_have(keepdim: bool) -> None:
    """What threads found lies in shared memory along loops, not in the order of the input's dimensions."""
    x = torch.randn(300, 64, 31, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    for order in itertools.permutations(range(3)):
        shown = x.permute(order)
        reduced = order.index(1)
        with FusionDefinition() as fd:
            wide = fd.ops.cast(fd.from_pytorch(shown), DataType.Float)
            fd.add_output(fd.ops.sum(wide, [reduced], keepdim) / 64.0)
        [kernel] = fd.kernels_for([shown])
        assert kernel.params.joined_rows == 8
        if order == (2, 1, 0):
            [result] = fd.execute([shown])
            torch.testing.assert_close(result, shown.float().mean(reduced, keepdim), rtol=1e-5, atol=1e-5)


def test_what_joined_rows_find_for_two_reductions_meets() -> None:
    """The way from one to the other that carries most leads over what both read."""
    x = torch.randn(300, 64, 31, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    with FusionDefinition() as fd:
        wide = fd.ops.cast(fd.from_pytorch(x), DataType.Float)
        total, squares = fd.ops.sum(wide, [1]), fd.ops.sum(wide * wide, [1])
        fd.add_output(total * total - squares)
    [kernel] = fd.kernels_for([x])
    assert kernel.params.joined_rows == 8
    [result] = fd.execute([x])
    expected = x.double().sum(1).square() - x.double().square().sum(1)
    torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-2)


@pytest.mark.parametrize(
    "shape, params",
    [
        ((5, 64, 7), JOINED),
        ((64, 7), JOINED),
        ((5, 64, 7), replace(JOINED, lparams=LaunchParams(bdimx=7, bdimy=3, gdimy=2))),
        ((76, 7), replace(JOINED, blocks_per_cluster=2)),
    ],
    ids=["blocks", "one block", "shared by blocks", "shared by a cluster"],
)
@pytest.mark.parametrize("keepdim", [False, True], ids=["", "keepdim"])
def test_reductions_of_several_results_join_rows(
    shape: tuple[int, ...], params: ReductionParams, keepdim: bool
) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    with FusionDefinition() as fd:
        variance, mean = fd.ops.var_mean(fd.from_pytorch(x), [-2], correction=0, keepdim=keepdim)
        fd.add_output(variance + 1.0)
        fd.add_output(mean)
    variance, mean = fd.execute([x], schedules={0: params})
    expected = torch.var_mean(x, -2, correction=0, keepdim=keepdim)
    torch.testing.assert_close(variance, expected[0] + 1.0, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(mean, expected[1], rtol=1e-5, atol=1e-5)
    [kernel] = fd.kernels_for([x], schedules={0: params})
    assert kernel.params.joined_rows == 4


def test_blocks_share_columns_of_rows_that_are_joined() -> None:
    """If each goes through memory several times: the last one adds up what all have found."""
    for shape, dims, dtype, joined, blocks in (
        ((131072, 257), (0,), DataType.BFloat16, 8, p.H200.sm_count // 2),
        ((131072, 257), (0,), DataType.Float, 4, p.H200.sm_count // 2),
        ((3000000, 33), (0,), DataType.BFloat16, 8, p.H200.sm_count),
        ((4, 400000, 65), (1,), DataType.BFloat16, 8, p.H200.sm_count // 4),
    ):
        params = proposed(shape, dims, dtype)
        assert (params.joined_rows, params.lparams.gdimy) == (joined, blocks)
        assert params.lparams.bdimx * params.lparams.bdimy <= 800
    assert proposed((16384, 257), (0,)).joined_rows == 1
    assert proposed((65536, 129), (0,)).joined_rows == 1
    assert proposed((131071, 257), (0,)).joined_rows == 1
    assert proposed((0, 131072, 257), (1,)).joined_rows == 1


def test_blocks_share_joined_rows_of_one_reduction_alone() -> None:
    """Those of two would stand in a loop each."""

    def body(fusion: Fusion) -> TensorView:
        x = define_tensor(fusion, [-1, -1], True, DataType.BFloat16)
        wide = convert_tensor(fusion, x, DataType.Float)
        add_output(fusion, sum_(fusion, wide, [0]))
        return sum_(fusion, apply_to_tensor(fusion, "mul", wide, wide), [0])

    fusion = p.built(body)
    params, _ = p.propose(SCHEDULER, fusion, p.facts_of(fusion, [(4194304, 7)]))
    schedule = Schedule(fusion)
    apply(SCHEDULER, schedule, params, p.H200)
    assert lowered(schedule).kernel.body


@pytest.mark.parametrize(("length", "rows"), [(2, 8), (4, 4), (8, 2)])
def test_rows_of_one_vector_are_summed_several_a_thread(length: int, rows: int) -> None:
    """A row of two elements of 2 bytes is one load of 4 bytes, too few for the memory to be busy."""
    params = proposed((1 << 20, length), (1,))
    assert params.lparams.bdimx == 1 and params.unroll_factor_iter_dom == rows
    assert proposed((1 << 10, length), (1,)).unroll_factor_iter_dom == 1


# ---- columns that start at any element ----


@pytest.mark.parametrize("shape", [(300, 512), (7, 40, 264), (33, 256)], ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_misaligned_columns_are_summed_in_vectors(
    shape: tuple[int, ...], dtype: torch.dtype, target: torch.device
) -> None:
    """All rows start at one distance from an aligned address."""
    x = torch.randn(*shape[:-1], shape[-1] + 8, device=target).to(dtype)[..., 1:-7]
    with FusionDefinition() as fd:
        a = fd.from_pytorch(x)
        fd.add_output(
            fd.ops.sum(a if dtype is torch.float64 else fd.ops.cast(a, DataType.Float), [len(shape) - 2])
        )
    [result] = fd.execute([x])
    torch.testing.assert_close(result.double(), x.double().sum(-2), rtol=1e-5, atol=1e-4)
    [kernel] = fd.kernels_for([x])
    assert isinstance(kernel.params, ReductionParams)
    anywhere = dtype is torch.bfloat16
    assert (kernel.params.unaligned_inputs == (0,)) == anywhere


def test_misaligned_columns_of_more_than_sums_are_read_one_by_one() -> None:
    """Several states of eight columns spill registers, and what is read beside columns starts elsewhere."""
    x, bias = torch.randn(300, 513).bfloat16()[:, 1:], torch.randn(513).bfloat16()[1:]
    with FusionDefinition() as fd:
        a = fd.ops.cast(fd.from_pytorch(x), DataType.Float)
        fd.add_output(fd.ops.var(a, [0], 0))
    assert fd.kernels_for([x])[0].params.unaligned_inputs == ()
    with FusionDefinition() as fd:
        a, b = fd.from_pytorch(x), fd.from_pytorch(bias)
        fd.add_output(fd.ops.sum(fd.ops.exp(a + b), [0]))
    assert fd.kernels_for([x, bias])[0].params.unaligned_inputs == ()


# ---- columns of several sums, and of bytes ----


def _column_params(rows: int, columns: int, dtype: torch.dtype, count: int = 1) -> ReductionParams:
    """Of so many sums of each column."""
    x = torch.empty(rows, columns, dtype=dtype, device="meta")
    with FusionDefinition() as fd:
        a = fd.define_tensor([-1, -1], contiguity=True, dtype=from_torch(dtype))
        wide = fd.ops.cast(a, DataType.Float)
        for power in range(1, count + 1):
            fd.add_output(fd.ops.sum(fd.ops.exp(wide * float(power)), [0]))
    [kernel] = fd.kernels_for([x], device="cuda")
    assert isinstance(kernel.params, ReductionParams)
    return kernel.params


def test_larger_blocks_share_columns_of_several_sums() -> None:
    """They exchange fewer results."""
    one, three = (_column_params(131072, 1024, torch.bfloat16, count).lparams for count in (1, 3))
    assert (one.bdimx, one.bdimy) == (32, 8) and (three.bdimx, three.bdimy) == (32, 16)
    assert three.gdimy < one.gdimy


def test_columns_of_bytes_are_summed_by_whole_blocks() -> None:
    params = _column_params(1027, 6065, torch.int8)
    assert params.lparams.gdimy == 1 and (params.lparams.bdimx, params.lparams.bdimy) == (32, 16)


def test_narrow_vectors_of_bytes_have_as_many_rows_in_flight_as_elements() -> None:
    params = _column_params(4097, 16382, torch.int8)
    assert (params.unroll_factor_iter_dom, params.unroll_factor_inner_reduction) == (2, 16)


def test_constants_in_another_memory_order_are_reduced_without_vectors(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Loops go along their last dimension, as results lie, and not along the one that they have innermost."""
    x = torch.randn(2, 2, 3, 2)
    with FusionDefinition() as fd:
        zeros = fd.ops.full_like(fd.from_pytorch(x), 0)
        moved = fd.ops.stride_order(fd.ops.cast(zeros, DataType.Int), [3, 0, 1, 2])
        fd.add_output(fd.ops.min(moved, dims=[3], keepdim=True))
        fd.add_output(fd.ops.any(moved, dims=[3]))
    least, some = fd.execute([x])
    assert not least.any() and not some.any() and least.shape == (2, 2, 3, 1)
    assert not caplog.records, caplog.text


def test_threads_go_along_what_they_read_and_not_along_what_they_gather(target: torch.device) -> None:
    """Elements that are gathered may lie anywhere, also if they are of the first input."""

    def lengths(points: torch.Tensor, parent: torch.Tensor) -> torch.Tensor:
        return (points - points[:, parent]).square().sum(-1).sqrt().mean()

    parent = torch.arange(24, device=target).flip(0)
    large = [torch.empty(500000, 24, 3, device="meta"), torch.empty_like(parent, device="meta")]
    [kernel] = p.definition(lengths, *large).kernels_for(large, device="cuda")
    assert "constant_rest<24" in kernel.cuda_text and "<500000" not in kernel.cuda_text

    inputs = [torch.randn(3000, 24, 3, device=target), parent]
    (made,) = p.definition(lengths, *inputs).execute(inputs)
    torch.testing.assert_close(made, lengths(*inputs))


@pytest.mark.parametrize("step", [2, 3])
def test_threads_go_along_every_second_element_of_rows(step: int, target: torch.device) -> None:
    """A sector has several of a row's elements, and one of a column's."""
    wide = torch.empty(8192, 4096 * step, device="meta")[:, ::step]
    fd = p.definition(lambda x: x.sum(0), wide)
    [kernel] = fd.kernels_for([wide], device="cuda")
    assert not kernel.params.fastest_dim and kernel.params.lparams.bdimx >= 32
    [kernel] = p.definition(lambda x: x.sum(1), wide).kernels_for([wide], device="cuda")
    assert kernel.params.fastest_dim

    x = torch.randn(300, 70 * step, device=target)[:, ::step]
    (made,) = p.definition(lambda x: x.sum(0), x).execute([x])
    torch.testing.assert_close(made, x.sum(0))
