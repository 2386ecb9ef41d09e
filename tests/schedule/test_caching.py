"""Copies and memory: what stands where afterwards, and that the numbers stay."""

from __future__ import annotations

import pytest
import torch

from fusewright.core.enums import CacheOp, LoadStoreOpType, MemoryType
from fusewright.core.errors import ScheduleError
from fusewright.ir import Copy, Fusion, TensorView, verify_fusion
from fusewright.ops.build_elementwise import apply_to_tensor
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_reduction import sum_
from fusewright.schedule import Schedule
from tests.lower.running import run


@pytest.fixture
def schedule() -> Schedule:
    """x -> a = exp(x), an output -> b = neg(a) + a, an output."""
    fusion = Fusion()
    x = define_tensor(fusion, [4, 5], True)
    a = apply_to_tensor(fusion, "exp", x)
    add_output(fusion, a)
    add_output(fusion, apply_to_tensor(fusion, "add", apply_to_tensor(fusion, "neg", a), a))
    return Schedule(fusion)


def check(schedule: Schedule) -> None:
    verify_fusion(schedule.fusion, "caching")
    x = torch.randn(4, 5)
    for got, wanted in zip(run(schedule, [x]), (x.exp(), torch.zeros(4, 5))):
        torch.testing.assert_close(got, wanted)


def by_name(schedule: Schedule, *numbers: int) -> list[TensorView]:
    return [schedule.tensor(n) for n in numbers]


def test_cache_after_stands_before_all_uses(schedule):
    x, a, _, b = by_name(schedule, 0, 1, 2, 3)
    load = schedule.cache_after(x, LoadStoreOpType.set, CacheOp.streaming)
    assert x.consumers == [load] and load.consumers == [a] and load.memory is MemoryType.local
    assert isinstance(load.definition, Copy) and load.definition.cache is CacheOp.streaming
    twin = schedule.cache_after(a)
    assert a.consumers == [twin] and len(twin.uses) == 2 and b in schedule.fusion.output_tensors()
    check(schedule)


def test_cache_before_takes_the_definition(schedule):
    b = schedule.tensor(3)
    new = schedule.cache_before(b)
    assert new.definition.label == "add" and b.producers == [new]
    assert b.memory is MemoryType.global_ and new.memory is MemoryType.local
    check(schedule)


def test_cache_before_of_a_reduction_keeps_its_loops():
    fusion = Fusion()
    add_output(fusion, sum_(fusion, define_tensor(fusion, [4, 6], True), [1]))
    schedule = Schedule(fusion)
    total = schedule.tensor(1)
    schedule.split(total, 1, 2)
    new = schedule.cache_before(total)
    assert len(new.loop) == 3 and new.is_reduction and len(total.loop) == 1 and not total.is_reduction
    verify_fusion(schedule.fusion)
    x = torch.randn(4, 6)
    torch.testing.assert_close(run(schedule, [x])[0], x.sum(1))


def test_copies_are_transformed_like_what_they_copy(schedule):
    b = schedule.tensor(3)
    schedule.merge(b, 0)
    schedule.split(b, 0, 4)
    new = schedule.cache_before(b)
    assert [str(a.extent) for a in new.loop] == [str(a.extent) for a in b.loop] == ["5", "4"]
    numbers = [axis.number for t in schedule.tensors() for axis in t.loop]
    assert len(set(numbers)) == len(numbers)
    check(schedule)


def test_cache_fork_moves_the_output(schedule):
    a = schedule.tensor(1)
    new = schedule.cache_fork(a)
    assert [o.tensor for o in schedule.fusion.outputs] == [new, schedule.tensor(3)]
    assert a.memory is MemoryType.local and new.memory is MemoryType.global_ and new.producers == [a]
    check(schedule)


def test_cache_fork_keeps_the_memory_order_and_the_alias():
    fusion = Fusion()
    x = define_tensor(fusion, [4, 5], True)
    a = apply_to_tensor(fusion, "exp", x)
    add_output(fusion, a, stride_order=[0, 1])
    add_output(fusion, apply_to_tensor(fusion, "neg", fusion.outputs[0].tensor), x)
    schedule = Schedule(fusion)
    new = schedule.cache_fork(schedule.fusion.outputs[0].tensor)
    assert new.allocation == new.logical[::-1]
    assert schedule.fusion.outputs[1].alias is schedule.fusion.inputs[0]


def test_recompute_gives_each_later_use_a_twin(schedule):
    neg = schedule.tensor(2)
    a = schedule.tensor(1)
    schedule.cache_fork(a)
    twins = schedule.recompute(a)
    assert len(twins) == len(a.uses + twins) - 1 and all(t.definition.label == "exp" for t in twins)
    assert neg.producers == [a]
    check(schedule)


