"""Host time: of calls of a fusion of one kernel, repeated and of a new size, and of a first call by stages.

On a GPU the kernels are tiny, so that the host is what takes the time: `CALLS` calls, then one
synchronisation, stay below the depth of a stream's queue. Without a GPU, launches do nothing in place of the
simulator's, which times the Python part: the key of the inputs, the look-up, the allocation of the output
and the packing of arguments.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest import mock

import torch

from bench.operation import Inputs, Operation
from bench.operations import selected
from bench.report import OUTPUT, Cell, environment, markdown_table, text_table, write
from fusewright import FusionCache, FusionDefinition
from fusewright.core.once import clear_shared_caches
from fusewright.core.tracing import Tracer
from fusewright.cuda import driver
from fusewright.cuda.driver import ArgLayout, Launcher, Library, PackedArgs
from fusewright.cuda.nvrtc import NvrtcOptions, compile_cubin
from fusewright.runtime.targets import SimulatedTarget

CALLS = 512
ROUNDS = 10
WARM_UP = 50
SHAPE = (64, 64)
# Calls of as many sizes, each the first of its size; all are served by the kernel of the first few.
NEW_SIZES = 200
OPERATIONS = ("silu_mul", "softmax", "rmsnorm")
# The first call that is taken apart, at a shape whose run takes no time.
FIRST_CALL = "layernorm"
# A kernel whose launch is timed alone.
EMPTY = """
extern "C" __global__ void
empty(const float* a, const float* b, float* c, long long n, long long m, float s) {}
"""
HEADER = ("operation", "shape", "fusewright us", "eager us", "inductor us", "fusewright, new size, us")


@dataclass(frozen=True)
class Row:
    """Host time of one call, in microseconds; None where it was not measured."""

    operation: str
    shape: tuple[int, ...]
    fusewright_us: float
    eager_us: float | None
    inductor_us: float | None
    new_size_us: float

    def cells(self) -> tuple[Cell, ...]:
        shape = "x".join(map(str, self.shape))
        return (self.operation, shape, self.fusewright_us, self.eager_us, self.inductor_us, self.new_size_us)


def call_us(call: Callable[[], object]) -> float:
    """Median over rounds of the host time of one call."""
    on_gpu = torch.cuda.is_available()
    for _ in range(WARM_UP):
        call()
    times = []
    for _ in range(ROUNDS):
        if on_gpu:
            torch.cuda.synchronize()
        start = perf_counter()
        for _ in range(CALLS):
            call()
        times.append((perf_counter() - start) / CALLS)
    if on_gpu:
        torch.cuda.synchronize()
    return statistics.median(times) * 1e6


def _no_launch(*_: object) -> None:
    """Stands for the launch of a kernel."""


def without_simulator() -> AbstractContextManager[Any]:
    """Within it, kernels for CPU tensors are compiled as ever, and launching them does nothing."""
    return mock.patch.object(SimulatedTarget, "launcher", lambda *_: _no_launch)


def repeated_call(operation: Operation, device: torch.device, with_compile: bool) -> Row:
    inputs = operation.inputs(SHAPE, Inputs(device))
    fd = operation.definition(inputs)
    on_gpu = device.type == "cuda"
    eager = inductor = None
    if on_gpu:
        eager = call_us(lambda: operation.reference(*inputs))
    if on_gpu and with_compile:
        torch._dynamo.reset()
        compiled = torch.compile(operation.reference, dynamic=False)
        inductor = call_us(lambda: compiled(*inputs))
    ours = call_us(lambda: fd.execute(inputs))
    return Row(operation.name, SHAPE, ours, eager, inductor, new_size_us(operation, fd, device))


def new_size_us(operation: Operation, fd: FusionDefinition, device: torch.device) -> float:
    """Median over sizes of the host time of the first call of a size that needs no new kernel."""
    times = []
    for rows in range(SHAPE[0] + 1, SHAPE[0] + 1 + NEW_SIZES):
        inputs = operation.inputs((rows, *SHAPE[1:]), Inputs(device))
        start = perf_counter()
        fd.execute(inputs)
        times.append(perf_counter() - start)
    return statistics.median(times) * 1e6


def launch_us() -> float:
    """Host time of a launch alone: an empty kernel with six arguments."""
    version = (driver.device_attribute(0, f"COMPUTE_CAPABILITY_{part}") for part in ("MAJOR", "MINOR"))
    image = compile_cubin(EMPTY, NvrtcOptions(f"sm_{''.join(map(str, version))}")).image
    kernel = Library(image).kernel("empty", 0)
    launcher = Launcher(
        kernel, (1, 1, 1), (32, 1, 1), 0, PackedArgs(ArgLayout(("P", "P", "P", "q", "q", "f")))
    )
    stream = torch.cuda.current_stream(0).cuda_stream
    return call_us(partial(launcher, stream, (0, 0, 0, 1024, 1024, 1.0)))


def first_call(device: torch.device) -> Tracer:
    """The stages of the first call of a layer norm in this process, with nothing on disk to help."""
    [operation] = selected([FIRST_CALL])
    inputs = operation.inputs(SHAPE, Inputs(device))
    FusionCache.reset()
    clear_shared_caches()
    tracer = Tracer()
    with tracer.stage("first call"), mock.patch.dict(os.environ, FUSEWRIGHT_DISABLE="nvrtc_caching"):
        with tracer.stage("define"):
            fd = operation.definition(inputs)
            number = fd.id()
            assert number is not None
            executor = FusionCache.get().schedules(number).executor
        program = executor.compile(inputs, tracer=tracer)
        for kernel in program.kernels:  # on a GPU it has them already
            kernel.cubin(tracer=tracer)
        with tracer.stage("run"):
            program.run(inputs)
            if device.type == "cuda":
                torch.cuda.synchronize()
    return tracer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument(
        "--output", type=Path, default=OUTPUT / "host", metavar="PATH", help="writes PATH.json and PATH.md"
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure and print; always 0, unless something raises."""
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    print(", ".join(f"{name} {value}" for name, value in environment().items()), flush=True)
    if not on_gpu:
        print("no GPU: the Python part of a call alone, with launches that do nothing", flush=True)
    rows: list[Row] = []
    with nullcontext() if on_gpu else without_simulator():
        # The second of two definitions: the first pays for what a process loads once.
        warm, tracer = first_call(device), first_call(device)
        for operation in selected(OPERATIONS):
            rows.append(repeated_call(operation, device, on_gpu and not arguments.no_compile))
    bare = launch_us() if on_gpu else None
    cells = [row.cells() for row in rows]
    content = {
        "environment": environment(),
        "rows": [asdict(row) for row in rows],
        "launch_us": bare,
        "first_call": tracer.to_dict(),
        "first_call_of_the_process": warm.to_dict(),
    }
    print(f"\nfirst call of a {FIRST_CALL}, the second of the process:\n{tracer.table()}\n")
    write(arguments.output, content, _markdown(cells, tracer, bare))
    print(f"\nhost time of a repeated call:\n{text_table(HEADER, cells)}")
    if bare is not None:
        print(f"bare driver launch: {bare:.2f} us")
    return 0


def _markdown(cells: Sequence[Sequence[Cell]], tracer: Tracer, bare: float | None) -> str:
    parts = [markdown_table(HEADER, cells)]
    if bare is not None:
        parts.append(f"Bare driver launch: {bare:.2f} us.")
    parts.append(f"First call of a {FIRST_CALL}:\n\n```\n{tracer.table()}\n```")
    return "\n\n".join(parts)
