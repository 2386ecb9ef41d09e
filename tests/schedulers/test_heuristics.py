"""Heuristics as functions of sizes and hardware: what any choice must respect, whatever it is tuned to."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fusewright import FusionDefinition
from fusewright.core.dtype import DataType
from fusewright.core.hardware import DESCRIBED
from fusewright.core.serialization import from_json, to_json
from fusewright.ops.build_indexing import gather
from fusewright.ops.build_inputs import define_tensor
from fusewright.rewrite import canonicalize
from fusewright.schedulers import (
    InnerPersistentScheduler,
    PointwiseScheduler,
    ReductionScheduler,
    ScanScheduler,
    Scheduler,
    propose,
)
from fusewright.schedulers.persistent.row_threads import threads_and_batches
from fusewright.schedulers.persistent.sweep_heuristic import Swept, sweep_rows
from fusewright.schedulers.reduction.column_heuristic import Columns, outer_params
from fusewright.schedulers.reduction.row_heuristic import RowAccesses, inner_params
from tests.schedulers import proposals as p

POINTWISE, REDUCTION, PERSISTENT = PointwiseScheduler(), ReductionScheduler(), InnerPersistentScheduler()
SCAN = ScanScheduler()

CASES = {
    "pointwise_tiny": (POINTWISE, p.elementwise(1), [(1,)]),
    "pointwise": (POINTWISE, p.elementwise(2), [(4096, 4096)]),
    "pointwise_odd": (POINTWISE, p.elementwise(2), [(333, 1001)]),
    "pointwise_beyond_32_bits": (POINTWISE, p.elementwise(1), [(2**32 + 8,)]),
    "bias": (POINTWISE, p.biased(), [(4096, 4096), (4096,)]),
    "bias_many_rows": (POINTWISE, p.biased(), [(10_000_000, 128), (128,)]),
    "bias_many_columns": (POINTWISE, p.biased(), [(70_000, 100_000_000), (100_000_000,)]),
    "inner": (REDUCTION, p.reduced([1]), [(4096, 4096)]),
    "inner_short": (REDUCTION, p.reduced([1]), [(1_000_000, 3)]),
    "inner_one_long": (REDUCTION, p.reduced([1]), [(1, 100_000_000)]),
    "inner_many_rows": (REDUCTION, p.reduced([1]), [(100_000_000, 64)]),
    "whole": (REDUCTION, p.reduced([0, 1]), [(8192, 8192)]),
    "outer": (REDUCTION, p.reduced([0]), [(4096, 4096)]),
    "outer_few_columns": (REDUCTION, p.reduced([0]), [(1_000_000, 3)]),
    "outer_many_columns": (REDUCTION, p.reduced([0]), [(8, 50_000_000)]),
    "middle": (REDUCTION, p.reduced([1], 3), [(64, 512, 96)]),
    "scan": (SCAN, p.scanned(1), [(16384, 4096)]),
    "scan_short": (SCAN, p.scanned(1), [(1_000_000, 3)]),
    "scan_one_long": (SCAN, p.scanned(1), [(1, 100_000_000)]),
    "scan_columns": (SCAN, p.scanned(0), [(16384, 4096)]),
    "scan_few_columns": (SCAN, p.scanned(0), [(1_000_000, 3)]),
    "scan_many_columns": (SCAN, p.scanned(0), [(8, 50_000_000)]),
    "norm": (PERSISTENT, p.normalized(), [(4096, 4096)]),
    "norm_half": (PERSISTENT, p.normalized(DataType.BFloat16), [(8192, 5120)]),
    "norm_short": (PERSISTENT, p.normalized(), [(1_000_000, 20)]),
    "norm_one_element": (PERSISTENT, p.normalized(), [(7, 1)]),
    "norm_wide": (PERSISTENT, p.normalized(), [(64, 32768)]),
    "norm_too_wide_to_hold": (PERSISTENT, p.normalized(), [(16, 1_000_000)]),
    "norm_odd": (PERSISTENT, p.normalized(DataType.Half), [(33, 4097)]),
}


@pytest.mark.sampled(0.4, "case", "gpu")
@pytest.mark.parametrize("gpu", DESCRIBED)
@pytest.mark.parametrize("case", CASES)
def test_every_launch_is_one_that_the_gpu_takes(case, gpu):
    scheduler, fusion, shapes = CASES[case]
    hardware = DESCRIBED[gpu]
    params, launch = p.propose(scheduler, fusion, p.facts_of(fusion, shapes), hardware)
    params.validate(hardware)
    assert 1 <= launch.threads <= hardware.max_threads_per_block
    limits = hardware.max_grid + hardware.max_block
    assert all(1 <= n <= limit for n, limit in zip((*launch.grid, *launch.block), limits))
    assert launch.shared_bytes <= hardware.shared_memory_per_block_optin


@pytest.mark.parametrize("case", CASES)
def test_params_say_why_and_keep_in_json(case):
    scheduler, fusion, shapes = CASES[case]
    facts = p.facts_of(fusion, shapes)
    params = propose(scheduler, fusion, facts, p.H200)
    assert params.reason
    assert from_json(type(params), to_json(params)) == params


def vector_of(scheduler: Scheduler, params) -> int:
    if scheduler is POINTWISE:
        return params.vectorization_factor
    if params.fastest_dim:
        return params.unroll_factor_inner_reduction if params.vectorize_inner_reduction else 1
    return params.unroll_factor_iter_dom if params.vectorize_iter_dom else 1


MAKERS = [p.elementwise, lambda r, d: p.reduced([1], r, d), lambda r, d: p.normalized(d)]


@pytest.mark.parametrize(
    "dtype, columns, alignment, widest",
    [
        (DataType.Float, 4096, 256, (4, 4, 4)),
        (DataType.Double, 4096, 256, (2, 2, 2)),
        (DataType.BFloat16, 4096, 256, (8, 8, 8)),
        (DataType.Float, 4098, 256, (2, 2, 2)),
        (DataType.Float, 4097, 256, (1, 4, 4)),  # rows of 16 KiB
        (DataType.Float, 3001, 256, (1, 1, 1)),
        (DataType.BFloat16, 4097, 256, (8, 8, 8)),
        (DataType.Float, 4096, 8, (2, 2, 2)),
        (DataType.Float, 4096, 4, (4, 1, 1)),
        (DataType.BFloat16, 4096, 4, (8, 2, 2)),
    ],
)
def test_vectors_fit_size_and_alignment(dtype, columns, alignment, widest):
    """Elementwise, reduced and normalized.

    Vectors of odd rows of two bytes an element, and of rows of 16 KiB, are shifted, or go across the rows.
    Loads may start at any element.
    """
    for make, width in zip(MAKERS, widest):
        fusion = make(2, dtype)
        scheduler = next(s for s in (REDUCTION, POINTWISE, PERSISTENT) if s.prepare(fusion))
        facts = p.facts_of(fusion, [(511, columns)], alignment=alignment)
        assert vector_of(scheduler, propose(scheduler, fusion, facts, p.H200)) == width, scheduler.type


def test_vectors_fit_strides():
    fusion = p.elementwise(2, contiguity=[False, True])
    # Rows that begin anywhere are read in vectors that start at any element.
    for row, widest in ((4096, 4), (4098, 2), (4099, 4)):
        facts = p.facts_of(fusion, [(512, 4096)], [(row, 1)])
        assert vector_of(POINTWISE, propose(POINTWISE, fusion, facts, p.H200)) == widest


def test_strided_columns_are_read_by_element():
    fusion = p.elementwise(1, contiguity=False)
    facts = p.facts_of(fusion, [(4096,)], [(2,)])
    params, _ = p.propose(POINTWISE, fusion, facts)
    assert params.vectorization_factor in (1, 4)  # the store may still be a vector


def test_rows_are_held_in_registers_then_shared_memory_then_not_at_all():
    fusion = p.normalized()

    def place(columns: int, gpu: str = "h200") -> int:
        params = propose(PERSISTENT, fusion, p.facts_of(fusion, [(256, columns)]), DESCRIBED[gpu])
        if params.batches_per_block_inner_reduction == 0:
            return 2
        return int(params.persistent_in_shared_memory)

    sizes = [2**n for n in range(21)]
    places = [place(n) for n in sizes]
    assert places == sorted(places) and places[0] == 0 and places[-1] == 2
    # a smaller shared memory holds no longer rows
    assert all(place(n, "l4") == 2 for n, found in zip(sizes, places) if found == 2)


def test_a_row_fits_the_threads_that_hold_it():
    fusion = p.normalized()
    for columns in (20, 1000, 4096, 8192, 30_000):
        params, launch = p.propose(PERSISTENT, fusion, p.facts_of(fusion, [(256, columns)]))
        per_thread = params.batches_per_block_inner_reduction * params.unroll_factor_inner_reduction
        if params.batches_per_block_inner_reduction:
            assert launch.block[0] * per_thread * params.blocks_per_cluster >= columns
        assert launch.block[0] % 32 == 0


def test_few_rows_are_shared_between_blocks():
    fusion = p.reduced([1])
    params, launch = p.propose(REDUCTION, fusion, p.facts_of(fusion, [(2, 10_000_000)]))
    assert params.cross_grid_inner_reduction and math.prod(launch.grid) >= p.H200.sm_count // 2
    params = propose(REDUCTION, fusion, p.facts_of(fusion, [(100_000, 1024)]), p.H200)
    assert not params.cross_grid_inner_reduction


def test_short_rows_share_a_block():
    fusion = p.reduced([1])
    params = propose(REDUCTION, fusion, p.facts_of(fusion, [(1_000_000, 32)]), p.H200)
    assert params.multiple_reds_per_blk and params.lparams.bdimy > 1


def test_the_contiguous_dimension_decides_between_inner_and_outer():
    for dims, inner in (([1], True), ([0], False), ([0, 1], True)):
        fusion = p.reduced(dims)
        params = propose(REDUCTION, fusion, p.facts_of(fusion, [(256, 256)]), p.H200)
        assert params.fastest_dim == inner


def test_a_bias_cuts_rows_from_columns_and_too_many_rows_leave_grid_y():
    fusion = p.biased()
    few = propose(POINTWISE, fusion, p.facts_of(fusion, [(4096, 4096), (4096,)]), p.H200)
    many = propose(POINTWISE, fusion, p.facts_of(fusion, [(1_000_000, 1024), (1024,)]), p.H200)
    assert few.break_point == many.break_point == 1
    assert not few.flip_grid_binding and (many.flip_grid_binding or many.split_grid_y_dim)


def test_rows_that_leave_threads_idle_or_that_vectors_do_not_divide_are_one_dimension():
    fusion = p.biased()
    for rows, columns in ((1_000_000, 128), (65536, 256), (131072, 257), (16384, 4097)):
        params = propose(POINTWISE, fusion, p.facts_of(fusion, [(rows, columns), (columns,)]), p.H200)
        assert params.break_point == 0 and params.vectorization_factor > 1, (rows, columns)


def test_small_work_is_spread_over_the_gpu_before_it_is_unrolled():
    def body(fusion):
        x = define_tensor(fusion, [-1], True)
        for _ in range(4):
            x = p.apply_to_tensor(fusion, "tanh", x)
        return x

    fusion = p.built(body)
    small = propose(POINTWISE, fusion, p.facts_of(fusion, [(100_000,)]), p.H200)
    large = propose(POINTWISE, fusion, p.facts_of(fusion, [(2**28,)]), p.H200)
    assert small.unroll_factor_inner == 1 < large.unroll_factor_inner
    # Where there is little to compute a vector in flight is enough.
    fusion = p.elementwise(1)
    assert propose(POINTWISE, fusion, p.facts_of(fusion, [(2**28,)]), p.H200).unroll_factor_inner == 1


def test_rows_by_index_have_more_in_flight_than_fill_the_gpu() -> None:
    """A load waits for an index: half of a wave of threads with two is faster than one with one."""

    def vectors(rows: int) -> tuple[int, int]:
        x, index = torch.empty(100_000, 96, dtype=torch.bfloat16), torch.zeros(rows, dtype=torch.int64)
        with FusionDefinition() as fd:
            fd.add_output(fd.ops.index_select(fd.from_pytorch(x), fd.from_pytorch(index), 0))
        [kernel] = fd.kernels_for([x, index])
        return kernel.params.vectorization_factor, kernel.params.unroll_factor_inner

    assert [vectors(rows) for rows in (8192, 32768, 131_072)] == [(8, 1), (8, 2), (8, 4)]


def test_vectors_go_through_merged_dimensions():
    """Odd rows without gaps are one run; a size of which the width is no divisor needs another kernel."""
    fusion = p.elementwise(3)
    for shape, widest, dim in (
        ((512, 3, 4099), 4, 0),
        ((3, 512, 4099), 4, 1),
        ((6, 4096, 4098), 4, 1),
        ((7, 3, 4099), 1, -1),
        ((7, 3, 4098), 2, -1),
    ):
        params, _ = p.propose(POINTWISE, fusion, p.facts_of(fusion, [shape]))
        assert (params.vectorization_factor, params.vectorized_dim) == (widest, dim), shape


def _params_of(function, *inputs):
    [kernel] = p.definition(function, *inputs).kernels_for(inputs, device="cuda")
    params = kernel.params
    return params.vectorization_factor, params.vectorized_dim, params.unroll_factor_inner


def test_vectors_of_a_joins_parts_are_narrower_rather_than_loaded_by_element():
    """An element needs one part: vectors of two take fewer accesses than elements for vectors of four."""
    x = torch.empty(16, 64, 112, 112, dtype=torch.bfloat16, device="meta")

    def padded(x):
        return F.pad(x, (2, 2, 2, 2), mode="circular")

    assert _params_of(padded, x) == (2, -1, 4)
    assert _params_of(lambda x: padded(x) * padded(x).sigmoid(), x) == (2, -1, 4)  # of the same part
    assert _params_of(lambda x: padded(x)[:, :, 1:] + padded(x)[:, :, :-1], x)[0] == 4  # of two parts


def test_a_short_input_is_no_limit_for_vectors():
    """All its elements are in a few lines, however far apart the threads' vectors are."""
    points, turned, moved = (torch.empty(n, 3, device="meta") for n in (4194304, 3, 1))

    def rotated(points, turned, moved):
        return sum(points[:, i, None] * turned[i] for i in range(3)) + moved

    assert _params_of(rotated, points, turned, moved) == (4, 0, 4)


