"""Reductions of inputs that are contiguous along different dimensions: both are read in vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from fusewright import DataType, FusionDefinition, ParamsError
from fusewright.core.enums import ParallelType
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.kernel.text import kernel_text
from fusewright.ops.build_elementwise import apply_to_tensor, convert_tensor
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_reduction import sum_, welford
from fusewright.ops.build_shape import permute
from fusewright.schedule import Schedule, replay
from fusewright.schedulers import LaunchParams, ReductionParams, ReductionScheduler, apply
from fusewright.schedulers.io import find_loads
from tests.lower.running import lowered, run
from tests.schedulers import proposals as p

SCHEDULER = ReductionScheduler()
CROSSED = ReductionParams(
    unroll_factor_inner_reduction=2,
    vector_down_columns=4,
    unroll_factor_iter_dom=2,
    vectorize_iter_dom=True,
    lparams=LaunchParams(bdimx=4, bdimy=3),
)


def crossed(dims: Sequence[int], dtype: DataType = DataType.Float, with_all: bool = False) -> Fusion:
    """A sum over some dimensions of x + y, where x lies as its transpose does; perhaps all of x + y, too."""

    def body(fusion: Fusion) -> TensorView:
        x, y = (define_tensor(fusion, [-1, -1], True, dtype) for _ in range(2))
        total = apply_to_tensor(
            fusion, "add", convert_tensor(fusion, permute(fusion, x, [1, 0]), DataType.Float), y
        )
        if with_all:
            add_output(fusion, total)
        return sum_(fusion, total, list(dims))

    return p.built(body)


def proposed(fusion: Fusion, rows: int, columns: int) -> ReductionParams:
    params, launch = p.propose(SCHEDULER, fusion, p.facts_of(fusion, [(columns, rows), (rows, columns)]))
    assert launch.threads <= 1024
    return params


@pytest.mark.parametrize("dims", [(0,), (1,)])
@pytest.mark.parametrize(
    "launch",
    [LaunchParams(bdimx=4, bdimy=3), LaunchParams(bdimx=2, bdimy=4, gdimy=3), LaunchParams(bdimx=8, bdimy=1)],
    ids=str,
)
@pytest.mark.parametrize("sizes", [(40, 24), (8, 100), (4, 4)], ids=str)
@pytest.mark.parametrize("lanes_down", [False, True])
@pytest.mark.sampled(0.5)
def test_kernels(dims: Sequence[int], launch: LaunchParams, sizes: tuple[int, int], lanes_down: bool) -> None:
    rows, columns = sizes
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(columns, rows, generator=generator), torch.randn(rows, columns, generator=generator)
    fusion = crossed(dims)
    schedule = Schedule(fusion)
    apply(SCHEDULER, schedule, replace(CROSSED, lparams=launch, lanes_down_columns=lanes_down), p.H200)
    assert all(load.loop[-1].parallel is ParallelType.vectorize for load in find_loads(schedule.fusion))
    (result,) = run(schedule, [x, y])
    torch.testing.assert_close(result, (x.t() + y).sum(dims), rtol=1e-5, atol=1e-5)
    again = replay(fusion, schedule.trace())
    assert kernel_text(lowered(again).kernel) == kernel_text(lowered(schedule).kernel)


def test_two_welford_reductions_of_one_tensor_have_registers_of_their_own() -> None:
    """Each gathers its run of values, which are not side by side in a square of elements."""
    x, y = torch.randn(40, 24), torch.randn(24, 40)

    def body(fusion: Fusion) -> TensorView:
        a, b = (define_tensor(fusion, [-1, -1], True, DataType.Float) for _ in range(2))
        total = apply_to_tensor(fusion, "add", permute(fusion, a, [1, 0]), b)
        add_output(fusion, welford(fusion, total, [1])[0])
        return welford(fusion, total, [1])[1]

    schedule = Schedule(p.built(body))
    apply(SCHEDULER, schedule, CROSSED, p.H200)
    mean, squares = run(schedule, [x, y])
    torch.testing.assert_close(mean, (x.t() + y).mean(1))
    torch.testing.assert_close(squares, torch.var(x.t() + y, 1, correction=0) * 40)


@pytest.mark.parametrize("dims", [(0,), (1,)])
def test_both_inputs_have_vectors_that_registers_hold(dims: Sequence[int]) -> None:
    params = proposed(crossed(dims, DataType.BFloat16), 4096, 8192)
    assert (params.unroll_factor_iter_dom, params.vector_down_columns) == (4, 8)
    narrow = proposed(crossed(dims, DataType.BFloat16), 4096 + 2 * dims[0], 8192 + 2 * (1 - dims[0]))
    assert (narrow.unroll_factor_iter_dom, narrow.vector_down_columns) == (2, 8)


def test_one_kernel_reads_both_inputs() -> None:
    """No tensor of the sum's operands passes through memory."""
    x, y = torch.randn(64, 128).bfloat16(), torch.randn(128, 64).bfloat16()
    with FusionDefinition() as fd:
        a, b = fd.from_pytorch(x), fd.from_pytorch(y)
        fd.add_output(fd.ops.sum(fd.ops.permute(a, [1, 0]) + b, [1]))
    [result] = fd.execute([x, y])
    assert len(fd.kernels_for([x, y])) == 1
    torch.testing.assert_close(result.float(), (x.t().float() + y.float()).sum(1), rtol=1e-2, atol=1e-1)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(("batch", "lanes_down", "along"), [(4, True, 1), (16, False, 4), (256, False, 16)])
def test_threads_along_a_row_have_what_is_contiguous_in_it(
    batch: int, lanes_down: bool, along: int, swapped: bool
) -> None:
    """One input has the batch innermost, the other the reduced dimension, whichever comes first."""
    orders = [[0, 2, 1], [2, 1, 0]]
    with FusionDefinition() as fd:
        a, b = (
            fd.define_tensor([-1, -1, -1], contiguity=True, dtype=DataType.Half, stride_order=order)
            for order in (orders[::-1] if swapped else orders)
        )
        fd.add_output(fd.ops.sum(a * b, [2]))
    x = torch.randn(16384 // batch, 128, batch).half().permute(2, 0, 1)
    y = torch.randn(x.shape).half()
    x, y = (y, x) if swapped else (x, y)
    [kernel] = fd.kernels_for([x, y])
    assert kernel.params.lanes_down_columns == lanes_down
    launch = kernel.params.lparams
    assert (1 if lanes_down else launch.bdimx) == along
    [result] = fd.execute([x, y])
    torch.testing.assert_close(result.float(), (x.float() * y.float()).sum(2), rtol=1e-2, atol=1e-1)


def test_sizes_that_no_vector_divides_and_outputs_of_every_element_are_as_before() -> None:
    assert proposed(crossed((1,)), 4095, 8192).vector_down_columns == 1
    assert proposed(crossed((1,)), 4096, 8191).vector_down_columns == 1
    assert proposed(crossed((1,), with_all=True), 4096, 8192).vector_down_columns == 1


def test_vectors_down_columns_need_an_input_that_lies_so() -> None:
    with pytest.raises(ParamsError, match=r"vector_down_columns.*no input is contiguous along the columns"):
        apply(SCHEDULER, Schedule(p.reduced((0,))), CROSSED, p.H200)
    with pytest.raises(ParamsError, match=r"vector_down_columns.*expected 1 unless"):
        replace(CROSSED, joined_rows=2).validate(p.H200)
