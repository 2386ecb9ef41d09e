"""Which kernels serve a call: faults, rejections and splits of proposals."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fusewright import FusionDefinition
from fusewright.core.errors import InternalError, RejectedError, ScheduleError, SchedulerError
from fusewright.schedulers import (
    InnerPersistentScheduler,
    PointwiseScheduler,
    ReductionScheduler,
    Registry,
    Reject,
    default_registry,
)
from fusewright.schedulers.cost import CostModel
from fusewright.segment.decision import Decision
from tests.host.fusions import Definition


class Fault:
    """Makes `apply` of a built-in scheduler fail for fusions that `fails` holds for, as a fault would."""

    def __init__(self, monkeypatch, scheduler, fails):
        original = scheduler.apply

        def apply(this, schedule, params):
            if fails(schedule.fusion):
                raise AssertionError("planted fault")
            original(this, schedule, params)

        monkeypatch.setattr(scheduler, "apply", apply)


def labels(fusion):
    return {node.label for node in fusion.nodes}


@pytest.mark.faults
def test_fault_of_a_built_in_scheduler_is_logged_and_other_kernels_serve(monkeypatch, caplog):
    Fault(monkeypatch, InnerPersistentScheduler, lambda fusion: True)
    executor = softmax(*default_registry())
    executor.repro = lambda inputs: f"script for {len(inputs)} inputs"
    x = torch.randn(5, 100)
    torch.testing.assert_close(executor.execute([x])[0], x.softmax(1))
    assert "inner_persistent" not in {kernel.scheduler for kernel in executor.kernels_for([x])}
    [record] = caplog.records
    assert record.name == "fusewright" and record.levelname == "ERROR"
    assert "inner_persistent scheduler proposed a kernel for T" in record.message
    assert "planted fault" in record.message and "script for 1 inputs" in record.message
    caplog.clear()
    torch.testing.assert_close(executor.execute([x + 1])[0], x.softmax(1))
    assert not caplog.records  # the program is bound


@pytest.mark.faults
def test_fault_where_only_one_scheduler_takes_the_nodes_keeps_them_apart(monkeypatch, caplog):
    Fault(monkeypatch, PointwiseScheduler, lambda fusion: {"exp", "sin"} <= labels(fusion))
    d = Definition()
    d.output(d.sin(d.exp(d.neg(d.tensor()))))
    executor = d.executor()
    x = torch.randn(5, 100)
    torch.testing.assert_close(executor.execute([x])[0], x.neg().exp().sin())
    assert len(executor.kernels_for([x])) > 1 and len(caplog.records) == 1


@pytest.mark.faults
def test_a_fault_beside_what_the_user_schedules(monkeypatch, caplog):
    """The other segments are partitioned anew; an error of the user's own params stays one."""
    Fault(monkeypatch, PointwiseScheduler, lambda fusion: {"exp", "sin"} <= labels(fusion))
    with FusionDefinition() as fd:
        x, w = fd.define_tensor([-1, -1], True), fd.define_tensor([-1, -1], True)
        product = fd.ops.matmul(fd.ops.softmax(x, 1), w)
        fd.add_output(fd.ops.sin(fd.ops.exp(product)))
    inputs = [torch.randn(5, 100), torch.randn(100, 8)]
    schedules = {0: {"cparams": {"maxrregcount": 64}}}
    [out] = fd.execute(inputs, schedules=schedules)
    torch.testing.assert_close(out, (inputs[0].softmax(1) @ inputs[1]).exp().sin())
    assert len(caplog.records) == 1 and len(fd._last_kernels()) == 3
    assert fd._last_kernels()[0].register_limit == 64
    with pytest.raises(InternalError, match="AssertionError: planted fault"):
        fd.execute(inputs, schedules={2: {}})


@pytest.mark.faults
def test_a_fault_whose_other_kernels_take_what_the_user_schedules(monkeypatch, caplog):
    """Without the kernel that holds a row, its sums share one with the sum over columns."""
    Fault(monkeypatch, InnerPersistentScheduler, lambda fusion: True)
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True)
        fd.add_output(fd.ops.softmax(x, 1))
        fd.add_output(fd.ops.sum(x, [0]))
    value = torch.randn(64, 100)
    for _ in range(2):
        with pytest.raises(ScheduleError, match="segment 1 is in no partition whose kernels can all be made"):
            fd.execute([value], schedules={1: {}})
    assert "planted fault" in caplog.records[0].message
    torch.testing.assert_close(fd.execute([value])[0], value.softmax(1))