@pytest.mark.parametrize("count, accesses", [(4, 4), (8, 2), (12, 1)])
def test_elements_that_are_loaded_one_by_one_leave_registers(count, accesses):
    rows = torch.empty(2000000, 12, device="meta")

    def weighted(rows):
        return sum(rows[:, i, None] * (i + 1.5) for i in range(count)) * rows.new_ones(12)

    assert _params_of(weighted, rows)[::2] == (4, accesses)


def test_a_thread_that_stores_fewer_bytes_than_it_loads_has_two_accesses_in_flight():
    x = torch.empty(16384, 4096, dtype=torch.bfloat16, device="meta")
    assert _params_of(lambda x: x * 2, x) == (8, -1, 1)
    assert _params_of(lambda x: (x * 2).to(torch.float8_e4m3fn), x) == (8, -1, 2)


def test_vectors_through_merged_dimensions_regard_loads_of_indices():
    """An index is loaded as any other input is, not as what is read by it."""

    def body(fusion):
        x = define_tensor(fusion, [-1, -1, 3], True)
        return gather(fusion, x, define_tensor(fusion, [-1, -1, 3], True, DataType.Int32), 0)

    fusion = p.built(body)
    shapes = [(8, 100, 3), (5, 100, 3)]
    for alignment, unaligned in ((256, ()), (4, (1,))):
        facts = p.facts_of(fusion, shapes, alignment=alignment)
        params, _ = p.propose(POINTWISE, fusion, facts)
        assert (params.vectorization_factor, params.unaligned_inputs) == (4, unaligned)


