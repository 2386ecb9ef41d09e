"""Primitives on loop axes: what they make of them, and the errors that scripts match."""

from __future__ import annotations

import pytest

from fusewright.core.enums import ParallelType
from fusewright.core.errors import ScheduleError
from fusewright.ir import Fusion, TensorView
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_reduction import sum_
from fusewright.schedule import Schedule
from fusewright.sym import as_int

BELOW_ZERO = 'Found "{}" position that\'s less than 0 even though already adjusted by nDims: -1'


@pytest.fixture
def schedule() -> Schedule:
    """An 8x8x8 input, summed over its last dimension."""
    fusion = Fusion()
    add_output(fusion, sum_(fusion, define_tensor(fusion, [8, 8, 8], True), [-1]))
    return Schedule(fusion)


@pytest.fixture
def t1(schedule) -> TensorView:
    return schedule.tensor(1)


def shape(tensor: TensorView) -> str:
    """Kinds and extents, such as 'i8 i8 r8'."""
    return " ".join(f"{a.kind.value}{as_int(a.extent)}" for a in tensor.loop)


def test_split_and_merge(schedule, t1):
    schedule.split(t1, 1, 2)
    assert shape(t1) == "i8 i4 i2 r8"
    schedule.split(t1, -1, 2, inner_split=False)
    assert shape(t1) == "i8 i4 i2 r2 r4"
    schedule.merge(t1, -2)
    assert shape(t1) == "i8 i4 i2 r8"
    schedule.merge(t1, 0)
    assert shape(t1) == "i32 i2 r8"
    schedule.split(t1, 0, 5)
    assert shape(t1) == "i7 i5 i2 r8"


def test_shifted_split_has_room_for_a_vector_more(schedule, t1):
    schedule.shifted_split(t1, -1, 4, schedule.tensor(0))
    assert shape(t1) == "i8 i8 r3 r4"
    split = t1.loop[-1].definition
    assert split.rows == (t1.logical[1], t1.logical[0])
    assert [as_int(stride) for stride in split.strides] == [8, 64]


def test_shifted_split_follows_rows_of_memory(schedule, t1):
    with pytest.raises(ScheduleError, match="the axis is not what lies along the rows of T0"):
        schedule.shifted_split(t1, 1, 4, schedule.tensor(0))
    with pytest.raises(ScheduleError, match="T1 has no dimension in global memory for each of T1"):
        schedule.shifted_split(t1, -1, 4, t1)
    with pytest.raises(ScheduleError, match="a power of two"):
        schedule.shifted_split(t1, -1, 6, schedule.tensor(0))


def test_merge_of_axes_apart(schedule, t1):
    schedule.split(t1, 0, 2)
    schedule.merge(t1, 0, 2)
    assert shape(t1) == "i32 i2 r8"
    assert [as_int(a.extent) for a in t1.loop[0].definition.inputs] == [4, 8]


@pytest.mark.parametrize(
    "old2new, order",
    [
        ({}, "0123"),
        ({0: 0}, "0123"),
        ({0: 2}, "1203"),
        ({0: 1, 1: 0}, "1023"),
        ({-1: 0}, "3012"),
        ({3: 0, 0: 3}, "3120"),
        ({2: -4}, "2013"),
    ],
)
def test_reorder(schedule, t1, old2new, order):
    schedule.split(t1, 0, 2)
    axes = list(t1.loop)
    schedule.reorder(t1, old2new)
    assert [axes.index(a) for a in t1.loop] == [int(c) for c in order]