@pytest.mark.faults
def test_fault_that_nothing_avoids_is_an_internal_error(monkeypatch):
    Fault(monkeypatch, PointwiseScheduler, lambda fusion: "exp" in labels(fusion))
    d = Definition()
    d.output(d.exp(d.tensor()))
    executor = d.executor()
    executor.repro = lambda inputs: f"script for {len(inputs)} inputs"
    with pytest.raises(InternalError, match="cannot be made: planted fault") as error:
        executor.execute([torch.randn(5, 100)])
    assert error.value.repro == "script for 1 inputs"


def test_a_fault_of_the_partition_is_an_internal_error_and_loses_nothing(monkeypatch):
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        fd.add_output(fd.ops.sum(x * 2.0, [0]))
        fd.add_output(fd.ops.sum(x * 3.0, [1]))
    value = torch.randn(5, 100)

    def faulty(self):
        raise KeyError("planted fault")

    with monkeypatch.context() as patch:
        patch.setattr(Decision, "run", faulty)
        for call in (fd.execute, fd.kernels_for):
            with pytest.raises(InternalError, match=r"KeyError: 'planted fault'(?s:.*)import torch") as error:
                call([value])
            assert isinstance(error.value.__cause__, KeyError)
    torch.testing.assert_close(fd.execute([value])[1], (value * 3.0).sum(1))


def test_sizes_that_a_planner_rejects_go_to_others():
    class Short(InnerPersistentScheduler):
        def prepare(self, fusion):
            planner = super().prepare(fusion)

            def rejecting(facts, hardware):
                return Reject("long rows") if max(facts.sizes.values()) > 64 else planner(facts, hardware)

            return planner if isinstance(planner, Reject) else rejecting

    executor = softmax(ReductionScheduler(), PointwiseScheduler(), Short())
    for length, several in ((32, False), (100, True)):
        x = torch.randn(5, length)
        torch.testing.assert_close(executor.execute([x])[0], x.softmax(1))
        assert (len(executor.kernels_for([x])) > 1) == several
    with pytest.raises(RejectedError, match=r"_inner_persistent_ .*long rows"):
        softmax(Short()).execute([torch.randn(5, 100)])


@pytest.mark.parametrize(
    "answer, planned, message",
    [
        (None, None, "failed in prepare: expected a planner or Reject, got None"),
        ("planner", None, "failed in planner: expected Proposal or Reject, got None"),
    ],
)
def test_wrong_answers_of_a_registered_scheduler(answer, planned, message):
    class Wrong(PointwiseScheduler):
        def prepare(self, fusion):
            return answer and (lambda facts, hardware: planned)

    d = Definition()
    d.output(d.neg(d.tensor()))
    with pytest.raises(SchedulerError, match=message):
        d.executor(Registry([Wrong()])).execute([torch.randn(2, 4)])


class Declines(InnerPersistentScheduler):
    """Estimates that rows of more than 64 elements take long."""

    def prepare(self, fusion):
        planner = super().prepare(fusion)

        def declining(facts, hardware):
            proposal = planner(facts, hardware)
            if max(facts.sizes.values()) <= 64:
                return proposal
            return replace(proposal, estimate=CostModel(fusion).estimate(facts, hardware, speed=1e-6))

        return planner if isinstance(planner, Reject) else declining


def softmax(*schedulers):
    d = Definition()
    x = d.tensor()
    e = d.exp(d.sub(x, d.reduced("max", x)))
    d.output(d.div(e, d.reduced("sum", e)))
    return d.executor(Registry(list(schedulers)))


def test_declined_sizes_are_cut_up_and_others_are_not(target):
    executor = softmax(ReductionScheduler(), PointwiseScheduler(), Declines())
    for length, several in ((32, False), (100, True), (33, False), (120, True)):
        x = torch.randn(5, length, device=target)
        [out] = executor.execute([x])
        torch.testing.assert_close(out, x.softmax(1))
        names = [kernel.scheduler for kernel in executor.kernels_for([x])]
        assert ("inner_persistent" not in names) == several and (len(names) > 1) == several