def test_a_block_sums_whole_columns_where_these_are_short_and_many():
    for count, length, along, blocks_down in (
        (4096, 1024, 8, 1),
        (16384, 1024, 32, 1),
        (2048, 1024, 8, 1),  # few columns, but threads have all of them in flight at once
        (4096, 16384, 32, 16),
    ):
        params = outer_params(Columns(count, length, count, 8, 2, stores=False), p.H200)
        assert (params.lparams.bdimx, params.lparams.gdimy) == (along, blocks_down), (count, length)


def test_large_blocks_sum_whole_columns() -> None:
    """A block for each SM takes columns of any length; else a block has all of a column in flight at once."""
    for count, length, threads in (
        (16384, 8192, (32, 32)),
        (26432, 170, (32, 22)),
        (300 * 1024, 100, (32, 13)),
        (300 * 1024, 250, (32, 16)),  # not all resident at once, so four an SM
    ):
        params = outer_params(Columns(count, length, 1024, 8, 2, stores=False), p.H200)
        assert (params.lparams.bdimx, params.lparams.bdimy, params.lparams.gdimy) == (*threads, 1), count
        if length < 200:
            assert params.lparams.bdimy * params.unroll_factor_inner_reduction >= length


def test_columns_of_many_lengths_are_summed_by_few_kernels() -> None:
    shapes = set()
    for length in range(65, 1025):
        params = outer_params(Columns(4096, length, 4096, 8, 2, stores=False), p.H200)
        shapes.add((params.lparams.bdimx, params.lparams.bdimy, params.unroll_factor_inner_reduction))
    assert shapes == {(8, 64, 8), (8, 128, 8)}


