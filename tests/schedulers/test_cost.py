"""What estimates are made of: terms of one kernel, each where it counts."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial, reduce
from math import prod
from types import FrameType

import pytest
import torch

from fusewright.core.dtype import DataType
from fusewright.core.hardware import described
from fusewright.cuda.nvrtc import NvrtcOptions, compile_ptx
from fusewright.ir import Fusion, TensorView
from fusewright.ops.binary import BINARY
from fusewright.ops.build_elementwise import apply_to_tensor, convert_tensor
from fusewright.ops.build_factory import iota
from fusewright.ops.build_indexing import index_select, select
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_reduction import sum_
from fusewright.ops.build_resize import flip
from fusewright.ops.build_shape import broadcast, expand, permute
from fusewright.ops.unary import UNARY
from fusewright.rewrite import canonicalize
from fusewright.schedulers import Facts, Scheduler
from fusewright.schedulers.base import Cost, Proposal, Reject
from fusewright.schedulers.cost import (
    COPY_SHARE,
    GRID_REDUCTION_SECONDS,
    KERNEL_SECONDS,
    UNWRITTEN_SHARE,
    CostModel,
)
from fusewright.schedulers.persistent.inner import InnerPersistentScheduler
from fusewright.schedulers.pointwise.scheduler import PointwiseScheduler
from fusewright.schedulers.reduction.scheduler import ReductionScheduler
from fusewright.schedulers.sectors import SECTOR_BYTES
from fusewright.schedulers.slots import slots_of

H200 = described("h200")
ROWS = {row.name: row for row in (*UNARY, *BINARY)}
# Throughput of instructions on sm_90, as parts of an addition's (CUDA C++ Programming Guide).
SPECIAL, CONVERSION = 8, 2


def seconds(functions: list[str], dtype: DataType, count: int, reduced: bool = False) -> float:
    """Of a kernel that applies functions to each of so many elements."""
    fusion = Fusion()
    x = define_tensor(fusion, [-1, -1], True, dtype)
    result = x
    for name in functions:
        result = apply_to_tensor(fusion, name, result)
    add_output(fusion, sum_(fusion, result, [0, 1]) if reduced else result)
    facts = Facts(dict(zip(x.extents, (count // 64, 64))))  # type: ignore[arg-type]
    return CostModel(fusion).estimate(facts, H200)().seconds


def test_a_kernel_of_few_elements_takes_its_launch():
    assert seconds(["neg"], DataType.Float, 64) == pytest.approx(KERNEL_SECONDS, rel=1e-3)


def test_arithmetic_counts_where_it_takes_longer_than_the_bytes():
    count = 1 << 28
    one, many = (seconds(["exp"] * n, DataType.BFloat16, count) for n in (1, 12))
    assert many > 1.5 * one
    assert seconds(["exp"], DataType.Float, count) == pytest.approx(seconds(["neg"], DataType.Float, count))


def rows_cost(length: int, exponentials: int) -> Cost:
    """Of sums of 25 million elements in rows, each of which is multiplied with functions of a row's value."""
    fusion = Fusion()
    x = define_tensor(fusion, [25_000_000 // length, length], True, DataType.Float)
    factor = define_tensor(fusion, [25_000_000 // length], True, DataType.Float)
    for _ in range(exponentials):
        factor = apply_to_tensor(fusion, "exp", factor)
    add_output(
        fusion, sum_(fusion, apply_to_tensor(fusion, "mul", x, broadcast(fusion, factor, [False, True])), [1])
    )
    canonicalize(fusion)
    planner = ReductionScheduler().prepare(fusion)
    assert not isinstance(planner, Reject)
    proposal = planner(Facts({}, ((length, 1), (1,)), (256, 256)), H200)
    assert isinstance(proposal, Proposal) and proposal.estimate is not None
    return proposal.estimate()


def test_each_thread_of_a_row_computes_what_the_row_has_one_of():
    """A thread of short rows has several, and computes it with each element."""
    assert rows_cost(16, 16).seconds > 3 * rows_cost(16, 0).seconds
    assert rows_cost(4000, 16).seconds == pytest.approx(rows_cost(4000, 0).seconds, rel=0.05)


def planned_cost(build: Callable[[Fusion, TensorView], TensorView], *shape: int) -> Cost:
    """Of the pointwise kernel for a contiguous input of these sizes."""
    fusion = Fusion()
    x = define_tensor(fusion, shape, True, DataType.Float)
    add_output(fusion, build(fusion, x))
    canonicalize(fusion)
    planner = PointwiseScheduler().prepare(fusion)
    assert not isinstance(planner, Reject)
    strides = tuple(prod(shape[i + 1 :]) for i in range(len(shape)))
    proposal = planner(Facts({}, (strides,), (256,)), H200)
    assert isinstance(proposal, Proposal) and proposal.estimate is not None
    return proposal.estimate()


def added(fusion: Fusion, *values: TensorView) -> TensorView:
    return reduce(partial(apply_to_tensor, fusion, "add"), values)


def test_components_that_are_read_one_by_one_share_sectors():
    """All of a sector is used by the same threads; of one component a quarter is."""
    count = 1 << 22
    one = planned_cost(lambda fusion, x: select(fusion, x, 1, 1), count, 4)
    all_four = planned_cost(
        lambda fusion, x: added(fusion, *(select(fusion, x, i, 1) for i in range(4))), count, 4
    )
    assert one.bytes == pytest.approx(4 * 4 * count + 4 * count, rel=0.01)
    assert all_four.bytes == pytest.approx(one.bytes, rel=0.01)


def test_indices_that_follow_from_positions_move_along():
    """A reflection reads whole sectors; values of an input may be anywhere."""

    def reflected(fusion: Fusion, x: TensorView) -> TensorView:
        places = apply_to_tensor(fusion, "abs", iota(fusion, 4096, -2, 1, DataType.Int))
        return index_select(fusion, x, places, 1)

    rows = 1 << 12
    assert planned_cost(reflected, rows, 4096).bytes == pytest.approx(2 * 4 * rows * 4096, rel=0.01)


def test_indices_of_many_operations_are_looked_through_once():
    """Each of which reads the one before it twice: one more has three times as many ways through."""

    def calls(length: int) -> int:
        def moved(fusion: Fusion, x: TensorView) -> TensorView:
            places = iota(fusion, 4096, 0, 1, DataType.Int)
            for _ in range(length):
                places = apply_to_tensor(fusion, "sub", added(fusion, places, places), places)
            return index_select(fusion, x, places, 1)

        counted = 0

        def count(frame: FrameType, event: str, _: object) -> None:
            nonlocal counted
            counted += event == "call"

        sys.setprofile(count)
        try:
            planned_cost(moved, 1 << 12, 4096)
        finally:
            sys.setprofile(None)
        return counted

    assert calls(12) < 3 * calls(6)


def test_what_lacks_an_inner_dimension_is_computed_at_each_point():
    """Of one dimension for all threads: the same work takes as long before the rows are widened as after."""

    def wide(fusion: Fusion, x: TensorView, first: bool) -> TensorView:
        for name in ["exp", "log"] * (6 * first):
            x = apply_to_tensor(fusion, name, x)
        x = expand(fusion, broadcast(fusion, x, [False, True]), [-1, 9])
        for name in ["exp", "log"] * (6 * (not first)):
            x = apply_to_tensor(fusion, name, x)
        return apply_to_tensor(fusion, "neg", x)

    before, after = (planned_cost(partial(wide, first=first), 1 << 22).seconds for first in (True, False))
    assert before == pytest.approx(after, rel=0.1)


def test_a_value_of_one_point_is_computed_once_a_thread():
    """Such as what an optimizer corrects all of its elements by."""

    def scaled(fusion: Fusion, x: TensorView, steps: int) -> TensorView:
        scale = define_tensor(fusion, [], [], DataType.Float)
        for name in ["exp", "log"] * steps:
            scale = apply_to_tensor(fusion, name, scale)
        return apply_to_tensor(fusion, "mul", x, broadcast(fusion, scale, [True]))

    short, long = (planned_cost(partial(scaled, steps=n), 1 << 24).seconds for n in (0, 20))
    assert long == pytest.approx(short, rel=0.01)


def test_what_is_reduced_is_computed_at_each_point_of_it():
    """Distances of pairs, say, which each component of a force is multiplied by."""

    def seconds_of(inner: bool) -> float:
        fusion = Fusion()
        x, y = (define_tensor(fusion, [4096, n], True, DataType.Float) for n in (4096, 8))
        work = broadcast(fusion, x, [False, False, True])
        if inner:
            work = apply_to_tensor(fusion, "mul", work, broadcast(fusion, y, [False, True, False]))
        for name in ["exp", "log"] * 8:
            work = apply_to_tensor(fusion, name, work)
        work = apply_to_tensor(fusion, "mul", work, broadcast(fusion, y, [False, True, False]))
        add_output(fusion, sum_(fusion, work, [1]))
        return CostModel(fusion).estimate(Facts({}), H200)().seconds

    assert seconds_of(inner=False) == pytest.approx(seconds_of(inner=True), rel=0.05)


def test_a_kernel_that_reads_waits_for_what_was_written_before():
    """Beyond the L2 cache that is a constant; it is nothing for what only writes as much."""
    count = 1 << 28
    difference = 2 * seconds([], DataType.Float, count, reduced=True) - seconds(
        ["neg"], DataType.Float, count
    )
    copy = seconds(["neg"], DataType.Float, count) - KERNEL_SECONDS
    waiting = UNWRITTEN_SHARE * H200.l2_bytes / (8 * count) * copy
    assert difference - KERNEL_SECONDS == pytest.approx(1.5 * waiting, rel=0.05)


def row_seconds(scheduler: Scheduler, functions: list[str], rejoined: bool) -> float:
    """Of sums of a long row under each function, which blocks share; rejoined: the row is used again."""
    fusion, size = Fusion(), 1 << 24
    x = define_tensor(fusion, [-1], True, DataType.Float)
    sums = [sum_(fusion, apply_to_tensor(fusion, name, x), [0]) for name in functions]
    result = added(fusion, *sums)
    add_output(fusion, added(fusion, x, broadcast(fusion, result, [True])) if rejoined else result)
    canonicalize(fusion)
    planner = scheduler.prepare(fusion)
    assert not isinstance(planner, Reject)
    proposal = planner(Facts(dict.fromkeys(x.extents, size), ((1,),), (256,)), H200)
    assert isinstance(proposal, Proposal) and proposal.estimate is not None
    assert proposal.params.cross_grid_inner_reduction
    return proposal.estimate().seconds


def test_reductions_across_blocks_are_made_together_where_nobody_waits_for_them():
    functions = ["neg", "abs", "relu", "sign"]
    together = [row_seconds(ReductionScheduler(), functions[:n], False) for n in (1, 4)]
    assert together[1] - together[0] < 0.1 * GRID_REDUCTION_SECONDS
    in_turn = [row_seconds(InnerPersistentScheduler(), functions[:n], True) for n in (1, 4)]
    assert in_turn[1] - in_turn[0] > 2.9 * GRID_REDUCTION_SECONDS


def test_a_division_by_a_constant_is_a_product() -> None:
    fusion = Fusion()
    x = define_tensor(fusion, [64, 64], True)
    by_constant, by_itself = (apply_to_tensor(fusion, "truediv", x, each) for each in (255.0, x))
    product = apply_to_tensor(fusion, "mul", x, x)
    slots = [slots_of(each.definition) for each in (by_constant, by_itself, product)]
    assert slots[0] == slots[2] < slots[1]
    wide = apply_to_tensor(fusion, "truediv", define_tensor(fusion, [64], True, DataType.Double), 255.0)
    assert slots_of(wide.definition) == slots[1]


def slots_of_ptx(text: str) -> int:
    """The instructions of a kernel, each by its throughput."""
    total = 0
    for name in re.findall(r"^\s*(?:@!?%p\d+\s+)?([a-z]\w*(?:\.\w+)+)\s", text, re.MULTILINE):
        if name.startswith(("ex2", "lg2", "rcp", "rsqrt", "div", "sqrt")):
            total += SPECIAL
        elif not name.startswith(("mov", "ld", "st", "cvta", "ret")):
            total += CONVERSION if name.startswith("cvt") else 1
    return total


@pytest.mark.parametrize("name", ["add", "truediv", "exp", "erf", "tanh", "rsqrt", "sqrt"])
def test_slots_are_those_of_the_compiled_function(name: str):
    row = ROWS[name]
    spelling = row.spelling(DataType.Float)
    text = str(spelling.render(["x", "y"][: row.arity], DataType.Float))
    source = f'extern "C" __global__ void k(float* z, float x, float y) {{ z[threadIdx.x] = {text}; }}'
    empty = 'extern "C" __global__ void k(float* z, float x, float y) { z[threadIdx.x] = x; }'
    found, frame = (slots_of_ptx(compile_ptx(each, NvrtcOptions("sm_90a"))) for each in (source, empty))
    assert (found - frame) / 2 <= spelling.slots <= 2 * (found - frame)


def sum_seconds(shape: list[int], order: list[int], read: bool, stored: bool, alignment: int = 2) -> float:
    """Of the sum over the first dimension of two tensors. One of them may be read with its dimensions in
    another order in memory, and the elements of the sum may be written so.
    """
    fusion = Fusion()
    x = define_tensor(fusion, shape, True, DataType.BFloat16)
    sizes = [shape[dim] for dim in order] if read else shape
    y = define_tensor(fusion, sizes, True, DataType.BFloat16)
    value = apply_to_tensor(fusion, "add", x, permute(fusion, y, order) if read else y)
    add_output(fusion, sum_(fusion, value, [0]))
    if stored:
        add_output(fusion, permute(fusion, value, order))
    strides = tuple(torch.empty(size, device="meta").stride() for size in (shape, sizes))
    planner = ReductionScheduler().prepare(fusion)
    assert not isinstance(planner, Reject), planner.reason
    return planner(Facts({}, strides, (alignment, alignment)), H200).estimate().seconds


def test_an_element_by_itself_takes_a_sector_and_twice_where_it_is_stored():
    """The other order has the outer kept dimension innermost."""
    sector = SECTOR_BYTES * 4096 * 4096 / (H200.memory_bandwidth_gbs * 1e9 * COPY_SHARE)
    case = [64, 64, 4096], [0, 2, 1]
    plain = sum_seconds(*case, read=False, stored=False)
    read = sum_seconds(*case, read=True, stored=False)
    written = sum_seconds(*case, read=False, stored=True)
    assert read - plain == pytest.approx(sector, rel=0.15)
    assert written - plain == pytest.approx(2 * sector, rel=0.15)


@pytest.mark.parametrize("alignment", [2, 256])
def test_squares_and_tiles_use_all_of_each_sector(alignment: int):
    """In vectors along both dimensions, or by element."""
    read, plain = (sum_seconds([4096, 4096], [1, 0], each, False, alignment) for each in (True, False))
    assert read == pytest.approx(plain, rel=0.02)


@pytest.mark.parametrize(("length", "gathered_again"), [(512, False), (1 << 16, True)])
def test_elements_gathered_again_take_a_sector_each_unless_they_are_in_the_l1_cache(
    length: int, gathered_again: bool
):
    """Rows of 32 of a table that lies column by column."""
    rows, columns, size = 1 << 18, 32, 4
    fusion = Fusion()
    table, places = (
        define_tensor(fusion, [-1] * n, True, dtype) for n, dtype in ((2, DataType.Float), (1, DataType.Int))
    )
    add_output(fusion, index_select(fusion, table, places, 0))
    fusion.unify_extents()
    sizes = dict(zip((*table.extents, *places.extents), (length, columns, rows)))
    facts = Facts(sizes, ((1, length), (1,)), (256, 256))  # type: ignore[arg-type]
    planner = PointwiseScheduler().prepare(fusion)
    moved = planner(facts, H200).estimate().bytes  # type: ignore[operator,union-attr]
    wasted = rows * columns * (SECTOR_BYTES - size)
    assert (moved > wasted) == gathered_again


def test_elements_gathered_from_a_table_of_a_line_look_up_that_line_alone():
    def estimated(length: int) -> float:
        fusion = Fusion()
        table, places = (
            define_tensor(fusion, [size], True, dtype)
            for size, dtype in ((length, DataType.Float), (1 << 24, DataType.UInt8))
        )
        add_output(fusion, index_select(fusion, table, convert_tensor(fusion, places, DataType.Int), 0))
        planner = PointwiseScheduler().prepare(fusion)
        return planner(Facts({}, ((1,), (1,)), (256, 256)), H200).estimate().seconds  # type: ignore[operator,union-attr]

    assert estimated(16) < 0.7 * estimated(1 << 15)


def test_neighbours_in_either_direction_share_their_sectors():
    fusion = Fusion()
    x = define_tensor(fusion, [-1, -1], True, DataType.Float)
    add_output(fusion, flip(fusion, x, [1]))
    facts = Facts(dict(zip(x.extents, (4096, 4096))), ((4096, 1),), (256,))  # type: ignore[arg-type]
    planner = PointwiseScheduler().prepare(fusion)
    assert planner(facts, H200).estimate().bytes == 2 * 4 * 4096 * 4096  # type: ignore[operator,union-attr]


def test_what_one_thread_computes_is_not_hidden():
    """Many updates of a few elements each, in one kernel, take as long as one thread does."""

    def estimate(tensors: int) -> float:
        fusion = Fusion()
        step = define_tensor(fusion, [768], True, DataType.Float)
        for _ in range(tensors):
            add_output(fusion, apply_to_tensor(fusion, "sqrt", apply_to_tensor(fusion, "exp", step)))
        planner = PointwiseScheduler().prepare(fusion)
        assert not isinstance(planner, Reject), planner.reason
        proposal = planner(Facts({}, ((1,),), (256,)), H200)
        assert isinstance(proposal, Proposal) and proposal.estimate is not None
        return proposal.estimate().seconds - KERNEL_SECONDS

    assert estimate(16) > 8 * estimate(1)
