"""The conditions under which threads compute, read and write."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from fusewright.core.dtype import DataType
from fusewright.kernel import ir as k
from fusewright.sym import (
    And,
    Expr,
    FloorDiv,
    Le,
    Lt,
    Symbol,
    as_int,
    const,
    is_nonneg,
    land,
    le,
    substitute,
    symbol,
)

Conditions = frozenset[Expr]
Predicated = TypeVar("Predicated", bound=k.Copy | k.Combine | k.Scatter | k.LetValue)


def conditions_of(cond: Expr) -> Conditions:
    """The parts of the conjunction `cond`."""
    if cond is k.TRUE:
        return frozenset()
    return frozenset(cond.args) if isinstance(cond, And) else frozenset((cond,))


def guarded(guards: Sequence[Expr], body: Sequence[k.Stmt]) -> list[k.Stmt]:
    """`body` in a branch with these guards, if they are not always true."""
    cond = land(*guards)
    return list(body) if as_int(cond) == 1 else [k.If(cond, tuple(body))]


def with_pred(stmt: Predicated, pred: Expr) -> Predicated:
    """The statement with another predicate. A load that always takes place has no fill."""
    if isinstance(stmt, k.Copy) and pred is k.TRUE:
        return dataclasses.replace(stmt, pred=pred, fill=None, fill_is_value=False)
    return dataclasses.replace(stmt, pred=pred)


def zero(dtype: DataType) -> k.Imm:
    """Zero or False: the default fill of a load."""
    return k.Imm(dtype.zero, dtype)


def necessary(guards: Iterable[Expr]) -> list[Expr]:
    """The guards that neither the symbols' ranges nor the other guards imply.

    A guard on the outer result of a split follows from the guard on the axis that is split:
    `8*o + i < n` implies `o < ceilDiv(n, 8)` for i >= 0.
    """
    return list(_necessary(tuple(dict.fromkeys(guards))))


@lru_cache(maxsize=1024)  # the nodes of a kernel have few different guards
def _necessary(listed: tuple[Expr, ...]) -> tuple[Expr, ...]:
    slacks = [_slack(guard) for guard in listed]
    kept = [i for i, s in enumerate(slacks) if s is None or not is_nonneg(s)]
    for i in list(kept):
        slack = slacks[i]
        others = [slacks[j] for j in kept if j != i]
        if slack is not None and any(other is not None and _follows(slack, other) for other in others):
            kept.remove(i)
    return tuple(listed[i] for i in kept if as_int(listed[i]) != 1)


def _follows(slack: Expr, other: Expr) -> bool:
    """Whether `other >= 0` implies `slack >= 0`."""
    if is_nonneg(slack - other):
        return True
    # For integers, times * slack + (times - 1) >= 0 implies slack >= 0.
    factors = dict(slack.terms)
    for core, coefficient in other.terms:
        times, rest = divmod(coefficient, factors.get(core, coefficient))
        if times > 1 and not rest:
            return is_nonneg(slack * times + (times - 1) - other)
    return False


def _slack(guard: Expr) -> Expr | None:
    """The expression that is >= 0 exactly where a comparison holds; None for other conditions."""
    if isinstance(guard, Lt):
        low, high = guard.args
        slack = high - low - 1
    elif isinstance(guard, Le):
        low, high = guard.args
        slack = high - low
    else:
        return None
    return _without_quotient(_for_any_size(slack))


def _for_any_size(e: Expr) -> Expr:
    """`e` with symbols that have no upper bounds that depend on sizes.

    A launch has at least one thread even along an axis of size 0. So the range of a position must not prove
    that the size is positive.
    """
    bounded = {s: symbol(s.name, s.lo, None, s.multiple_of) for s in e.free_symbols if isinstance(s.hi, Expr)}
    return substitute(e, bounded) if bounded else e


def _without_quotient(slack: Expr) -> Expr:
    """Rewrites e + q // f >= 0 as e*f + q >= 0, which is equivalent for integers and f > 0."""
    for core, coefficient in slack.terms:
        if coefficient == 1 and isinstance(core, FloorDiv) and is_nonneg(core.args[1] - 1):
            dividend, divisor = core.args
            return _without_quotient((slack - core) * divisor + dividend)
    return slack


# ---- lanes -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lanes:
    """The lanes of a vector in which a condition holds.

    Attributes:
        each: the condition, over the symbol of the lane.
        all: the condition that it holds in all lanes.
        some: a condition that is true if it holds in some lane.
        step: how much the difference between the sides of the comparison changes per lane; 0 if the condition
            has comparisons with different steps.
    """

    each: Expr
    all: Expr
    some: Expr
    step: int


def lanes_of(condition: Expr, lane: Symbol, width: int) -> Lanes | None:
    """The lanes of a vector in which the condition holds; None if the condition is not monotonic in the lane.

    A comparison whose sides differ by a multiple of the lane holds in all lanes if it holds at one end.
    """
    every: list[Expr] = []
    some: list[Expr] = []
    steps: set[int] = set()
    for part in sorted(conditions_of(condition), key=lambda e: e.order):
        if lane in part.free_symbols and _step(part, lane) is None:
            part = _without_subtracted_quotient(part, lane)
        if lane not in part.free_symbols:  # perhaps without the quotient: then lanes exist together
            every.append(part)
            some.append(part)
            continue
        step = _step(part, lane)
        if step is None:
            return None
        steps.add(step)
        first, last = (substitute(part, {lane: const(n)}) for n in (0, width - 1))
        every.append(first if step > 0 else last)
        some.append(last if step > 0 else first)
    step = steps.pop() if len(steps) == 1 else 0
    return Lanes(condition, land(*necessary(every)), land(*necessary(some)), step)


def _without_subtracted_quotient(condition: Expr, lane: Symbol) -> Expr:
    """Rewrites e - q // f >= 0 as e*f + f - 1 - q >= 0 if only q depends on the lane.

    The two are equivalent for integers and f > 0.
    """
    slack = _slack(condition)
    if slack is None:
        return condition
    for core, coefficient in slack.terms:
        if coefficient != -1 or not isinstance(core, FloorDiv) or not is_nonneg(core.args[1] - 1):
            continue
        dividend, divisor = core.args
        rest = slack + core
        if lane not in rest.free_symbols | divisor.free_symbols:
            return le(dividend, (rest + 1) * divisor - 1)
    return condition


def _step(condition: Expr, lane: Symbol) -> int | None:
    """The change of a comparison's slack per lane; None if it is not constant."""
    if not isinstance(condition, (Lt, Le)):
        return None
    low, high = condition.args
    moving = [(core, c) for core, c in (high - low).terms if lane in core.free_symbols]
    return moving[0][1] if len(moving) == 1 and moving[0][0] is lane else None
