"""Finds vectors that are contiguous in memory although their index has divisions or a maximum.

    x[(i + lane) // n * m + (i + lane) % n]         is        x[i // n * m + i % n + lane]

for all lanes of a vector that does not cross a multiple of n, that is, if `i % n <= n - width`. Rows that are
padded, joined, repeated or rolled are read this way; few of their vectors cross a multiple.

    x[max(i + lane - 1, 1 - i - lane)]              is        x[i - 1 + lane]

for all lanes of a vector if `1 <= i`. Rows that are reflected at their ends, or extended by their first and
last elements, are read this way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusewright.analyze.runs import usual_operand
from fusewright.sym import (
    ZERO,
    Expr,
    FloorDiv,
    Max,
    Min,
    Mod,
    Symbol,
    as_int,
    build,
    const,
    floordiv,
    fold,
    land,
    le,
    mod,
    substitute,
)


@dataclass(frozen=True)
class Straight:
    """Expressions over the lane of a vector, simplified for a vector that is contiguous.

    Attributes:
        expressions: the expressions, without divisions of terms that depend on the lane.
        whole: the condition that the vector is contiguous, which does not depend on the lane.
    """

    expressions: tuple[Expr, ...]
    whole: Expr


def straightened(expressions: Sequence[Expr], lane: Symbol, width: int) -> Straight:
    """Replaces quotients of terms that increase by one per lane by the quotient of the first lane.

    Also replaces a maximum or minimum by its usual operand (`_mostly`).
    """
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
        built = build(e.kind, args)
        return _mostly(built, lane, width, whole) if isinstance(built, (Max, Min)) else built

    memo: dict[Expr, Expr] = {}
    made = tuple([fold(e, visit, memo) for e in expressions])
    return Straight(made, land(*whole))


def _mostly(e: Max | Min, lane: Symbol, width: int, whole: dict[Expr, None]) -> Expr:
    """The operand that is the extremum at most positions.

    Adds the condition that it is the extremum for all lanes to `whole`. Returns `e` if there is no such
    condition.
    """
    if len(e.args) != 2:
        return e
    usual, above = usual_operand(e)
    first, last = (substitute(above, {lane: const(each)}) for each in (0, width - 1))
    rise = as_int(last - first)
    if rise is None or above is not first + lane * (rise // max(1, width - 1)):
        return e
    whole[le(ZERO, first if rise >= 0 else last)] = None
    return usual
