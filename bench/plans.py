"""Kernels of the catalogue's and of drawn cases, made for the simulated H200 without a GPU: faults, and what
a change does to kernels.

A fault is an internal error, whether it is raised or logged (then other kernels serve the call), or a loop
that one thread of a block goes through while the others wait: loops that a schedule has left out. `--against`
takes the JSON file of an earlier run and lists the cases whose kernels differ: a change of structure leaves
all of them as they are.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from bench import selection
from bench.drawn import ALL_LAYOUTS
from bench.fusion_catalogue import CATALOGUE
from bench.operation import Inputs, Operation
from bench.operations import OPERATIONS
from bench.report import OUTPUT, Cell, environment, markdown_table, text_table, write
from bench.throughput import shape_text
from fusewright import FusionCache
from fusewright.cli.arguments import positive_seconds

HEADER = ("case", "shape", "kernels", "registers", "spilled bytes")
# A loop of many iterations, the first thing in what a condition on threads guards.
_GUARDED_LOOP = re.compile(
    r"if \((threadIdx_[xyz] == 0(?: && threadIdx_[xyz] == 0)*)\) \{\s+(?:#pragma unroll\s+)?"
    r"for \(int \w+ = 0; \w+ < (\w+);"
)
MANY_ITERATIONS = 32
# A kernel's name has a digest of Fusewright's own sources.
_NAMES = re.compile(r"(fusewright_\w+?)_[0-9a-f]{8}\b")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    selection.add_arguments(parser)
    parser.add_argument(
        "--seconds", type=positive_seconds, metavar="S", help="plan no case after so many seconds"
    )
    parser.add_argument("--against", type=Path, metavar="FILE", help="the JSON file of an earlier run")
    parser.add_argument(
        "--output", type=Path, default=OUTPUT / "plans", metavar="PATH", help="writes PATH.json and PATH.md"
    )


def run(arguments: argparse.Namespace) -> int:
    """Make the kernels of what the arguments select; 1 if there is a fault or a difference."""
    cases = selection.cases(arguments, (*OPERATIONS, *CATALOGUE), ALL_LAYOUTS)
    earlier = None if arguments.against is None else json.loads(arguments.against.read_text())["kernels"]
    kernels: dict[str, list[str]] = {}
    faults: dict[str, str] = {}
    rows: list[tuple[Cell, ...]] = []
    end = None if arguments.seconds is None else time.monotonic() + arguments.seconds
    for operation, shape in cases:
        if end is not None and time.monotonic() >= end:
            break
        name = f"{operation.name} {shape_text(shape)}"
        with _logged() as messages:
            try:
                made = made_kernels(operation, shape)
            except Exception as error:
                messages.append(f"{type(error).__name__}: {error}")
                made = []
            messages += filter(None, map(loop_of_one_thread, made))
        kernels[name] = [_digest(kernel) for kernel in made]
        rows.append(_cells(operation, shape, made))
        if messages:
            faults[name] = messages[0]
            print(f"{name}: {messages[0]}", flush=True)
    changed = [] if earlier is None else [n for n, each in kernels.items() if earlier.get(n, each) != each]
    content = {"environment": environment(), "kernels": kernels, "faults": faults, "changed": changed}
    write(arguments.output, content, markdown_table(HEADER, rows))
    spilling = [row for row in rows if row[-1]]
    if spilling:
        print(text_table(HEADER, spilling))
    print(f"{len(kernels)} of {len(cases)} cases; {len(spilling)} spill registers; {len(faults)} faults")
    if earlier is not None:
        known = sum(name in earlier for name in kernels)
        print(f"{len(changed)} of {known} cases have other kernels: {', '.join(changed) or 'none'}")
    return 1 if faults or changed else 0


def made_kernels(operation: Operation, shape: Sequence[int]) -> Sequence[Any]:
    """The kernels of a call with tensors that have no memory, compiled.

    Raises:
        UserError, InternalError: there are none.
    """
    with FakeTensorMode(allow_non_fake_inputs=True):
        inputs = operation.inputs(tuple(shape), Inputs(torch.device("cpu")))
    FusionCache.reset()
    kernels = operation.definition(inputs).kernels_for([_meta(tensor) for tensor in inputs], device="cuda")
    kernels.compile()
    return kernels


def _meta(tensor: torch.Tensor) -> torch.Tensor:
    """With the same sizes, strides and offset, which says how its address is aligned."""
    if not tensor.numel():
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    memory = torch.empty(last + 1 + tensor.storage_offset(), dtype=tensor.dtype, device="meta")
    return memory.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


@contextmanager
def _logged() -> Iterator[list[str]]:
    """Collects the errors that Fusewright logs in this block, which are shown nowhere else."""
    messages: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("fusewright")
    propagated, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated


def loop_of_one_thread(kernel: Any) -> str | None:
    """Says that one thread of each block alone goes through many iterations; None if none does."""
    for guard, end in _GUARDED_LOOP.findall(kernel.cuda_text):
        alone = set(re.findall("threadIdx_([xyz])", guard))
        others = (size for dim, size in zip("xyz", kernel.launch.block) if dim not in alone)
        if all(size == 1 for size in others) and not (end.isdecimal() and int(end) < MANY_ITERATIONS):
            return f"{kernel.name}: one thread of a block goes through {end} iterations"
    return None


def _digest(kernel: Any) -> str:
    text = _NAMES.sub(r"\1", f"{kernel.launch}\n{kernel.cuda_text}")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _cells(operation: Operation, shape: Sequence[int], kernels: Sequence[Any]) -> tuple[Cell, ...]:
    resources = [kernel.resources for kernel in kernels if kernel.resources is not None]
    return (
        operation.name,
        shape_text(tuple(shape)),
        ", ".join(kernel.scheduler for kernel in kernels),
        max((each.registers for each in resources), default=0),
        sum(each.spill_stores + each.spill_loads for each in resources),
    )
