"""Sums and products in normal form, and exact division of a sum by a product.

An expression is kept as a polynomial over its atoms (symbols, quotients, remainders, ...):
products of sums are multiplied out, like terms collected. Nothing here reasons about
ranges, so the prover can use it without a cycle.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

from fusewright.sym.nodes import (
    CACHE_SIZE,
    Const,
    Expr,
    FloorDiv,
    Mul,
    Term,
    const,
    product_node,
    scaled,
    sort_nodes,
    sum_node,
)
from fusewright.sym.ranges import has_exact_division

# Products of sums with more summands than this stay products, so that a polynomial cannot
# explode; index arithmetic has a handful of terms.
MAX_EXPANDED_TERMS = 32


def _term_order(term: Term) -> tuple[str, int, int]:
    return term[0].order


def from_terms(terms: dict[Expr, int], constant: int) -> Expr:
    """`sum(coefficient * core) + constant`, the dict mapping each core to its coefficient."""
    kept = [term for term in terms.items() if term[1]]
    for core, coefficient in kept:
        if has_exact_division(core, coefficient):
            return _undo_exact_division(kept, constant, core, coefficient)
    if not kept:
        return const(constant)
    if len(kept) == 1:
        if constant == 0:
            return scaled(*kept[0])
    else:
        kept.sort(key=_term_order)
    return sum_node(tuple(kept), constant)


def _undo_exact_division(kept: list[Term], constant: int, core: Expr, coefficient: int) -> Expr:
    # c * (x // a) * rest = (c / a) * x * rest where a divides c and x.
    for position, factor in enumerate(core.factors):
        if not isinstance(factor, FloorDiv) or not has_exact_division(factor, coefficient):
            continue
        divisor = factor.divisor
        assert isinstance(divisor, Const)
        others = core.factors[:position] + core.factors[position + 1 :]
        undone = multiply(factor.dividend, monomial(coefficient // divisor.value, others))
        return combine([(from_terms({c: k for c, k in kept if c is not core}, constant), 1), (undone, 1)])
    raise AssertionError(f"no exact division in {core!r}")


def monomial(coefficient: int, factors: Iterable[Expr]) -> Expr:
    """`coefficient * product(factors)` for factors that are neither constants nor products."""
    ordered = sort_nodes(list(factors))
    if coefficient == 0 or not ordered:
        return const(coefficient)
    if len(ordered) == 1:
        only = ordered[0]
        if coefficient == 1:
            return only
        if only.kind == "add":
            return scale(only, coefficient)
    return product_node(coefficient, tuple(ordered))


def combine(parts: Iterable[tuple[Expr, int]]) -> Expr:
    """`sum(coefficient * e)` over (e, coefficient) pairs of any expressions."""
    constant = 0
    terms: dict[Expr, int] = {}
    for e, scale_by in parts:
        constant += e.constant * scale_by
        for core, coefficient in e.terms:
            terms[core] = terms.get(core, 0) + coefficient * scale_by
    return from_terms(terms, constant)


@lru_cache(maxsize=CACHE_SIZE)
def plus(a: Expr, b: Expr) -> Expr:
    """`a + b`."""
    if type(b) is Const:
        return plus_constant(a, b.value)
    if type(a) is Const:
        return plus_constant(b, a.value)
    terms = dict(a.terms)
    for core, coefficient in b.terms:
        terms[core] = terms.get(core, 0) + coefficient
    return from_terms(terms, a.constant + b.constant)


@lru_cache(maxsize=CACHE_SIZE)
def minus(a: Expr, b: Expr) -> Expr:
    """`a - b`."""
    if a is b:
        return const(0)
    terms = dict(a.terms)
    for core, coefficient in b.terms:
        terms[core] = terms.get(core, 0) - coefficient
    return from_terms(terms, a.constant - b.constant)


def plus_constant(a: Expr, value: int) -> Expr:
    """`a + value`."""
    if value == 0:
        return a
    terms = a.terms
    constant = a.constant + value
    if not terms:
        return const(constant)
    if constant == 0 and len(terms) == 1:
        return scaled(*terms[0])
    return sum_node(terms, constant)


def scale(a: Expr, value: int) -> Expr:
    """`a * value`."""
    if value == 1:
        return a
    if value == 0:
        return const(0)
    return from_terms({core: coefficient * value for core, coefficient in a.terms}, a.constant * value)


@lru_cache(maxsize=CACHE_SIZE)
def multiply(a: Expr, b: Expr) -> Expr:
    """`a * b`, multiplied out."""
    if type(b) is Const:
        return scale(a, b.value)
    if type(a) is Const:
        return scale(b, a.value)
    if a.kind != "add" and b.kind != "add":
        (a_core, a_scale), (b_core, b_scale) = a.terms[0], b.terms[0]
        product = product_node(1, tuple(sort_nodes([*a_core.factors, *b_core.factors])))
        return scale(product, a_scale * b_scale)
    a_parts, b_parts = _summands(a), _summands(b)
    if len(a_parts) * len(b_parts) > MAX_EXPANDED_TERMS:
        a_scale, b_scale = _coefficient(a), _coefficient(b)
        return monomial(a_scale * b_scale, [*a.factors, *b.factors])
    terms: dict[Expr, int] = {}
    constant = 0
    for a_factors, a_scale in a_parts:
        for b_factors, b_scale in b_parts:
            factors = sort_nodes([*a_factors, *b_factors])
            if factors:
                core = factors[0] if len(factors) == 1 else product_node(1, tuple(factors))
                terms[core] = terms.get(core, 0) + a_scale * b_scale
            else:
                constant += a_scale * b_scale
    return from_terms(terms, constant)


def _coefficient(e: Expr) -> int:
    return e.coefficient if isinstance(e, Mul) else 1


def _summands(e: Expr) -> list[tuple[tuple[Expr, ...], int]]:
    """(factors, coefficient) of each summand; the constant has no factors."""
    parts = [(core.factors, coefficient) for core, coefficient in e.terms]
    if e.constant:
        parts.append(((), e.constant))
    return parts


def divide_term(core: Expr, coefficient: int, divisor: Expr) -> Expr | None:
    """`coefficient * core / divisor` if the factors of a non-sum divisor cancel, else None."""
    divisor_scale = divisor.value if isinstance(divisor, Const) else _coefficient(divisor)
    if coefficient % divisor_scale:
        return None
    rest = list(core.factors)
    for factor in divisor.factors:
        if factor not in rest:
            return None
        rest.remove(factor)
    return monomial(coefficient // divisor_scale, rest)


def exact_quotient(e: Expr, divisor: Expr) -> Expr | None:
    """`e / divisor` if every summand cancels (long division for a sum as divisor), else None."""
    quotient, rest = divide_with_rest(e, divisor)
    return quotient if rest.kind == "const" and rest.constant == 0 else None


def divide_with_rest(e: Expr, divisor: Expr) -> tuple[Expr, Expr]:
    """(q, r) with `e = q * divisor + r`, q made of the summands that divide exactly.

    A constant summand is split for a constant divisor, so that r's is in [0, divisor).
    """
    if divisor.kind == "add":
        return _long_division(e, divisor)
    quotient: list[tuple[Expr, int]] = []
    rest: dict[Expr, int] = {}
    for core, coefficient in e.terms:
        divided = divide_term(core, coefficient, divisor)
        if divided is None:
            rest[core] = coefficient
        else:
            quotient.append((divided, 1))
    constant = e.constant
    if isinstance(divisor, Const):
        whole, constant = divmod(constant, divisor.value)
        quotient.append((const(whole), 1))
    if not quotient:
        return const(0), e
    return combine(quotient), from_terms(rest, constant)


def _long_division(e: Expr, divisor: Expr) -> tuple[Expr, Expr]:
    lead, lead_scale = max(divisor.terms, key=lambda term: (len(term[0].factors), term[0].order))
    lead_term = scaled(lead, lead_scale)
    quotient: Expr = const(0)
    rest = e
    # Each step removes one multiple of the leading term; the count bounds a division in which
    # the other terms bring new multiples of it.
    for _ in range(len(e.terms) + 1):
        for core, coefficient in rest.terms:
            divided = divide_term(core, coefficient, lead_term)
            if divided is not None:
                break
        else:
            break
        quotient = plus(quotient, divided)
        rest = minus(rest, multiply(divided, divisor))
    # The rest must have fewer summands than `e`, else the division is no simplification.
    if len(rest.terms) >= len(e.terms) and not (e.constant and rest.kind == "const"):
        return const(0), e
    return quotient, rest


def common_divisor(e: Expr, divisor: Expr) -> Expr:
    """The largest product that divides every summand of both, term by term."""
    parts = [*_summands(e), *_summands(divisor)]
    number = math.gcd(*[coefficient for _, coefficient in parts])
    shared = list(parts[0][0])
    for factors, _ in parts[1:]:
        if not shared:
            break
        available = list(factors)
        kept = []
        for factor in shared:
            if factor in available:
                available.remove(factor)
                kept.append(factor)
        shared = kept
    return monomial(number, shared)
