"""Reductions down columns of short rows, which something has one element of each: a mask of pixels
[n, height, width, 3], weights of points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch

from fusewright import ParamsError, ReductionParams
from fusewright.schedulers import LaunchParams
from tests.schedulers import proposals as p

Function = Callable[..., torch.Tensor]


def _masked_sum(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.where(mask[..., None], x.float(), 0).sum((1, 2))


def _weighted_sum(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (x.float() * weight[..., None].float()).sum(1)


def _over_weights(x: torch.Tensor, weight: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    return (x * weight[..., None]).sum(1) / total[:, None]


def _params(function: Function, *tensors: torch.Tensor) -> ReductionParams:
    [kernel] = p.definition(function, *tensors).kernels_for(list(tensors), device="cuda")
    assert isinstance(kernel.params, ReductionParams)
    return kernel.params


def _empty(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


# ---- what is proposed ----


def test_masked_pixels_are_read_in_vectors() -> None:
    """Two kernels stored them as floats, and the second read these one by one."""
    params = _params(
        _masked_sum, _empty(64, 512, 512, 3, dtype=torch.uint8), _empty(64, 512, 512, dtype=torch.bool)
    )
    assert params.has_whole_rows and params.joined_rows == 16 and params.unroll_factor_iter_dom == 3


@pytest.mark.parametrize(
    "x, weight, rows",
    [
        (torch.float32, torch.float32, 4),
        (torch.bfloat16, torch.bfloat16, 8),
        (torch.bfloat16, torch.float32, 8),  # two vectors of the weights
        (torch.uint8, torch.float32, 16),
        (torch.float32, torch.bool, 4),
    ],
    ids=str,
)
def test_vectors_are_as_wide_as_columns_allow(x: torch.dtype, weight: torch.dtype, rows: int) -> None:
    params = _params(_weighted_sum, _empty(40000, 48, 3, dtype=x), _empty(40000, 48, dtype=weight))
    assert params.has_whole_rows and params.joined_rows == rows


def test_short_stretches_share_a_block() -> None:
    params = _params(_over_weights, _empty(40000, 48, 3), _empty(40000, 48), _empty(40000))
    assert params.lparams.bdimx * params.joined_rows <= 48 and params.lparams.bdimy > 1


def test_weights_of_longer_rows_are_read_by_element_beside_vectors() -> None:
    params = _params(_weighted_sum, _empty(4096, 512, 33, dtype=torch.bfloat16), _empty(4096, 512))
    assert params.joined_rows == 8 and not params.has_whole_rows and params.vectorize_iter_dom


def test_weights_may_have_gaps_between_rows() -> None:
    weight = torch.empty_strided((40000, 48), (64, 1), device="meta")
    assert _params(_weighted_sum, _empty(40000, 48, 3), weight).has_whole_rows


# ---- that it is right ----

WHOLE = ReductionParams(
    joined_rows=4,
    lanes_down_columns=True,
    unroll_factor_inner_reduction=2,
    unroll_factor_iter_dom=3,
    lparams=LaunchParams(bdimx=2, bdimy=4),
)
ELEMENTS = ReductionParams(
    joined_rows=4,
    unroll_factor_inner_reduction=2,
    unroll_factor_iter_dom=4,
    vectorize_iter_dom=True,
    lparams=LaunchParams(bdimx=3, bdimy=2, bdimz=4),
)


FUNCTIONS: dict[str, Callable[..., Sequence[torch.Tensor]]] = {
    "sum": lambda x: [x.sum(1)],
    "amax": lambda x: [x.amax(1)],
    "var": lambda x: torch.var_mean(x, 1),
    "two": lambda x: [x.amax(1), x.square().sum(1) + 1],
    "over": lambda x, total: [x.sum(1) / total[:, None]],
}


@pytest.mark.parametrize(
    "shape, params",
    [
        ((9, 24, 3), WHOLE),
        ((8, 20, 3), WHOLE),  # five vectors for two threads, of which each has two in flight
        ((9, 32, 3), replace(WHOLE, joined_rows=16)),
        ((9, 32, 5), replace(WHOLE, joined_rows=8, unroll_factor_iter_dom=5)),
        ((9, 32, 3), replace(WHOLE, lparams=LaunchParams(bdimx=2, bdimy=1, gdimy=3))),
        ((9, 96, 3), replace(WHOLE, lparams=LaunchParams(bdimx=2, bdimy=2, gdimy=3))),
        ((9, 96, 3), replace(WHOLE, blocks_per_cluster=2)),
        ((9, 24, 3), ELEMENTS),
        ((3, 96, 3), replace(ELEMENTS, lparams=LaunchParams(bdimx=3, bdimy=2, bdimz=2, gdimy=3))),
    ],
    ids=lambda value: str(value) if isinstance(value, tuple) else "",
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8], ids=str)
@pytest.mark.parametrize("of_weights", [torch.float32, torch.bfloat16, torch.bool], ids=str)
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.sampled(0.2)
def test_kernels(
    shape: tuple[int, int, int],
    params: ReductionParams,
    dtype: torch.dtype,
    of_weights: torch.dtype,
    function: str,
    target: torch.device,
) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(-100 if dtype.is_signed else 0, 100, shape, generator=generator).to(dtype).to(target)
    weight = torch.randint(0, 3, shape[:2], generator=generator).to(of_weights).to(target)
    totals = [torch.rand(shape[0], generator=generator).to(target) + 1] if function == "over" else []
    if not params.has_whole_rows and params.joined_rows * dtype.itemsize > 16:
        params = replace(params, joined_rows=2, unroll_factor_iter_dom=2)
    right = x.double() * weight.double()[..., None]
    reduced = FUNCTIONS[function]
    inputs = [x, weight, *totals]
    fd = p.definition(lambda x, w, *totals: reduced(x.float() * w[..., None].float(), *totals), *inputs)
    [kernel] = fd.kernels_for(inputs, schedules={0: params})
    assert kernel.params == params
    for result, wanted in zip(
        fd.execute(inputs, schedules={0: params}), reduced(right, *(t.double() for t in totals))
    ):
        torch.testing.assert_close(result.double(), wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("of_weights", [torch.float32, torch.bool], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8], ids=str)
@pytest.mark.parametrize("shape", [(1100, 48, 3), (1057, 17, 7), (3, 4096, 3), (5, 96, 33)], ids=str)
def test_what_is_proposed_is_right(
    shape: tuple[int, int, int], dtype: torch.dtype, of_weights: torch.dtype, target: torch.device
) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(0, 100, shape, generator=generator).to(dtype).to(target)
    weight = torch.randint(0, 2, shape[:2], generator=generator).to(of_weights).to(target)
    [result] = p.definition(_weighted_sum, x, weight).execute([x, weight])
    right = (x.double() * weight.double()[..., None]).sum(1)
    torch.testing.assert_close(result.double(), right, rtol=1e-5, atol=1e-4)


def test_all_columns_may_be_side_by_side(target: torch.device) -> None:
    x, weight = torch.rand(4096, 3, device=target), torch.rand(4096, device=target)
    fd = p.definition(lambda x, weight: (x * weight[:, None]).sum(0), x, weight)
    params = replace(WHOLE, lparams=LaunchParams(bdimx=64, bdimy=1, gdimy=2))
    [result] = fd.execute([x, weight], schedules={0: params})
    torch.testing.assert_close(result, (x * weight[:, None]).sum(0))


# ---- what is refused ----


@pytest.mark.parametrize(
    "field, value",
    [("unroll_factor_iter_dom", 2), ("unroll_factor_iter_dom", 4), ("vectorize_iter_dom", True)],
)
def test_a_thread_has_the_columns_of_whole_rows(field: str, value: object) -> None:
    x, weight = _empty(9, 24, 4), _empty(9, 24)
    params = replace(WHOLE, **{"unroll_factor_iter_dom": 3 if value == 4 else 4, field: value})
    if value == 4:
        x = _empty(9, 24, 3)
    with pytest.raises(ParamsError, match=field):
        p.definition(_weighted_sum, x, weight).kernels_for([x, weight], device="cuda", schedules={0: params})
