"""Reductions down columns that lie in many short stretches of memory, of which a block has several, or in a
few long ones: points [n, 24, 3], images [n, height, width, 3].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from fusewright import DataType, FusionDefinition, ParamsError
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.ops.build_elementwise import apply_to_tensor, convert_tensor
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_reduction import max_, sum_, var_mean
from fusewright.schedule import Schedule
from fusewright.schedulers import LaunchParams, ReductionParams, ReductionScheduler, apply
from tests.schedulers import proposals as p

SCHEDULER = ReductionScheduler()
DTYPES = (DataType.Float, DataType.BFloat16, DataType.UInt8)


def described(
    shape: Sequence[int], dtype: DataType = DataType.Float, kinds: Sequence[str] = ("sum",)
) -> tuple[ReductionParams, p.Launch]:
    """The params, and the launch, for reductions of the second last dimension as floats."""

    def body(fusion: Fusion) -> TensorView:
        x = convert_tensor(fusion, define_tensor(fusion, [-1] * len(shape), True, dtype), DataType.Float)
        dims = [len(shape) - 2]
        results = {
            "sum": lambda: [sum_(fusion, x, dims)],
            "squares": lambda: [sum_(fusion, apply_to_tensor(fusion, "mul", x, x), dims)],
            "amax": lambda: [max_(fusion, x, dims)],
            "var": lambda: var_mean(fusion, x, dims, 1, False),
        }
        first, *others = [result for kind in kinds for result in results[kind]()]
        for other in others:
            add_output(fusion, other)
        return first

    fusion = p.built(body)
    return p.propose(SCHEDULER, fusion, p.facts_of(fusion, [shape]))


# ---- what is proposed ----


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("length", [24, 32, 64])
@pytest.mark.parametrize("row", [3, 5, 6, 7, 9])
def test_a_block_has_several_short_batches(row: int, length: int, dtype: DataType) -> None:
    count = 36_000_000 // (length * row)
    params, launch = described((count, length, row), dtype)
    width = min(16 // dtype.size, math.gcd(length, 16))
    assert params.joined_rows == params.unroll_factor_iter_dom == width and params.vectorize_iter_dom
    assert launch.block[0] == row and launch.threads >= 128
    assert launch.grid == (-(-count // launch.block[2]), 1, 1)
    assert launch.shared_bytes <= p.H200.shared_memory_per_block_optin // 4


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("length", [21, 25, 101])
def test_batches_that_no_vector_divides_are_read_along_memory(length: int, dtype: DataType) -> None:
    count = 36_000_000 // (length * 3)
    params, launch = described((count, length, 3), dtype)
    assert params.joined_rows == 1 and not params.vectorize_iter_dom
    assert launch.block[0] == 3 and launch.block[2] > 1 and launch.threads >= 128


def test_few_batches_have_a_block_each_rather_than_few_blocks() -> None:
    """Blocks of several batches leave no SM idle."""
    for count in (600, 3000, 12_000):
        _, launch = described((count, 64, 3))
        assert launch.grid[0] >= min(count, 2 * p.H200.sm_count)


def test_long_rows_have_threads_enough() -> None:
    params, launch = described((4096, 512, 33), DataType.BFloat16)
    assert params.joined_rows == 8 and launch.block == (33, 8, 1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("row", [3, 5, 7, 9])
@pytest.mark.parametrize("count", [34, 40, 64, 66])
def test_two_blocks_share_each_of_as_many_stretches_as_half_of_the_gpu_has_sms(
    count: int, row: int, dtype: DataType
) -> None:
    """A GPU that each of these has a block of would have as many idle."""
    params, launch = described((count, 262_144 * 3 // row // 16 * 16, row), dtype)
    assert params.joined_rows == 16 // dtype.size
    assert launch.grid[:2] in ((count, 2), (count, 3)) and launch.block[:1] == (row,)


@pytest.mark.parametrize("kinds", [("sum",), ("amax", "sum"), ("var",)], ids=",".join)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [100, 128, 200])
def test_a_stretch_has_a_large_block_if_there_are_enough(
    count: int, dtype: DataType, kinds: Sequence[str]
) -> None:
    params, launch = described((count, 100_000, 3), dtype, kinds)
    assert params.joined_rows >= 4 and launch.grid == (count, 1, 1)
    alone = count <= p.H200.sm_count and dtype is DataType.Float and kinds == ("sum",)
    assert launch.threads >= (790 if alone else 500)
    assert launch.shared_bytes <= p.H200.shared_memory_per_block_optin // 2


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [3, 40])
def test_blocks_share_variances_of_several_stretches(count: int, dtype: DataType) -> None:
    params, launch = described((count, 8_000_000 // count // 16 * 16, 3), dtype, ("var",))
    assert params.joined_rows == min(8, 16 // dtype.size) and launch.grid[1] > 1
    # Columns of one stretch are side by side anyway.
    assert described((1, 8_000_000, 3), dtype, ("var",))[0].joined_rows == 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_two_reductions_have_a_block_a_stretch_also_if_these_are_fewer_than_sms(dtype: DataType) -> None:
    params, launch = described((40, 200_000, 3), dtype, ("amax", "sum"))
    assert params.joined_rows == 16 // dtype.size and launch.grid == (40, 1, 1)


def test_partial_results_bound_the_vectors() -> None:
    """A thread has a vector of each result in registers, and in shared memory."""
    assert described((500_000, 64, 3), DataType.UInt8, ("sum",))[0].joined_rows == 16
    assert described((500_000, 64, 3), DataType.UInt8, ("sum", "squares"))[0].joined_rows == 16
    assert described((500_000, 64, 3), DataType.UInt8, ("var",))[0].joined_rows == 8


@pytest.mark.parametrize("function", ["sum", "mean", "amax"])
def test_bytes_are_not_stored_as_floats(function: str) -> None:
    """The means of images took two kernels, of which one stored what the other read."""
    x = torch.empty(64, 512, 512, 3, dtype=torch.uint8, device="meta")
    fd = p.definition(lambda x: getattr(x.float() / 255, function)((1, 2)), x)
    [kernel] = fd.kernels_for([x], device="cuda")
    assert isinstance(kernel.params, ReductionParams) and kernel.params.joined_rows == 16


# ---- that it is right ----

JOINED = ReductionParams(
    joined_rows=4,
    unroll_factor_inner_reduction=2,
    unroll_factor_iter_dom=4,
    vectorize_iter_dom=True,
    lparams=LaunchParams(bdimx=3, bdimy=2, bdimz=4),
)
ELEMENTS = ReductionParams(unroll_factor_inner_reduction=3, lparams=LaunchParams(bdimx=3, bdimy=2, bdimz=4))


def with_width(params: ReductionParams, width: int) -> ReductionParams:
    return replace(params, joined_rows=width, unroll_factor_iter_dom=width, vectorize_iter_dom=width > 1)


@pytest.mark.parametrize(
    "shape, params",
    [
        ((9, 24, 3), JOINED),
        ((8, 20, 3), JOINED),  # five vectors for two threads, of which each has two in flight
        ((9, 16, 7), with_width(JOINED, 2)),
        ((9, 32, 5), with_width(JOINED, 8)),
        ((9, 32, 5), with_width(JOINED, 16)),
        ((3, 3, 16, 3), JOINED),
        ((9, 21, 3), ELEMENTS),
        ((2, 5, 25, 7), ELEMENTS),
        ((5, 1040, 3), replace(JOINED, lparams=LaunchParams(bdimx=3, bdimy=80, bdimz=2))),
        ((5, 1040, 3), replace(JOINED, lparams=LaunchParams(bdimx=3, bdimy=80))),
        ((5, 96, 3), replace(JOINED, lparams=LaunchParams(bdimx=3, bdimy=2, bdimz=2, gdimy=3))),
        ((5, 96, 3), replace(JOINED, blocks_per_cluster=2)),
    ],
    ids=lambda value: str(value) if isinstance(value, tuple) else "",
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8], ids=str)
@pytest.mark.parametrize("function", ["sum", "amax", "mean", "var", "two"])
@pytest.mark.sampled(0.2)
def test_kernels(
    shape: tuple[int, ...], params: ReductionParams, dtype: torch.dtype, function: str, target: torch.device
) -> None:
    if params.joined_rows * dtype.itemsize > 16:
        params = with_width(params, 16 // dtype.itemsize)
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(-100 if dtype.is_signed else 0, 100, shape, generator=generator).to(dtype).to(target)
    dim = len(shape) - 2
    with FusionDefinition() as fd:
        wide = fd.ops.cast(fd.from_pytorch(x), DataType.Float)
        if function == "var":
            for result in fd.ops.var_mean(wide, [dim], correction=1):
                fd.add_output(result)
        elif function == "two":
            fd.add_output(fd.ops.max(wide, [dim]))
            fd.add_output(fd.ops.sum(wide * wide, [dim]) + 1.0)
        else:
            reduced = {"sum": fd.ops.sum, "mean": fd.ops.mean, "amax": fd.ops.max}[function]
            fd.add_output(reduced(wide, [dim]))
    wide = x.double()
    expected = {
        "sum": lambda: [wide.sum(dim)],
        "amax": lambda: [wide.amax(dim)],
        "mean": lambda: [wide.mean(dim)],
        "var": lambda: list(torch.var_mean(wide, dim)),
        "two": lambda: [wide.amax(dim), wide.square().sum(dim) + 1],
    }[function]()
    schedules = {0: params}
    [kernel] = fd.kernels_for([x], schedules=schedules)
    assert kernel.params == params
    for result, right in zip(fd.execute([x], schedules=schedules), expected):
        torch.testing.assert_close(result.double(), right, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8], ids=str)
@pytest.mark.parametrize("shape", [(2200, 24, 3), (2113, 21, 3), (1100, 40, 5), (1057, 17, 7)], ids=str)
@pytest.mark.parametrize("function", ["sum", "amax", "mean", "var"])
def test_what_is_proposed_is_right(
    shape: tuple[int, ...], dtype: torch.dtype, function: str, target: torch.device
) -> None:
    """The last block has fewer batches than others."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(-100 if dtype.is_signed else 0, 100, shape, generator=generator).to(dtype).to(target)
    with FusionDefinition() as fd:
        wide = fd.ops.cast(fd.from_pytorch(x), DataType.Float)
        if function == "var":
            fd.add_output(fd.ops.var(wide, [1], correction=1))
        else:
            reduced = {"sum": fd.ops.sum, "mean": fd.ops.mean, "amax": fd.ops.max}[function]
            fd.add_output(reduced(wide, [1]))
    [result] = fd.execute([x])
    expected = getattr(x.double(), function)(1)
    torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-4)


# ---- what is refused ----


def test_columns_that_are_all_side_by_side_have_no_batches() -> None:
    with pytest.raises(ParamsError, match=r"lparams\.bdimz.*expected 1 where all columns are side by side"):
        apply(SCHEDULER, Schedule(p.reduced((0,), 2)), JOINED, p.H200)


def test_batches_are_not_apart_in_memory() -> None:
    with pytest.raises(ParamsError, match=r"lparams\.bdimz.*expected 1 where rows of memory do not follow"):
        apply(SCHEDULER, Schedule(p.reduced((0, 2), 3)), ELEMENTS, p.H200)


@pytest.mark.parametrize("name", ["tiles_in_shared_memory", "vector_down_columns"])
def test_batches_of_a_block_are_read_along_memory(name: str) -> None:
    with pytest.raises(ParamsError, match=name):
        replace(ELEMENTS, **{name: 2 if name == "vector_down_columns" else True}).validate(p.H200)
