"""Scans by given params: steps that are loaded while the one before is scanned."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.errors import ParamsError
from fusewright.schedulers.params import LaunchParams, ScanParams
from tests.integration.tolerance import assert_close

_ROWS = ScanParams(
    fastest_dim=True,
    vectorization_factor=4,
    unroll_factor=2,
    prefetches_steps=True,
    lparams=LaunchParams(bdimx=8, bdimy=2),
)
_SHIFTED = replace(_ROWS, prefetches_steps=False, shift_rows=True)
_COLUMNS = ScanParams(
    fastest_dim=False,
    vectorization_factor=4,
    unroll_factor=3,
    prefetches_steps=True,
    lparams=LaunchParams(bdimx=8, bdimy=4),
)
# Blocks that share rows, and columns.
_SHARED_ROWS = replace(_ROWS, lparams=LaunchParams(gdimy=3, bdimx=8, bdimy=2))
_SHARED_COLUMNS = replace(_COLUMNS, lparams=LaunchParams(gdimy=3, bdimx=8, bdimy=4))


@pytest.mark.parametrize("dtype", [DataType.Float, DataType.BFloat16])
@pytest.mark.parametrize(
    "params, dim, shape",
    [
        (_ROWS, 1, (5, 200)),
        (_ROWS, 1, (3, 40)),
        (_COLUMNS, 0, (67, 40)),
        (_COLUMNS, 0, (9, 40)),
        (_SHARED_ROWS, 1, (5, 1004)),
        (_SHARED_ROWS, 1, (3, 40)),
        (_SHARED_COLUMNS, 0, (167, 40)),
        (_SHARED_COLUMNS, 0, (9, 40)),
    ],
)
def test_steps_that_are_loaded_ahead(
    params: ScanParams, dim: int, shape: tuple[int, int], dtype: DataType
) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=dtype)
        weight = fd.define_tensor([-1, -1], contiguity=True, dtype=dtype)
        fd.add_output(
            fd.ops.cumsum(fd.ops.cast(x, DataType.Float) * fd.ops.cast(weight, DataType.Float), dim)
        )
    inputs = [torch.randn(shape).to(dtype.torch) for _ in range(2)]
    [out] = fd.execute(inputs, schedules={0: params})
    x, weight = (each.double() for each in inputs)
    assert_close(out, (x * weight).cumsum(dim), shape[dim])
    [kernel] = fd._last_kernels()
    assert "_next[" in kernel.source.text


@pytest.mark.parametrize("dtype", [DataType.Float, DataType.BFloat16])
@pytest.mark.parametrize("shape", [(5, 201), (3, 2), (9, 333), (4, 64), (1, 75)])
@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.sampled(0.5)
def test_rows_whose_vectors_begin_at_aligned_addresses(
    blocks: int, shape: tuple[int, int], dtype: DataType, target: torch.device
) -> None:
    with FusionDefinition() as fd:
        x = fd.ops.cast(fd.define_tensor([-1, -1], contiguity=True, dtype=dtype), DataType.Float)
        fd.add_output(fd.ops.cast(fd.ops.cumsum(x, 1), dtype))
        fd.add_output(fd.ops.cummax(x, 1) - x)
    x = (torch.randint(-64, 64, shape) / 64).to(dtype.torch).to(target)
    params = replace(_SHIFTED, lparams=replace(_SHIFTED.lparams, gdimy=blocks if blocks > 1 else -1))
    sums, falls = fd.execute([x], schedules={0: params})
    assert_close(sums, x.double().cumsum(1), shape[1])
    assert_close(falls, x.double().cummax(1).values - x.double(), shape[1])


def test_odd_rows_are_shifted() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.BFloat16)
        fd.add_output(fd.ops.cast(fd.ops.cumsum(fd.ops.cast(x, DataType.Float), 1), DataType.BFloat16))
    for length, width, shifts in ((4097, 8, True), (4098, 8, True), (4100, 4, False), (4096, 8, False)):
        [kernel] = fd.kernels_for(
            [torch.empty(4096, length, dtype=torch.bfloat16, device="meta")], device="cpu"
        )
        params = kernel.params
        assert isinstance(params, ScanParams)
        assert (params.vectorization_factor, params.shift_rows) == (width, shifts), length


@pytest.mark.parametrize("shape", [(131,), (1, 131), (3, 131), (2, 257), (5, 129)])
def test_few_short_odd_rows(shape: tuple[int, ...], target: torch.device) -> None:
    """A part of a warp has a row of few vectors, and a block no more rows than there are."""
    x = (torch.randint(-64, 64, shape) / 64).bfloat16().to(target)
    with FusionDefinition() as fd:
        given = fd.ops.cast(fd.from_pytorch(x), DataType.Float)
        fd.add_output(fd.ops.cast(fd.ops.cumsum(given, len(shape) - 1), DataType.BFloat16))
    assert_close(fd.execute([x])[0], x.double().cumsum(-1), shape[-1])
    [kernel] = fd._last_kernels()
    assert isinstance(kernel.params, ScanParams)
    assert kernel.params.shift_rows
    assert kernel.params.lparams.bdimy <= max(1, 2 * x[..., 0].numel() - 1)


def test_shifted_rows_are_not_loaded_ahead() -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.cumsum(fd.define_tensor([-1, -1], contiguity=True), 1))
    with pytest.raises(ParamsError, match="prefetches_steps"):
        fd.execute([torch.randn(4, 64)], schedules={0: replace(_ROWS, shift_rows=True)})


@pytest.mark.parametrize(("dtype", "threads", "vectors"), [(torch.bool, 256, 4), (torch.float32, 256, 2)])
def test_threads_have_more_vectors_of_two_elements(dtype: torch.dtype, threads: int, vectors: int) -> None:
    """Sums of bools are Int, of which a vector has two."""
    given = torch.ones(8192, 2048, dtype=dtype)
    with FusionDefinition() as fd:
        x = fd.from_pytorch(given, static_sizes=True)
        wide = DataType.Int if dtype is torch.bool else DataType.Float
        fd.add_output(fd.ops.cumsum(fd.ops.cast(x, wide), 1))
    params = fd.kernels_for([given])[0].params
    assert isinstance(params, ScanParams)
    assert (params.lparams.bdimx, params.unroll_factor) == (threads, vectors)


@pytest.mark.parametrize(
    ("rows", "length", "lanes", "vectors"),
    [
        (524288, 33, 8, 1),
        (262144, 65, 8, 2),
        (131072, 129, 8, 3),
        (65536, 257, 16, 3),
        (32768, 1023, 32, 5),
        (16384, 2047, 96, 3),
        (1000, 2047, 288, 1),  # too few rows for warps of their own
        (4096, 4097, 192, 3),
    ],
)
def test_threads_of_short_odd_rows(
    rows: int, length: int, lanes: int, vectors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of a warp where that has vectors to do, a warp up to a few steps of it, then blocks."""
    monkeypatch.setenv("FUSEWRIGHT_SIM_DEVICE", "h200")
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.BFloat16)
        fd.add_output(fd.ops.cast(fd.ops.cumsum(fd.ops.cast(x, DataType.Float), 1), DataType.BFloat16))
    [kernel] = fd.kernels_for([torch.empty(rows, length, dtype=torch.bfloat16, device="meta")], device="cpu")
    params = kernel.params
    assert isinstance(params, ScanParams)
    assert params.shift_rows
    assert (params.lparams.bdimx, params.unroll_factor) == (lanes, vectors)
    assert params.lparams.bdimy == max(1, 128 // lanes)


@pytest.mark.parametrize(
    ("length", "lanes", "elements", "rows_a_block"),
    [(13, 8, 2, 32), (19, 8, 3, 32), (31, 8, 4, 16)],
)
def test_lanes_of_short_rows_have_several_elements(
    length: int, lanes: int, elements: int, rows_a_block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read by element, as rows have gaps. There are not so many blocks that they start slowly."""
    monkeypatch.setenv("FUSEWRIGHT_SIM_DEVICE", "h200")
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, length], contiguity=[False, True], dtype=DataType.Float)
        fd.add_output(fd.ops.cumsum(x, 1))
    memory = torch.empty(400000, 33, device="meta")
    [kernel] = fd.kernels_for([memory[:, :length]], device="cpu")
    params = kernel.params
    assert isinstance(params, ScanParams)
    assert (params.lparams.bdimx, params.unroll_factor, params.lparams.bdimy) == (
        lanes,
        elements,
        rows_a_block,
    )
    few = fd.kernels_for([memory[:100, :length]], device="cpu")[0].params
    assert isinstance(few, ScanParams)
    assert (few.lparams.bdimx, few.unroll_factor) == (16 if length == 13 else 32, 1)


@pytest.mark.parametrize("length", [9, 19, 31])
def test_short_rows_by_several_elements_of_a_lane(length: int, target: torch.device) -> None:
    params = ScanParams(unroll_factor=4, lparams=LaunchParams(bdimx=8, bdimy=4))
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=[False, True], dtype=DataType.Float)
        fd.add_output(fd.ops.cumsum(x, 1))
    given = torch.randn(7, 33, device=target)[:, :length]
    [out] = fd.execute([given], schedules={0: params})
    assert_close(out, given.double().cumsum(1), length)


@pytest.mark.parametrize("offset", [0, 3])
@pytest.mark.parametrize("length", [64, 256, 257])
def test_an_exclusive_scan_reads_vectors_that_start_at_any_element(
    length: int, offset: int, target: torch.device
) -> None:
    x = ((torch.randint(-64, 64, (5 * length + offset,)) / 64).bfloat16()[offset:]).view(5, length).to(target)
    with FusionDefinition() as fd:
        given = fd.ops.pad(fd.ops.cast(fd.from_pytorch(x), DataType.Float), [1, -1])
        fd.add_output(fd.ops.cast(fd.ops.cumsum(given, 1), DataType.BFloat16))
    [out] = fd.execute([x])
    assert_close(out, torch.nn.functional.pad(x.double(), (1, -1)).cumsum(1), length)
    [kernel] = fd._last_kernels()
    assert isinstance(kernel.params, ScanParams)
    assert (kernel.params.vectorization_factor, kernel.params.unaligned_inputs) == (8, (0,))


def test_inputs_that_are_none_have_no_vectors() -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.cumsum(fd.define_tensor([-1, -1], contiguity=True), 1))
    params = replace(_ROWS, prefetches_steps=False, unaligned_inputs=(1,))
    with pytest.raises(ParamsError, match="unaligned_inputs"):
        fd.execute([torch.randn(4, 64)], schedules={0: params})
