"""Schedules written by hand with fd.sched: they agree with torch, and their mistakes are named."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright import FusionDefinition, MemoryType, ParallelType, SchedulerType
from fusewright.core.errors import ScheduleError
from tests.integration.tolerance import assert_close


class TransposeThroughSharedMemory(FusionDefinition):
    """(x^T + y) * 2 + 1 with 32 x 32 tiles of x in shared memory, read along rows and used along columns."""

    TILE = 32

    def definition(self) -> None:
        self.x = self.define_tensor([-1, -1], contiguity=True)
        self.y = self.define_tensor([-1, -1], contiguity=True)
        self.turned = self.ops.permute(self.x, [1, 0])
        self.total = self.turned + self.y
        self.doubled = self.total * 2.0
        self.result = self.doubled + 1.0
        self.add_output(self.result)

    def schedule(self) -> None:
        s, tile = self.sched, self.TILE
        staged = s.cache_after(self.x)
        s.set_memory_type(staged, MemoryType.shared)
        loaded = s.cache_after(self.y)
        out = self.result
        # [I, J] -> [I/32, J/32, 32, 32]
        s.split(out, 1, tile)
        s.split(out, 0, tile)
        s.reorder(out, {1: 2})
        s.transform_like(out)
        s.parallelize(out, 0, ParallelType.grid_y)
        s.parallelize(out, 1, ParallelType.grid_x)
        s.parallelize_like(out, 2)
        # The tile is written with threads along x's rows and read with threads along the result's.
        for tensor in (out, self.total, self.doubled, self.turned, loaded):
            s.split(tensor, 2, 4)
            s.parallelize(tensor, 3, ParallelType.block_y)
            s.parallelize(tensor, 4, ParallelType.block_x)
        s.reorder(staged, {2: 3})
        s.split(staged, 2, 4)
        s.parallelize(staged, 3, ParallelType.block_y)
        s.parallelize(staged, 4, ParallelType.block_x)
        s.inline_at(out, 2, best_effort=True)
        s.inline_at(self.doubled, 4, best_effort=True, selected_tensors=[self.doubled, self.total])


class PartiallyInlined(FusionDefinition):
    """Four elements a thread: loaded together into registers, a shared-memory cache inlined at the block."""

    def definition(self) -> None:
        self.x = self.define_tensor([-1], contiguity=True)
        self.y = self.define_tensor([-1], contiguity=True)
        self.product = self.x * self.y
        self.result = self.ops.exp(self.product) + self.x
        self.add_output(self.result)

    def schedule(self) -> None:
        s = self.sched
        shared = s.cache_after(self.x)
        s.set_memory_type(shared, MemoryType.shared)
        loaded = s.cache_after(self.y)
        s.cache_before(self.result)
        s.split(self.result, 0, 4)
        s.split(self.result, 0, 64)
        s.transform_like(self.result)
        s.parallelize(self.result, 0, ParallelType.grid_x)
        s.parallelize(self.result, 1, ParallelType.block_x)
        s.parallelize_like(self.result)
        s.parallelize(loaded, 2, ParallelType.vectorize)
        s.parallelize(self.result, 2, ParallelType.vectorize)
        s.inline_at(self.result, 1, best_effort=True, selected_tensors=[shared])
        s.inline_at(self.result, 2, best_effort=True, selected_tensors=[loaded])
        s.inline_most([self.product])


class Normalization(FusionDefinition):
    """(x - mean) / sqrt(var + eps): the row is held in registers, each reduction factored among threads."""

    VECTOR, BATCHES = 4, 8

    def definition(self) -> None:
        self.x = self.define_tensor([-1, -1], contiguity=True)
        length = self.ops.size(self.x, 1)
        self.total = self.ops.sum(self.x, [1])
        self.mean = self.ops.broadcast(self.total / length, [False, True])
        self.centred = self.x - self.mean
        self.squares = self.ops.sum(self.centred * self.centred, [1])
        variance = self.ops.broadcast(self.squares / length, [False, True])
        self.result = self.centred * self.ops.rsqrt(variance + 1e-5)
        self.add_output(self.result)

    def schedule(self) -> None:
        s = self.sched
        loaded = s.cache_after(self.x)
        s.cache_before(self.result)
        reference = self.total
        # [I, R] -> [I, batches, threads, vector]; as many threads as the row needs
        s.split(reference, -1, self.VECTOR)
        s.split(reference, -2, self.BATCHES, inner_split=False)
        s.transform_like(reference)
        partials = [s.rfactor(tensor, [1, 3]) for tensor in (self.total, self.squares)]
        for tensor in (partials[0], partials[1]):
            s.parallelize(tensor, 0, ParallelType.grid_x)
            s.parallelize(tensor, 2, ParallelType.block_x)
        s.parallelize_like(partials[0])
        s.parallelize(loaded, -1, ParallelType.vectorize)
        s.parallelize(self.result, -1, ParallelType.vectorize)
        s.inline_most()


def test_tiles_through_shared_memory(target: torch.device) -> None:
    for shape in ((64, 96), (33, 70), (5, 1)):
        x = torch.randn(shape, device=target)
        y = torch.randn(shape[::-1], device=target)
        fd = TransposeThroughSharedMemory()
        (out,) = fd.execute([x, y])
        assert_close(out, (x.double().t() + y.double()) * 2 + 1)
        assert "__syncthreads" in fd.last_cuda_code()


def test_shared_cache_and_partial_inlining(target: torch.device) -> None:
    for size in (256, 1000, 4096):
        x, y = torch.randn(size, device=target), torch.randn(size, device=target)
        fd = PartiallyInlined()
        (out,) = fd.execute([x, y])
        assert_close(out, (x.double() * y.double()).exp() + x.double())
        assert "fw_smem" in fd.last_cuda_code() and "fw::load<4>" in fd.last_cuda_code()


@pytest.mark.parametrize("length", [128, 512, 1000, 3072])
def test_normalization_with_rfactor_and_vectors(target: torch.device, length: int) -> None:
    x = torch.randn(5, length, device=target)
    fd = Normalization()
    (out,) = fd.execute([x])
    wide = x.double()
    variance, mean = torch.var_mean(wide, 1, correction=0, keepdim=True)
    assert_close(out, (wide - mean) * torch.rsqrt(variance + 1e-5), length)
    assert "fw::load_or<4>" in fd.last_cuda_code() and "fw::store<4>" in fd.last_cuda_code()


# ---- mistakes ----------------------------------------------------------------------------------------------


class SumOfCube(FusionDefinition):
    """The definition of the reference's error table: a cube of 8, summed over the last dimension."""

    def definition(self) -> None:
        self.t0 = self.define_tensor([-1, -1, -1], contiguity=True)
        self.t1 = self.ops.sum(self.t0, -1)
        self.add_output(self.t1)


