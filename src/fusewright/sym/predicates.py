"""Comparisons, logic, min and max: folded where an order is provable, else in one normal form.

A comparison has no negative coefficient on either side, common divisors are cancelled, and
its constant is on the side where it is positive. So `i <= N - 1` and `i < N` are one node, and
`4*i + 3 < N` is `4*i < N` for an N that is a multiple of four. Negation is pushed inwards,
so a Not contains only equalities.
"""

from __future__ import annotations

import math
from functools import lru_cache

from fusewright.sym.nodes import (
    CACHE_SIZE,
    FALSE,
    TRUE,
    And,
    Boolean,
    Const,
    Eq,
    Expr,
    FloorDiv,
    Le,
    Lt,
    Max,
    Min,
    Not,
    Operation,
    Or,
    as_expr,
    const,
    node,
    sort_nodes,
)
from fusewright.sym.polynomial import from_terms, minus, plus_constant, scale
from fusewright.sym.prover import is_never_zero, is_nonneg
from fusewright.sym.ranges import bounds, term_multiple

# The largest number that a dividend is compared with. The indices of all kernels have at least 32 bits.
_MOST_LIMIT = 2**31 - 1


def _sides(difference: Expr) -> tuple[dict[Expr, int], dict[Expr, int]]:
    """(left, right) with positive coefficients only; `difference` is `right - left` plus a constant."""
    left = {core: -coefficient for core, coefficient in difference.terms if coefficient < 0}
    right = {core: coefficient for core, coefficient in difference.terms if coefficient > 0}
    return left, right


