"""GPU time of the operations beside torch eager, torch.compile and a copy of the same bytes.

Every figure is a median (`bench.timing`), with the L2 cache flushed before each run. The copy
reads and writes as many bytes in all as the operation has to, on this device in this run. An operation is
timed only after its result was found right against torch in double precision.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from bench.ahead import ONE_COMPILER, Case, add_jobs, compile_ahead, compile_part, compiled_by_torch
from bench.goals import goal
from bench.operation import Inputs, Operation, Shape, as_tuple
from bench.operations import selected
from bench.plot import bars
from bench.report import OUTPUT, Cell, environment, markdown_table, text_table, write
from bench.selection import TYPES
from bench.timing import Call, Copies, median_us, medians_us
from fusewright import FusionCache

# Modes of torch.compile: kernels by heuristics, and the fastest of many. Neither replays graphs.
DEFAULT = "default"
AUTOTUNE = "max-autotune-no-cudagraphs"
OURS, COPY = "fusewright", "copy"
HEADER = (
    "operation",
    "shape",
    "fusewright us",
    "eager us",
    "inductor us",
    "max-autotune us",
    "copy us",
    "of copy",
    "goal",
    "to inductor",
)


@dataclass(frozen=True)
class Row:
    """One operation at one shape. Times in microseconds.

    bytes: the least that has to move. first_call_s: define, schedule, find the kernel on disk and run. error:
    the largest, as a fraction of what is allowed. eager_us, inductor_us: None if not asked for; the latter,
    too, if torch.compile failed. autotuned_us: the same of torch.compile in the mode `AUTOTUNE`.
    """

    operation: str
    shape: Shape
    bytes: int
    fusewright_us: float
    eager_us: float | None
    inductor_us: float | None
    copy_us: float
    first_call_s: float
    error: float
    autotuned_us: float | None = None

    @property
    def label(self) -> str:
        return f"{self.operation} {shape_text(self.shape)}"

    @property
    def of_copy(self) -> float:
        """The fraction of a copy's bandwidth that is reached."""
        return self.copy_us / self.fusewright_us

    @property
    def to_inductor(self) -> float | None:
        """Time relative to torch.compile's, in the faster of its modes that ran: below 1 is faster."""
        peers = [us for us in (self.inductor_us, self.autotuned_us) if us is not None]
        return self.fusewright_us / min(peers) if peers else None

    def cells(self) -> tuple[Cell, ...]:
        compiled = (self.inductor_us, self.autotuned_us)
        times = (self.fusewright_us, self.eager_us, *compiled, self.copy_us)
        wanted = goal(self.operation, self.shape)
        return (self.operation, shape_text(self.shape), *times, self.of_copy, wanted, self.to_inductor)

    def record(self) -> dict[str, Any]:
        """The row as JSON, with the ratios that two runs are compared by."""
        wanted = goal(self.operation, self.shape)
        return asdict(self) | {"of_copy": self.of_copy, "goal": wanted, "to_inductor": self.to_inductor}


def shape_text(shape: Shape) -> str:
    return "x".join(map(str, shape))