def test_blocks_that_share_columns_wait_for_few_others() -> None:
    """Half as often as they load: few blocks of columns of 60000, as many as fill the GPU of longer ones."""
    for count, length, least, most in ((192, 60_000, 40, 100), (64, 4_194_304, 264, 528)):
        params = outer_params(Columns(count, length, count, 8, 2, stores=False), p.H200)
        assert least <= params.lparams.gdimy <= most, count


def test_few_long_rows_have_smaller_blocks_than_many() -> None:
    for rows, threads in ((8192, 1024), (241, 512)):
        assert inner_params(rows, 16384, 8, p.H200).lparams.bdimx == threads


def test_few_rows_have_threads_with_nothing_in_vain() -> None:
    for rows, vectors, expected in ((512, 96, (96, 1)), (512, 512, (256, 2)), (1024, 256, (128, 2))):
        assert threads_and_batches(rows, vectors, 8, p.H200) == expected
    assert threads_and_batches(2048, 64, 8, p.H200) == (32, 2)  # a warp, as the rows are not that few
    assert threads_and_batches(512, 64, 8, p.H200) == (64, 1)


def test_columns_of_nothing_that_is_loaded_have_params() -> None:
    """Of an input that is one element, expanded."""
    params = outer_params(Columns(4096, 4096, 4096, 4, 0, stores=False), p.H200)
    assert params.lparams.bdimx >= 1 and params.unroll_factor_inner_reduction > 1
    apart = outer_params(Columns(4096, 4096, 0, 4, 0, stores=False), p.H200)
    assert apart.lparams.bdimx >= 1


