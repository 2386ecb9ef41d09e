"""Kernels that are compiled ahead of being timed, by several processes, into the caches on disk."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial

import torch

from bench.operation import Inputs, Operation, Shape, Tensors
from bench.timing import Call
from fusewright import FusionCache
from fusewright.cli.arguments import positive_count

Case = tuple[Operation, Shape]
# torch.compile starts processes of its own, and there is one of ours for each core already.
ONE_COMPILER = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}


def add_jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--jobs",
        type=positive_count,
        default=os.cpu_count(),
        metavar="N",
        help="processes that compile ahead (default: one for each core)",
    )
    parser.add_argument("--compile-part", type=int, help=argparse.SUPPRESS)


def compile_ahead(command: Sequence[str], jobs: int, variables: Mapping[str, str] | None = None) -> None:
    """Run `python -m bench COMMAND --compile-part I` in `jobs` processes with these environment variables
    besides, and wait for all.
    """
    started = time.monotonic()
    own = [sys.executable, "-m", "bench", *command, "--jobs", str(jobs), "--compile-part"]
    variables = os.environ | ONE_COMPILER | (variables or {})
    parts = [subprocess.Popen([*own, str(part)], env=variables) for part in range(jobs)]
    for part in parts:
        part.wait()
    print(f"compiled in {time.monotonic() - started:.0f} s", flush=True)


def compile_part(
    cases: Sequence[Case], arguments: argparse.Namespace, dtype: torch.dtype, modes: Collection[str] = ()
) -> None:
    """Run the cases of one of `jobs` processes once, by Fusewright and torch.compile in these modes.

    A case that fails is left to whoever times it.
    """
    for operation, shape in cases[arguments.compile_part :: arguments.jobs]:
        try:
            inputs = operation.inputs(shape, Inputs(torch.device("cuda"), dtype=dtype))
            FusionCache.reset()
            operation.definition(inputs, dtype).execute(inputs)
            compiled_by_torch(operation, inputs, modes)
        except Exception as error:
            text = f"{operation.name} {shape}: {type(error).__name__}: {error}"
            print(" ".join(text.split())[:300], flush=True)
        inputs = ()
        torch.cuda.empty_cache()


def compiled_by_torch(operation: Operation, inputs: Tensors, modes: Collection[str]) -> dict[str, Call]:
    """torch.compile's code for static shapes, by mode; a line for each mode that fails."""
    calls: dict[str, Call] = {}
    torch._dynamo.reset()
    for mode in modes:
        compiled = torch.compile(operation.reference, dynamic=False, mode=mode)
        try:
            compiled(*inputs)
        except Exception as error:
            text = f"{operation.name}: torch.compile ({mode}) failed: {type(error).__name__}: {error}"
            print(text[:200], flush=True)
        else:
            calls[mode] = partial(compiled, *inputs)
    return calls
