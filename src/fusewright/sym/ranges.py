"""Numeric facts about one expression: its interval and its largest known divisor.

Both are computed once per node and cached in it. They consider each operand by itself; facts
that depend on several operands (`i < N` because i's bound is N - 1) are the prover's task.
A divisor that may be zero but not negative counts as at least one, since the expression
is undefined otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from fusewright.sym.nodes import (
    Add,
    And,
    Bounds,
    Const,
    Eq,
    Expr,
    FloorDiv,
    Le,
    Lt,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    Symbol,
    Xor,
    as_int,
)


def bounds(e: Expr) -> Bounds:
    """The inclusive numeric range of `e` over all values of its symbols."""
    known = e._bounds
    if known is None:
        known = _BOUNDS[type(e)](e)
        e._bounds = known
    return known


def lower_bound(e: Expr) -> int | None:
    """An integer that `e` never goes below, or None if none is known."""
    return bounds(e)[0]


def upper_bound(e: Expr) -> int | None:
    """An integer that `e` never exceeds, or None if none is known."""
    return bounds(e)[1]


def known_multiple(e: Expr) -> int:
    """The largest integer known to divide `e` whatever its symbols are; 0 if `e` is zero."""
    known = e._multiple
    if known < 0:
        known = _MULTIPLE[type(e)](e)
        e._multiple = known
    return known


def common_bit(exprs: Iterable[Expr]) -> int:
    """The largest power of two that is known to divide all expressions; 0 if all are known to be zero."""
    bits = 0
    for e in exprs:
        bits |= known_multiple(e)
    return bits & -bits


def is_positive_divisor(e: Expr) -> bool:
    """Whether `e` is at least one wherever an expression divided by it is defined."""
    low = bounds(e)[0]
    return low is not None and low >= 0


def _const_bounds(e: Const) -> Bounds:
    return e.value, e.value


def _symbol_bounds(e: Symbol) -> Bounds:
    hi = e.hi if e.hi is None or isinstance(e.hi, int) else bounds(e.hi)[1]
    step = e.multiple_of
    return -(-e.lo // step) * step, None if hi is None else hi // step * step


def _scale_bounds(low: int | None, high: int | None, coefficient: int) -> Bounds:
    if coefficient < 0:
        low, high = high, low
    return None if low is None else low * coefficient, None if high is None else high * coefficient


def _add_bounds(e: Add) -> Bounds:
    low: int | None = e.constant
    high: int | None = e.constant
    for core, coefficient in e.terms:
        term_low, term_high = _scale_bounds(*bounds(core), coefficient)
        low = None if low is None or term_low is None else low + term_low
        high = None if high is None or term_high is None else high + term_high
        if low is None and high is None:
            break
    return low, high


def _multiply_bounds(a: Bounds, b: Bounds) -> Bounds:
    (a_low, a_high), (b_low, b_high) = a, b
    if a_low is not None and b_low is not None and a_low >= 0 and b_low >= 0:
        # A zero factor makes the product zero even if the other one is unbounded.
        if a_high == 0 or b_high == 0:
            return 0, 0
        return a_low * b_low, None if a_high is None or b_high is None else a_high * b_high
    if a_low is None or a_high is None or b_low is None or b_high is None:
        return None, None
    corners = [a_low * b_low, a_low * b_high, a_high * b_low, a_high * b_high]
    return min(corners), max(corners)


def _mul_bounds(e: Mul) -> Bounds:
    product: Bounds = (1, 1)
    for factor in e.factors:
        product = _multiply_bounds(product, bounds(factor))
    return _scale_bounds(*product, e.coefficient)


def _floordiv_bounds(e: FloorDiv) -> Bounds:
    if not is_positive_divisor(e.divisor):
        return None, None
    low, high = bounds(e.dividend)
    least, most = bounds(e.divisor)
    least = max(least or 1, 1)
    most = most if most is None else max(most, 1)
    if low is not None:
        if low < 0:
            low //= least
        else:
            low = 0 if most is None else low // most
    if high is not None:
        if high >= 0:
            high //= least
        else:
            high = -1 if most is None else high // most
    return low, high


def _mod_bounds(e: Mod) -> Bounds:
    if not is_positive_divisor(e.divisor):
        return None, None
    low, high = bounds(e.dividend)
    most = bounds(e.divisor)[1]
    # A common divisor of both operands divides the remainder, which is below the divisor by at least as much.
    limit = None if most is None else max(most, 1) - max(known_multiple(e), 1)
    if low is not None and low >= 0 and high is not None:
        limit = high if limit is None else min(limit, high)
    return 0, None if limit is None else max(limit, 0)


def _min_bounds(e: Min) -> Bounds:
    ranges = [bounds(arg) for arg in e.args]
    lows = [low for low, _ in ranges if low is not None]
    highs = [high for _, high in ranges if high is not None]
    if (total := _constant_sum(e)) is not None:
        highs.append(total // 2)
    return min(lows) if len(lows) == len(ranges) else None, min(highs, default=None)


def _max_bounds(e: Max) -> Bounds:
    ranges = [bounds(arg) for arg in e.args]
    lows = [low for low, _ in ranges if low is not None]
    highs = [high for _, high in ranges if high is not None]
    if (total := _constant_sum(e)) is not None:
        lows.append(-(-total // 2))
    return max(lows, default=None), max(highs) if len(highs) == len(ranges) else None


def _constant_sum(e: Min | Max) -> int | None:
    """The sum of two operands if it is constant, as for an absolute value; else None.

    One of the operands is then at least half of the sum, and the other at most half.
    """
    return as_int(e.args[0] + e.args[1]) if len(e.args) == 2 else None


def _xor_bounds(e: Xor) -> Bounds:
    # The result has no bit above the highest bit of all operands. For negative operands, these are bits that
    # differ from the sign.
    ranges = [bounds(arg) for arg in e.args]
    negative = any(low is None or low < 0 for low, _ in ranges)
    limits = [limit for pair in ranges for limit in pair]
    if None in limits:
        return None if negative else 0, None
    most = (
        1 << max((limit if limit >= 0 else ~limit).bit_length() for limit in limits if limit is not None)
    ) - 1
    return ~most if negative else 0, most


def _boolean_bounds(e: Expr) -> Bounds:
    return 0, 1


_BOUNDS: dict[type[Expr], Callable[[Any], Bounds]] = {
    Const: _const_bounds,
    Symbol: _symbol_bounds,
    Add: _add_bounds,
    Mul: _mul_bounds,
    FloorDiv: _floordiv_bounds,
    Mod: _mod_bounds,
    Min: _min_bounds,
    Max: _max_bounds,
    Xor: _xor_bounds,
    **dict.fromkeys((Lt, Le, Eq, Not, And, Or), _boolean_bounds),
}


def _floordiv_multiple(e: FloorDiv) -> int:
    divisor = e.divisor
    if isinstance(divisor, Const):
        multiple = known_multiple(e.dividend)
        if multiple % divisor.value == 0:
            return abs(multiple // divisor.value)
    return 1


_MULTIPLE: dict[type[Expr], Callable[[Any], int]] = {
    Const: lambda e: abs(e.value),
    Symbol: lambda e: e.multiple_of,
    Add: lambda e: math.gcd(e.constant, *[known_multiple(core) * c for core, c in e.terms]),
    Mul: lambda e: abs(e.coefficient) * math.prod(known_multiple(factor) for factor in e.factors),
    FloorDiv: _floordiv_multiple,
    Mod: lambda e: math.gcd(known_multiple(e.dividend), known_multiple(e.divisor)),
    Min: lambda e: math.gcd(*[known_multiple(arg) for arg in e.args]),
    Max: lambda e: math.gcd(*[known_multiple(arg) for arg in e.args]),
    Xor: lambda e: common_bit(e.args),
    **dict.fromkeys((Lt, Le, Eq, Not, And, Or), lambda e: 1),
}


def term_multiple(core: Expr, coefficient: int) -> int:
    """The largest known divisor of `coefficient * core`."""
    return known_multiple(core) * abs(coefficient)


def has_exact_division(core: Expr, coefficient: int) -> bool:
    """Whether `coefficient * core` contains an `x // a` that cancels: a divides x and the coefficient."""
    if coefficient in (1, -1):
        return False
    for factor in core.factors:
        if type(factor) is FloorDiv:
            divisor = factor.args[1]
            if (
                type(divisor) is Const
                and coefficient % divisor.value == 0
                and known_multiple(factor.args[0]) % divisor.value == 0
            ):
                return True
    return False
