"""Every automatic schedule, replayed, or printed and run as a user's `schedule()`, gives the same kernel."""

from __future__ import annotations

import re
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fusewright import FusionDefinition
from fusewright.core.enums import MemoryType, SchedulerType
from fusewright.core.tracing import Tracer
from fusewright.cuda.printer import print_kernel
from fusewright.host.executor import FusionExecutor
from fusewright.host.program.programs import BoundProgram
from fusewright.lower import LowerOptions, lower
from fusewright.runtime.compiled_kernel import CompiledKernel
from fusewright.schedule import Call, Schedule, TensorRef, replay
from fusewright.schedulers import apply, default_registry
from fusewright.schedulers.base import type_name
from fusewright.segment import Segment
from tests.integration.cases import CASES, Case, rows_and_columns
from tests.replays import check_pasted, pasted, same_kernel

SEGMENTED = Case("rows_and_columns", rows_and_columns, ((50, 70),), torch.exp)
FUSIONS = [*CASES, SEGMENTED]


def scheduled(case: Case) -> list[tuple[Segment, CompiledKernel]]:
    """The kernels of a fusion, not run, with the segments that they are of."""
    executor = FusionExecutor(case.definition()._finished().fusion)
    return kernels_of(executor.compile(case.inputs(torch.device("cpu"))))


def kernels_of(program: BoundProgram) -> list[tuple[Segment, CompiledKernel]]:
    return [
        (part.segment, part.op.kernel)
        for launch in program.launches
        for part in launch.parts
        if part.segment is not None
    ]


@pytest.mark.sampled(0.5)
@pytest.mark.parametrize("case", FUSIONS, ids=str)
def test_printed_schedule_and_replayed_trace(case: Case) -> None:
    """Each kernel of a definition has the schedule that the definition prints, and no other."""
    fd, inputs = case.definition(), case.inputs(torch.device("cpu"))
    program = fd._finished().executor.compile(inputs)
    check_pasted(fd, inputs, fd.schedule_for(inputs), program)
    for segment, kernel in kernels_of(program):
        original = Schedule(segment.fusion)
        apply(segment.scheduler, original, kernel.params, kernel.hardware)
        original.complete()
        again = replay(segment.fusion, original.trace())
        assert again.trace() == original.trace()
        same_kernel(again, kernel)


def test_every_scheduler_that_makes_kernels_is_covered() -> None:
    used = {name for case in CASES for name in case.schedulers} - {"horizontal"}  # of several kernels
    torch_computes = {type_name(SchedulerType.expr_eval)}
    assert used == {type_name(scheduler.type) for scheduler in default_registry()} - torch_computes


def test_an_edited_schedule_gives_another_kernel() -> None:
    """The printed schedule is what makes the kernel: a change in the text shows."""
    case = next(c for c in CASES if c.name == "select")
    ((segment, kernel),) = scheduled(case)
    edited = kernel.schedule_text.replace(", 128)", ", 64)")
    assert edited != kernel.schedule_text
    schedule = Schedule(segment.fusion)
    pasted(edited)(SimpleNamespace(sched=schedule))
    lowered = lower(schedule.fusion, LowerOptions(kernel.name, kernel.index_dtype), Tracer())
    assert print_kernel(lowered.kernel).text != kernel.full_text


@pytest.mark.parametrize("name", ["layer_norm", "layer_norm_bf16", "softmax_5x1000"])
def test_a_line_added_to_a_printed_schedule_moves_no_name(name: str) -> None:
    """One more copy shifts the numbers of what is made after it; the names go on to mean what they did."""
    segment, kernel = scheduled(next(c for c in CASES if c.name == name))[0]
    first_load = re.search(r"    (t\d+) = fd\.sched\.cache_after\(t\d+\)\n", kernel.schedule_text)
    assert first_load is not None
    edited = kernel.schedule_text.replace(
        first_load[0], f"{first_load[0]}    fd.sched.cache_after({first_load[1]})\n"
    )
    original, schedule = Schedule(segment.fusion), Schedule(segment.fusion)
    pasted(kernel.schedule_text)(SimpleNamespace(sched=original))
    pasted(edited)(SimpleNamespace(sched=schedule))
    number = int(first_load[1][1:])
    others = [
        call for call in schedule.trace() if call.args != (TensorRef(number),) or call.method != "cache_after"
    ]
    assert others == [_renumbered(call, number) for call in original.trace()]


def test_a_member_named_like_a_keyword_prints_as_python() -> None:
    segment, _ = scheduled(next(c for c in CASES if c.name == "layer_norm"))[0]
    schedule, again = Schedule(segment.fusion), Schedule(segment.fusion)
    schedule.set_memory_type(schedule.tensor(0), MemoryType.global_)
    pasted(schedule.to_python())(SimpleNamespace(sched=again))
    assert again.trace() == schedule.trace()


def _renumbered(value: Any, last: int) -> Any:
    """`value` with one more tensor after the one numbered `last`."""
    if isinstance(value, TensorRef):
        return TensorRef(value.number + (value.number > last))
    if isinstance(value, Call):
        return Call(*(_renumbered(getattr(value, field.name), last) for field in fields(value)))
    return tuple(_renumbered(item, last) for item in value) if isinstance(value, tuple) else value


def test_a_trace_belongs_to_its_fusion() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        fd.add_output(x + 1.0)
    ((_, kernel),) = scheduled(next(c for c in CASES if c.name == "softmax_5x1000"))
    with pytest.raises(RuntimeError, match=r"there is no tensor T\d+ in this fusion"):
        pasted(kernel.schedule_text)(SimpleNamespace(sched=Schedule(fd._finished().fusion)))