def test_a_gpu_of_one_sm_shares_no_rows() -> None:
    cost: Any = None
    rows = Swept(3, 1 << 20, 8, 2, 2, 4, (), sweeps=2, reductions=1, has_welford=False, sizes=())
    one = replace(p.H200, sm_count=1)
    assert sweep_rows(rows, cost, cost, one) is None


def test_blocks_that_go_few_times_through_memory_are_large() -> None:
    """They leave half as many results to exchange; half a warp has the columns that leave a warp idle."""
    for count, length, stores, expected in (
        (192, 60_000, False, (16, 32, 88)),
        (1024, 16_384, False, (32, 16, 33)),
        (1000, 100_003, False, (32, 8, 49)),  # many times
    ):
        launch = outer_params(Columns(count, length, count, 8, 2, stores), p.H200).lparams
        assert (launch.bdimx, launch.bdimy, launch.gdimy) == expected


def test_long_rows_of_several_inputs_have_as_many_vectors_in_flight() -> None:
    for loads, in_flight in ((1, 4), (2, 2), (3, 1), (5, 1)):
        params = inner_params(1, 1 << 24, 8, p.H200, RowAccesses(loads=loads))
        assert params.unroll_factor_top_of_vectorization == in_flight and params.lparams.gdimy == 528
        # in one step, where a thread has no more than those
        short = inner_params(16384, 256, 8, p.H200, RowAccesses(loads=loads))
        assert (
            short.unroll_factor_top_of_vectorization
            == inner_params(16384, 256, 8, p.H200).unroll_factor_top_of_vectorization
        )