@pytest.mark.parametrize(
    "call, arguments, text",
    [
        ("merge", (1,), "Merging IterDomains requires that their iteration types match"),
        ("merge", (-2,), "Merging IterDomains requires that their iteration types match"),
        ("merge", (2,), "Tried to access out of boundary index 3. total index: 3"),
        ("merge", (-4,), "Tried to access out of boundary index -1. total index: 3"),
        ("merge", (1, 1), "two different axes"),
        ("split", (3, 2), "Tried to access out of boundary index 3. total index: 3"),
        ("split", (-4, 2), "Tried to access out of boundary index -1. total index: 3"),
        ("split", (0, 0), "Invalid factor for split. Factor must be greater than 0. Factor = 0"),
        ("split", (0, -1), "Invalid factor for split. Factor must be greater than 0. Factor = -1"),
        ("reorder", ({0: 3},), "Reorder axes are not within the number of dimensions of the provided domain"),
        ("reorder", ({3: 0},), "Reorder axes are not within the number of dimensions of the provided domain"),
        ("reorder", ({-4: 0},), BELOW_ZERO.format("old")),
        ("reorder", ({0: -4},), BELOW_ZERO.format("new")),
        ("reorder", ({0: 1, 1: 1},), "Reorder found duplicate axes"),
        ("reorder", ({0: 1, -3: 2},), "Reorder found duplicate axes"),
        ("parallelize", (3, ParallelType.block_x), "Tried to access out of boundary index 3. total index: 3"),
        ("parallelize", (-4, ParallelType.block_x), "out of boundary index -1. total index: 3"),
        ("swizzle", (0, 5), "Tried to access out of boundary index 5. total index: 3"),
    ],
)  # fmt: skip
def test_errors_leave_the_schedule_as_it_was(schedule, t1, call, arguments, text):
    with pytest.raises(ScheduleError) as error:
        getattr(schedule, call)(t1, *arguments)
    assert text in str(error.value)
    assert shape(t1) == "i8 i8 r8" and schedule.trace() == ()


def test_bound_axes_are_not_transformed(schedule, t1):
    schedule.parallelize(t1, 0, ParallelType.block_x)
    for call, arguments in (("split", (0, 2)), ("merge", (0,))):
        with pytest.raises(ScheduleError, match="already parallelized as block_x"):
            getattr(schedule, call)(t1, *arguments)


def test_an_axis_of_threads_is_bound_once_a_tensor(schedule, t1):
    schedule.parallelize(t1, 0, ParallelType.block_x)
    with pytest.raises(ScheduleError, match="T1 has two axes of parallel type block_x"):
        schedule.parallelize(t1, 1, ParallelType.block_x)
    schedule.parallelize(t1, 0, ParallelType.block_x)  # binding it again is no second axis
    schedule.parallelize(t1, 0, ParallelType.serial)
    schedule.parallelize(t1, 1, ParallelType.block_x)


def test_inlined_axes_are_not_transformed():
    fusion = Fusion()
    x = define_tensor(fusion, [8, 8], True)
    add_output(fusion, sum_(fusion, sum_(fusion, x, [1]), [0]))
    schedule = Schedule(fusion)
    first = schedule.tensor(1)
    schedule.inline_most()
    assert first.inline_at == 1
    with pytest.raises(ScheduleError, match="inside its inlined position 1"):
        schedule.split(first, 0, 2)
    with pytest.raises(ScheduleError, match="inside its inlined position 1"):
        schedule.reorder(first, {0: 1})
    schedule.split(first, 1, 2)


@pytest.mark.parametrize("extent", [3, 6])
def test_vectors_are_powers_of_two(schedule, t1, extent):
    schedule.split(t1, 0, extent)
    with pytest.raises(
        ScheduleError, match=f"a vectorized axis needs a constant power-of-two.* not {extent}"
    ):
        schedule.parallelize(t1, 1, ParallelType.vectorize)


def test_swizzle_needs_a_square_power_of_two(schedule, t1):
    schedule.swizzle(t1, 0, 1)
    assert shape(t1) == "i8 i8 r8"
    schedule.split(t1, 0, 4)
    with pytest.raises(ScheduleError, match="the same constant power-of-two extent"):
        schedule.swizzle(t1, 1, 2)


def test_tensors_of_other_fusions_are_refused(schedule, t1):
    other = Schedule(schedule.original)
    with pytest.raises(ScheduleError, match="T1 is not a tensor of this schedule's fusion"):
        other.split(t1, 0, 2)
    with pytest.raises(ScheduleError, match="not a tensor of this schedule's fusion"):
        other.inline_most([t1])


def test_looking_at_a_schedule(schedule, t1):
    assert schedule.is_reduction(t1) and not schedule.is_reduction(schedule.tensor(0))
    assert [t.name for t in schedule.tensors()] == ["T0", "T1"]
    with pytest.raises(ScheduleError, match="there is no tensor T9"):
        schedule.tensor(9)


def test_reverse_goes_over_the_same_points(schedule, t1):
    schedule.reverse(t1, 0)
    assert "Reverse: " in str(t1.loop[0].definition)
    schedule.parallelize(t1, 0, ParallelType.grid_x)
    with pytest.raises(ScheduleError, match=r"reverse: axis 0 of .* is already parallelized"):
        schedule.reverse(t1, 0)
