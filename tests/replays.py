"""What `--replay` asks for: every automatic schedule of a test, printed and pasted, gives the same kernel.

Kernels are checked where the compiler makes them, schedules that tests lower themselves where these are
complete, and calls of definitions once more: their text is the definition's, and uses its names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from inspect import signature
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import pytest

from fusewright import FusewrightError, FusionDefinition, Schedule
from fusewright.core.tracing import SILENT
from fusewright.cuda.printer import print_kernel
from fusewright.frontend.scheduling.workbench import schedule_text
from fusewright.host import FinishedSchedule, SegmentSchedules
from fusewright.ir import Fusion
from fusewright.kernel.text import kernel_text
from fusewright.lower import LowerOptions, lower
from fusewright.runtime.compiled_kernel import CompiledKernel
from fusewright.runtime.compiler import KernelCompiler


class ReplayCheck:
    """Compares each kernel with what its printed schedule makes.

    Attributes:
        kernels, schedules, definitions: how many were replayed: kernels of the compiler, other schedules,
            whole calls.
        differs: the first that gave something else in this test.
    """

    def __init__(self) -> None:
        self.kernels = self.schedules = self.definitions = 0
        self.differs: AssertionError | None = None
        self._seen: WeakSet[Schedule] = WeakSet()
        self._called: set[tuple[str, ...]] = set()
        self._active = self._compiling = False

    @contextmanager
    def attached(self) -> Iterator[None]:
        """While this lasts, what compilers and definitions make is checked."""
        compile_kernel, execute = KernelCompiler.compile, FusionDefinition._execute
        complete = Schedule.complete

        def completed(schedule: Schedule) -> None:
            complete(schedule)
            if not self._compiling:
                self._run(lambda: self._check_schedule(schedule))

        def compiled(compiler: KernelCompiler, fusion: Fusion, *args: Any, **options: Any) -> CompiledKernel:
            self._compiling = True
            try:
                kernel = compile_kernel(compiler, fusion, *args, **options)
            finally:
                self._compiling = False
            if kernel.schedule is not None and kernel.schedule not in self._seen:
                self._seen.add(kernel.schedule)
                self._run(lambda: self._check_kernel(fusion, kernel))
            return kernel

        def executed(fd: FusionDefinition, inputs: Any, *args: Any, **options: Any) -> Any:
            outputs = execute(fd, inputs, *args, **options)
            given = signature(execute).bind(fd, inputs, *args, **options)
            given.apply_defaults()
            asks = given.arguments
            # What is scheduled here is scheduled for all outputs, under the definition's own options.
            is_plain = asks["views"] and not (asks["enable"] or asks["disable"] or asks["schedules"])
            # Who brings schedulers may count what these are asked.
            if is_plain and not (fd.segments or fd._is_scheduled or fd._registry is not None):
                self._run(lambda: self._check_call(fd, inputs))
            return outputs

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Schedule, "complete", completed)
            patch.setattr(KernelCompiler, "compile", compiled)
            patch.setattr(FusionDefinition, "_execute", executed)
            yield

    def raise_differing(self) -> None:
        """AssertionError if a schedule of this test did not give its kernel again."""
        differs, self.differs = self.differs, None
        if differs is not None:
            raise differs

    def _run(self, check: Callable[[], None]) -> None:
        if self._active:  # what a check itself makes
            return
        self._active = True
        try:
            check()
        except Exception as error:
            if self.differs is None:
                self.differs = AssertionError(f"a printed schedule is not what made its kernel: {error}")
                self.differs.__cause__ = error
        finally:
            self._active = False

    def _check_kernel(self, fusion: Fusion, kernel: CompiledKernel) -> None:
        again = Schedule(fusion)
        pasted(kernel.schedule_text)(SimpleNamespace(sched=again))
        assert again.to_python() == kernel.schedule_text
        same_kernel(again, kernel)
        self.kernels += 1

    def _check_schedule(self, schedule: Schedule) -> None:
        text, again = schedule.to_python(), Schedule(schedule.original)
        pasted(text)(SimpleNamespace(sched=again))
        assert again.to_python() == text
        wanted = _lowered_text(schedule)
        if wanted is not None:
            assert _lowered_text(again) == wanted
            self.schedules += 1

    def _check_call(self, fd: FusionDefinition, inputs: Any) -> None:
        program = None if fd._ran is None else fd._ran.last_program
        if program is None or not program.launches:
            return
        leaf = fd._complete()
        text = schedule_text(leaf, program.launches)
        call = text, *(kernel.name for kernel in program.kernels)
        if call in self._called:
            return
        self._called.add(call)
        twin = fd._plain_twin()
        twin._registry, twin._given_options = fd._registry, fd._given_options
        check_pasted(twin, inputs, text, program)
        self.definitions += 1


def check_pasted(fd: FusionDefinition, inputs: Any, text: str, program: Any) -> None:
    """Schedules `fd` by the text that was printed of `program`: kernels and text are the same."""
    fd._setup_schedule(inputs)
    pasted(text)(fd)
    assert fd.sched.to_python() == text
    assert fd._open_schedule is not None
    written = fd._open_schedule.finished()
    assert isinstance(written, SegmentSchedules)
    kernels = {part.op.segment: part.op.kernel for launch in program.launches for part in launch.parts}
    assert [index for index, _ in written.by_index] == sorted(kernels)
    for index, own in written.by_index:
        assert isinstance(own, FinishedSchedule)
        same_kernel(own.schedule, kernels[index])


def pasted(text: str) -> Callable[[Any], None]:
    """The `schedule(fd)` of a printed text, run as a user's file that imports the public names."""
    names: dict[str, Any] = {}
    exec("from fusewright import *", names)
    exec(text, names)
    return names["schedule"]  # type: ignore[no-any-return]


def same_kernel(schedule: Schedule, kernel: CompiledKernel) -> None:
    """AssertionError if a schedule is lowered to another kernel, its name and limit of registers aside."""
    lowered = lower(schedule.fusion, LowerOptions(kernel.name, kernel.index_dtype), SILENT).kernel
    found = replace(lowered, max_registers=kernel.kernel.max_registers)
    assert kernel_text(found) == kernel_text(kernel.kernel)
    if not found.max_registers:  # the text has the limit that the hardware allows
        assert print_kernel(found).text == kernel.full_text


def _lowered_text(schedule: Schedule) -> str | None:
    """The kernel; None: there is none, as where a test breaks a schedule."""
    try:
        return kernel_text(lower(schedule.fusion, LowerOptions("kernel"), SILENT).kernel)
    except FusewrightError:
        return None
