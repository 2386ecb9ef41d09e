"""`fusewright demo`: every stage of two fusions, from the definition to a checked result."""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from rich.console import Console
from rich.rule import Rule
from rich.syntax import Syntax
from rich.text import Text

from fusewright.cli.fusions import EXAMPLES, Example
from fusewright.core.options import Options
from fusewright.core.serialization import fields_text, to_dict
from fusewright.core.tracing import Tracer
from fusewright.cuda.nvrtc import Cubin, Resources
from fusewright.frontend import FusionCache, FusionDefinition
from fusewright.runtime.compiled_kernel import CompiledKernel
from fusewright.runtime.hardware import hardware_of
from fusewright.tune.measure import Clock

# Rows and columns: enough for a GPU's bandwidth to show; what the simulator runs in well under a second.
GPU_SIZE, SIMULATOR_SIZE = (16384, 4096), (64, 2048)
# A result in bfloat16 differs from the exact one by at most half a unit in the last place (2^-8 of its size)
# and by what float arithmetic loses before that rounding, which may also move a result across a tie.
ALLOWED_RELATIVE, ALLOWED_ABSOLUTE = 1.01 * 2.0**-8, 2.0**-18
THEME = "ansi_dark"


@dataclass(frozen=True)
class KernelReport:
    """One kernel of a fusion, as the compiler made it. resources: of the assembler, for `arch`.

    compile_seconds: in NVRTC when the cubin was made, which may be in the disk cache since then.
    """

    name: str
    scheduler: str
    params: Any
    reason: str
    schedule: str
    cuda: str
    arch: str
    resources: Resources
    compile_seconds: float

    def to_dict(self) -> dict[str, Any]:
        facts = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {**facts, "params": to_dict(self.params), "resources": to_dict(self.resources)}


@dataclass(frozen=True)
class Bandwidth:
    """Of a repeated call on a GPU. bytes: read and written at least. copy_seconds: of a copy of as many."""

    bytes: int
    seconds: float
    copy_seconds: float

    @property
    def gbs(self) -> float:
        return self.bytes / self.seconds / 1e9

    @property
    def of_copy(self) -> float:
        return self.copy_seconds / self.seconds

    def to_dict(self) -> dict[str, float]:
        return {**dataclasses.asdict(self), "gbs": self.gbs, "of_copy": self.of_copy}


@dataclass(frozen=True)
class Report:
    """What happened to one fusion. Seconds; `error` is the largest difference from torch in double precision.

    stages: of the first call, without the run itself. error_of_allowed: 1 is the most that a rounding to
    bfloat16 explains.
    """

    title: str
    target: str
    inputs: tuple[str, ...]
    definition: str
    kernels: tuple[KernelReport, ...]
    stages: dict[str, dict[str, float | int]]
    first_call_seconds: float
    run_seconds: float
    error: float
    error_of_allowed: float
    stage_table: str = field(repr=False)
    bandwidth: Bandwidth | None = None

    @property
    def correct(self) -> bool:
        return self.error_of_allowed <= 1

    def to_dict(self) -> dict[str, Any]:
        facts = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "stage_table"}
        bandwidth = self.bandwidth.to_dict() if self.bandwidth is not None else None
        kernels = [kernel.to_dict() for kernel in self.kernels]
        return {**facts, "kernels": kernels, "bandwidth": bandwidth, "correct": self.correct}


def run_example(example: Example, size: tuple[int, int], device: torch.device) -> Report:
    """Define, schedule, compile and run one fusion, and compare it with torch."""
    inputs = example.inputs(size, device)
    hardware = hardware_of(device, Options.from_environment())
    tracer = Tracer()
    with tracer.stage("first call"):
        with tracer.stage("define"):
            fd = example.define()
            executor = FusionCache.get().schedules(_id(fd)).executor
        program = executor.compile(inputs, tracer=tracer)
        # On a GPU the program holds loaded kernels already; the simulator needs no machine code, the report
        # does.
        cubins = [kernel.cubin(tracer=tracer) for kernel in program.kernels]
    start = time.perf_counter()
    [output] = fd.execute(inputs)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    run_seconds = time.perf_counter() - start
    schedules = [each.schedule_text for each in fd.kernels_for(inputs) if each.kernel is not None]
    error, of_allowed = _errors(output, example.reference(*(tensor.double() for tensor in inputs)))
    return Report(
        title=example.title,
        target=hardware.name if device.type == "cuda" else f"simulated {hardware.name}",
        inputs=tuple(f"{_dtype(t)}{list(t.shape)}" for t in inputs),
        definition=repr(fd),
        kernels=tuple(map(_kernel_report, program.kernels, schedules, cubins)),
        stages=tracer.to_dict(),
        first_call_seconds=tracer.stages["first call"].seconds,
        run_seconds=run_seconds,
        error=error,
        error_of_allowed=of_allowed,
        stage_table=tracer.table(),
        bandwidth=_bandwidth(fd, inputs, output) if device.type == "cuda" else None,
    )