CUBE = [torch.randn(8, 8, 8)]
Scheduling = Callable[[Any, Any], Any]


def _opened() -> SumOfCube:
    fd = SumOfCube()
    fd._setup_schedule(CUBE, overwrite_existing_schedule=True)
    return fd


def _after_split(dims: list[int]) -> Scheduling:
    def schedule(s: Any, t1: Any) -> Any:
        s.split(t1, 2, 2)
        return s.rfactor(t1, dims)

    return schedule


MISTAKES: dict[str, tuple[Scheduling, str]] = {
    "merge_kinds": (
        lambda s, t: s.merge(t, 1),
        "Merging IterDomains requires that their iteration types match",
    ),
    "merge_kinds_from_the_end": (
        lambda s, t: s.merge(t, -2),
        "Merging IterDomains requires that their iteration types match",
    ),
    "merge_last": (
        lambda s, t: s.merge(t, 2),
        "Tried to access out of boundary index 3. total index: 3",
    ),
    "merge_before_first": (
        lambda s, t: s.merge(t, -4),
        "Tried to access out of boundary index -1. total index: 3",
    ),
    "split_after_last": (
        lambda s, t: s.split(t, 3, 2),
        "Tried to access out of boundary index 3. total index: 3",
    ),
    "split_before_first": (
        lambda s, t: s.split(t, -4, 2),
        "Tried to access out of boundary index -1. total index: 3",
    ),
    "split_by_zero": (
        lambda s, t: s.split(t, 1, 0),
        "Invalid factor for split. Factor must be greater than 0. Factor = 0",
    ),
    "split_by_less": (
        lambda s, t: s.split(t, 1, -1),
        "Invalid factor for split. Factor must be greater than 0. Factor = -1",
    ),
    "split_beyond_32_bits": (lambda s, t: s.split(t, 1, 2**31), "split: no loop is that long"),
    "reorder_to_beyond": (
        lambda s, t: s.reorder(t, {0: 3}),
        "Reorder axes are not within the number of dimensions of the provided domain",
    ),
    "reorder_from_beyond": (
        lambda s, t: s.reorder(t, {3: 0}),
        "Reorder axes are not within the number of dimensions of the provided domain",
    ),
    "reorder_old_negative": (
        lambda s, t: s.reorder(t, {-4: 0}),
        'Found "old" position that\'s less than 0 even though already adjusted by nDims: -1',
    ),
    "reorder_new_negative": (
        lambda s, t: s.reorder(t, {0: -4}),
        'Found "new" position that\'s less than 0 even though already adjusted by nDims: -1',
    ),
    "rfactor_iteration": (_after_split([1]), "Cannot rfactor axes that are not reduction axes."),
    "rfactor_iteration_from_the_end": (
        _after_split([-3]),
        "Cannot rfactor axes that are not reduction axes.",
    ),
    "rfactor_all": (_after_split([2, 3]), "Must have at least one reduction axis not marked as rfactor."),
    "rejected_scheduler": (
        lambda s, t: s.schedule(SchedulerType.pointwise),
        "Scheduler _pointwise_ ***rejected*** because : cannot find reference tensor",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    schedule, fragment = MISTAKES[name]
    fd = _opened()
    with pytest.raises(ScheduleError) as caught:
        schedule(fd.sched, fd.t1)
    assert isinstance(caught.value, RuntimeError)
    assert fragment in str(caught.value)


@pytest.mark.parametrize("name", [n for n in MISTAKES if not n.startswith("rfactor")])
def test_a_mistake_leaves_the_schedule_as_it_was(name: str) -> None:
    schedule, _ = MISTAKES[name]
    fd = _opened()
    before = fd.sched.user_schedule_ir()
    with pytest.raises(ScheduleError):
        schedule(fd.sched, fd.t1)
    assert fd.sched.user_schedule_ir() == before
    _check_runs(fd)


def test_why_a_scheduler_does_not_take_it() -> None:
    accepted, reason = _opened().sched.can_schedule(SchedulerType.pointwise)
    assert not accepted
    assert reason.strip() == ("Scheduler _pointwise_ ***rejected*** because : cannot find reference tensor")


def _twice(dims: list[int]) -> Scheduling:
    def schedule(s: Any, t1: Any) -> Any:
        s.split(t1, 2, 4)
        s.split(t1, 2, 2)
        return s.rfactor(t1, dims)

    return schedule


VALID: dict[str, Scheduling] = {
    "merge": lambda s, t: s.merge(t, 0),
    "merge_from_the_end": lambda s, t: s.merge(t, -3),
    "split": lambda s, t: s.split(t, 1, 2),
    "split_last": lambda s, t: s.split(t, -1, 2),
    "split_outer": lambda s, t: s.split(t, 1, 3, False),
    "reorder_nothing": lambda s, t: s.reorder(t, {}),
    "reorder_to_itself": lambda s, t: s.reorder(t, {0: 0}),
    "reorder_swap": lambda s, t: s.reorder(t, {0: 1, 1: 0}),
    "reorder_from_the_end": lambda s, t: s.reorder(t, {-2: 0}),
    "rfactor": _after_split([2]),
    "rfactor_two": _twice([2, 4]),
    "rfactor_middle": _twice([3]),
}


def _check_runs(fd: SumOfCube, inline: bool = True) -> None:
    if inline:
        fd.sched.inline_most()
    fd._finalize_schedule(CUBE)
    (out,) = fd.execute(CUBE)
    assert_close(out, CUBE[0].double().sum(-1), 8)


@pytest.mark.parametrize("name", VALID)
def test_valid_calls(name: str) -> None:
    fd = _opened()
    VALID[name](fd.sched, fd.t1)
    _check_runs(fd)


# ---- intermediate tensors that are not inlined


class SumOfConstantCube(SumOfCube):
    """The same with constant sizes."""

    def definition(self) -> None:
        self.t0 = self.define_tensor([8, 8, 8], contiguity=True)
        self.t1 = self.ops.sum(self.t0, -1)
        self.add_output(self.t1)


RFACTORS = {name: schedule for name, schedule in VALID.items() if name.startswith("rfactor")}


@pytest.mark.parametrize("name", RFACTORS)
def test_a_partial_result_of_constant_size_needs_no_inlining(name: str) -> None:
    fd = SumOfConstantCube()
    fd._setup_schedule(CUBE, overwrite_existing_schedule=True)
    RFACTORS[name](fd.sched, fd.t1)
    _check_runs(fd, inline=False)


def _bound(axes: int) -> Scheduling:
    def schedule(s: Any, t1: Any) -> None:
        partial = _after_split([2])(s, t1)
        for axis, kind in list(enumerate((ParallelType.grid_x, ParallelType.block_x)))[:axes]:
            s.parallelize(partial, axis, kind)
            s.parallelize(t1, axis, kind)

    return schedule


@pytest.mark.parametrize(
    "schedule",
    [_bound(2), lambda s, t: s.set_memory_type(_after_split([2])(s, t), MemoryType.shared)],
    ids=["bound", "shared"],
)
def test_a_partial_result_of_any_size_is_bound_or_shared(schedule: Scheduling) -> None:
    fd = _opened()
    schedule(fd.sched, fd.t1)
    _check_runs(fd, inline=False)


@pytest.mark.parametrize("schedule", [*RFACTORS.values(), _bound(1)])
def test_registers_of_variable_size_are_inlined(schedule: Scheduling) -> None:
    fd = _opened()
    schedule(fd.sched, fd.t1)
    _check_runs(fd, inline=False)


class Normalized(FusionDefinition):
    """exp(x) / sum(exp(x)) over rows of any size."""

    def definition(self) -> None:
        self.x = self.define_tensor([-1, -1], contiguity=True)
        e = self.ops.exp(self.x)
        self.add_output(e / self.ops.sum(e, [1], keepdim=True))


def test_registers_of_variable_size_that_cannot_be_inlined_are_refused() -> None:
    fd = Normalized()
    x = torch.randn(3, 8)
    fd._setup_schedule([x], overwrite_existing_schedule=True)
    fd._finalize_schedule([x])
    with pytest.raises(ScheduleError) as caught:
        fd.execute([x])
    text = str(caught.value)
    assert "T1 is in registers, but its size is not constant: i1 elements a thread" in text
    assert re.search(r"given: axis 1, iS\d+{i1}$", text, re.MULTILINE)
    assert all(way in text for way in ("inline_most", "parallelize", "shared"))


# ---- after inlining


def _normalized() -> tuple[FusionDefinition, Any, list[torch.Tensor]]:
    """An automatic schedule of x / sum(x), which inlines what it binds to threads."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        fd.add_output(x / fd.ops.sum(x, [0, 1], keepdim=True))
    inputs = [torch.rand(3, 24)]
    fd._setup_schedule(inputs, overwrite_existing_schedule=True)
    fd.sched.schedule(SchedulerType.inner_persistent)
    return fd, x, inputs


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda s, x, load: s.parallelize_like(x), "is inside inlined loops and bound to threads"),
        (
            lambda s, x, load: s.parallelize(load, 0, ParallelType.serial),
            "parallelize: axis 0 of T0_copy is inside inlined loops and bound to threads",
        ),
        (lambda s, x, load: s.cache_after(load), "cache_after: T0_copy is inlined at 1 already"),
        (lambda s, x, load: s.recompute(load), "recompute: T0_copy is inlined at 1 already"),
        (lambda s, x, load: s.transform_like(x), "are inlined already"),
    ],
    ids=["parallelize_like", "parallelize", "cache", "recompute", "transform_like"],
)
def test_what_must_come_before_inlining(change: Callable[[Any, Any, Any], Any], message: str) -> None:
    fd, x, inputs = _normalized()
    load = next(t for t in fd.sched.tensors() if fd.sched.to_string(t).startswith("T0_copy_"))
    before = fd.sched.user_schedule_ir()
    with pytest.raises(ScheduleError) as caught:
        change(fd.sched, x, load)
    assert message in str(caught.value)
    assert fd.sched.user_schedule_ir() == before
    fd._finalize_schedule(inputs)
    (out,) = fd.execute(inputs)
    assert_close(out, inputs[0].double() / inputs[0].double().sum(), 72)


def test_axes_that_producers_are_inlined_in_stay_as_they_are() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        y = fd.ops.exp(x)
        z = fd.ops.neg(y)
        fd.add_output(z)
    fd._setup_schedule([torch.rand(4, 8)], overwrite_existing_schedule=True)
    fd.sched.inline_at(z, 1)
    fd.sched.split(z, 1, 4)
    with pytest.raises(ScheduleError, match=r"split: axis 0 of T2 is shared with T1, inlined at 1"):
        fd.sched.split(z, 0, 2)
    with pytest.raises(ScheduleError, match=r"reorder: moves axes of T2 inside its inlined position 1"):
        fd.sched.reorder(z, {0: 1})


def test_a_swizzle_takes_two_axes() -> None:
    fd = SumOfConstantCube()
    fd._setup_schedule(CUBE, overwrite_existing_schedule=True)
    with pytest.raises(ScheduleError, match="takes two different axes"):
        fd.sched.swizzle(fd.t1, 0, -3)


def test_inlining_most_leaves_tensors_that_share_no_loop_alone() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        var, mean = fd.ops.var_mean(x, [1], 0, True)
        fd.add_output((x - mean) * fd.ops.rsqrt(var + 1e-5))
    value = torch.rand(3, 72)
    fd._setup_schedule([value], overwrite_existing_schedule=True)
    fd.sched.parallelize(mean, -2, ParallelType.grid_z)
    fd.sched.inline_most()
    fd._finalize_schedule([value])
    with pytest.raises(ScheduleError, match=r"in registers|share a loop"):
        fd.execute([value])


@pytest.mark.parametrize("kind", [ParallelType.block_z, ParallelType.block_x])
def test_threads_beyond_the_limit_of_an_axis(kind: ParallelType) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], contiguity=True)
        y = fd.ops.exp(x)
        fd.add_output(y)
    value = torch.rand(100)
    fd._setup_schedule([value], overwrite_existing_schedule=True)
    fd.sched.parallelize(y, 0, kind)
    fd._finalize_schedule([value])
    if kind is ParallelType.block_x:
        assert_close(fd.execute([value])[0], value.double().exp())
        return
    with pytest.raises(ScheduleError, match=r"(?s)too many threads along one axis.*\(1024, 1024, 64\).*100"):
        fd.execute([value])


def test_a_range_that_leaves_nothing_changes_nothing() -> None:
    fd = _opened()
    with pytest.raises(ScheduleError, match="cannot have that size"):
        fd.sched.assume(fd.t0, 0, 5, 1)
    _check_runs(fd)
