"""The kinds of programs that are drawn, and the program of a seed and a number."""

from __future__ import annotations

import random

from fusewright import DataType
from tests.fuzz.kinds import KINDS
from tests.fuzz.programs import Program
from tests.fuzz.rare import RARE
from tests.fuzz.shaping import SHAPING
from tests.fuzz.writer import COMPLEX, DISCRETE, FLOATS, SIZES, Flavour, Writer

LONG_SIZES = (500, 1000, 1024, 1025, 2048, 3000)
LARGE_SIZES = (1, 2, 3, 65, 300, 1000, 5000, 20000, 80000)
DEGENERATE_SIZES = (0, 1, 1, 2, 3, 40)
TINY_SIZES = (1, 2, 3)
SQUARE_SIZES = (1, 2, 5, 8, 16, 17, 32, 33, 64)

POINTWISE = ("unary", "unary", "binary", "binary", "ternary", "cast")
SHAPES = ("permute", "broadcast", "squeeze", "expand", "back", "order", "factory")
MOVES = (*SHAPING, "reshape", "slice", "join", "find", "put", "pad")
ALL_TYPES = (*FLOATS, *DISCRETE)
EVERYTHING = (
    *POINTWISE,
    *SHAPES,
    "bitcast",
    "narrow",
    "reduce",
    "rejoin",
    "several",
    "boundary",
    "normalize",
    "scan",
    "twice",
    "reshape",
    "slice",
    "pad",
    "join",
    "turn",
    "find",
    "put",
    "grouped",
)

#: Each with its weight.
FLAVOURS: dict[str, tuple[int, Flavour]] = {
    "pointwise": (6, Flavour(POINTWISE, ALL_TYPES, max_calls=16, layouts=False)),
    "layouts": (10, Flavour((*POINTWISE, "narrow", "permute", "back"), aliases=0.2)),
    "shapes": (10, Flavour((*SHAPES, "unary", "binary"), ALL_TYPES, max_rank=4)),
    "moves": (16, Flavour((*MOVES, *POINTWISE[1:], "permute", "back"), ALL_TYPES, max_calls=8, indices=1)),
    "moved_rows": (
        12,
        Flavour(
            (*MOVES, "reduce", "reduce", "normalize", "boundary", "unary", "binary"), max_calls=9, indices=1
        ),
    ),
    "found": (8, Flavour(("find", "find", "put", "put", *SHAPING, "unary", "binary", "reduce"), indices=3)),
    "grouped": (
        8,
        Flavour(
            ("grouped", "grouped", "heads", "reshape", "unary", "binary"),
            sizes=(1, 2, 4, 6, 8, 16, 32, 60, 64, 128),
            max_calls=10,
        ),
    ),
    "discrete": (4, Flavour((*POINTWISE, "bitcast", "reduce", "back"), DISCRETE)),
    "complex": (5, Flavour(("unary", "binary", "binary", "reduce", "permute", "order", "rejoin"), COMPLEX)),
    "reductions": (10, Flavour(("unary", "binary", "cast", "reduce", "several", "permute"), max_rank=4)),
    "rejoins": (12, Flavour(("rejoin", "rejoin", "gradient", "unary", "binary", "back", "reduce"))),
    "normalizations": (
        8,
        Flavour(("normalize", "gradient", "unary", "binary", "back"), sizes=SIZES + LONG_SIZES),
    ),
    "scans": (
        8,
        Flavour(
            ("scan", "scan", "normalize", "unary", "binary", "permute", "back", "expand", "reduce"),
            (*ALL_TYPES, *COMPLEX),
            sizes=SIZES + LONG_SIZES,
        ),
    ),
    "twice": (10, Flavour(("twice", "twice", "unary", "reduce", "permute"), sizes=SQUARE_SIZES, squares=0.6)),
    "boundaries": (12, Flavour(("boundary", "boundary", "order", "unary", "binary", "back"), max_rank=4)),
    "library": (
        6,
        Flavour(
            ("contract", "contract", "arrange", "unary", "binary", "reduce", "back", "permute"), aliases=0.2
        ),
    ),
    "rare": (
        14,
        Flavour(
            ("function", "function", "test", "exact_pair", "masked", "like", "sizes", "binary", "cast"),
            (*ALL_TYPES, *COMPLEX),
        ),
    ),
    "composites": (
        10,
        Flavour(("norm", "norm", "deviation", "loss", "quantize", "random_numbers", "unary", "met", "back")),
    ),
    "assigned": (
        8,
        Flavour(("assign", "assign", "loss", "products", "products", "unary", "met", "reduce"), aliases=0.0),
    ),
    "attention": (
        4,
        Flavour(
            ("attend", "attend", "unary", "met", "permute"),
            (DataType.Half, DataType.BFloat16),
            sizes=(1, 2, 3, 4, 8, 16),
            min_rank=4,
            max_rank=4,
        ),
    ),
    "in_place": (12, Flavour((*POINTWISE, "boundary", "reduce", "segment_set"), ALL_TYPES, aliases=0.7)),
    "ranks": (
        6,
        Flavour(
            ("unary", "binary", "permute", "reduce", "boundary"), sizes=TINY_SIZES, min_rank=5, max_rank=12
        ),
    ),
    "degenerate": (
        8,
        Flavour(EVERYTHING, (*FLOATS, *COMPLEX), sizes=DEGENERATE_SIZES, aliases=0.2, squares=0.2, indices=1),
    ),
    "many_calls": (
        8,
        Flavour(
            (*POINTWISE[1:], "permute", "back", "reduce", "rejoin", "normalize", "boundary", "pad", "find"),
            sizes=SIZES + LONG_SIZES,
            max_calls=6,
            aliases=0.2,
            indices=1,
            further=8,
        ),
    ),
    "everything": (12, Flavour(EVERYTHING, ALL_TYPES, max_calls=20, outputs=5, aliases=0.2, indices=1)),
    "large": (
        5,
        Flavour(
            (*POINTWISE, "reduce", "several", "rejoin", "gradient", "back", "normalize"),
            sizes=LARGE_SIZES,
            elements=160_000,
            max_calls=6,
        ),
    ),
}
_NAMES = list(FLAVOURS)
_WEIGHTS = [weight for weight, _ in FLAVOURS.values()]


def _drawn(seed: int, number: int) -> tuple[str, random.Random]:
    rng = random.Random(f"{seed}:{number}")
    return rng.choices(_NAMES, _WEIGHTS)[0], rng


def flavour(seed: int, number: int) -> str:
    """The name of the flavour that program `number` of a seed has."""
    return _drawn(seed, number)[0]


def draw(seed: int, number: int) -> tuple[str, Program]:
    """Program `number` of a seed, with the name of its flavour."""
    name, rng = _drawn(seed, number)
    return name, Writer(rng, FLAVOURS[name][1]).write(KINDS | SHAPING | RARE)
