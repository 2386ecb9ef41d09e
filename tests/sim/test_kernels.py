"""Whole kernels give the right results, and report what they moved."""

from __future__ import annotations

import time
import typing

import pytest
import torch

from fusewright.core.dtype import DataType
from fusewright.core.errors import SimulationError
from fusewright.kernel.ir import Stmt
from fusewright.runtime.single_thread import SINGLE_THREAD
from fusewright.sim import SimOptions, launch_of, simulate
from fusewright.sim.simulator import HANDLERS
from tests.kernel import builders
from tests.sim.layer_norm import layer_norm

F32 = DataType.Float


def _random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).to(dtype)


def test_every_statement_has_a_handler() -> None:
    assert set(HANDLERS) == set(typing.get_args(Stmt))


@pytest.mark.parametrize("dtype", [DataType.BFloat16, DataType.Float, DataType.Double])
def test_pointwise(dtype: DataType) -> None:
    n = 5000
    x, y = _random(n, dtype=dtype.torch), _random(n, dtype=dtype.torch).flip(0)
    out = torch.empty_like(x)
    report = simulate(builders.pointwise(dtype), [x, y, out, n, 0.5])
    compute = dtype.compute.torch
    torch.testing.assert_close(out, ((x.to(compute) + y.to(compute)) * 0.5).to(dtype.torch), rtol=0, atol=0)
    assert report.global_traffic.loads == 2 * n // 8
    assert report.global_traffic.bytes_stored == n * x.element_size()


@pytest.mark.parametrize("max_lanes", [1, 300, 1 << 17])
def test_softmax_in_chunks_of_blocks(max_lanes: int) -> None:
    x = _random(9, 300, dtype=torch.float16)
    y = torch.empty_like(x)
    simulate(builders.row_softmax(), [x, y, 9, 300], options=SimOptions(max_lanes=max_lanes))
    torch.testing.assert_close(y, x.float().softmax(-1).half(), rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("index", [DataType.Int, DataType.Int32, DataType.UInt64])
def test_loaded_indices_out_of_range_read_the_pad(index: DataType) -> None:
    """However large or negative: none wraps around to a row that is there."""
    rows = [2, 0, 2, 3, -1, -(2**31), 2**31 - 1]
    if index is not DataType.Int32:
        rows += [2**32 + 1, 2**63 - 1]
    if index is DataType.UInt64:
        rows = [row % 2**64 for row in rows] + [2**63 + 1]
    x, wanted = _random(3, 12), torch.tensor(rows, dtype=index.torch)
    y = torch.empty(len(rows), 12)
    simulate(builders.gathered_rows(index), [x, wanted, y, 3, len(rows), 12, -5.0])
    expected = [x[row] if 0 <= row < 3 else torch.full((12,), -5.0) for row in rows]
    torch.testing.assert_close(y, torch.stack(expected), rtol=0, atol=0)


def test_a_source_is_not_touched_where_its_predicate_is_0() -> None:
    for n in (4, 1000):
        x = _random(n)
        outs = [torch.empty(n + 4) for _ in range(3)]
        simulate(builders.padded(), [x, *outs, n])
        for out in outs:
            torch.testing.assert_close(out, torch.nn.functional.pad(x, (4, 0), value=2.5), rtol=0, atol=0)


def test_reduction_along_y_of_the_block_in_vectors() -> None:
    x, y = _random(37, 200), torch.empty(200)
    simulate(builders.column_sum(), [x, y, 37, 200])
    torch.testing.assert_close(y, x.sum(0))


def test_reduction_across_blocks() -> None:
    x, y, exchange = _random(5001), torch.empty(1), torch.zeros(24, dtype=torch.int64)
    simulate(builders.grid_sum(), [x, y, exchange, 5001])
    torch.testing.assert_close(y[0], x.sum(), rtol=1e-5, atol=1e-4)


def test_reductions_across_blocks_made_together() -> None:
    x, y, z = _random(128), torch.empty(1), torch.empty(1)
    simulate(builders.grid_sums(), [x, y, z, *(torch.zeros(12, dtype=torch.int64) for _ in range(2))])
    torch.testing.assert_close(y[0], x.sum(), rtol=1e-5, atol=1e-4)
    assert z[0] == x.max()


def test_blocks_that_wait_for_each_other() -> None:
    x, y, between = _random(128), torch.empty(128), torch.empty(128)
    exchange, semaphore = torch.zeros(16, dtype=torch.int64), torch.zeros(1, dtype=torch.int32)
    simulate(builders.grid_reverse(), [x, y, between, exchange, semaphore])
    torch.testing.assert_close(y, (x - x.sum()).flip(0), rtol=1e-5, atol=1e-4)


def test_blocks_of_a_cluster_reduce_together() -> None:
    x, y = _random(5, 256), torch.empty(5, 256)
    simulate(builders.cluster_rows(), [x, y, 5], options=SimOptions(max_lanes=3 * 64))
    torch.testing.assert_close(y, x - x.sum(1, keepdim=True), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("run", [1, 4])
def test_reduction_with_several_states(run: int) -> None:
    x, mean, m2 = _random(11, 252), torch.empty(11), torch.empty(11)
    simulate(builders.row_welford(run=run), [x, mean, m2, 11, 252])
    torch.testing.assert_close(mean, x.mean(1))
    torch.testing.assert_close(m2, x.var(1, correction=0) * 252)


def test_exchange_through_shared_memory() -> None:
    x = _random(3 * 256)
    y = torch.empty_like(x)
    report = simulate(builders.block_reverse(), [x, y, x.numel()])
    assert torch.equal(y.view(3, 64, 4), x.view(3, 64, 4).flip(1))
    assert report.barriers == 3
    assert report.shared_traffic.bytes_stored == x.numel() * 4


def test_complex_values() -> None:
    x, y = _random(200, 2), _random(200, 2).flip(0)
    x, y = torch.view_as_complex(x), torch.view_as_complex(y)
    out = torch.empty_like(x)
    simulate(builders.complex_product(), [x, y, out, 200])
    torch.testing.assert_close(out, x * y + (0.5 - 2j))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (DataType.Float8_e4m3fn, DataType.BFloat16),
        (DataType.Double, DataType.Float8_e5m2),
        (DataType.Float, DataType.Int32),
        (DataType.ComplexFloat, DataType.Half),
        (DataType.Bool, DataType.UInt64),
        (DataType.Float, DataType.Float8_e8m0fnu),
    ],
)
def test_casts_of_every_family(old: DataType, new: DataType) -> None:
    x = _random(300).mul(20).to(old.torch)
    y = torch.zeros(300, dtype=new.torch)
    simulate(builders.cast(old, new), [x, y, 300])
    real = x.real if x.is_complex() else x
    assert torch.equal(y.view(torch.uint8), real.to(old.compute.real.torch).to(new.torch).view(torch.uint8))


