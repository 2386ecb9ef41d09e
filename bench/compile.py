"""What it costs to compile large graphs: kernels and how many of them differ, Python's time before NVRTC.

Tensors are on the CPU, so that neither a GPU nor NVRTC takes part in the times. Each time is processor time,
which other processes lengthen less than elapsed time, and the median of `ROUNDS` compilations with nothing
kept of those before.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time

import torch

from bench.report import Cell, environment, text_table
from bench.stacks import HIDDEN, WIDE, Graph, layer_stack, optimizer_step, pointwise_chain
from fusewright import FusionCache
from fusewright.core.once import clear_shared_caches
from fusewright.core.tracing import Tracer
from fusewright.host import FusionExecutor
from fusewright.host.program.programs import BoundProgram
from fusewright.runtime.disk_cache import DiskCache

ROUNDS = 5
LAYERS = 12
# The first layer norm, GELU, the next layer norms with what is added back, the end.
DISTINCT = 4
# Forward and backward of as many layers: 2,673 nodes.
MANY_LAYERS = 33
EQUAL_UPDATES, OPTIMIZED_LAYERS = 20, 24
CHAINS = {800: 0.4, 1600: 0.8}
HEADER = ("graph", "what", "measured", "goal")


@dataclass(frozen=True)
class Row:
    """A figure beside its goal, which is the most that it should be; None: it has none."""

    graph: str
    what: str
    measured: float
    goal: float | None = None

    def cells(self) -> tuple[Cell, ...]:
        return self.graph, self.what, self.measured, self.goal


@dataclass(frozen=True)
class Compilation:
    """One compilation of a graph that was defined anew; seconds are those of Python before NVRTC."""

    seconds: float
    tracer: Tracer
    executor: FusionExecutor
    program: BoundProgram


def compiled(graph: Graph, fresh: bool = True) -> Compilation:
    """Compiles a graph; `fresh`: with nothing kept of what was compiled before."""
    FusionCache.reset()
    if fresh:
        clear_shared_caches()
    number = graph.definition().id()
    assert number is not None
    inputs, tracer = graph.inputs(torch.device("cpu")), Tracer()
    gc.collect()
    start = process_time()
    executor = FusionCache.get().schedules(number).executor  # which rewrites the graph
    program = executor.compile(inputs, tracer=tracer)
    return Compilation(process_time() - start, tracer, executor, program)


def median(graph: Graph) -> Compilation:
    runs = sorted((compiled(graph) for _ in range(ROUNDS)), key=lambda run: run.seconds)
    return runs[len(runs) // 2]


def equal_layers() -> list[Row]:
    """How many kernels a stack of equal layers has, and how many of them are made."""
    name = f"{LAYERS} equal layers"
    first = compiled(layer_stack(LAYERS))
    kernels = first.program.kernels
    distinct = dict.fromkeys(kernels)
    rows = [
        Row(name, "kernels", len(kernels)),
        Row(name, "names", len({kernel.name for kernel in kernels}), DISTINCT),
        Row(name, "texts", len({kernel.full_text for kernel in kernels}), DISTINCT),
    ]
    again = compiled(layer_stack(LAYERS + 1), fresh=False)
    rows.append(Row(name, "kernels made for a layer more", len(set(again.program.kernels) - set(kernels)), 0))
    with tempfile.TemporaryDirectory() as directory:
        for cached in (DiskCache(Path(directory)), DiskCache(Path(directory))):
            clear_shared_caches()
            for kernel in distinct:
                cached.compile(kernel.full_text, kernel.code().options)
        rows.append(Row(name, "texts that the next process compiles", cached.stats().stores, 0))
    return rows


def many_nodes() -> list[Row]:
    """Python's time for a graph of many kernels, and how often schedulers were asked about what."""
    run = median(layer_stack(MANY_LAYERS, backward=True))
    name = f"{len(run.executor.fusion.nodes)} nodes, {len(run.program.kernels)} kernels"
    analyses = run.tracer.stages["segment/lift views"].count
    stages = {key: times.seconds for key, times in run.tracer.stages.items() if "/" not in key}
    elapsed = sum(stages.values())
    return [
        Row(name, "seconds before NVRTC", run.seconds, 1.5),
        *(Row(name, f"  {stage}, %", 100 * seconds / elapsed) for stage, seconds in stages.items()),
        Row(name, "groups offered to schedulers", len(run.executor.segments().attempts)),
        Row(name, "groups analysed", analyses),
    ]


def optimizer_steps() -> list[Row]:
    """Kernels of steps over parameters of one shape, and of a transformer's, and Python's time for them."""
    shapes: dict[str, list[tuple[int, ...]]] = {
        f"{EQUAL_UPDATES} equal AdamW updates": [(HIDDEN, WIDE)] * EQUAL_UPDATES,
        f"AdamW for {OPTIMIZED_LAYERS} layers": OPTIMIZED_LAYERS
        * [(HIDDEN,), (HIDDEN,), (HIDDEN, WIDE), (WIDE,), (WIDE, HIDDEN), (HIDDEN,)],
    }
    rows = []
    for name, given in shapes.items():
        run = median(optimizer_step(given))
        rows += [
            Row(f"{name}, {len(given)} tensors", "kernels", len(run.program.kernels), -(-len(given) // 48)),
            Row(f"{name}, {len(given)} tensors", "seconds before NVRTC", run.seconds),
        ]
    return rows


def chains() -> list[Row]:
    return [
        Row(
            f"{count} pointwise operations",
            "seconds before NVRTC",
            median(pointwise_chain(count)).seconds,
            goal,
        )
        for count, goal in CHAINS.items()
    ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures there")


def run(arguments: argparse.Namespace) -> int:
    """Measure and print; always 0, unless something raises."""
    print(", ".join(f"{name} {value}" for name, value in environment().items()), flush=True)
    compiled(layer_stack(1, backward=True))  # what a process loads once
    rows = [*equal_layers(), *many_nodes(), *optimizer_steps(), *chains()]
    print(text_table(HEADER, [row.cells() for row in rows]))
    if arguments.json is not None:
        content = {"environment": environment(), "rows": [asdict(row) for row in rows]}
        arguments.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 0
