"""GPU time over sizes: row lengths by row counts of each operation, and where it falls off.

A cell is the fraction of the speed of a copy of as many bytes. A cliff is a cell below `CLIFF` of the best of
the cells beside it, one length or one count away; what is faster than a copy counts as fast as one, since
copies of few bytes are slow.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path

import torch

from bench.ahead import add_jobs, compile_ahead, compile_part
from bench.operation import Inputs, Operation, as_tuple
from bench.operations import selected
from bench.report import OUTPUT, environment, markdown_table, text_table, write
from bench.throughput import TYPES
from bench.timing import Copies, short_median_us
from fusewright import FusionCache

LENGTHS = (64, 65, 128, 257, 512, 768, 1000, 1024, 2048, 3072, 4096, 4097, 8192, 12288, 16384, 20000)
LONG = (32768, 50257, 65536, 65537, 131072, 262144)
COUNTS = (1, 33, 1024, 16384, 131072)
#: Of one, two and more inputs of rows, inner and outer reductions, with and without gradients of columns.
OPERATIONS = ("softmax", "layernorm", "softmax_bwd", "rmsnorm_bwd", "sum_inner", "sum_outer", "gelu_bias")
#: Largest input: enough that a copy is at full speed, and few enough that a cell takes no time.
MOST_ELEMENTS = 1 << 27
#: What the L2 cache and launches hide is no cliff: times below this one are taken as it.
LEAST_US = 6.0
CLIFF = 0.8
Grid = Mapping[tuple[int, int], float]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only", default=",".join(OPERATIONS), metavar="NAME,...", help="these operations (%(default)s)"
    )
    parser.add_argument("--dtype", choices=sorted(TYPES), default="bfloat16", help="of inputs and results")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="measure no operation after so many seconds"
    )
    add_jobs(parser)
    parser.add_argument(
        "--output", type=Path, default=OUTPUT / "sizes", metavar="PATH", help="writes PATH.json, .md and .svg"
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure every cell; 1 if one is wrong or there is no GPU."""
    operations = selected(arguments.only.split(","))
    if arguments.compile_part is not None:
        cases = [(operation, shape) for operation in operations for shape in _shapes()]
        compile_part(cases, arguments, TYPES[arguments.dtype])
        return 0
    if not torch.cuda.is_available():
        print("bench sizes: torch sees no GPU here, and GPU times need one")
        return 1
    started = time.monotonic()
    compile_ahead(["sizes", "--only", arguments.only, "--dtype", arguments.dtype], arguments.jobs)
    copies = Copies(torch.device("cuda"), short_median_us)
    grids: dict[str, Grid] = {}
    wrong: list[str] = []
    for operation in operations:
        if time.monotonic() - started > arguments.seconds:
            print(f"not reached in {arguments.seconds:g} s: {operation.name}")
            continue
        grids[operation.name] = _grid(operation, arguments.dtype, copies, wrong)
        print(_table(operation.name, grids[operation.name]), flush=True)
    fallen = [(name, *cliff) for name, grid in grids.items() for cliff in cliffs(grid)]
    cells = {
        name: [{"rows": r, "length": n, "of_copy": cell} for (r, n), cell in grid.items()]
        for name, grid in grids.items()
    }
    content = {"environment": environment(), "dtype": arguments.dtype, "cells": cells, "wrong": wrong}
    header = ("operation", "shape", "of copy", "best beside it")
    found = [(name, f"{r}x{n}", cell, best) for name, r, n, cell, best in fallen]
    write(arguments.output, content, markdown_table(header, found))
    arguments.output.with_suffix(".svg").write_text(picture(grids), encoding="utf-8")
    print(text_table(header, found))
    print(f"{sum(map(len, grids.values()))} cells, {len(fallen)} below {CLIFF} of the best beside them")
    for line in wrong:
        print(f"WRONG {line}")
    return 1 if wrong else 0


def _shapes() -> Iterator[tuple[int, int]]:
    for rows in COUNTS:
        for length in (*LENGTHS, *LONG):
            if rows * length <= MOST_ELEMENTS:
                yield rows, length


def _inputs(operation: Operation, shape: tuple[int, int], dtype: str) -> tuple[torch.Tensor, ...]:
    return operation.inputs(shape, Inputs(torch.device("cuda"), dtype=TYPES[dtype]))