def test_index_values_and_scalars() -> None:
    x, y = _random(300), torch.zeros(300, dtype=torch.int64)
    simulate(builders.iota_select(), [x, y, 300, 7])
    assert torch.equal(y, torch.where(x > 0, torch.arange(300), 7))


def test_an_output_that_is_also_an_input() -> None:
    x = _random(4096)
    expected = (x + x) * 2
    simulate(builders.pointwise(F32, width=4), [x, x, x, 4096, 2.0])
    assert torch.equal(x, expected)


def test_elements_of_the_storage_that_the_kernel_does_not_write_are_kept() -> None:
    storage = torch.zeros(1024)
    simulate(builders.pointwise(F32, width=4), [_random(512), _random(512), storage[256:768], 512, 1.0])
    assert not storage[:256].any() and not storage[768:].any() and storage[256:768].all()


def test_an_empty_grid_runs_nothing() -> None:
    x = torch.zeros(4, 10)
    arguments = [x, torch.zeros(0, 10), 4, 10]
    assert simulate(builders.row_softmax(F32), arguments, grid=(0, 1, 1)).statements == 0


def test_launch_from_the_kernels_own_expressions() -> None:
    launch = launch_of(builders.column_sum(), [_random(5, 200), torch.empty(200), 5, 200])
    assert (launch.grid, launch.block, launch.shared_bytes) == ((2, 1, 1), (32, 8, 1), 4096)


def test_statements_can_be_watched() -> None:
    seen: list[str] = []
    options = SimOptions(on_statement=lambda stmt, machine: seen.append(type(stmt).__name__))
    simulate(builders.block_reverse(), [_random(256), torch.empty(256), 256], options=options)
    assert seen == ["Let", "Alloc", "Alloc", "Copy", "Barrier", "Copy", "Copy"]


def test_wrong_arguments_are_refused() -> None:
    kernel = builders.pointwise(F32, width=4)
    x, y, out = torch.zeros(64), torch.zeros(64), torch.zeros(64)
    with pytest.raises(SimulationError, match="takes 5 arguments, but got 2"):
        simulate(kernel, [x, y])
    with pytest.raises(SimulationError, match=r"`T1` must be .* torch.float32, not torch.float64"):
        simulate(kernel, [x, y.double(), out, 64, 1.0])
    with pytest.raises(SimulationError, match=r"made for 1 <= n0 .*, a multiple of 4, not 63"):
        simulate(kernel, [x, y, out, 63, 1.0])
    with pytest.raises(SimulationError, match="made for 1 <= columns <= 128, not 200"):
        simulate(builders.row_softmax(F32, per_thread=1), [torch.zeros(2, 200), torch.zeros(2, 200), 2, 200])
    with pytest.raises(SimulationError, match="`T0` is not aligned to 16 bytes"):
        simulate(kernel, [torch.zeros(65)[1:], y, out, 64, 1.0])


@pytest.mark.parametrize("width", [1, 4])
def test_layer_norm_of_a_million_elements_in_time(width: int) -> None:
    x, weight, bias = _random(1024, 1024), _random(1024), _random(1024).flip(0)
    y = torch.empty_like(x)
    kernel = layer_norm(width=width)
    with SINGLE_THREAD:
        start = time.process_time()
        simulate(kernel, [x, weight, bias, y, 1024])
        elapsed = time.process_time() - start
    torch.testing.assert_close(
        y, torch.nn.functional.layer_norm(x, (1024,), weight, bias, 1e-5), rtol=1e-4, atol=1e-5
    )
    # The budget. It takes less than 0.1 s of one core, and about that on a busy machine, too.
    assert elapsed < 2
