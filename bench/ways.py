"""GPU time of the ways in which one computation is written: the slowest over the fastest.

The computations and their ways are those whose kernels and bytes tests/ways compares.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from functools import partial
from pathlib import Path

import torch

from bench.report import OUTPUT, Cell, environment, markdown_table, text_table, write
from bench.timing import Call, short_medians_us
from fusewright import FusionCache
from tests.ways.channels import CHANNELS
from tests.ways.computation import Computation
from tests.ways.images import IMAGES
from tests.ways.row_gradients import ROW_GRADIENTS
from tests.ways.rows import ROWS

HEADER = ("computation", "sizes", "ways", "fastest us", "slowest us", "slowest over fastest", "slowest way")
#: How much slower than the fastest a way may be.
MOST = 1.03


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", default="", metavar="NAME,...", help="these computations alone")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="begin no computation after so many seconds"
    )
    parser.add_argument(
        "--output", type=Path, default=OUTPUT / "ways", metavar="PATH", help="writes PATH.json and PATH.md"
    )


def run(arguments: argparse.Namespace) -> int:
    """Time all ways at the first of each computation's sizes; 1 if there is no GPU."""
    if not torch.cuda.is_available():
        print("bench ways: torch sees no GPU here, and GPU times need one")
        return 1
    only = [name for name in arguments.only.split(",") if name]
    started = time.monotonic()
    rows: list[dict[str, Cell | dict[str, float]]] = []
    for computation in (*ROWS, *ROW_GRADIENTS, *CHANNELS, *IMAGES):
        if only and computation.name not in only:
            continue
        if time.monotonic() - started > arguments.seconds:
            print(f"not reached in {arguments.seconds:g} s: {computation.name}")
            continue
        times = _times(computation)
        fastest, slowest = min(times.values()), max(times.values())
        rows.append(
            {
                "computation": computation.name,
                "sizes": "x".join(map(str, computation.sizes[0].values())),
                "ways": len(times),
                "fastest us": fastest,
                "slowest us": slowest,
                "slowest over fastest": slowest / fastest,
                "slowest way": max(times, key=lambda way: times[way]),
                "times": times,
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    cells = [tuple(_cell(row[key]) for key in HEADER) for row in rows]
    write(arguments.output, {"environment": environment(), "rows": rows}, markdown_table(HEADER, cells))
    print(text_table(HEADER, cells))
    close = sum(row[5] <= MOST for row in cells if isinstance(row[5], float))
    print(f"{close} of {len(cells)} computations: no way takes more than {MOST} times the fastest")
    return 0


def _cell(value: Cell | dict[str, float]) -> Cell:
    return None if isinstance(value, dict) else value


def _times(computation: Computation) -> dict[str, float]:
    """Microseconds of each way."""
    given = computation.example(computation.sizes[0], "cuda")
    calls: dict[str, Call] = {}
    for way in computation.ways:
        FusionCache.reset()
        fd, _ = computation.fusion(way)
        fd.execute(given)
        calls[way] = partial(fd.execute, given)
    return short_medians_us(calls)
