"""Which vectors go along memory in one piece, where an index is by divisions.

    x[(i + lane) // n * m + (i + lane) % n]         is        x[i // n * m + i % n + lane]

for all lanes of a vector that no multiple of n parts: if `i % n <= n - width`. Rows that are padded, joined,
repeated or rolled are read so, by vectors of which few are parted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusewright.sym import Expr, FloorDiv, Mod, Symbol, build, floordiv, fold, land, le, mod


@dataclass(frozen=True)
class Straight:
    """Expressions over the lane of a vector, as they are where it is in one piece.

    Attributes:
        expressions: without divisions of what moves with the lane.
        whole: that the vector is in one piece; without the lane.
    """

    expressions: tuple[Expr, ...]
    whole: Expr


def straightened(expressions: Sequence[Expr], lane: Symbol, width: int) -> Straight:
    """The expressions where every quotient of what goes up by one with each lane is the first lane's."""
    whole: dict[Expr, None] = {}

    def visit(e: Expr, args: tuple[Expr, ...]) -> Expr:
        if not args or lane not in e.free_symbols:
            return e
        if isinstance(e, (FloorDiv, Mod)):
            dividend, divisor = args
            first = dividend - lane
            if lane not in first.free_symbols and lane not in divisor.free_symbols:
                whole[le(mod(first, divisor) + (width - 1), divisor - 1)] = None
                return floordiv(first, divisor) if isinstance(e, FloorDiv) else mod(first, divisor) + lane
        return build(e.kind, args)

    memo: dict[Expr, Expr] = {}
    made = tuple([fold(e, visit, memo) for e in expressions])
    return Straight(made, land(*whole))