def measure(
    operation: Operation,
    shape: Shape,
    copies: Copies,
    modes: Collection[str],
    dtype: torch.dtype = torch.bfloat16,
    medians: Callable[[Mapping[str, Call]], dict[str, float]] = medians_us,
    with_eager: bool = True,
) -> Row:
    """Run, check and time one operation, in turns with torch.compile in these modes and a copy.

    Args:
        medians: times of `OURS`, `COPY` and the modes that work.

    Raises:
        AssertionError: the result is wrong.
    """
    inputs = operation.inputs(shape, Inputs(torch.device("cuda"), dtype=dtype))
    # A definition that has seen another shape has general kernels. torch.compile is told one shape, too.
    FusionCache.reset()
    torch.cuda.synchronize()
    start = time.perf_counter()
    fd = operation.definition(inputs, dtype)
    outputs = fd.execute(inputs)
    torch.cuda.synchronize()
    first_call = time.perf_counter() - start
    error = operation.check(shape, inputs, outputs)
    moved = operation.least_bytes(inputs, as_tuple(outputs))
    del outputs
    torch.cuda.empty_cache()
    calls: dict[str, Call] = {OURS: lambda: fd.execute(inputs), COPY: copies.call(moved)}
    times = medians({**calls, **compiled_by_torch(operation, inputs, modes)})
    return Row(
        operation.name,
        shape,
        moved,
        times[OURS],
        median_us(lambda: operation.reference(*inputs)) if with_eager else None,
        times.get(DEFAULT),
        times[COPY],
        first_call,
        error,
        times.get(AUTOTUNE),
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only", default="", metavar="NAME,...", help="these operations alone, or those whose names begin so"
    )
    parser.add_argument("--quick", action="store_true", help="the first shape of each operation")
    parser.add_argument(
        "--no-compile", action="store_true", help="leave torch.compile out (it compiles for minutes)"
    )
    parser.add_argument(
        "--max-autotune",
        action="store_true",
        help=f"time torch.compile in the mode {AUTOTUNE} too (it compiles for longer)",
    )
    parser.add_argument(
        "--dtype", choices=sorted(TYPES), default="bfloat16", help="type of inputs and results (bfloat16)"
    )
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="begin no operation after so many seconds"
    )
    add_jobs(parser)
    parser.add_argument("--plot", action="store_true", help="also writes PATH.svg: a bar an operation")
    parser.add_argument(
        "--output",
        type=Path,
        default=OUTPUT / "operations",
        metavar="PATH",
        help="writes PATH.json and PATH.md",
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure what the arguments select; 1 if an operation failed or there is no GPU."""
    operations = selected([name for name in arguments.only.split(",") if name])
    if not torch.cuda.is_available():
        print("bench operations: torch sees no GPU here, and GPU times need one; `python -m bench host` runs")
        return 1
    cases = [
        (operation, shape)
        for operation in operations
        for shape in (operation.shapes[:1] if arguments.quick else operation.shapes)
    ]
    modes = [*(() if arguments.no_compile else (DEFAULT,)), *((AUTOTUNE,) if arguments.max_autotune else ())]
    dtype = TYPES[arguments.dtype]
    if arguments.compile_part is not None:
        compile_part(cases, arguments, dtype, modes)
        return 0
    print(", ".join(f"{name} {value}" for name, value in environment().items()), flush=True)
    _compile_ahead(arguments)
    rows, failures, left = measured(
        cases, arguments.seconds, lambda case, copies: measure(*case, copies, modes, dtype), _shown
    )
    content = {
        "environment": environment(),
        "dtype": arguments.dtype,
        "rows": [row.record() for row in rows],
        "failures": failures,
        "not_reached": left,
    }
    cells = [row.cells() for row in rows]
    write(arguments.output, content, markdown_table(HEADER, cells))
    if arguments.plot:
        title = f"speed, of a copy of as many bytes ({arguments.dtype}, {environment().get('device')})"
        bars_of = [(row.label, row.of_copy, goal(row.operation, row.shape)) for row in rows]
        arguments.output.with_suffix(".svg").write_text(bars(title, bars_of), encoding="utf-8")
    print()
    print(text_table(HEADER, cells))
    print(summary(rows))
    for label in left:
        print(f"not reached in {arguments.seconds:g} s: {label}")
    print_failures(failures)
    return 1 if failures else 0


def _compile_ahead(arguments: argparse.Namespace) -> None:
    """Compile ahead; if torch.compile tunes, then with Triton's cache shared and Inductor's not.

    Processes that tune side by side disturb each other's times: what they compiled serves the one that
    tunes alone on the GPU, what they chose does not.
    """
    flags = {
        "--quick": arguments.quick,
        "--no-compile": arguments.no_compile,
        "--max-autotune": arguments.max_autotune,
    }
    command = ["operations", "--only", arguments.only, "--dtype", arguments.dtype]
    command += [flag for flag, given in flags.items() if given]
    if not arguments.max_autotune:
        return compile_ahead(command, arguments.jobs)
    if "TRITON_CACHE_DIR" not in os.environ:
        os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp(prefix="fusewright-bench-triton-")
    os.environ |= ONE_COMPILER
    with tempfile.TemporaryDirectory(prefix="fusewright-bench-inductor-") as choices:
        compile_ahead(command, arguments.jobs, {"TORCHINDUCTOR_CACHE_DIR": choices})


def measured(
    cases: Sequence[Case], seconds: float, one: Callable[[Case, Copies], Row], shown: Callable[[Row], str]
) -> tuple[list[Row], list[dict[str, str]], list[str]]:
    """The rows in turn, each printed when it is known; those that failed; those that no time was left for."""
    copies = Copies(torch.device("cuda"))
    rows: list[Row] = []
    failures: list[dict[str, str]] = []
    left: list[str] = []
    started = time.monotonic()
    for case in cases:
        name, shape = case[0].name, shape_text(case[1])
        if time.monotonic() - started > seconds:
            left.append(f"{name} {shape}")
            continue
        try:
            rows.append(one(case, copies))
        except Exception as error:
            traceback.print_exc(limit=-3)
            message = f"{type(error).__name__}: {error}"
            failures.append({"operation": name, "shape": shape, "error": message})
            continue
        print(shown(rows[-1]), flush=True)
    return rows, failures, left


def print_failures(failures: Sequence[Mapping[str, str]]) -> None:
    for failure in failures:
        print(f"FAILED {failure['operation']} {failure['shape']}: {failure['error'].splitlines()[0][:160]}")


def _shown(row: Row) -> str:
    line = text_table(HEADER, [row.cells()]).splitlines()[1]
    return f"{line}  first call {row.first_call_s:.3f} s, error {row.error:.2f} of allowed"


def summary(rows: Sequence[Row]) -> str:
    """Geometric means, minima and how many rows reach their goals, as a few lines."""
    if not rows:
        return "nothing was measured"
    lines = [_spread("of a copy's speed", {row.label: row.of_copy for row in rows}, min)]
    ratios = {row.label: row.to_inductor for row in rows if row.to_inductor is not None}
    if ratios:
        lines.append(_spread("of torch.compile's time", ratios, max))
    reached = sum(row.of_copy >= goal(row.operation, row.shape) for row in rows)
    lines.append(f"{reached} of {len(rows)} rows reach their goal")
    return "\n".join(lines)


def _spread(what: str, ratios: Mapping[str, float], worst: Callable[..., str]) -> str:
    mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
    name = worst(ratios, key=lambda label: ratios[label])
    return f"{mean:.3f} {what} in geometric mean; worst {ratios[name]:.3f} ({name})"