def test_threads_have_as_many_bytes_of_narrow_vectors() -> None:
    """A thread more vectors, or a part of a warp as many threads; those that store their rows do not share
    what is in flight between inputs.
    """
    for length, width, accesses, threads in (
        (784, 4, RowAccesses(loads=1, element_bytes=2), 64),
        (784, 4, RowAccesses(loads=1, element_bytes=4), 128),
        (784, 4, RowAccesses(loads=2, element_bytes=4, stores=True), 64),
        (196, 2, RowAccesses(loads=2, element_bytes=4, stores=True), 32),
        (3136, 8, RowAccesses(loads=2, element_bytes=4, stores=True), 256),
        (3136, 8, RowAccesses(loads=2, element_bytes=4), 512),
    ):
        assert inner_params(16384, length, width, p.H200, accesses).lparams.bdimx == threads, length


def test_rows_that_have_an_sm_for_themselves_have_a_vector_a_thread() -> None:
    assert threads_and_batches(1, 513, 8, p.H200) == (544, 1)
    assert threads_and_batches(1024, 513, 8, p.H200) == (160, 4)


def test_rows_of_cached_inputs_have_more_elements_a_thread() -> None:
    assert threads_and_batches(4096, 4608, 16, p.H200, cached=True) == (256, 18)
    assert threads_and_batches(4096, 4608, 16, p.H200) == (576, 8)