@pytest.mark.parametrize(
    "call, number, text",
    [
        ("cache_after", 3, "cache_after: T3 has no uses"),
        ("cache_before", 0, "cache_before: T0 is an input"),
        ("cache_fork", 2, "cache_fork: T2 must be an output that is also used"),
        ("cache_fork", 3, "cache_fork: T3 must be an output that is also used"),
        ("recompute", 0, "recompute: T0 must be computed in the fusion"),
        ("recompute", 1, "recompute: T1 must be computed in the fusion, and be no output"),
    ],
)
def test_errors(schedule, call, number, text):
    before = str(schedule.fusion)
    with pytest.raises(ScheduleError, match=text):
        getattr(schedule, call)(schedule.tensor(number))
    assert str(schedule.fusion) == before


@pytest.mark.parametrize("kind", [k for k in LoadStoreOpType if k is not LoadStoreOpType.set])
def test_copies_by_other_instructions_are_refused(schedule, kind):
    before = str(schedule.fusion)
    for call, number in (("cache_after", 0), ("cache_before", 3)):
        with pytest.raises(ScheduleError) as caught:
            getattr(schedule, call)(schedule.tensor(number), op_type=kind)
        text = str(caught.value)
        assert f"{call}: copies by {kind.name} are not available yet" in text
        assert "expected: op_type set" in text and f"given: {kind.name}" in text
    assert str(schedule.fusion) == before


def test_only_loads_from_global_memory_have_a_cache_operator(schedule):
    schedule.cache_after(schedule.tensor(1), cache_op=CacheOp.streaming)  # an output that is used
    check(schedule)
    with pytest.raises(ScheduleError, match="cache_after: T2 is not in global memory"):
        schedule.cache_after(schedule.tensor(2), cache_op=CacheOp.streaming)


def test_memory_types(schedule):
    x, a, neg, b = by_name(schedule, 0, 1, 2, 3)
    schedule.set_memory_type(neg, MemoryType.shared)
    assert neg.memory is MemoryType.shared
    for tensor in (x, a, b):
        schedule.set_memory_type(tensor, MemoryType.global_)
        with pytest.raises(ScheduleError, match="is an input or output and stays in global memory"):
            schedule.set_memory_type(tensor, MemoryType.shared)
    with pytest.raises(ScheduleError, match="T2 can be in local, shared or global memory"):
        schedule.set_memory_type(neg, MemoryType.tensor)
    check(schedule)


def test_a_shared_tensor_keeps_its_storage(schedule):
    neg = schedule.tensor(2)
    with pytest.raises(ScheduleError, match="store_along: T2 is not in shared memory"):
        schedule.store_along(neg, [0], 1)
    schedule.set_memory_type(neg, MemoryType.shared)
    for dims, padding, problem in (
        ([], 0, "one axis or more"),
        ([0, 0], 0, "each once"),
        ([0], -1, "padding"),
    ):
        with pytest.raises(ScheduleError, match=problem):
            schedule.store_along(neg, dims, padding)
    schedule.split(neg, 0, 4)
    schedule.store_along(neg, [1, 0, 2], 2)
    stored = (neg.loop[1], neg.loop[0], neg.loop[2])
    schedule.merge(neg, 0)
    assert neg.storage is not None and (neg.storage.axes, neg.storage.padding) == (stored, 2)
    copy = schedule.cache_before(neg)
    assert copy.storage is None and len(neg.storage.axes) == 3
    check(schedule)


def test_host_scalars_are_not_copied():
    fusion = Fusion()
    x, s = define_tensor(fusion, [4], True), define_tensor(fusion, [], True, is_cpu=True)
    add_output(fusion, apply_to_tensor(fusion, "mul", x, s))
    schedule = Schedule(fusion)
    with pytest.raises(ScheduleError, match="scalar in host memory, which kernels take by value"):
        schedule.cache_after(schedule.fusion.inputs[1])


def test_what_is_held_in_part_is_what_both_loads_bring(schedule):
    x, a = by_name(schedule, 0, 1)
    load = schedule.cache_after(x)
    [again] = schedule.recompute(load) or [None]
    with pytest.raises(ScheduleError, match="does not load again what"):
        schedule.hold_part(load, [load], 1, 0)
    with pytest.raises(ScheduleError, match="is not copied from an input into registers"):
        schedule.hold_part(a, [load], 1, 0)
    assert again is None or again.definition.held is None


def test_a_load_that_starts_at_any_element_is_computed_anew_as_one() -> None:
    fusion = Fusion()
    x = define_tensor(fusion, [16], True)
    for operation in ("exp", "neg"):
        add_output(fusion, apply_to_tensor(fusion, operation, x))
    schedule = Schedule(fusion)
    load = schedule.cache_after(schedule.fusion.inputs[0])
    schedule.allow_unaligned(load)
    [again] = schedule.recompute(load)
    assert again.unaligned


def test_set_cache_op_is_of_loads_and_stores(schedule):
    load = schedule.cache_after(schedule.tensor(0))
    schedule.set_cache_op(load, CacheOp.streaming)
    assert load.definition.cache is CacheOp.streaming
    with pytest.raises(ScheduleError, match="T2 is not copied from or to global memory"):
        schedule.set_cache_op(schedule.tensor(2), CacheOp.streaming)
    check(schedule)
