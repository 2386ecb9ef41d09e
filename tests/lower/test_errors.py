"""Schedules that make no correct kernel: refused with the tensor's name and what to do."""

from __future__ import annotations

import pytest
import torch

from fusewright.core.enums import MemoryType, ParallelType
from fusewright.core.errors import ScheduleError
from fusewright.ir import Fusion, TensorView
from fusewright.lower import check_symbols
from fusewright.ops.build_elementwise import apply_to_tensor, copy_tensor
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_reduction import sum_, var_mean
from fusewright.ops.build_resize import pad
from fusewright.ops.build_shape import expand, permute
from fusewright.schedule import Schedule
from fusewright.sym import symbol
from tests.lower.running import copy_fusion, lowered, run

P = ParallelType


def copies(*shape: int) -> tuple[Schedule, TensorView, TensorView]:
    """input -> middle -> out."""
    schedule = Schedule(copy_fusion(shape, copies=2))
    middle, out = schedule.tensors()[1:]
    return schedule, middle, out


def refused(schedule: Schedule, text: str, hint: str = "") -> None:
    with pytest.raises(ScheduleError, match=text) as error:
        lowered(schedule)
    assert hint in (error.value.hint or "")


def test_registers_of_a_size_that_is_not_constant():
    schedule, _, out = copies(-1, 8)
    x = torch.randn(5, 8)
    assert torch.equal(run(schedule, [x])[0], x)  # inlined by what completes the schedule
    assert schedule.trace()[-1].method == "inline_most"
    schedule, _, out = copies(-1, 8)
    schedule.split(out, 0, 4)
    refused(
        schedule,
        r"T1 is in registers, but its size is not constant: 8\*i0 .*\n.*\n.* axis 0, iS2\{i0\}\n",
        "inline",
    )


def test_more_registers_than_a_thread_has():
    schedule, _, _ = copies(64, 64)
    refused(schedule, "T1 has 4096 elements in the registers of each thread", "shared")


def test_registers_of_another_thread():
    schedule, middle, out = copies(8, 8)
    schedule.parallelize(middle, 0, P.block_x)
    schedule.parallelize(out, 1, P.block_x)
    refused(schedule, "T1 is in registers of the threads along block_x, but T2 reads .* from another thread")
    schedule.set_memory_type(middle, MemoryType.shared)
    x = torch.randn(8, 8)
    assert torch.equal(run(schedule, [x])[0], x)


def test_registers_of_threads_that_the_reader_does_not_have():
    schedule, middle, _ = copies(8, 8)
    schedule.parallelize(middle, 0, P.block_x)
    refused(schedule, "from another thread", "parallelize_like")


@pytest.mark.parametrize("reader", [P.serial, P.grid_x])
def test_shared_memory_of_another_block(reader):
    schedule, middle, out = copies(8, 8)
    schedule.set_memory_type(middle, MemoryType.shared)
    schedule.parallelize(middle, 0, P.grid_x)
    schedule.parallelize(out, 1, reader)
    refused(schedule, "T1 is in shared memory of the blocks along grid_x, but T2 reads .* from another block")


def test_shared_memory_of_the_same_block():
    schedule, middle, out = copies(8, 8)
    schedule.set_memory_type(middle, MemoryType.shared)
    for tensor, threads in ((middle, 1), (out, 2)):
        schedule.split(tensor, 1, 4)
        schedule.parallelize(tensor, 0, P.grid_x)
        schedule.parallelize(tensor, threads, P.block_x)
    x = torch.randn(8, 8)
    assert torch.equal(run(schedule, [x])[0], x)


def test_shared_memory_without_room_for_all_that_a_block_holds():
    schedule, middle, _ = copies(8, 8)
    schedule.set_memory_type(middle, MemoryType.shared)
    schedule.store_along(middle, [1], 1)
    refused(schedule, "T1 is stored along axes that do not tell apart what loop .* computes", "store_along")
    schedule.store_along(middle, [1, 0], 1)
    x = torch.randn(8, 8)
    assert torch.equal(run(schedule, [x])[0], x)


def test_vectors_across_memory():
    fusion = Fusion()
    add_output(fusion, permute(fusion, define_tensor(fusion, [8, 8], True), [1, 0]))
    schedule = Schedule(fusion)
    out = schedule.tensor(1)
    load = schedule.cache_before(out)
    schedule.split(load, 1, 4)
    schedule.parallelize(load, 2, P.vectorize)
    refused(schedule, "is vectorized by 4, but its elements are not contiguous in T0", "innermost contiguous")


