"""A user's own schedulers, given to a definition."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fusewright import FusionDefinition, SchedulerType
from fusewright.core.enums import ParallelType
from fusewright.core.errors import OptionError, RejectedError, ScheduleError
from fusewright.core.hardware import HardwareInfo, described
from fusewright.ir import Fusion, Reduction
from fusewright.schedule import Schedule
from fusewright.schedulers import (
    Facts,
    HeuristicParams,
    Planner,
    Proposal,
    Registry,
    Reject,
    default_registry,
    propose,
)


class Serial:
    """One thread a row; counts how often its heuristic is made and asked."""

    type = "serial rows"
    params_type = HeuristicParams

    def __init__(self) -> None:
        self.prepared = self.asked = 0

    def prepare(self, fusion: Fusion) -> Planner | Reject:
        if any(isinstance(node, Reduction) for node in fusion.nodes):
            return Reject("there is a reduction")
        self.prepared += 1

        def always(facts: Facts, hardware: HardwareInfo) -> Proposal:
            self.asked += 1
            return Proposal(HeuristicParams(reason="always"))

        return always

    def apply(self, schedule: Schedule, params: Any) -> None:
        [output] = schedule.fusion.output_tensors()
        schedule.parallelize(output, 0, ParallelType.grid_x)
        schedule.transform_like(output)
        schedule.parallelize_like(output)


class Doubled(FusionDefinition):
    def definition(self) -> None:
        self.add_output(self.define_tensor([-1, -1], True) * 2.0)


def with_serial() -> tuple[Serial, Registry]:
    scheduler, registry = Serial(), default_registry().copy()
    registry.register(scheduler, before=SchedulerType.pointwise)
    return scheduler, registry


def test_its_schedulers_make_the_kernels_and_new_sizes_ask_the_heuristic_only() -> None:
    scheduler, registry = with_serial()
    fd = Doubled(registry=registry)
    for rows in (2, 3):
        value = torch.randn(rows, 4)
        [out] = fd.execute([value])
        assert torch.equal(out, value * 2)
        assert "fusewright_serial_rows_" in fd.last_cuda_code()
    assert (scheduler.prepared, scheduler.asked) == (1, 2)


def test_equal_definitions_share_records_but_not_kernels() -> None:
    own, builtin = Doubled(registry=with_serial()[1]), Doubled()
    value = torch.randn(2, 4)
    own.execute([value])
    builtin.execute([value])
    assert own.id() == builtin.id()
    assert "fusewright_serial_rows_" in own.last_cuda_code()
    assert "fusewright_pointwise" in builtin.last_cuda_code()


def test_a_registry_that_changes_counts_as_it_is_at_the_call() -> None:
    registry = default_registry().copy()
    fd = Doubled(registry=registry)
    fd.execute([torch.randn(2, 4)])
    assert "fusewright_pointwise" in fd.last_cuda_code()
    registry.register(Serial())
    fd.execute([torch.randn(2, 4)])
    assert "fusewright_serial_rows_" in fd.last_cuda_code()


def test_an_empty_registry_takes_nothing() -> None:
    with pytest.raises(ScheduleError, match="Can not find a scheduler to schedule fusion segment"):
        Doubled(registry=Registry()).execute([torch.randn(2, 4)])


def test_sched_asks_the_registry() -> None:
    fd = Doubled(registry=with_serial()[1])
    inputs = [torch.randn(2, 4)]
    fd._setup_schedule(inputs)
    assert fd.sched.find_compatible_schedulers() == ["serial rows", SchedulerType.pointwise]
    assert fd.sched.can_schedule("serial rows") == (True, "")
    fd.sched.schedule("serial rows")
    fd._finalize_schedule(inputs)
    [out] = fd.execute(inputs)
    assert torch.equal(out, inputs[0] * 2)


def test_a_name_that_no_scheduler_has() -> None:
    fd = Doubled(registry=with_serial()[1])
    fd._setup_schedule([torch.randn(2, 4)])
    with pytest.raises(OptionError, match="unknown scheduler") as caught:
        fd.sched.schedule("rows")
    assert "reduction, inner_outer, transpose, serial rows, pointwise, inner_persistent" in str(caught.value)


def test_what_it_rejects_it_says_by_its_name() -> None:
    registry = Registry([Serial()])
    with FusionDefinition(registry=registry) as fd:
        fd.add_output(fd.ops.sum(fd.define_tensor([-1, -1], True), [1]))
    with pytest.raises(ScheduleError, match=r"Scheduler _serial rows_ \*\*\*rejected\*\*\* because"):
        fd.execute([torch.randn(2, 4)])
    fd._setup_schedule([torch.randn(2, 4)])
    with pytest.raises(RejectedError, match="there is a reduction"):
        fd.sched.schedule("serial rows")


@pytest.mark.parametrize("builtin", list(default_registry()), ids=lambda s: s.type.name)
def test_a_planner_remembers_no_call(builtin: Any) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True)
        if builtin.type is SchedulerType.pointwise:
            fd.add_output(x + 1.0)
        elif builtin.type is SchedulerType.transpose:
            fd.add_output(fd.ops.permute(x, [1, 0]) + 1.0)
        elif builtin.type is SchedulerType.scan:
            fd.add_output(fd.ops.cumsum(x, 1))
        elif builtin.type is SchedulerType.expr_eval:
            fd.add_output(fd.ops.sort(x)[0])
        elif builtin.type is SchedulerType.outer_persistent:
            fd.add_output(x - fd.ops.sum(x, [0], keepdim=True))
        elif builtin.type is SchedulerType.inner_outer:
            fd.add_output(fd.ops.sum(x, [1]))
            fd.add_output(fd.ops.sum(x, [0]))
        elif builtin.type is SchedulerType.inner_outer_persistent:
            fd.add_output(x - fd.ops.sum(x, [1], keepdim=True))
            fd.add_output(fd.ops.sum(x, [0]))
        else:
            total = fd.ops.sum(x, [1], keepdim=True)
            fd.add_output(total if builtin.type is SchedulerType.reduction else x - total)
    leaf = fd._leaf
    assert leaf is not None
    fusion, hardware = leaf.executor.segments().segments[0].fusion, described("h200")
    planner = builtin.prepare(fusion)
    for rows, columns in ((1, 4096), (5000, 7), (12, 300)):
        sizes = dict(zip((a.extent for a in fusion.inputs[0].logical), (rows, columns)))
        facts = Facts(sizes, ((columns, 1),), (16,))
        answer = planner(facts, hardware)
        if isinstance(answer, Reject):
            with pytest.raises(RejectedError):
                propose(builtin, fusion, facts, hardware)
        else:
            assert answer.params == propose(builtin, fusion, facts, hardware)
