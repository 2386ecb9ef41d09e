"""Scheduling by the user: fd.sched, params that can be edited, and schedules kept by input signature."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition, MemoryType, ParallelType, SchedulerType
from fusewright.core.errors import (
    ArgumentTypeError,
    DefinitionError,
    InputError,
    OptionError,
    ParamsError,
    ScheduleError,
)
from fusewright.core.options import Options
from fusewright.frontend.scheduling.params import EditableParams


class Sum(FusionDefinition):
    """exp of the sums over the last of three dimensions."""

    def definition(self) -> None:
        self.x = self.define_tensor([-1, -1, -1])
        self.total = self.ops.sum(self.x, -1)
        self.add_output(self.ops.exp(self.total))


def expected(x: torch.Tensor) -> torch.Tensor:
    return x.sum(-1).exp()


def inputs(target: torch.device | str = "cpu", n: int = 8) -> list[torch.Tensor]:
    return [torch.rand(n, 4, 8, device=target)]


class Opened:
    """A Sum with an open schedule."""

    def __init__(self) -> None:
        self.fd = Sum()
        self.fd._setup_schedule(inputs())


@pytest.fixture
def fd() -> Sum:
    return Opened().fd


def test_a_schedule_by_hand(target: torch.device) -> None:
    calls = []

    class ByHand(Sum):
        def schedule(self) -> None:
            calls.append(self)
            copy = self.sched.cache_after(self.x)
            self.sched.set_memory_type(copy, MemoryType.shared)
            self.total.merge(0)
            self.sched.split(self.total, 1, 4)
            partial = self.sched.rfactor(self.total, [1])
            assert self.sched.is_reduction(partial)
            assert not self.sched.is_reduction(copy)
            self.sched.transform_like(partial)
            self.sched.parallelize(partial, 0, ParallelType.grid_x)
            self.sched.parallelize(partial, 2, ParallelType.block_x)
            self.sched.parallelize_like(partial)
            self.sched.inline_most()

    given = inputs(target)
    fd = ByHand()
    for _ in range(2):
        torch.testing.assert_close(fd.execute(given)[0], expected(*given))
    assert calls == [fd]
    assert fd._exist_schedule(given)
    scheduled = fd.last_cuda_code()
    torch.testing.assert_close(fd.execute(given, override_user_schedule=True)[0], expected(*given))
    assert fd.last_cuda_code() != scheduled
    # Another object with the same definition writes its own, which makes the same kernel.
    other = ByHand()
    other.execute(given)
    assert calls == [fd, other]
    assert set(other._last_kernels()) == set(fd._last_kernels())
    # With profile=True it is written anew.
    other.execute(given, profile=True)
    assert calls == [fd, other, other]


def test_a_schedule_is_for_one_signature_of_inputs() -> None:
    fd = Opened().fd
    fd._finalize_schedule(inputs())
    assert fd._exist_schedule(inputs())
    assert not fd._exist_schedule(inputs(n=9))
    with pytest.warns(UserWarning, match="written anew"):
        fd._setup_schedule(inputs())


def test_a_schedule_that_fails_leaves_none_behind() -> None:
    class Bad(Sum):
        def schedule(self) -> None:
            self.sched.split(self.total, 7, 2)

    fd = Bad()
    with pytest.raises(ScheduleError):
        fd.execute(inputs())
    assert not fd._exist_schedule(inputs())
    (given,) = inputs()
    torch.testing.assert_close(fd.execute([given], override_user_schedule=True)[0], expected(given))


def test_a_schedule_attached_later(fd: Sum) -> None:
    def schedule() -> None:
        fd.sched.inline_most()

    fd.schedule = schedule  # type: ignore[method-assign]
    fd.schedule()
    fd._finalize_schedule(inputs())
    (given,) = inputs()
    torch.testing.assert_close(fd.execute([given])[0], expected(given))


def test_definition_is_closed_while_scheduling(fd: Sum) -> None:
    with pytest.raises(DefinitionError, match="Attempting to add to a completed definition"):
        fd.ops.exp(fd.x)


def test_text(fd: Sum) -> None:
    before = fd.sched.to_string(fd.total)
    fd.sched.reorder(fd.total, {0: 1})
    assert fd.sched.to_string(fd.total) != before
    assert "T1" in before
    assert fd.sched.to_string(fd.total) in fd.sched.user_schedule_ir()
    assert Sum().sched.user_schedule_ir() == "User schedule is not defined."


def test_keywords_of_the_reference(fd: Sum) -> None:
    fd.sched.split(arg=fd.total, dim=0, factor=2, inner_split=False)
    fd.sched.transform_like(fd.total, selected_tensors=[fd.x])
    fd.sched.parallelize_like(fd.total, selected_parallel_types={ParallelType.grid_x})
    fd.sched.inline_most(selected_tensors=[fd.total])
    fd.sched.split(fd.total, -1, 4)
    assert fd.sched.is_reduction(fd.sched.reduction_factor(fd.total, dims=[-1]))


# ---- which calls a schedule serves -------------------------------------------------------------------------


class Negated(FusionDefinition):
    """-x, scheduled as the pointwise scheduler does; counts how often."""

    rank = 1
    scheduled = 0

    def definition(self) -> None:
        self.add_output(-self.define_tensor([-1] * self.rank, True))

    def schedule(self) -> None:
        self.scheduled += 1
        self.sched.schedule(SchedulerType.pointwise)


def test_alignment_is_part_of_the_signature(target: torch.device) -> None:
    """A heuristic reads it: a tensor that starts elsewhere is not vectorized."""
    fd = Negated()
    whole = torch.randn(1025, device=target)
    aligned = whole[:1024].clone()
    for x, scheduled in ((aligned, 1), (whole[1:], 2), (aligned, 2), (whole[1:], 2)):
        torch.testing.assert_close(fd.execute([x])[0], -x)
        assert fd.scheduled == scheduled


def test_scalars_that_are_sizes_are_part_of_the_signature() -> None:
    class Filled(Negated):
        def definition(self) -> None:
            n = self.define_scalar(None, DataType.Int)
            value = self.define_scalar()
            self.add_output(self.ops.full([n], value, DataType.Float))

    fd = Filled()
    for n, value, scheduled in ((1024, 1.0, 1), (1024, 2.0, 1), (3, 1.0, 2)):
        assert torch.equal(fd.execute([n, value])[0].cpu(), torch.full((n,), value))
        assert fd.scheduled == scheduled


def test_simulated_gpu_is_part_of_the_signature() -> None:
    x = torch.ones(8)
    for device in ("h200", "l4"):
        fd = Negated(options=Options(sim_device=device))
        fd.execute([x])
        assert fd.scheduled == 1 and fd._exist_schedule([x])
        [kernel] = fd._last_kernels()
        assert kernel.hardware.arch == ("sm_90a" if device == "h200" else "sm_89")


def test_equal_schedules_of_many_shapes_share_one_kernel() -> None:
    fd = Negated()
    kernels = set()
    for n in range(1, 12):
        x = torch.randn(1024 * n)
        torch.testing.assert_close(fd.execute([x])[0], -x)
        kernels |= set(fd._last_kernels())
    assert fd.scheduled == 11 and len(kernels) == 1
    leaf = fd._finished()
    assert len(leaf.executor._settings._known) == 1
    assert len(leaf.user) == len(set(fd._schedules(leaf).values())) == 1


def test_schedules_with_other_compiler_settings_share_no_kernel() -> None:
    class Limited(Negated):
        def schedule(self) -> None:
            params: Any = self.sched.compute_pointwise_heuristics()
            params.cparams.maxrregcount = self.registers
            self.sched.schedule()

    fd = Limited()
    kernels = []
    for fd.registers in (32, 64):
        fd.execute([torch.ones(1024 * fd.registers)])
        kernels += fd._last_kernels()
    assert [kernel.params.cparams.maxrregcount for kernel in kernels] == [32, 64]
    first, second = (kernel.cuda_text.replace(kernel.name, "") for kernel in kernels)
    assert "__maxnreg__(32)" in first and kernels[0].name != kernels[1].name
    assert first.replace("__maxnreg__(32)", "__maxnreg__(64)") == second


def test_inputs_that_do_not_fit_are_named_before_anything_is_scheduled() -> None:
    fd = Negated()
    for given, problem in (([], "Expected 1 inputs"), ([3.0], "at::Tensor"), ([torch.ones(2, 2)], "1 dim")):
        with pytest.raises(RuntimeError, match=problem):
            fd.execute(given)
        assert not fd._exist_schedule(given)
    assert fd.scheduled == 0
    fd._setup_schedule([torch.ones(8)])
    with pytest.raises(InputError, match="Expected 1 inputs"):
        fd._finalize_schedule([])


def test_threads_write_their_schedules_one_after_another() -> None:
    """Also where `schedule` keeps things in attributes of its definition."""

    class Slow(Negated):
        rank = 2
        writing = 0

        def schedule(self) -> None:
            self.writing += 1
            assert self.writing == 1
            [x, out] = self.sched.tensors()
            copy = self.sched.cache_after(x)
            time.sleep(0.02)
            self.sched.merge(out, 0)
            time.sleep(0.02)
            self.sched.split(out, 0, 4)
            self.sched.transform_like(out)
            self.sched.parallelize(out, 1, ParallelType.block_x)
            self.sched.parallelize_like(out)
            time.sleep(0.02)
            self.sched.inline_most([copy])
            self.writing -= 1

    fd = Slow()
    inputs = [torch.randn(3, 4 + n // 2) for n in range(8)]  # each shape twice
    barrier = threading.Barrier(len(inputs))

    def call(x: torch.Tensor) -> torch.Tensor:
        barrier.wait()
        return fd.execute([x])[0]

    with ThreadPoolExecutor(len(inputs)) as pool:
        for x, out in zip(inputs, pool.map(call, inputs)):
            torch.testing.assert_close(out, -x)
    leaf = fd._finished()
    assert len(fd._schedules(leaf)) == 4
    assert len(leaf.user) == 1


# ---- automatic schedulers ----------------------------------------------------------------------------------


def test_which_schedulers_take_it(fd: Sum) -> None:
    assert SchedulerType.reduction in fd.sched.find_compatible_schedulers()
    assert fd.sched.can_schedule(SchedulerType.reduction) == (True, "")
    accepted, why = fd.sched.can_schedule(SchedulerType.pointwise)
    assert not accepted
    assert why.strip() == "Scheduler _pointwise_ ***rejected*** because : cannot find reference tensor"
    with pytest.raises(RuntimeError, match="Scheduler _pointwise_"):
        fd.sched.schedule(SchedulerType.pointwise)


@pytest.mark.parametrize("form", ["type", "computed", "edited", "params", "dict"])
def test_scheduling_automatically(form: str, target: torch.device) -> None:
    class Automatic(Sum):
        def schedule(self) -> None:
            if form == "type":
                self.sched.schedule(SchedulerType.reduction)
            elif form == "dict":
                self.sched.schedule({"scheduler": "reduction", "unroll_factor_inner_reduction": 1})
            else:
                params = self.sched.compute_heuristics(SchedulerType.reduction)
                if form == "edited":
                    params.unroll_factor_inner_reduction = 1
                    params.lparams.bdimx, params.lparams.bdimy = 64, 2
                self.sched.schedule(*([params.freeze()] if form == "params" else []))

    given = inputs(target)
    torch.testing.assert_close(Automatic().execute(given)[0], expected(*given))


def test_heuristics_are_computed_once(fd: Sum) -> None:
    with pytest.raises(ScheduleError, match="no computed heuristics"):
        fd.sched.schedule()
    fd.sched.compute_reduction_heuristics()
    with pytest.raises(ScheduleError, match="already"):
        fd.sched.compute_reduction_heuristics()


def test_edited_params_are_checked_by_path(fd: Sum) -> None:
    params: Any = fd.sched.compute_reduction_heuristics()
    frozen = params.freeze()
    assert params == frozen
    with pytest.raises(ParamsError, match="no_such_field"):
        params.no_such_field = 1
    with pytest.raises(ParamsError, match=r"`lparams\.bdimx`: expected int, got 'wide'"):
        params.lparams.bdimx = "wide"
    params.lparams.bdimx = 64
    assert params.freeze().lparams.bdimx == 64
    assert params != frozen
    assert isinstance(params.lparams, EditableParams)


def test_primitives_say_which_argument_is_wrong(fd: Sum) -> None:
    sched, x = fd.sched, fd.x
    for call, problem in (
        (lambda: sched.split(x, 0, 2.5), "factor must be int, not float"),
        (lambda: sched.split(x), "missing a required argument: 'dim'"),
        (lambda: sched.split(3, 0, 2), "tensor must be Tensor, not int"),
        (
            lambda: sched.reorder(arg=x, old2new=[1, 0]),
            "old2new must be dict of ints to ints, not list of int",
        ),
        (lambda: sched.parallelize(x, 0, "block"), "parallel_type must be ParallelType, not str"),
        (lambda: sched.inline_most([1]), "selected must be list of Tensors, not list of int"),
    ):
        with pytest.raises(ArgumentTypeError, match=problem):
            call()
    with pytest.raises(
        AttributeError, match=r"fd\.sched\.splt is not available .*\n(.*\n)?.*did you mean split"
    ):
        sched.splt(x, 0, 2)


# ---- what goes wrong stays where it went wrong


class ColumnSums(FusionDefinition):
    def definition(self) -> None:
        x = self.define_tensor([-1, -1], contiguity=True)
        e = self.ops.exp(x)
        self.sums = self.ops.sum(e, -1)
        self.add_output(e / self.ops.sum(e, -1, keepdim=True))
        self.add_output(self.sums)


class WrongColumnSums(ColumnSums):
    def schedule(self) -> None:
        self.sched.parallelize(self.sums, 0, ParallelType.grid_x)  # but not what e is computed by


class AutomaticColumnSums(ColumnSums):
    def schedule(self) -> None:
        self.sched.schedule(SchedulerType.inner_persistent)


def test_a_refused_schedule_is_not_kept_for_equal_definitions() -> None:
    x = torch.randn(4, 8)
    wrong = WrongColumnSums()
    for _ in range(2):
        with pytest.raises(ScheduleError):
            wrong.execute([x])
    for other in (AutomaticColumnSums(), ColumnSums(), FusionDefinition(wrong.id())):
        assert torch.allclose(other.execute([x])[1], x.exp().sum(-1))


def test_handles_of_another_definition_are_refused() -> None:
    with FusionDefinition() as other:
        theirs = other.ops.neg(other.define_tensor([-1, -1]))
        other.add_output(theirs)
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.exp(fd.define_tensor([-1, -1])))
    fd._setup_schedule([torch.ones(2, 2)])
    for call in (
        lambda s: s.split(theirs, 0, 2),
        lambda s: s.to_string(theirs),
        lambda s: s.is_reduction(theirs),
    ):
        with pytest.raises(DefinitionError, match="belongs to another definition"):
            call(fd.sched)


def test_schedulers_that_are_not_there_reject() -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.exp(fd.define_tensor([-1, -1])))
    fd._setup_schedule([torch.ones(2, 2)])
    for type_ in (SchedulerType.none, SchedulerType.matmul, SchedulerType.no_op):
        taken, reason = fd.sched.can_schedule(type_)
        assert not taken and reason.strip() == (
            f"Scheduler _{type_.name}_ ***rejected*** because : there is no such scheduler (yet)"
        )
    with pytest.raises(OptionError, match="unknown scheduler"):
        fd.sched.can_schedule("nothing")
