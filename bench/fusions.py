"""GPU time of a catalogue of fusions, as users of torch write them, beside torch.compile and a copy.

Each is a function of torch (`bench.fusion_catalogue`); its definition is what `from_fx` makes of it. The
slowest against torch.compile come first: they are what schedulers should be looked at for. `--drawn` takes
the functions at random sizes, types and layouts instead of the catalogue's (`bench.drawn`), `--reductions`
functions of random reductions, `--cases` those that are named (`bench.selection`).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from bench import selection
from bench.ahead import Case, add_jobs, compile_ahead, compile_part
from bench.fusion_catalogue import CATALOGUE
from bench.report import OUTPUT, Cell, environment, markdown_table, text_table, write
from bench.selection import TYPES
from bench.throughput import DEFAULT, OURS, Row, measure, measured, print_failures, shape_text
from bench.timing import Call, Copies, medians_us, short_medians_us
from fusewright.cli.arguments import positive_seconds

HEADER = ("fusion", "shape", "fusewright us", "inductor us", "copy us", "of copy", "to inductor")
#: Slower than torch.compile by more than what two measurements of one kernel differ by.
SLOWER = 1.02


def add_arguments(parser: argparse.ArgumentParser) -> None:
    selection.add_arguments(parser)
    parser.add_argument(
        "--dtype", choices=sorted(TYPES), default="bfloat16", help="of inputs, where a fusion names none"
    )
    parser.add_argument(
        "--seconds", type=positive_seconds, metavar="S", help="measure no fusion after so many seconds"
    )
    add_jobs(parser)
    parser.add_argument(
        "--phase", choices=("both", "compile", "measure"), default="both", help="one of the two alone"
    )
    parser.add_argument(
        "--output", type=Path, default=OUTPUT / "fusions", metavar="PATH", help="writes PATH.json and PATH.md"
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure what the arguments select; 1 if a fusion failed or there is no GPU."""
    cases = selection.cases(arguments, CATALOGUE)
    if not torch.cuda.is_available():
        print("bench fusions: torch sees no GPU here, and GPU times need one")
        return 1
    dtype = TYPES[arguments.dtype]
    if arguments.compile_part is not None:
        compile_part(cases, arguments, dtype, (DEFAULT,))
        return 0
    if arguments.phase != "measure":
        command = ["fusions", *selection.options(arguments), "--dtype", arguments.dtype]
        compile_ahead(command, arguments.jobs)
    if arguments.phase == "compile":
        return 0

    def one(case: Case, copies: Copies) -> Row:
        return measure(*case, copies, (DEFAULT,), dtype, _longer_where_slower, with_eager=False)

    rows, failures, left = measured(cases, arguments.seconds or math.inf, one, _shown)
    rows.sort(key=lambda row: -(row.to_inductor or 0.0))
    cells = [_cells(row) for row in rows]
    content = {
        "environment": environment(),
        "dtype": arguments.dtype,
        "drawn": arguments.drawn,
        "rows": [row.record() for row in rows],
        "failures": failures,
        "not_reached": left,
    }
    write(arguments.output, content, markdown_table(HEADER, cells))
    print(text_table(HEADER, cells))
    print(summary(rows))
    if left:
        print(f"not reached: {', '.join(left)}")
    print_failures(failures)
    return 1 if failures else 0


def summary(rows: Sequence[Row]) -> str:
    """The geometric mean of the ratios to torch.compile's times, and how many are slower."""
    ratios = [row.to_inductor for row in rows if row.to_inductor is not None]
    if not ratios:
        return "nothing was measured beside torch.compile"
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    slower = sum(ratio > SLOWER for ratio in ratios)
    return (
        f"{mean:.3f} of torch.compile's time in geometric mean of {len(ratios)}; "
        f"{slower} slower by more than {SLOWER - 1:.0%}"
    )


def _cells(row: Row) -> tuple[Cell, ...]:
    times = (row.fusewright_us, row.inductor_us, row.copy_us)
    return (row.operation, shape_text(row.shape), *times, row.of_copy, row.to_inductor)


def _shown(row: Row) -> str:
    return text_table(HEADER, [_cells(row)]).splitlines()[1]


def _longer_where_slower(calls: Mapping[str, Call]) -> dict[str, float]:
    """Short medians; of fusions that seem slower than torch.compile's long ones."""
    times = short_medians_us(calls)
    if times[OURS] > SLOWER * times.get(DEFAULT, math.inf):
        return medians_us(calls)
    return times
