"""How far tensors can be inlined, and the errors where they cannot."""

from __future__ import annotations

import pytest

from fusewright.core.enums import ParallelType
from fusewright.core.errors import ScheduleError
from fusewright.ir import Fusion, TensorView
from fusewright.ops.build_elementwise import apply_to_tensor, copy_tensor
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_reduction import sum_, var_mean, welford
from fusewright.ops.build_shape import broadcast
from fusewright.schedule import Schedule
from fusewright.schedule.inlining import max_inline_position


def chain(length: int = 2) -> tuple[Schedule, list[TensorView]]:
    """T0[8, 12] -> copies; the last is the output."""
    fusion = Fusion()
    tensor = define_tensor(fusion, [8, 12], True)
    for _ in range(length):
        tensor = copy_tensor(fusion, tensor)
    add_output(fusion, tensor)
    schedule = Schedule(fusion)
    return schedule, schedule.tensors()


def limit(schedule: Schedule, tensor: TensorView) -> int:
    return max_inline_position(schedule.fusion, tensor)


def test_loops_made_alike_are_shared_up_to_where_they_differ():
    schedule, (x, middle, out) = chain()
    assert limit(schedule, middle) == 2
    schedule.split(out, 1, 4)
    assert limit(schedule, middle) == 1
    schedule.split(middle, 1, 3)
    assert limit(schedule, middle) == 1
    assert limit(schedule, x) == limit(schedule, out) == 0


def test_other_bindings_are_not_shared():
    schedule, (_, middle, out) = chain()
    schedule.parallelize(out, 1, ParallelType.block_x)
    assert limit(schedule, middle) == 1
    schedule.parallelize(middle, 1, ParallelType.block_x)
    assert limit(schedule, middle) == 2


@pytest.mark.parametrize("vector", ["producer", "consumer"])
def test_vectors_are_not_shared(vector):
    schedule, (_, middle, out) = chain()
    schedule.split(out, 1, 4)
    schedule.transform_like(out)
    schedule.parallelize({"producer": middle, "consumer": out}[vector], 2, ParallelType.vectorize)
    assert limit(schedule, middle) == 2


def test_a_reduction_is_inlined_up_to_the_axis_that_it_reduces():
    fusion = Fusion()
    add_output(
        fusion, apply_to_tensor(fusion, "neg", sum_(fusion, define_tensor(fusion, [8, 12], True), [0]))
    )
    schedule = Schedule(fusion)
    total, out = schedule.tensors()[1:]
    assert limit(schedule, total) == 0
    schedule.reorder(total, {0: 1})
    assert limit(schedule, total) == 1 and len(out.loop) == 1


def normalization() -> tuple[Schedule, list[TensorView]]:
    fusion = Fusion()
    x = copy_tensor(fusion, define_tensor(fusion, [8, 12], True))
    total = broadcast(fusion, sum_(fusion, x, [1]), [False, True])
    add_output(fusion, apply_to_tensor(fusion, "sub", x, total))
    schedule = Schedule(fusion)
    return schedule, schedule.tensors()


def test_what_is_held_across_a_reduction_stays_outside_its_loop():
    schedule, (_, load, total, wide, _) = normalization()
    assert [limit(schedule, t) for t in (load, total, wide)] == [1, 1, 2]


def test_threads_are_no_loop_to_wait_for():
    schedule, (_, load, total, _, _) = normalization()
    schedule.parallelize(total, 1, ParallelType.block_x)
    schedule.parallelize_like(total)
    assert limit(schedule, load) == 2


def test_nobody_waits_inside_a_loop_that_the_reduction_cannot_share():
    """Rows inside the reduced threads: the sum stands in no loop of its users, so the row is held outside."""
    schedule, (_, load, total, _, _) = normalization()
    schedule.reorder(total, {0: 1})
    schedule.transform_like(total)
    schedule.parallelize(total, 0, ParallelType.block_x)
    schedule.parallelize_like(total)
    assert limit(schedule, total) == 0 and limit(schedule, load) == 1


def test_a_result_that_nothing_reads_keeps_nobody_out_of_a_loop():
    """The first result of a reduction may be such a one, as of argmax, whose values nobody asks for."""
    fusion = Fusion()
    x = copy_tensor(fusion, define_tensor(fusion, [8, 12], True))
    _, squares, _ = welford(fusion, x, [1])
    add_output(fusion, apply_to_tensor(fusion, "sub", x, broadcast(fusion, squares, [False, True])))
    schedule = Schedule(fusion)
    assert limit(schedule, schedule.tensors()[1]) == 1


def test_siblings_share_one_nest():
    fusion = Fusion()
    x = define_tensor(fusion, [8, 12], True)
    var, mean = var_mean(fusion, x, [1], 0)
    add_output(fusion, apply_to_tensor(fusion, "add", var, mean))
    schedule = Schedule(fusion)
    lead, other, _ = (t for t in schedule.tensors() if t.is_reduction)
    assert limit(schedule, lead) == 1
    schedule.split(other, 0, 4)
    assert limit(schedule, lead) == 0


def test_inline_at_a_position():
    schedule, (_, a, b, out) = chain(3)
    schedule.inline_at(out, 1)
    assert [t.inline_at for t in (a, b, out)] == [1, 1, 0]
    schedule.inline_at(out, -1)
    assert [t.inline_at for t in (a, b)] == [2, 2]
    schedule.inline_at(out, 0)  # never less than before
    assert a.inline_at == 2


def test_inline_at_what_cannot_be_reached():
    schedule, (_, a, b, out) = chain(3)
    schedule.split(b, 1, 4)
    with pytest.raises(ScheduleError, match="inline_at: T1 can be inlined at 1 at most, not at 2"):
        schedule.inline_at(a, 2)
    assert [t.inline_at for t in (a, b)] == [0, 0]
    schedule.inline_at(a, 2, best_effort=True)
    assert [t.inline_at for t in (a, b)] == [1, 1]
    with pytest.raises(ScheduleError, match=r"inline_at: position 3 is outside \[-3, 2\] of T3"):
        schedule.inline_at(out, 3)


def test_selected_tensors_only():
    schedule, (_, a, b, out) = chain(3)
    schedule.inline_most([a])
    assert [t.inline_at for t in (a, b)] == [2, 0]
    schedule.inline_at(out, 1, selected=[b])
    assert [t.inline_at for t in (a, b)] == [2, 1]