def test_declined_sizes_that_no_other_scheduler_takes(target):
    executor = softmax(Declines())
    x = torch.randn(5, 100, device=target)
    torch.testing.assert_close(executor.execute([x])[0], x.softmax(1))
    assert [kernel.scheduler for kernel in executor.kernels_for([x])] == ["inner_persistent"]


def softmaxes(count, *schedulers):
    """Of as many inputs; no two share a kernel."""
    d = Definition()
    for _ in range(count):
        x = d.tensor()
        e = d.exp(d.sub(x, d.reduced("max", x)))
        d.output(d.div(e, d.reduced("sum", e)))
    return d.executor(Registry(list(schedulers)))


def test_equal_declines_are_a_trial_of_one_and_of_the_rest_and_sizes_of_their_class_cost_none():
    executor = softmaxes(4, ReductionScheduler(), PointwiseScheduler(), Declines())
    partitions = executor._partitions.without(frozenset())
    for length in (100, 110):
        kernels = executor.compile([torch.randn(3, length + i) for i in range(4)]).kernels
        assert "inner_persistent" not in {kernel.scheduler for kernel in kernels}
        [[made]] = partitions._classes.values()
        assert [trial.kept for trial in made.trials if "without" in trial.change] == [True, True]


def test_declines_that_nothing_else_takes_stay():
    executor = softmaxes(4, Declines())
    for length in (100, 110):
        kernels = executor.compile([torch.randn(3, length + i) for i in range(4)]).kernels
        assert [kernel.scheduler for kernel in kernels] == ["inner_persistent"] * 4


class NoExponentials:
    """Of a scheduler that takes none, so that a softmax cannot be cut up."""

    def prepare(self, fusion):
        if any(getattr(node, "label", "") == "exp" for node in fusion.nodes):
            return Reject("an exponential")
        return super().prepare(fusion)


class PlainReductions(NoExponentials, ReductionScheduler):
    pass


class PlainPointwise(NoExponentials, PointwiseScheduler):
    pass


def test_one_decline_is_cut_up_next_to_one_that_cannot_be():
    d = Definition()
    x, y = d.tensor(), d.tensor()
    d.output(d.div(x, d.reduced("sum", x)))
    e = d.exp(d.sub(y, d.reduced("max", y)))
    d.output(d.div(e, d.reduced("sum", e)))
    executor = d.executor(Registry([PlainReductions(), PlainPointwise(), Declines()]))
    a, b = torch.rand(3, 100), torch.randn(3, 120)  # sums of a are far from 0
    outputs = executor.execute([a, b])
    torch.testing.assert_close(outputs, [a / a.sum(1, keepdim=True), b.softmax(1)])
    names = sorted(kernel.scheduler for kernel in executor.kernels_for([a, b]))
    assert names == ["inner_persistent", "pointwise", "reduction"]


def test_error_of_a_scheduler_is_not_taken_for_a_rejection():
    class Broken(PointwiseScheduler):
        def prepare(self, fusion):
            raise ValueError("broken plug-in")

    executor = softmax(Declines(), Broken())
    with pytest.raises(SchedulerError, match="_pointwise_ failed in prepare: ValueError: broken plug-in"):
        executor.execute([torch.randn(5, 100)])


def test_blocks_share_rows_that_no_block_holds(monkeypatch):
    monkeypatch.setenv("FUSEWRIGHT_SIM_DEVICE", "a100")  # no clusters, which hold such rows
    executor = softmax(*default_registry())
    for rows, length, several in (
        (2, 90_000, True),
        (200, 200_000, True),
        (200, 20_000, False),
    ):
        kernels = executor.compile([torch.empty(rows, length)]).kernels
        gdimy = max(kernel.params.lparams.gdimy for kernel in kernels)
        assert (len(kernels) > 1 or gdimy > 1) == several
    x = torch.randn(2, 90_000)
    torch.testing.assert_close(executor.execute([x])[0], x.softmax(1))
