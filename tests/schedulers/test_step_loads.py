"""What threads have in flight where registers hold more than the elements that memory delivers: weights along
the reduced dimension, and the elements of short reductions that are computed where they are read.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from fusewright import DataType, FusionDefinition, ReductionParams
from tests.schedulers.proposals import definition

Tensor = torch.Tensor


def proposed(
    function: Callable[..., object], *shapes: tuple[int, ...], dtype: torch.dtype = torch.bfloat16
) -> ReductionParams:
    return last_params(function, *[torch.empty(shape, dtype=dtype, device="meta") for shape in shapes])


def last_params(function: Callable[..., object], *inputs: Tensor) -> ReductionParams:
    """Of the last kernel for these inputs on an H200."""
    kernels = definition(function, *inputs).kernels_for(inputs, device="cuda")
    params = kernels[-1].params
    assert isinstance(params, ReductionParams)
    return params


def above_sum(x: Tensor) -> tuple[Tensor, Tensor]:
    """Each point reads all elements along the first dimension."""
    centered = x - x.sum(0, keepdim=True)
    return centered, (centered > 0).sum(2)


def test_elements_of_inlined_reductions_count() -> None:
    """Nine loads a row: 32 rows of them would take more registers than a thread has."""
    params = proposed(above_sum, (8, 14, 200, 127))
    assert not params.fastest_dim and not params.persistent_kernel
    assert params.unroll_factor_inner_reduction == 14
    assert "only 14 in flight, as each takes 9 registers" in params.reason


def test_columns_of_one_load_have_as_many_rows_in_flight_as_their_bytes_allow() -> None:
    params = proposed(lambda x: (x + 1, x.sum(1)), (112, 200, 127))
    assert params.unroll_factor_inner_reduction == 32
    assert "only" not in params.reason


def test_blocks_that_have_an_sm_each_leave_no_registers_for_others() -> None:
    """Of columns in narrow vectors, whose threads are told to have all of their loads in flight."""

    def largest(x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        y = x.float() - bias.float()[:, None]
        return y.logsumexp(0), y.amax(0)

    params = proposed(largest, (1001, 8194), (1001,))
    assert params.unroll_factor_iter_dom == 2
    assert params.lparams.bdimx * params.lparams.bdimy == 1024
    assert params.cparams.maxrregcount == 64


def test_sweeps_have_fewer_vectors_in_flight_beside_factors_along_what_is_reduced() -> None:
    def scaled(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        y = x.float() * rows[:, None].rsqrt() * columns.rsqrt()
        return y / y.square().mean().sqrt().clamp(min=1)

    x, factor = torch.empty(4096, 4096, dtype=torch.bfloat16, device="meta"), torch.empty(4096, device="meta")
    params = last_params(scaled, x, factor, factor.clone())
    assert params.persistent_kernel and params.unroll_factor_inner_reduction == 4
    # Of 40 registers, each vector takes two, and four and one for the factors.
    assert params.unroll_factor_top_of_vectorization == 4


def mixture(x: Tensor, means: Tensor, logarithms: Tensor) -> Tensor:
    """The likelihood of points under a mixture of normal distributions."""
    apart = (x[:, None] - means) * torch.exp(-logarithms)
    return torch.logsumexp(-0.5 * apart.square().sum(-1) - logarithms.sum(-1), -1)


def test_rows_that_are_computed_of_many_loads_are_held_by_more_threads() -> None:
    """Nothing is held but what they come to, of 32 loads each."""
    inputs = [torch.empty(16, 1311, device="meta").T, *(torch.empty(16, 64, device="meta").T for _ in "ml")]
    params = last_params(mixture, *inputs)
    assert params.persistent_kernel and not params.fastest_dim
    assert params.batches_per_block_inner_reduction * 32 < 255


def test_results(target: torch.device) -> None:
    torch.manual_seed(0)
    x = torch.randn(8, 3, 20, 5, device=target)
    fd = definition(above_sum, x)
    for result, expected in zip(fd.execute([x]), above_sum(x)):
        torch.testing.assert_close(result, expected)
    points = [torch.randn(37, 4, device=target), *(torch.randn(6, 4, device=target) for _ in range(2))]
    fd = definition(mixture, *points)
    torch.testing.assert_close(fd.execute(points)[0], mixture(*points))


def test_misaligned_rows_that_are_read_again_have_registers_for_both_vectors() -> None:
    """Each vector that starts at any element is chosen from two aligned ones."""
    x = torch.empty(256 * 194712 + 1, dtype=torch.float16, device="meta")[1:].view(256, 194712)
    with FusionDefinition() as fd:
        a = fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.Half)
        wide = fd.ops.cast(a, DataType.Float)
        var, mean = fd.ops.var_mean(wide, [1], 0, keepdim=True)
        fd.add_output(fd.ops.cast((wide - mean) * fd.ops.rsqrt(var + 1e-5), DataType.Half))
    [kernel] = fd.kernels_for([x], device="cuda")
    params = kernel.params
    assert params.unaligned_inputs == (0,) and not params.batches_per_block_inner_reduction
    assert kernel.resources is not None and kernel.resources.spill_stores == 0
