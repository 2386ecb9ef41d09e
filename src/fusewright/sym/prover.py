"""Proofs that an expression is never negative, from the symbols' symbolic bounds.

The method is elimination: an atom of the polynomial (a symbol, quotient, remainder, min or
max) is replaced by a bound of it that can only lower the value, atoms that depend on others
first, until the numeric range settles the question. Every replacement is made of atoms of
smaller height or has one factor less, so the search ends; its branches are counted against a budget.

Which bound lowers the value depends on the sign of the atom's coefficient, which is determined by the
coefficient's numeric range. To prove the sign by search would take time exponential in the number of factors.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from fusewright.sym.nodes import (
    CACHE_SIZE,
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
    Mod,
    Not,
    Or,
    Symbol,
    Xor,
    as_expr,
    const,
)
from fusewright.sym.polynomial import (
    combine,
    divide_term,
    exact_quotient,
    from_terms,
    minus,
    monomial,
    multiply,
    plus,
    plus_constant,
    scale,
)
from fusewright.sym.ranges import bounds, is_positive_divisor, known_multiple

# Eliminations tried for one proof. Index arithmetic needs about one per symbol; the rest is
# for the two bounds that a remainder has and for the cases of min and max.
PROOF_BUDGET = 48


def is_nonneg(e: Expr) -> bool:
    """Whether `e >= 0` is provable. The answer is cached in the node."""
    known = e._nonneg
    if known is None:
        low, high = bounds(e)
        if low is not None and low >= 0:
            known = True
        elif (high is not None and high < 0) or isinstance(e, Const):
            known = False
        else:
            known = _search_cached(e)
        e._nonneg = known
    return known


@lru_cache(maxsize=CACHE_SIZE)
def _search_cached(e: Expr) -> bool:
    # Nothing else holds most of these differences. This cache keeps them alive, with the answers
    # cached in them.
    return _search(e, [PROOF_BUDGET])


def is_less(a: Expr, b: Expr) -> bool:
    """Whether `a < b` is provable."""
    return is_nonneg(plus_constant(minus(b, a), -1))


def prove(cond: Expr) -> bool:
    """Whether the predicate `cond` provably holds for all values in its symbols' ranges.

    False means "not known", never "false". Where a divisor in `cond` is zero, `cond` is
    undefined and nothing is claimed.
    """
    if isinstance(cond, Const):
        return cond.value != 0
    if isinstance(cond, And):
        return all(prove(arg) for arg in cond.args)
    if isinstance(cond, Or):
        return any(prove(arg) for arg in cond.args)
    if isinstance(cond, Lt):
        return is_less(*cond.args)
    if isinstance(cond, Le):
        return is_nonneg(minus(cond.args[1], cond.args[0]))
    if isinstance(cond, Eq):
        difference = minus(*cond.args)
        return is_nonneg(difference) and is_nonneg(scale(difference, -1))
    if isinstance(cond, Not) and isinstance(cond.args[0], Eq):
        return is_never_zero(minus(*cond.args[0].args))
    return not isinstance(cond, Boolean) and is_never_zero(cond)


def is_never_zero(e: Expr) -> bool:
    """Whether `e != 0` is provable, by its sign or because some integer never divides it."""
    low, high = bounds(e)
    if (low is not None and low > 0) or (high is not None and high < 0):
        return True
    step = known_multiple(plus_constant(e, -e.constant))
    if step > 1 and e.constant % step:
        return True
    return is_nonneg(plus_constant(e, -1)) or is_nonneg(plus_constant(scale(e, -1), -1))


def divides(k: int | Expr, e: int | Expr) -> bool:
    """Whether `k` provably divides `e`, from known multiples and common factors."""
    divisor, dividend = as_expr(k), as_expr(e)
    if isinstance(divisor, Const):
        if divisor.value == 0:
            return isinstance(dividend, Const) and dividend.value == 0
        if known_multiple(dividend) % divisor.value == 0:
            return True
        congruent = _without_remainders(dividend, divisor.value)
        return congruent is not dividend and known_multiple(congruent) % divisor.value == 0
    if divisor.kind == "add":
        return exact_quotient(dividend, divisor) is not None
    symbolic_part = monomial(1, divisor.factors)
    divisor_scale = divisor.coefficient if divisor.kind == "mul" else 1  # type: ignore[attr-defined]
    for core, coefficient in dividend.terms:
        rest = divide_term(core, coefficient, symbolic_part)
        if rest is None or known_multiple(rest) % divisor_scale:
            return False
    return dividend.constant == 0


def _without_remainders(e: Expr, modulus: int) -> Expr:
    """An expression that differs from `e` by a multiple of `modulus`.

    It has c * x in place of c * (x mod m) if `modulus` divides c * m.
    """
    result = e
    for core, coefficient in e.terms:
        period = core.args[1] if isinstance(core, Mod) else None
        if isinstance(period, Const) and coefficient * period.value % modulus == 0:
            result = plus(result, scale(minus(core.args[0], core), coefficient))
    return result


@lru_cache(maxsize=CACHE_SIZE)
def _height(e: Expr) -> int:
    """The depth of eliminations in `e`: zero for a constant or a symbol with numeric bounds."""
    if isinstance(e, Symbol):
        return 1 + _height(e.hi) if isinstance(e.hi, Expr) else 0
    children = e.args
    if not children:
        return 0
    deepest = max([_height(child) for child in children])
    return deepest if e.kind in ("add", "mul") else deepest + 1


def _atoms(e: Expr) -> list[Expr]:
    """The factors worth eliminating, those that others may depend on last.

    A symbol with numeric bounds that is no factor of a product is left out: the numeric range
    of `e` accounts for it exactly.
    """
    found: dict[Expr, int] = {}
    for core, _ in e.terms:
        factors = core.factors
        if len(factors) > 1 or not isinstance(core, Symbol) or isinstance(core.hi, Expr):
            for factor in factors:
                if factor not in found:
                    found[factor] = _height(factor)
    if len(found) < 2:
        return list(found)
    return sorted(found, key=lambda atom: (-found[atom], atom.order))


def _split_linear(e: Expr, atom: Expr) -> tuple[Expr, Expr]:
    """(c, r) with `e = c * atom + r` and `atom` no factor in r; c holds the other powers of it."""
    coefficients: list[tuple[Expr, int]] = []
    rest: dict[Expr, int] = {}
    for core, coefficient in e.terms:
        factors = core.factors
        if atom in factors:
            others = list(factors)
            others.remove(atom)
            coefficients.append((monomial(coefficient, others), 1))
        else:
            rest[core] = coefficient
    return combine(coefficients), from_terms(rest, e.constant)


def _search(e: Expr, budget: list[int]) -> bool:
    low, high = bounds(e)
    if low is not None and low >= 0:
        return True
    if high is not None and high < 0:
        return False
    for atom in _atoms(e):
        split = _split_linear(e, atom)
        cases = _cases(atom, *split)
        if cases:
            budget[0] -= len(cases)
            return budget[0] > 0 and all(_search(case, budget) for case in cases)
        tried = False
        for lowered in _lowerings(atom, *split):
            tried = True
            if budget[0] <= 0:
                return False
            budget[0] -= 1
            if _search(lowered, budget):
                return True
        if tried:
            # The bounds of this atom are the only ones it has; another order of elimination
            # would use the same ones.
            return False
    return False


def _sign(coefficient: Expr) -> int:
    """1 if the coefficient's range has nothing negative, -1 if nothing positive, 0 if neither."""
    low, high = bounds(coefficient)
    if high is not None and high <= 0:
        return -1
    return 1 if low is not None and low >= 0 else 0


