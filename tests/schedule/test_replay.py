"""The trace of every automatic schedule, replayed or printed as Python and run, gives the same kernel."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fusewright import FusionDefinition
from fusewright.core.tracing import Tracer
from fusewright.cuda.printer import print_kernel
from fusewright.host.executor import FusionExecutor
from fusewright.kernel.text import kernel_text
from fusewright.lower import LowerOptions, lower
from fusewright.runtime.compiler import CompiledKernel
from fusewright.schedule import Schedule, replay
from fusewright.schedulers import default_registry
from fusewright.schedulers.base import type_name
from fusewright.segment import Segment
from tests.integration.cases import CASES, Case, rows_and_columns

SEGMENTED = Case("rows_and_columns", rows_and_columns, ((50, 70),), torch.exp)
FUSIONS = [*CASES, SEGMENTED]


def scheduled(case: Case) -> list[tuple[Segment, CompiledKernel]]:
    """The kernels of a fusion, not run, with the segments that they are of."""
    executor = FusionExecutor(case.definition()._finished().fusion)
    program = executor.compile(case.inputs(torch.device("cpu")))
    return [(launch.segment, launch.op.kernel) for launch in program.launches if launch.segment is not None]


def _same_kernel(schedule: Schedule, kernel: CompiledKernel) -> None:
    lowered = lower(schedule.fusion, LowerOptions(kernel.name, kernel.index_dtype), Tracer())
    assert kernel_text(lowered.kernel) == kernel_text(kernel.kernel)
    assert print_kernel(lowered.kernel).text == kernel.full_text


@pytest.mark.parametrize("case", FUSIONS, ids=str)
def test_printed_schedule(case: Case) -> None:
    for segment, kernel in scheduled(case):
        names: dict[str, Any] = {}
        exec("from fusewright import *\nfrom fusewright.core.enums import *", names)
        exec(kernel.schedule_python, names)
        schedule = Schedule(segment.fusion)
        names["schedule"](schedule)
        assert schedule.to_python() == kernel.schedule_python
        _same_kernel(schedule, kernel)


@pytest.mark.parametrize("case", FUSIONS, ids=str)
def test_replayed_trace(case: Case) -> None:
    for segment, kernel in scheduled(case):
        original = Schedule(segment.fusion)
        segment.scheduler.apply(original, kernel.params)
        again = replay(segment.fusion, original.trace())
        assert again.trace() == original.trace()
        _same_kernel(again, kernel)


def test_every_scheduler_is_covered() -> None:
    used = {name for case in CASES for name in case.schedulers}
    assert used == {type_name(scheduler.type) for scheduler in default_registry()}


def test_an_edited_schedule_gives_another_kernel() -> None:
    """The printed schedule is what makes the kernel: a change in the text shows."""
    case = next(c for c in CASES if c.name == "select")
    ((segment, kernel),) = scheduled(case)
    edited = kernel.schedule_python.replace(", 128)", ", 64)")
    assert edited != kernel.schedule_python
    names: dict[str, Any] = {}
    exec("from fusewright import *\nfrom fusewright.core.enums import *", names)
    exec(edited, names)
    schedule = Schedule(segment.fusion)
    names["schedule"](schedule)
    lowered = lower(schedule.fusion, LowerOptions(kernel.name, kernel.index_dtype), Tracer())
    assert print_kernel(lowered.kernel).text != kernel.full_text


def test_a_trace_belongs_to_its_fusion() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        fd.add_output(x + 1.0)
    ((_, kernel),) = scheduled(next(c for c in CASES if c.name == "softmax_5x1000"))
    names: dict[str, Any] = {}
    exec("from fusewright import *\nfrom fusewright.core.enums import *", names)
    exec(kernel.schedule_python, names)
    with pytest.raises(RuntimeError, match=r"there is no tensor T\d+ in this fusion"):
        names["schedule"](Schedule(fd._finished().fusion))