def test_vectors_along_a_constant_that_is_no_multiple_of_them():
    """All rows are one memory: no vector starts between multiples, but the last one ends beyond it."""
    fusion = Fusion()
    add_output(fusion, copy_tensor(fusion, define_tensor(fusion, [4, 7], [None, True])))
    schedule = Schedule(fusion)
    load = schedule.cache_before(schedule.tensor(1))
    schedule.split(load, 1, 2)
    schedule.parallelize(load, 2, P.vectorize)
    refused(schedule, "is vectorized by 2 along a dimension of 7", "a narrower vector")


def test_vectors_along_a_sum_with_a_constant_that_is_no_multiple_of_them():
    fusion = Fusion()
    x = define_tensor(fusion, [-1, -1], [None, True])
    add_output(fusion, copy_tensor(fusion, pad(fusion, x, [1, 2])))
    schedule = Schedule(fusion)
    _padded, out = schedule.tensors()[1:]
    schedule.split(out, 1, 4)
    schedule.transform_like(out)
    schedule.parallelize(out, 2, P.vectorize)
    schedule.inline_most()
    refused(schedule, r"is vectorized by 4 along a dimension of .* \+ 3", "a narrower vector")


def test_vectors_that_start_between_multiples():
    fusion = Fusion()
    add_output(fusion, copy_tensor(fusion, define_tensor(fusion, [4, 6], True)))
    schedule = Schedule(fusion)
    out = schedule.tensor(1)
    schedule.cache_before(out)
    schedule.split(out, 1, 4)
    schedule.parallelize(out, 2, P.vectorize)
    refused(schedule, "vectorized by 4")


def test_sizes_that_vectors_do_not_divide_are_refused_at_the_call():
    schedule, _, out = copies(-1)
    schedule.split(out, 0, 4)
    schedule.transform_like(out)
    schedule.parallelize(out, 1, P.vectorize)
    schedule.inline_at(out, 1)
    assert torch.equal(run(schedule, [torch.arange(8.0)])[0], torch.arange(8.0))
    with pytest.raises(ScheduleError, match="vectorizes along i0") as error:
        run(schedule, [torch.arange(6.0)])
    assert "a multiple of 4" in str(error.value)


def test_declared_ranges_are_checked():
    check_symbols({symbol("n", lo=0, multiple_of=4): 8})
    with pytest.raises(ScheduleError, match="vectorizes along n"):
        check_symbols({symbol("n", lo=0, multiple_of=4): 6})


def inlined_by_hand() -> Schedule:
    """x -> a -> sum over rows -> a - sum, where a shares the loop over rows with both readers."""
    fusion = Fusion()
    x = copy_tensor(fusion, define_tensor(fusion, [8, 8], True))
    total = sum_(fusion, x, [0], keepdim=True)
    add_output(fusion, apply_to_tensor(fusion, "sub", x, total))
    return Schedule(fusion)


def test_inlining_that_needs_a_result_before_it_is_there():
    schedule = inlined_by_hand()
    held = schedule.tensor(1)
    held.inline_at = 1  # the primitives do not go that far
    refused(schedule, "makes loops that need each other's results", "less far")


@pytest.mark.parametrize("keepdim", [True, False])
def test_a_reduction_that_is_read_inside_the_loop_that_it_reduces(keepdim):
    fusion = Fusion()
    total = sum_(fusion, define_tensor(fusion, [8, 8], True), [1], keepdim=True)
    scaled = apply_to_tensor(fusion, "neg", total) if keepdim else expand(fusion, total, [8, 8])
    add_output(fusion, scaled)
    schedule = Schedule(fusion)
    for tensor in schedule.tensors()[1:-1]:
        tensor.inline_at = 2  # the primitives stop before the reduced axis
    refused(schedule, "T[23] reads the reduction T1 inside the loop that is reduced", "inline T1 less far")


def test_loops_shared_by_axes_of_other_extents():
    schedule, middle, out = copies(8, 8)
    schedule.split(out, 0, 4)
    schedule.split(middle, 0, 2)
    middle.inline_at = 1
    refused(schedule, "T1 and T2 share a loop but differ in its extent: 4 and 2|2 and 4", "less far")


def test_loops_shared_by_axes_of_other_bindings():
    schedule, middle, out = copies(8, 8)
    schedule.parallelize(out, 0, P.grid_x)
    middle.inline_at = 1
    refused(schedule, "share a loop that one binds to serial, the other to grid_x", "parallelize_like")