def _id(fd: FusionDefinition) -> int:
    number = fd.id()
    assert number is not None  # the definition is complete
    return number


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _kernel_report(kernel: CompiledKernel, schedule: str, cubin: Cubin) -> KernelReport:
    return KernelReport(
        kernel.name,
        kernel.scheduler,
        kernel.params,
        kernel.reason,
        schedule,
        kernel.cuda_text,
        cubin.arch,
        cubin.resources[kernel.name],
        cubin.compile_seconds,
    )


def _errors(output: torch.Tensor, exact: torch.Tensor) -> tuple[float, float]:
    """The largest error, and the largest relative to what is allowed; infinity if something is not finite."""
    difference = (output.double() - exact).abs()
    of_allowed = difference / (ALLOWED_ABSOLUTE + ALLOWED_RELATIVE * exact.abs())
    error, relative = difference.max().item(), of_allowed.max().item()
    return (error, relative) if error == error else (float("inf"), float("inf"))


def _bandwidth(fd: FusionDefinition, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> Bandwidth:
    moved = sum(t.numel() * t.element_size() for t in (*inputs, output))
    clock = Clock(output.device)
    return Bandwidth(moved, clock.median_seconds(lambda: fd.execute(inputs)), clock.copy_seconds(moved))


# ---- printing ----------------------------------------------------------------------------------------------


def demo(console: Console, *, as_json: bool) -> bool:
    """Run the examples and print what happened; whether all results are right."""
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    if not on_gpu:
        # The simulator's steps are short: waiting for threads of torch costs more than they bring, on a busy
        # machine a hundred times more.
        torch.set_num_threads(1)
    reports = []
    for example in EXAMPLES:
        reports.append(run_example(example, GPU_SIZE if on_gpu else SIMULATOR_SIZE, device))
        if not as_json:
            _show(console, reports[-1])
    if as_json:
        print(json.dumps([report.to_dict() for report in reports], indent=2))
    else:
        _show_summary(console, reports)
    return all(report.correct for report in reports)


def _show(console: Console, report: Report) -> None:
    console.print(Rule(Text(report.title, style="bold"), align="left"))
    _section(console, "definition", f"inputs: {', '.join(report.inputs)}")
    _code(console, report.definition, "python")
    for kernel in report.kernels:
        _section(console, "scheduler", kernel.scheduler)
        # The reason, a field of the params, is shown by itself.
        console.print(Text(fields_text(dataclasses.replace(kernel.params, reason=""))))
        console.print(Text(f"reason: {kernel.reason}"), soft_wrap=True)
        _section(console, "schedule", "the primitives that the scheduler called; edit and replay them")
        _code(console, kernel.schedule, "python")
        _section(console, "CUDA", kernel.name)
        _code(console, kernel.cuda, "cuda")
        _section(
            console,
            "resources",
            f"NVRTC for {kernel.arch}, {kernel.compile_seconds * 1e3:.0f} ms: {kernel.resources}",
        )
    _section(console, "first call", "where its time goes")
    console.print(Text(report.stage_table))
    _section(console, "run", f"on {report.target}")
    for line in _result_lines(report):
        console.print(Text(line), soft_wrap=True)
    console.print()


def _result_lines(report: Report) -> list[str]:
    verdict = "right" if report.correct else "WRONG"
    lines = [
        f"{report.run_seconds * 1e3:.1f} ms; largest error against torch in double {report.error:.2g}, "
        f"{report.error_of_allowed:.2f} of what rounding to bfloat16 allows: {verdict}"
    ]
    if report.bandwidth is not None:
        b = report.bandwidth
        lines.append(
            f"repeated: {b.seconds * 1e6:.1f} us, {b.gbs:.0f} GB/s, {b.of_copy:.1%} of the speed of a "
            f"device-to-device copy of the same {b.bytes / 1e6:.0f} MB ({b.copy_seconds * 1e6:.1f} us)"
        )
    return lines


def _show_summary(console: Console, reports: list[Report]) -> None:
    console.print(Rule(Text("summary", style="bold"), align="left"))
    for report in reports:
        kernels = f"{len(report.kernels)} kernel{'s' if len(report.kernels) > 1 else ''}"
        lines = [f"{report.title}: {kernels}, first call {report.first_call_seconds * 1e3:.0f} ms"]
        for line in (*lines, *(f"  {line}" for line in _result_lines(report))):
            console.print(Text(line, style="" if report.correct else "bold red"), soft_wrap=True)


def _section(console: Console, name: str, text: str) -> None:
    console.print()
    console.print(Text.assemble((name, "bold cyan"), "  ", text), soft_wrap=True)


def _code(console: Console, text: str, language: str) -> None:
    """Highlighted in a terminal, as it is elsewhere: a line is never cut or padded."""
    text = text.strip("\n")
    shown = Text(text)
    if console.is_terminal:
        shown = Syntax("", language, theme=THEME, background_color="default").highlight(text)
        shown.rstrip()
    console.print(shown, soft_wrap=True)
