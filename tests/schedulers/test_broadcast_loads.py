"""Inputs that fewer dimensions than the result's index, which come from the caches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch

from fusewright import DataType, FusionDefinition, PointwiseParams
from fusewright.core.errors import ScheduleError
from fusewright.core.hardware import DESCRIBED
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.ops.build_elementwise import apply_to_tensor, convert_tensor
from fusewright.ops.build_indexing import select
from fusewright.ops.build_inputs import define_tensor
from fusewright.ops.build_resize import slice_
from fusewright.schedulers import PointwiseScheduler, propose
from fusewright.schedulers.params.launch import UNSET
from tests.schedulers import proposals as p


def _standardized(x: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor) -> FusionDefinition:
    """Of rows of bfloat16, by statistics of type float of each column."""
    with FusionDefinition() as fd:
        shape = [1, 1, x.shape[-1]]
        given, *columns = (fd.from_pytorch(tensor) for tensor in (x, mean, scale))
        middle, factor = (fd.ops.broadcast_in_dim(each, shape, [2]) for each in columns)
        result = fd.ops.mul(fd.ops.sub(fd.ops.cast(given, dtype=DataType.Float), middle), factor)
        fd.add_output(fd.ops.cast(result, dtype=DataType.BFloat16))
    return fd


@pytest.mark.parametrize("start, width", [(0, 8), (2, 2)], ids=["aligned", "8 bytes"])
def test_a_vector_of_wider_elements_is_several_accesses(start: int, width: int, target: torch.device) -> None:
    x = torch.randn(5, 7, 64, device=target).to(torch.bfloat16)
    mean, scale = (torch.randn(64 + start, device=target)[start:] for _ in range(2))
    fd = _standardized(x, mean, scale)
    [kernel] = fd.kernels_for([x, mean, scale])
    assert (kernel.params.vectorization_factor, kernel.params.vectorized_dim) == (width, -1)
    [out] = fd.execute([x, mean, scale])
    assert torch.equal(out, ((x.float() - mean) * scale).to(torch.bfloat16))


def test_vectors_that_may_not_be_whole_are_one_access(target: torch.device) -> None:
    x, scale = torch.randint(-9, 9, (7, 133), device=target).to(torch.int8), torch.randn(7, 1, device=target)
    with FusionDefinition() as fd:
        given, factor = (fd.from_pytorch(tensor) for tensor in (x, scale))
        product = fd.ops.mul(fd.ops.cast(given, dtype=DataType.Float), factor)
        fd.add_output(fd.ops.cast(product, dtype=DataType.BFloat16))
    [kernel] = fd.kernels_for([x, scale])
    for width in (8, 16):
        params = replace(
            kernel.params,
            break_point=1,
            vectorization_factor=width,
            vectorized_dim=-1,
            shift_rows=True,
            unroll_factor_inner=1,
            unroll_factor_outer=1,
            assumed_sizes=(),
        )
        if width > 8:
            with pytest.raises(ScheduleError, match="at most 8 elements"):
                fd.execute([x, scale], schedules={0: params})
        else:
            [out] = fd.execute([x, scale], schedules={0: params})
            assert torch.equal(out, (x * scale).to(torch.bfloat16))


def test_rows_that_share_most_are_two_a_thread() -> None:
    """Tables of cosines and sines for all of a batch's rows, beside one input."""
    sizes = [(64, 2048, 128), (2048, 128), (2048, 128)]

    def body(fusion: Fusion) -> TensorView:
        x, cos, sin = (define_tensor(fusion, [-1] * len(size), True, DataType.BFloat16) for size in sizes)
        return apply_to_tensor(fusion, "add", apply_to_tensor(fusion, "mul", x, cos), sin)

    fusion = p.built(body)
    params = propose(PointwiseScheduler(), fusion, p.facts_of(fusion, sizes), p.H200)
    assert (params.break_point, params.unroll_factor_outer) == (1, 2)


def _in_rows(
    sizes: Sequence[Sequence[int]], body: Callable[..., TensorView], gpu: str = "h200"
) -> PointwiseParams:
    """The params of a function of tensors of these sizes, of type Float."""
    fusion = p.built(lambda f: body(f, *(define_tensor(f, [-1] * len(size), True) for size in sizes)))
    params = propose(PointwiseScheduler(), fusion, p.facts_of(fusion, sizes), DESCRIBED[gpu])
    assert isinstance(params, PointwiseParams)
    return params