def _grid(operation: Operation, dtype: str, copies: Copies, wrong: list[str]) -> Grid:
    grid: dict[tuple[int, int], float] = {}
    for shape in _shapes():
        try:
            grid[shape] = _of_copy(operation, shape, dtype, copies)
        except Exception as error:
            wrong.append(f"{operation.name} {shape}: {type(error).__name__}: {str(error)[:300]}")
        torch.cuda.empty_cache()
    return grid


def _of_copy(operation: Operation, shape: tuple[int, int], dtype: str, copies: Copies) -> float:
    inputs = _inputs(operation, shape, dtype)
    FusionCache.reset()
    fd = operation.definition(inputs, TYPES[dtype])
    outputs = as_tuple(tuple(fd.execute(inputs)))
    moved = operation.least_bytes(inputs, outputs)
    operation.check(shape, inputs, outputs)
    ours = short_median_us(lambda: fd.execute(inputs))
    return max(LEAST_US, copies.microseconds(moved)) / max(LEAST_US, ours)


def _axes(grid: Grid) -> tuple[list[int], list[int]]:
    """The row counts and the lengths of its cells."""
    return sorted({rows for rows, _ in grid}), sorted({length for _, length in grid})


def cliffs(grid: Grid) -> list[tuple[int, int, float, float]]:
    """(rows, length, cell, the best beside it) of the cells that fall off."""
    counts, lengths = _axes(grid)
    fallen = []
    for (rows, length), cell in grid.items():
        i, j = counts.index(rows), lengths.index(length)
        near = [(n, length) for n in counts[max(0, i - 1) : i + 2]]
        near += [(rows, n) for n in lengths[max(0, j - 1) : j + 2]]
        best = min(1.0, max(grid.get(place, 0.0) for place in near))
        if cell < CLIFF * best:
            fallen.append((rows, length, cell, best))
    return fallen


def _table(name: str, grid: Grid) -> str:
    counts, lengths = _axes(grid)
    rows = [(name, length, *(grid.get((count, length)) for count in counts)) for length in lengths]
    return text_table(("operation", "length", *(f"{count} rows" for count in counts)), rows)


CELL_WIDTH, CELL_HEIGHT, LEFT, TOP = 44, 18, 70, 40


def picture(grids: Mapping[str, Grid]) -> str:
    """A map for each operation: lengths across, counts down, red for 0 to green for a copy's speed."""
    parts: list[str] = []
    y, width = 8, 0
    for name, grid in grids.items():
        counts, lengths = _axes(grid)
        fallen = {(rows, length) for rows, length, _, _ in cliffs(grid)}
        width = max(width, LEFT + CELL_WIDTH * len(lengths) + 8)
        parts.append(f'<text x="8" y="{y + 14}" font-size="13" font-weight="bold">{escape(name)}</text>')
        for j, length in enumerate(lengths):
            x = LEFT + CELL_WIDTH * j + CELL_WIDTH / 2
            parts.append(f'<text x="{x}" y="{y + TOP - 6}" text-anchor="middle">{length}</text>')
        for i, count in enumerate(counts):
            top = y + TOP + CELL_HEIGHT * i
            parts.append(f'<text x="{LEFT - 6}" y="{top + 13}" text-anchor="end">{count}</text>')
            for j, length in enumerate(lengths):
                if (count, length) in grid:
                    parts += _cell(LEFT + CELL_WIDTH * j, top, grid[count, length], (count, length) in fallen)
        y += TOP + CELL_HEIGHT * len(counts) + 16
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" '
        f'viewBox="0 0 {width} {y}" font-family="sans-serif" font-size="10">'
        f'<rect width="{width}" height="{y}" fill="white"/>'
    )
    return "\n".join([head, *parts, "</svg>", ""])


def _cell(x: float, y: float, value: float, is_cliff: bool) -> list[str]:
    hue = round(120 * min(value, 1.0) ** 2)
    border = ' stroke="black" stroke-width="2"' if is_cliff else ""
    return [
        f'<rect x="{x + 1}" y="{y + 1}" width="{CELL_WIDTH - 2}" height="{CELL_HEIGHT - 2}" '
        f'fill="hsl({hue},55%,72%)"{border}/>',
        f'<text x="{x + CELL_WIDTH / 2}" y="{y + 13}" text-anchor="middle">{value:.2f}</text>',
    ]
