"""Which cases a benchmark takes: a catalogue's, drawn ones, random reductions, or those that are named."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from bench.ahead import Case
from bench.drawn import ALL_LAYOUTS, LAYOUTS, MIXED, PLAIN, drawn_cases, laid_out
from bench.drawn_reductions import reduction_cases
from bench.operation import STORED, Operation
from bench.operations import selected
from fusewright.cli.arguments import positive_count

TYPES = {str(dtype).removeprefix("torch."): dtype for dtype in STORED}
#: Of drawn cases unless told otherwise: two minutes of a GPU, a few of two cores.
COUNT = 200


def _names(layouts: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(layouts))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only", default="", metavar="NAME,...", help="these cases alone, or those whose names begin so"
    )
    parser.add_argument(
        "--cases",
        default="",
        metavar="NAME:SHAPE:TYPE:LAYOUT,...",
        help="these cases instead, such as mish:4096x1000:float16:misaligned",
    )
    parser.add_argument(
        "--drawn", type=int, metavar="SEED", help="at random sizes, types and memory layouts instead"
    )
    parser.add_argument(
        "--reductions", type=int, metavar="SEED", help="functions of random reductions instead"
    )
    parser.add_argument(
        "--layouts",
        default="",
        metavar="NAME,...",
        help=f"of drawn cases: {_names(ALL_LAYOUTS)}; one named twice comes twice as often",
    )
    parser.add_argument(
        "--count", type=positive_count, default=COUNT, metavar="N", help=f"of drawn cases ({COUNT})"
    )


def options(arguments: argparse.Namespace) -> list[str]:
    """The command line that selects the same cases."""
    found = ["--only", arguments.only, "--cases", arguments.cases]
    found += ["--layouts", arguments.layouts, "--count", str(arguments.count)]
    for name in ("drawn", "reductions"):
        if (seed := getattr(arguments, name)) is not None:
            found += [f"--{name}", str(seed)]
    return found


def cases(
    arguments: argparse.Namespace, operations: Sequence[Operation], layouts: Sequence[str] = LAYOUTS
) -> list[Case]:
    """What the arguments select of these operations; drawn cases lie in these layouts if they name none.

    Raises:
        ValueError: a name, size, type or layout that there is not.
    """
    if arguments.cases:
        return [named_case(text, operations) for text in arguments.cases.split(",")]
    if arguments.reductions is not None:
        return reduction_cases(arguments.reductions, arguments.count)
    chosen = selected([name for name in arguments.only.split(",") if name], operations)
    if arguments.drawn is not None:
        drawn = [each for each in chosen if each.define is None]
        given = [name for name in arguments.layouts.split(",") if name]
        if unknown := set(given) - set(ALL_LAYOUTS):
            raise ValueError(f"no layout {', '.join(sorted(unknown))}; there are: {_names(ALL_LAYOUTS)}")
        return drawn_cases(arguments.drawn, arguments.count, drawn, given or layouts)
    # The first shapes of all come first, so that a run that is out of time has seen each operation.
    return sorted(
        ((each, shape) for each in chosen for shape in each.shapes),
        key=lambda case: case[0].shapes.index(case[1]),
    )


def named_case(text: str, operations: Sequence[Operation]) -> Case:
    """The case that `NAME:SHAPE:TYPE:LAYOUT` names; of bfloat16 and plain where that is left out.

    Raises:
        ValueError: a name, size, type or layout that there is not.
    """
    name, *rest = text.split(":")
    if not 1 <= len(rest) <= 3:
        raise ValueError(f"a case is NAME:SHAPE, :TYPE and :LAYOUT after it if wanted; {text!r} was given")
    shape, dtype, layout = rest + ["bfloat16", PLAIN][len(rest) - 1 :]
    traced = {each.name: each for each in operations if each.define is None}  # a definition has its own types
    if name not in traced:
        raise ValueError(f"no fusion {name}; there are: {', '.join(traced)}")
    if dtype not in TYPES:
        raise ValueError(f"no type {dtype}; there are: {', '.join(TYPES)}")
    if layout not in LAYOUTS and not re.fullmatch(rf"{MIXED}\d+", layout):
        raise ValueError(f"no layout {layout}; there are: {_names(LAYOUTS)}, {MIXED}N")
    if not all(size.isdecimal() for size in shape.split("x")):
        raise ValueError(f"a shape is sizes with an x between, such as 4096x1000; {shape!r} was given")
    return laid_out(traced[name], TYPES[dtype], layout), tuple(map(int, shape.split("x")))