def _cases(atom: Expr, coefficient: Expr, rest: Expr) -> list[Expr]:
    """For a min or max that pulls the wrong way: one expression for each argument it may equal."""
    if not isinstance(atom, (Min, Max)) or _sign(coefficient) != (1 if isinstance(atom, Min) else -1):
        return []
    return [plus(multiply(coefficient, arg), rest) for arg in atom.args]


def _lowerings(atom: Expr, coefficient: Expr, rest: Expr) -> Iterator[Expr]:
    """Expressions with less of `atom` whose being non-negative implies `coefficient * atom + rest >= 0`."""
    if isinstance(atom, FloorDiv):
        yield from _lower_quotient(atom, coefficient, rest)
        return
    sign = _sign(coefficient)
    if sign < 0:
        for bound in _upper_bounds(atom):
            yield plus(multiply(coefficient, bound), rest)
    elif sign > 0:
        for bound in _lower_bounds(atom):
            yield plus(multiply(coefficient, bound), rest)


def _lower_quotient(atom: FloorDiv, coefficient: Expr, rest: Expr) -> Iterator[Expr]:
    # With q = a // b and b >= 1:  a - b + 1 <= b*q <= a.
    dividend, divisor = atom.dividend, atom.divisor
    if not is_positive_divisor(divisor):
        return
    sign = _sign(coefficient)
    if sign == 0:
        return
    least = dividend if sign < 0 else plus_constant(minus(dividend, divisor), 1)
    cancelled = exact_quotient(coefficient, divisor)
    if cancelled is not None:
        yield plus(multiply(cancelled, least), rest)
        return
    # c*q + r >= 0 is equivalent to b*(c*q + r) > -b, since the left side is an integer. For
    # c = 1 and c = -1 the following conditions are equivalent to it, too.
    if coefficient.kind == "const" and coefficient.constant == 1:
        yield plus(dividend, multiply(divisor, rest))
        return
    scaled_rest = plus_constant(plus(multiply(divisor, rest), divisor), -1)
    yield plus(multiply(coefficient, least), scaled_rest)


def _upper_bounds(atom: Expr) -> Iterator[Expr]:
    if isinstance(atom, Symbol):
        if isinstance(atom.hi, Expr):
            yield atom.hi
        else:
            yield from _numeric(bounds(atom)[1])
    elif isinstance(atom, Mod):
        if is_positive_divisor(atom.divisor):
            # Both operands are multiples of the remainder's known divisor, so is the gap.
            yield plus_constant(atom.divisor, -max(known_multiple(atom), 1))
            if is_nonneg(atom.dividend):
                yield atom.dividend
    elif isinstance(atom, Min):
        yield from atom.args
    elif isinstance(atom, Xor):
        yield from _numeric(bounds(atom)[1])
        if bounds(atom)[0] == 0:  # for operands >= 0 the exclusive or is at most the sum
            yield combine([(arg, 1) for arg in atom.args])
    else:
        yield from _numeric(bounds(atom)[1])


def _lower_bounds(atom: Expr) -> Iterator[Expr]:
    if isinstance(atom, Max):
        yield from atom.args
    else:
        yield from _numeric(bounds(atom)[0])


def _numeric(bound: int | None) -> Iterator[Expr]:
    if bound is not None:
        yield const(bound)
