"""rfactor: domains of the partial result and of what remains, repeated and with siblings; the numbers."""

from __future__ import annotations

import pytest
import torch

from fusewright.core.enums import ParallelType
from fusewright.core.errors import ScheduleError
from fusewright.ir import Fusion, TensorView, verify_fusion
from fusewright.ops.build_elementwise import apply_to_tensor
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_reduction import sum_, var_mean
from fusewright.schedule import Schedule
from fusewright.sym import as_int
from tests.lower.running import run


@pytest.fixture
def schedule() -> Schedule:
    """An 8x8x8 input, summed over its last dimension."""
    fusion = Fusion()
    add_output(fusion, sum_(fusion, define_tensor(fusion, [8, 8, 8], True), [-1]))
    return Schedule(fusion)


def shape(axes) -> str:
    return " ".join(f"{a.kind.value}{as_int(a.extent)}" for a in axes)


X = torch.arange(512.0).reshape(8, 8, 8)


def check(schedule: Schedule) -> None:
    verify_fusion(schedule.fusion, "rfactor")
    torch.testing.assert_close(run(schedule, [X])[0], X.sum(-1))


def test_domains(schedule):
    total = schedule.tensor(1)
    schedule.split(total, 2, 2)
    partial = schedule.rfactor(total, [2])
    assert shape(partial.root) == "i8 i8 r8" and shape(partial.logical) == "i8 i8 r4 i2"
    assert [a.rfactor for a in partial.logical] == [False, False, True, True]
    assert partial.loop == list(partial.logical) and shape(partial.shape) == "i8 i8 i2"
    assert total.root is None and shape(total.loop) == "i8 i8 r2" and total.producers == [partial]
    check(schedule)


def test_factored_axes_that_stand_apart_and_iteration_axes_that_moved(schedule):
    total = schedule.tensor(1)
    schedule.split(total, 2, 2)
    schedule.reorder(total, {3: 0})
    schedule.split(total, 1, 4)
    partial = schedule.rfactor(total, [-1])
    assert shape(partial.loop) == "i2 i2 i4 i8 r4" and shape(partial.logical) == "i8 i8 i2 r4"
    assert shape(total.loop) == "r2 i2 i4 i8" and shape(total.logical) == "i8 i8 r2"
    check(schedule)


def test_two_axes_at_once(schedule):
    total = schedule.tensor(1)
    schedule.split(total, 2, 4)
    schedule.split(total, 2, 2)
    partial = schedule.rfactor(total, [2, 4])
    assert shape(partial.logical) == "i8 i8 r1 i2 r4" and shape(total.loop) == "i8 i8 r2"
    check(schedule)


@pytest.mark.parametrize("of_the_partial", [False, True])
def test_repeated(schedule, of_the_partial):
    total = schedule.tensor(1)
    schedule.split(total, 2, 4)
    schedule.split(total, 3, 2)
    first = schedule.rfactor(total, [3, 4] if of_the_partial else [4])
    second = schedule.rfactor(first if of_the_partial else total, [3])
    assert len(schedule.tensors()) == 4 and second.is_reduction
    chain = [total]
    while chain[-1].producers[0].definition is not None:
        chain.append(chain[-1].producers[0])
    assert [sum(a.is_reduction for a in t.loop) for t in chain] == [1, 1, 1]
    check(schedule)


def test_axes_keep_their_binding(schedule):
    total = schedule.tensor(1)
    schedule.split(total, 2, 4)
    schedule.parallelize(total, 3, ParallelType.block_x, pad=32)
    partial = schedule.rfactor(total, [2])
    for tensor in (partial, total):
        assert tensor.loop[-1].parallel is ParallelType.block_x and tensor.loop[-1].padded == 32
    check(schedule)


def test_symbolic_size_that_does_not_divide():
    fusion = Fusion()
    add_output(fusion, sum_(fusion, define_tensor(fusion, [-1, -1], True), [1]))
    schedule = Schedule(fusion)
    total = schedule.tensor(1)
    schedule.split(total, 1, 4)
    schedule.rfactor(total, [1])
    schedule.inline_most()
    x = torch.arange(33.0).reshape(3, 11)
    torch.testing.assert_close(run(schedule, [x])[0], x.sum(1))


def test_all_states_of_welford_are_factored_alike():
    fusion = Fusion()
    x = define_tensor(fusion, [4, 12], True)
    var, mean = var_mean(fusion, x, [1], 0)
    add_output(fusion, apply_to_tensor(fusion, "add", var, mean))
    schedule = Schedule(fusion)
    lead = next(t for t in schedule.tensors() if t.is_reduction)
    schedule.split(lead, 1, 4)
    with pytest.raises(ScheduleError, match=r"computed together with T.* but transformed differently"):
        schedule.rfactor(lead, [1])
    schedule.transform_like(lead)
    partial = schedule.rfactor(lead, [1])
    assert partial.definition.outputs == lead.definition.inputs and len(partial.definition.outputs) == 3
    assert len({shape(t.logical) for t in partial.definition.outputs}) == 1
    verify_fusion(schedule.fusion)
    schedule.inline_most()
    values = torch.randn(4, 12)
    wanted = values.var(1, correction=0) + values.mean(1)
    torch.testing.assert_close(run(schedule, [values])[0], wanted)


@pytest.mark.parametrize("dims", [[1], [-3], [0, 2], []])
def test_only_reduction_axes(schedule, dims):
    total = schedule.tensor(1)
    schedule.split(total, 2, 2)
    with pytest.raises(ScheduleError, match=r"Cannot rfactor axes that are not reduction axes."):
        schedule.rfactor(total, dims)


def test_one_axis_must_remain(schedule):
    total = schedule.tensor(1)
    schedule.split(total, 2, 2)
    with pytest.raises(ScheduleError, match=r"Must have at least one reduction axis not marked as rfactor."):
        schedule.rfactor(total, [2, 3])
    assert isinstance(total, TensorView) and len(schedule.tensors()) == 2