@pytest.mark.parametrize(("streams", "rows"), [(2, 2), (3, 2), (4, 4), (16, 2)])
def test_a_thread_has_all_of_a_few_rows_that_share_most(streams: int, rows: int) -> None:
    """Two planes of the rows' own input are shared, too: several loads, though of one tensor."""

    def scaled(fusion: Fusion, x: TensorView) -> TensorView:
        result = x
        for plane in (0, 1):
            result = apply_to_tensor(fusion, "mul", result, select(fusion, x, plane, 0))
        return result

    params = _in_rows([(streams, 4096, 2048)], scaled)
    assert (params.break_point, params.unroll_factor_outer) == (1, rows)


def test_blocks_go_down_the_rows_where_these_share_more_than_the_cache_keeps() -> None:
    def added(fusion: Fusion, x: TensorView, y: TensorView) -> TensorView:
        return apply_to_tensor(fusion, "add", x, y)

    for (batch, rows), down in {(8, 4096): True, (32, 512): True, (64, 256): False}.items():
        params = _in_rows([(batch, rows, 4096), (rows, 4096)], added)
        assert params.break_point == 1 and params.flip_grid_binding is down

    def windows(fusion: Fusion, x: TensorView, y: TensorView) -> TensorView:
        for start in (0, 8, 16):
            part = slice_(fusion, y, [0, start], [256, 4096 + start])
            x = apply_to_tensor(fusion, "add", x, part)
        return x

    assert not _in_rows([(64, 256, 4096), (256, 4112)], windows).flip_grid_binding
    # In grid_y are too few blocks for the columns of a larger one.
    assert not _in_rows([(2, 65536, 4096), (65536, 4096)], added).flip_grid_binding


def test_rows_that_leave_threads_idle_are_two_a_thread() -> None:
    """Threads that have columns load for those of their block that have none."""

    def body(fusion: Fusion) -> TensorView:
        x, row = (define_tensor(fusion, shape, True) for shape in ([-1, -1], [-1]))
        return apply_to_tensor(fusion, "add", x, row)

    fusion = p.built(body)
    for columns, rows in ((512, 1), (1600, 2), (1000, 1)):
        sizes = [(32_000, columns), (columns,)]
        params = propose(PointwiseScheduler(), fusion, p.facts_of(fusion, sizes), p.H200)
        assert (params.break_point, params.unroll_factor_outer) == (1, rows), (columns, params.reason)


def test_vectors_beside_several_weights_by_element_are_narrower() -> None:
    """Of odd rows: what a warp reads at once of a weight lies a vector apart."""

    def scaled(weights: int) -> int:
        def body(fusion: Fusion) -> TensorView:
            x = define_tensor(fusion, [-1, -1], True, DataType.BFloat16)
            for _ in range(weights):
                x = apply_to_tensor(fusion, "mul", x, define_tensor(fusion, [-1], True, DataType.BFloat16))
            return convert_tensor(fusion, x, DataType.BFloat16)

        fusion = p.built(body)
        facts = p.facts_of(fusion, [(16384, 4095), *[(4095,)] * weights])
        return propose(PointwiseScheduler(), fusion, facts, p.H200).vectorization_factor

    assert (scaled(1), scaled(2)) == (8, 4)


def test_an_index_for_each_row_asks_for_no_tiles(target: torch.device) -> None:
    """Its elements are neighbours down the rows, but all columns of a row share one."""
    x, at = torch.randn(40, 256, device=target).to(torch.bfloat16), torch.arange(32, device=target).flip(0)
    with FusionDefinition() as fd:
        table, index = fd.from_pytorch(x), fd.from_pytorch(at)
        fd.add_output(fd.ops.mul(fd.ops.index_select(table, index, dim=0), 2.0))
    [kernel] = fd.kernels_for([x, at])
    assert kernel.params.lparams.bdimy == UNSET
    [out] = fd.execute([x, at])
    assert torch.equal(out, (x[at] * 2).to(out.dtype))