def _drop_low(difference: Expr) -> Expr:
    """high + low >= 0 -> high + q*g >= 0  where g divides high and q*g <= low < (q+1)*g.

    So one guard serves all elements of a vector: `4*i + v < N` is `4*i < N` for v in 0..3 and
    an N that is a multiple of four.
    """
    terms = difference.terms
    if len(terms) < 2:
        return difference
    steps = {term_multiple(core, coefficient) for core, coefficient in terms}
    for step in sorted(steps - {1}, reverse=True):
        high = {core: c for core, c in terms if term_multiple(core, c) % step == 0}
        low = from_terms({core: c for core, c in terms if core not in high}, difference.constant)
        least, most = bounds(low)
        if least is not None and most is not None and least // step == most // step:
            return from_terms(high, least // step * step)
    return difference


def _without_quotient(difference: Expr) -> Expr | None:
    """A difference that has the same sign and no division, or None: `a // 6 < 4` is `a < 24`.

    The comparison then needs no division, and one comparison can serve all elements of a vector.
    """
    if len(difference.terms) != 1:
        return None
    [(core, coefficient)] = difference.terms
    if not isinstance(core, FloorDiv) or not isinstance(core.args[1], Const) or core.args[1].value < 1:
        return None
    dividend, divisor = core.args[0], core.args[1].value
    if coefficient > 0:
        limit = -(difference.constant // coefficient) * divisor
        undivided = plus_constant(dividend, -limit)
    else:
        limit = (difference.constant // -coefficient + 1) * divisor
        undivided = plus_constant(scale(dividend, -1), limit - 1)
    return undivided if abs(limit) <= _MOST_LIMIT else None


@lru_cache(maxsize=CACHE_SIZE)
def _is_nonneg_predicate(difference: Expr) -> Expr:
    """The predicate `difference >= 0`."""
    if is_nonneg(difference):
        return TRUE
    if is_nonneg(plus_constant(scale(difference, -1), -1)):
        return FALSE
    terms = difference.terms
    reduced = _drop_low(difference)
    if len(reduced.terms) < len(terms):
        return _is_nonneg_predicate(reduced)
    undivided = _without_quotient(difference)
    if undivided is not None:
        return _is_nonneg_predicate(undivided)
    # The sum of the terms is a multiple of `step`. So all constants between two multiples of
    # `step` mean the same; the one nearest to zero is used.
    step = math.gcd(*[term_multiple(core, coefficient) for core, coefficient in terms])
    constant = difference.constant // step * step
    if constant < 0:
        constant += step - 1
    shared = math.gcd(*[coefficient for _, coefficient in terms])
    left, right = _sides(difference)
    left = {core: coefficient // shared for core, coefficient in left.items()}
    right = {core: coefficient // shared for core, coefficient in right.items()}
    constant //= shared
    # left <= right + constant. It is written with < if that gives a smaller or a positive constant.
    if constant < 0 or not left:
        return node(Lt, (from_terms(left, -constant - 1), from_terms(right, 0)))
    if not right:
        return node(Lt, (from_terms(left, 0), const(constant + 1)))
    return node(Le, (from_terms(left, 0), from_terms(right, constant)))


def lt(a: Expr | int, b: Expr | int) -> Expr:
    """`a < b`."""
    return _is_nonneg_predicate(plus_constant(minus(as_expr(b), as_expr(a)), -1))


def le(a: Expr | int, b: Expr | int) -> Expr:
    """`a <= b`."""
    return _is_nonneg_predicate(minus(as_expr(b), as_expr(a)))


def eq(a: Expr | int, b: Expr | int) -> Expr:
    """`a == b`."""
    difference = minus(as_expr(a), as_expr(b))
    if isinstance(difference, Const):
        return TRUE if difference.value == 0 else FALSE
    if is_never_zero(difference):
        return FALSE
    if is_nonneg(difference) and is_nonneg(scale(difference, -1)):
        return TRUE
    shared = math.gcd(difference.constant, *[coefficient for _, coefficient in difference.terms])
    if difference.terms[0][1] > 0:
        shared = -shared
    left, right = _sides(difference)
    constant = difference.constant // shared
    if shared < 0:
        left, right = right, left
    left = {core: coefficient // abs(shared) for core, coefficient in left.items()}
    right = {core: coefficient // abs(shared) for core, coefficient in right.items()}
    return node(Eq, (from_terms(left, max(-constant, 0)), from_terms(right, max(constant, 0))))


def ne(a: Expr | int, b: Expr | int) -> Expr:
    """`a != b`."""
    return lnot(eq(a, b))


def _as_predicate(value: Expr | int) -> Expr:
    e = as_expr(value)
    return e if e.is_boolean else ne(e, 0)


def lnot(value: Expr | int) -> Expr:
    """The negation of a predicate; an integer counts as true unless it is zero."""
    return _negated(_as_predicate(value))


@lru_cache(maxsize=CACHE_SIZE)
def _negated(cond: Expr) -> Expr:
    if isinstance(cond, Const):
        return FALSE if cond.value else TRUE
    if isinstance(cond, Lt):
        return le(cond.args[1], cond.args[0])
    if isinstance(cond, Le):
        return lt(cond.args[1], cond.args[0])
    if isinstance(cond, Not):
        return cond.args[0]
    if isinstance(cond, And):
        return lor(*[_negated(arg) for arg in cond.args])
    if isinstance(cond, Or):
        return land(*[_negated(arg) for arg in cond.args])
    return node(Not, (cond,))


def land(*conditions: Expr | int) -> Expr:
    """Whether all conditions hold; true for none."""
    return _connect(And, TRUE, FALSE, conditions)


def lor(*conditions: Expr | int) -> Expr:
    """Whether some condition holds; false for none."""
    return _connect(Or, FALSE, TRUE, conditions)


def _connect(cls: type[Boolean], neutral: Expr, absorbing: Expr, conditions: tuple[Expr | int, ...]) -> Expr:
    kept: dict[Expr, None] = {}
    for condition in conditions:
        cond = _as_predicate(condition)
        if cond is absorbing:
            return absorbing
        if cond is not neutral:
            kept.update(dict.fromkeys(cond.args if type(cond) is cls else (cond,)))
    if len(kept) > 1 and any(_negated(cond) in kept for cond in kept):
        return absorbing
    if len(kept) < 2:
        return next(iter(kept), neutral)
    return node(cls, tuple(sort_nodes(list(kept))))


def minimum(*operands: Expr | int) -> Expr:
    """The least operand (at least one is required)."""
    return _extreme(Min, operands)


def maximum(*operands: Expr | int) -> Expr:
    """The greatest operand (at least one is required)."""
    return _extreme(Max, operands)


def _extreme(cls: type[Operation], operands: tuple[Expr | int, ...]) -> Expr:
    candidates: dict[Expr, None] = {}
    for operand in operands:
        e = as_expr(operand)
        candidates.update(dict.fromkeys(e.args if type(e) is cls else (e,)))
    kept: list[Expr] = []
    for candidate in sort_nodes(list(candidates)):
        if any(_dominates(cls, other, candidate) for other in kept):
            continue
        kept = [other for other in kept if not _dominates(cls, candidate, other)]
        kept.append(candidate)
    if not kept:
        raise ValueError(f"{cls.kind} of no operands")
    return kept[0] if len(kept) == 1 else node(cls, tuple(kept))


def _dominates(cls: type[Operation], a: Expr, b: Expr) -> bool:
    """Whether the min (max) of `a` and `b` is provably `a`."""
    return is_nonneg(minus(b, a) if cls is Min else minus(a, b))