def test_threads_hold_more_narrow_vectors_where_several_warps_have_a_row() -> None:
    """As many as have 32 bytes, and no more than leave a thread idle."""
    for length, dtype, threads, batches in (
        (637, DataType.BFloat16, 64, 10),
        (4097, DataType.BFloat16, 288, 15),
        (637, DataType.Float, 96, 7),
        (2047, DataType.Float, 256, 8),
    ):
        with FusionDefinition() as fd:
            x = fd.define_tensor([32768, length], dtype=dtype, contiguity=True)
            fd.add_output(x / fd.ops.sum(fd.ops.exp(x), [1], keepdim=True))
        x = torch.empty(32768 * length + 1, dtype=dtype.torch, device="meta")[1:].view(-1, length)
        params = fd.kernels_for([x], device="cuda")[0].params
        assert params.unroll_factor_inner_reduction == 1
        assert (params.lparams.bdimx, params.batches_per_block_inner_reduction) == (threads, batches)
        found = threads_and_batches(32768, length, 16, p.H200, most_of_warps=32 // dtype.size)
        assert found == (threads, batches)


def test_several_states_of_a_row_are_combined_in_one_step_where_a_second_is_nearly_empty() -> None:
    for length, threads, vectors in ((1024, 64, 8), (1025, 128, 9), (1281, 128, 8), (1537, 128, 8)):
        params = inner_params(65536, length, 1, p.H200, RowAccesses(states=3, element_bytes=2))
        assert params.lparams.bdimx == threads
        assert params.unroll_factor_top_of_vectorization == vectors, length


def test_elements_by_index_are_reduced_by_many_blocks() -> None:
    """One takes as many cycles as there are sectors."""
    for scattered, blocks in ((False, 1), (True, 16)):
        params = inner_params(1, 8192, 1, p.H200, RowAccesses(scattered=scattered))
        assert params.lparams.gdimy == blocks
        assert (
            params.lparams.gdimy * params.lparams.bdimx * params.unroll_factor_top_of_vectorization
            >= 8192 // 2
        )


def test_few_blocks_share_what_has_several_states() -> None:
    assert inner_params(1, 1 << 24, 8, p.H200, RowAccesses(states=3)).lparams.gdimy == 264
    assert inner_params(1, 1 << 24, 8, p.H200, RowAccesses(states=2)).lparams.gdimy > 264
    for count, length in ((64, 65536), (256, 200_704), (4096, 16_384)):
        for states, most in ((1, 528), (3, 66)):
            columns = Columns(count, length, count, 8, 2, stores=False, states=states)
            assert 1 < outer_params(columns, p.H200).lparams.gdimy <= most


def test_few_elements_have_no_vectors_that_are_there_in_part() -> None:
    for shape, is_vector in (((33, 35), False), ((1025, 1025), True)):
        x = torch.zeros(shape, dtype=torch.bfloat16)
        with FusionDefinition() as fd:
            fd.add_output(fd.ops.cast(fd.from_pytorch(x) + fd.from_pytorch(x), DataType.BFloat16))
        (kernel,) = fd.kernels_for([x, x])
        params = kernel.params
        assert params.shift_rows is is_vector and (params.vectorization_factor > 1) is is_vector


@pytest.mark.parametrize(
    "loads, length, threads, vectors",
    [(1, 2049, 64, 5), (1, 8193, 224, 5), (2, 2049, 160, 2), (3, 2049, 160, 2)],
)
def test_rows_of_one_vector_more_than_a_power_of_two(
    loads: int, length: int, threads: int, vectors: int
) -> None:
    """One step reads them, of whole warps, with fewer vectors of each load where there are several."""
    params = inner_params(12288, length, 8, p.H200, RowAccesses(loads=loads, element_bytes=2 * loads))
    assert params.lparams.bdimx == threads
    assert params.unroll_factor_top_of_vectorization == vectors


def test_columns_of_broadcasts_alone_may_have_rows_of_any_length() -> None:
    """They have no bytes of their own, so that any row seemed short."""
    params = outer_params(Columns(8 * 512 * 513, 6, 8 * 513, 8, 0, stores=True), p.H200)
    assert params.lparams.bdimy == params.lparams.gdimy == 1


@pytest.mark.parametrize("common", [False, True], ids=["of rows alone", "common to rows"])
def test_accesses_of_a_thread_go_where_it_computes_less(common: bool) -> None:
    """Along a row for what the row has one value of, down the rows for what these have in common."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([4096, 16384], True, DataType.BFloat16)
        scale = fd.define_tensor([4096, 1], True, DataType.Float)
        result = fd.ops.sigmoid(x) * (scale + 1.0)
        if common:
            result = result + fd.define_tensor([1, 16384], True, DataType.Float)
        fd.add_output(fd.ops.cast(result, DataType.BFloat16))
    fusion = fd._finished().fusion
    canonicalize(fusion)
    shapes = [(4096, 16384), (4096, 1), (1, 16384)]
    params, _ = p.propose(PointwiseScheduler(), fusion, p.facts_of(fusion, shapes[: 2 + common]))
    assert params.break_point == 1
    inner, outer = params.unroll_factor_inner, params.unroll_factor_outer
    assert (inner == 1 < outer) if common else (outer == 1 < inner)


@pytest.mark.parametrize("heads, rows", [(32, 4), (1, 2)], ids=["large", "in the caches"])
def test_a_thread_has_all_rows_for_what_does_not_stay_in_the_caches(heads: int, rows: int) -> None:
    """Of four samples, with a table for each head or for all."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([4, 32, 1 << 18], True, DataType.BFloat16)
        table = fd.define_tensor([1, heads, 1 << 18], True, DataType.Float)
        fd.add_output(fd.ops.cast(x * table, DataType.BFloat16))
    fusion = fd._finished().fusion
    canonicalize(fusion)
    facts = p.facts_of(fusion, [(4, 32, 1 << 18), (1, heads, 1 << 18)])
    params, _ = p.propose(PointwiseScheduler(), fusion, facts)
    assert (params.break_point, params.unroll_factor_outer) == (1, rows)


def test_variances_of_columns_of_no_elements(target: torch.device) -> None:
    """Their blocks share nothing."""
    x = torch.empty(4000, 0, device=target)
    with FusionDefinition() as fd:
        variances = fd.ops.var(fd.from_pytorch(x), [0], 0, False)
        fd.add_output(fd.ops.sum(variances, [0]))
    assert fd.execute([x])[0].item() == 0