def grid_sum(*shape: int) -> tuple[Schedule, TensorView]:
    fusion = Fusion()
    add_output(fusion, sum_(fusion, define_tensor(fusion, list(shape), True), [1]))
    schedule = Schedule(fusion)
    return schedule, schedule.tensor(1)


def test_grid_reduction_in_a_serial_loop():
    schedule, total = grid_sum(4, 8)
    schedule.parallelize(total, 1, P.grid_x)
    refused(schedule, "the grid reduction T1 stands in a serial loop|T2 stands in a serial loop", "rfactor")


def test_grid_reduction_of_a_grid_reduction():
    schedule, total = grid_sum(1, 16)
    schedule.split(total, 1, 4)
    partial = schedule.rfactor(total, [2])
    schedule.parallelize(partial, 2, P.grid_x)
    schedule.parallelize(partial, 1, P.grid_y)
    schedule.parallelize(total, 1, P.grid_y)
    refused(schedule, "reads the result of another, which only one block holds", "one step")


def row_sums(*shape: int) -> tuple[Schedule, TensorView, TensorView]:
    """input -> sums of its rows, an output, -> product with the input, an output."""
    fusion = Fusion()
    x = define_tensor(fusion, list(shape), True)
    sums = sum_(fusion, x, [1], True)
    product = apply_to_tensor(fusion, "mul", x, sums)
    add_output(fusion, product)
    fusion.unify_extents()
    schedule = Schedule(fusion)
    return schedule, schedule.tensors()[1], schedule.tensors()[-1]


def test_what_follows_a_grid_reduction_on_the_blocks_that_it_reduced_across():
    schedule, sums, product = row_sums(4, 8)
    schedule.parallelize(sums, 1, P.grid_x)
    schedule.parallelize(sums, 0, P.block_x)
    schedule.parallelize_like(sums)
    schedule.inline_most()
    refused(schedule, "follows from a reduction across blockIdx.x", "segment_set")
    assert any(axis.parallel is P.grid_x for axis in product.loop)


def test_a_grid_reduction_of_columns_side_by_side_that_are_no_power_of_two():
    fusion = Fusion()
    x = define_tensor(fusion, [8, 33], True)
    add_output(fusion, sum_(fusion, x, [0]))
    schedule = Schedule(fusion)
    sums = schedule.tensors()[1]
    schedule.parallelize(sums, 0, P.grid_y)
    schedule.parallelize(sums, -1, P.unroll)
    given = torch.randn(8, 33)
    torch.testing.assert_close(run(schedule, [given])[0], given.sum(0))


@pytest.mark.parametrize("parallel", [P.block_x, P.grid_x])
def test_an_output_that_others_read_in_the_same_kernel(parallel):
    def schedule_of() -> tuple[Schedule, TensorView, TensorView]:
        fusion = Fusion()
        x = define_tensor(fusion, [4, 8], True)
        double = apply_to_tensor(fusion, "mul", x, 2.0)
        add_output(fusion, double)
        add_output(fusion, apply_to_tensor(fusion, "neg", double))
        schedule = Schedule(fusion)
        _, double, negative = schedule.tensors()
        return schedule, double, negative

    schedule, double, negative = schedule_of()
    schedule.parallelize(negative, 0, parallel)
    refused(schedule, "T1 is an output, in global memory, that other threads .* read", "parallelize_like")
    schedule, double, negative = schedule_of()
    for tensor in (double, negative):
        schedule.parallelize(tensor, 0, parallel)
    given = torch.randn(4, 8)
    assert torch.equal(run(schedule, [given])[1], -2 * given)


def test_results_of_one_statement_that_are_transformed_differently():
    fusion = Fusion()
    x = define_tensor(fusion, [5, 8], True)
    for tensor in var_mean(fusion, x, [1], 0):
        add_output(fusion, tensor)
    welford = next(t for t in fusion.tensors() if t.is_reduction)
    for change in (
        lambda s: s.split(s.tensor(welford.number), 0, 4),
        lambda s: s.reorder(s.tensor(welford.number), {0: 1}),
        lambda s: s.parallelize(s.tensor(welford.number), 0, P.grid_x),
    ):
        schedule = Schedule(fusion)
        change(schedule)
        refused(schedule, "is computed together with .* but transformed differently", "transform_like")
