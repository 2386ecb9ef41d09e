"""Floor division and remainder: the rewrite rules and the constructors that apply them.

Each rule is a function `(dividend, divisor) -> simplified or None` that is correct by itself
for every divisor of at least one. FLOORDIV_RULES and MOD_RULES give the order in which they
are tried. tests/sym/test_rules.py proves every row.

A rule never turns a dividend that is known to be non-negative into one that is not, so that
the quotient can be printed as C's truncating division wherever the original could.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache

from fusewright.sym.nodes import (
    CACHE_SIZE,
    ONE,
    ZERO,
    Const,
    Expr,
    FloorDiv,
    Mod,
    as_expr,
    const,
    node,
)
from fusewright.sym.polynomial import (
    combine,
    common_divisor,
    divide_with_rest,
    exact_quotient,
    from_terms,
    minus,
    monomial,
    multiply,
    plus,
    plus_constant,
    scale,
)
from fusewright.sym.prover import divides, is_nonneg
from fusewright.sym.ranges import bounds, is_positive_divisor, known_multiple, term_multiple

Rule = Callable[[Expr, Expr], "Expr | None"]


def is_nonneg_dividend(x: Expr, k: Expr) -> bool:
    """Whether `x >= 0` is provable, given that `x` is divided by `k` and hence `k >= 1`."""
    return is_nonneg(x) or (not isinstance(k, Const) and is_nonneg(plus_constant(minus(x, k), 1)))


def _keeps_sign(x: Expr, replacement: Expr, k: Expr) -> bool:
    low = bounds(replacement)[0]
    return (
        (low is not None and low >= 0) or is_nonneg_dividend(replacement, k) or not is_nonneg_dividend(x, k)
    )


def _known_quotient(x: Expr, k: Expr) -> int | None:
    """`x // k` if it is the same integer over the whole range of `x`, else None."""
    low, high = bounds(x)
    if isinstance(k, Const):
        if low is not None and high is not None and low // k.value == high // k.value:
            return low // k.value
    elif high is not None and high < 0:
        return -1 if is_nonneg_dividend(plus(x, k), k) else None
    if is_nonneg_dividend(x, k):
        return 0 if is_nonneg_dividend(plus_constant(minus(k, x), -1), k) else None
    return None


def quotient_known(x: Expr, k: Expr) -> Expr | None:
    """x // k -> q  where q*k <= x < (q+1)*k is provable."""
    q = _known_quotient(x, k)
    return None if q is None else const(q)


def remainder_known(x: Expr, k: Expr) -> Expr | None:
    """x % k -> x - q*k  where q*k <= x < (q+1)*k is provable."""
    q = _known_quotient(x, k)
    return None if q is None else minus(x, scale(k, q))


def quotient_extract(x: Expr, k: Expr) -> Expr | None:
    """(a*k + b) // k -> a + b // k"""
    q, rest = divide_with_rest(x, k)
    low = _reduce_coefficients(rest, k.value) if isinstance(k, Const) else rest
    folded = _known_quotient(low, k) if low is not rest or q is not ZERO else None
    if folded is not None:
        within = exact_quotient(minus(rest, low), k)
        assert within is not None
        return plus_constant(plus(q, within), folded)
    if q is ZERO:
        return None
    if rest.constant == -1 and q.constant > 0:
        # (a + k - 1) // k is a ceiling division: leave its k inside.
        q, rest = plus_constant(q, -1), plus(rest, k)
        if q is ZERO:
            return None
    if not _keeps_sign(x, rest, k):
        return None
    return plus(q, floordiv(rest, k))


def remainder_of_multiple(x: Expr, k: Expr) -> Expr | None:
    """x % k -> 0  where the constant k is known to divide x"""
    return ZERO if isinstance(k, Const) and known_multiple(x) % k.value == 0 else None


def remainder_extract(x: Expr, k: Expr) -> Expr | None:
    """(a*k + b) % k -> b % k"""
    _, rest = divide_with_rest(x, k)
    if isinstance(k, Const):
        rest = _reduce_coefficients(rest, k.value)
    if rest is x:
        return None
    folded = _known_quotient(rest, k)
    if folded is not None:
        return minus(rest, scale(k, folded))
    return mod(rest, k) if _keeps_sign(x, rest, k) else None


def _reduce_coefficients(x: Expr, k: int) -> Expr:
    # Towards zero: a small negative coefficient must not become a large positive one.
    reduced = {core: int(math.fmod(coefficient, k)) for core, coefficient in x.terms}
    if all(reduced[core] == coefficient for core, coefficient in x.terms):
        return x
    return from_terms(reduced, x.constant)


def _split_low(x: Expr, k: Expr) -> tuple[Expr, Expr] | None:
    """(high, low) with x = high + low, g dividing `high` and `k`, and 0 <= low < g for some g > 1."""
    if not x.terms:
        return None
    number = known_multiple(k)
    if number > 1:
        steps = {math.gcd(number, term_multiple(core, c)) for core, c in x.terms}
        for step in sorted(steps - {1}, reverse=True):
            high = {core: c for core, c in x.terms if term_multiple(core, c) % step == 0}
            low_terms = {core: c for core, c in x.terms if core not in high}
            low = from_terms(low_terms, x.constant % step)
            least, most = bounds(low)
            if low is not ZERO and least is not None and most is not None and least >= 0 and most < step:
                return from_terms(high, x.constant - x.constant % step), low
    for g in _symbolic_parts(x, k):
        quotient, low = divide_with_rest(x, g)
        if low is ZERO or quotient is ZERO:
            continue
        if is_nonneg_dividend(low, g) and is_nonneg_dividend(plus_constant(minus(g, low), -1), g):
            return multiply(quotient, g), low
    return None


def _symbolic_parts(x: Expr, k: Expr) -> Iterator[Expr]:
    """Proper divisors of a product `k` that some summand of `x` shares with it."""
    if k.kind != "mul":
        return
    seen = set()
    for core, coefficient in x.terms:
        part = common_divisor(monomial(coefficient, core.factors), k)
        if part.kind != "const" and part is not k and part not in seen:
            seen.add(part)
            yield part


def quotient_drop_low(x: Expr, k: Expr) -> Expr | None:
    """(g*a + low) // (g*b) -> (g*a) // (g*b)  where 0 <= low < g; g*b may be a known multiple of g"""
    split = _split_low(x, k)
    if split is None or not _keeps_sign(x, split[0], k):
        return None
    return floordiv(split[0], k)


def remainder_split_low(x: Expr, k: Expr) -> Expr | None:
    """(g*a + low) % (g*b) -> (g*a) % (g*b) + low  where 0 <= low < g"""
    split = _split_low(x, k)
    if split is None or not _keeps_sign(x, split[0], k):
        return None
    return add(mod(split[0], k), split[1])


def _cancel(x: Expr, k: Expr) -> tuple[Expr, Expr, Expr] | None:
    g = common_divisor(x, k)
    if g is ONE or not is_positive_divisor(g):
        return None
    x_part, k_part = exact_quotient(x, g), exact_quotient(k, g)
    if x_part is None or k_part is None or not is_positive_divisor(k_part):
        return None
    return g, x_part, k_part


def quotient_cancel(x: Expr, k: Expr) -> Expr | None:
    """(g*a) // (g*b) -> a // b"""
    parts = _cancel(x, k)
    return None if parts is None else floordiv(parts[1], parts[2])


def remainder_cancel(x: Expr, k: Expr) -> Expr | None:
    """(g*a) % (g*b) -> g * (a % b)"""
    parts = _cancel(x, k)
    return None if parts is None else mul(parts[0], mod(parts[1], parts[2]))


def quotient_of_quotient(x: Expr, k: Expr) -> Expr | None:
    """(x // a + c) // b -> (x + a*c) // (a*b)  for a constant c"""
    if len(x.terms) != 1:
        return None
    (inner, coefficient) = x.terms[0]
    if coefficient != 1 or not isinstance(inner, FloorDiv) or not is_positive_divisor(inner.divisor):
        return None
    dividend = plus(inner.dividend, scale(inner.divisor, x.constant))
    if not _keeps_sign(x, dividend, k):
        return None
    return floordiv(dividend, multiply(inner.divisor, k))


def quotient_of_sum(x: Expr, k: Expr) -> Expr | None:
    """(y + z // a) // b -> (a*y + z) // (a*b)  if that removes low terms of a*y + z"""
    if len(x.terms) < 2:
        return None
    for core, coefficient in x.terms:
        if coefficient != 1 or not isinstance(core, FloorDiv) or not is_positive_divisor(core.divisor):
            continue
        whole = plus(multiply(core.divisor, minus(x, core)), core.dividend)
        divisor = multiply(core.divisor, k)
        split = _split_low(whole, divisor)
        if split is not None and _keeps_sign(x, split[0], k):
            return floordiv(split[0], divisor)
    return None


def quotient_of_remainder(x: Expr, k: Expr) -> Expr | None:
    """(x % (a*b)) // a -> (x // a) % b"""
    if not isinstance(x, Mod) or not is_positive_divisor(x.divisor):
        return None
    radix = exact_quotient(x.divisor, k)
    if radix is None or not is_positive_divisor(radix) or not _keeps_sign(x, x.dividend, k):
        return None
    return mod(floordiv(x.dividend, k), radix)


def remainder_of_remainder(x: Expr, k: Expr) -> Expr | None:
    """(c * (x % (a*k)) + y) % k -> (c*x + y) % k"""
    parts: list[tuple[Expr, int]] = [(const(x.constant), 1)]
    found = False
    for core, coefficient in x.terms:
        if isinstance(core, Mod) and exact_quotient(core.divisor, k) is not None:
            found = True
            core = core.dividend
        parts.append((core, coefficient))
    if not found:
        return None
    replacement = _recombined(combine(parts))
    return mod(replacement, k) if _keeps_sign(x, replacement, k) else None


def remainder_of_digits(x: Expr, k: Expr) -> Expr | None:
    """(c * (y // a) + d * (y % a) + z) % k -> (d*y + z) % k  where c is d*a minus a multiple of k

    `add` recombines only digits with their original coefficients. The coefficients of a remainder may have
    been reduced before its symbols were replaced by digits.
    """
    if not isinstance(k, Const) or len(x.terms) < 2:
        return None
    coefficients = dict(x.terms)
    for low, d in x.terms:
        if not isinstance(low, Mod) or not isinstance(low.divisor, Const):
            continue
        y, a = low.args
        quotient = floordiv(y, a)
        for high, c in coefficients.items():
            if high is low or (c - d * low.divisor.value) % k.value:
                continue
            whole = y if high is quotient else _whole_of(high, quotient, y, a)
            if whole is not None:
                replacement = combine([(x, 1), (low, -d), (high, -c), (whole, d)])
                return mod(replacement, k) if _keeps_sign(x, replacement, k) else None
    return None


FLOORDIV_RULES: tuple[Rule, ...] = (
    quotient_extract,
    quotient_known,
    quotient_of_quotient,
    quotient_of_sum,
    quotient_of_remainder,
    quotient_drop_low,
    quotient_cancel,
)

MOD_RULES: tuple[Rule, ...] = (
    remainder_of_multiple,
    remainder_extract,
    remainder_known,
    remainder_of_remainder,
    remainder_of_digits,
    remainder_split_low,
    remainder_cancel,
)


@lru_cache(maxsize=CACHE_SIZE)
def _quotient(x: Expr, k: Expr) -> Expr:
    if isinstance(k, Const) and k.value < 0:
        return _quotient(scale(x, -1), const(-k.value))
    simplified = _apply(FLOORDIV_RULES, x, k)
    return node(FloorDiv, (x, k)) if simplified is None else simplified


@lru_cache(maxsize=CACHE_SIZE)
def _remainder(x: Expr, k: Expr) -> Expr:
    if isinstance(k, Const) and k.value < 0:
        return scale(_remainder(scale(x, -1), const(-k.value)), -1)
    simplified = _apply(MOD_RULES, x, k)
    return node(Mod, (x, k)) if simplified is None else simplified


def _apply(rules: tuple[Rule, ...], x: Expr, k: Expr) -> Expr | None:
    if is_positive_divisor(k):
        for rule in rules:
            simplified = rule(x, k)
            if simplified is not None:
                return simplified
    return None


def floordiv(a: Expr | int, b: Expr | int) -> Expr:
    """`a // b`, rounded towards minus infinity. Raises ZeroDivisionError for a constant zero `b`."""
    x, k = as_expr(a), as_expr(b)
    if k is ONE:
        return x
    if isinstance(k, Const):
        if isinstance(x, Const):
            return const(x.value // k.value)
        if k.value == 0:
            raise ZeroDivisionError(f"division of {x!r} by zero")
    if x is ZERO or _is_below_multiple(x, k):
        return ZERO
    return ONE if x is k else _quotient(x, k)


def _is_below_multiple(x: Expr, k: Expr) -> bool:
    """Whether 0 <= x < m for some m that divides the divisor, which is positive since it is not zero."""
    if isinstance(k, Const) or not is_positive_divisor(k):
        return False
    low, high = bounds(x)
    return low is not None and high is not None and low >= 0 and high < known_multiple(k)


def mod(a: Expr | int, b: Expr | int) -> Expr:
    """`a % b`, with the sign of `b`. Raises ZeroDivisionError for a constant zero `b`."""
    x, k = as_expr(a), as_expr(b)
    if k is ONE:
        return ZERO
    if isinstance(k, Const):
        if isinstance(x, Const):
            return const(x.value % k.value)
        if k.value == 0:
            raise ZeroDivisionError(f"remainder of {x!r} by zero")
    if _is_below_multiple(x, k):
        return x
    return ZERO if x is ZERO or x is k else _remainder(x, k)


def ceildiv(a: Expr | int, b: Expr | int) -> Expr:
    """`a / b` rounded up, kept as `(a + b - 1) // b` (`ceildiv_parts` recognises it)."""
    return _ceildiv(as_expr(a), as_expr(b))


@lru_cache(maxsize=CACHE_SIZE)
def _ceildiv(x: Expr, k: Expr) -> Expr:
    if divides(k, x) or k is ONE:
        return floordiv(x, k)
    if not is_positive_divisor(k):
        return scale(floordiv(scale(x, -1), k), -1)
    return floordiv(plus_constant(plus(x, k), -1), k)


def ceildiv_parts(e: Expr) -> tuple[Expr, Expr] | None:
    """(a, b) if `e` is the quotient `(a + b - 1) // b` of a ceiling division, else None."""
    if not isinstance(e, FloorDiv):
        return None
    x, k = e.args
    dividend = plus_constant(minus(x, k), 1)
    if isinstance(k, Const):
        return (dividend, k) if x.terms and dividend.constant == 0 else None
    return (dividend, k) if x.constant == k.constant - 1 and len(dividend.terms) < len(x.terms) else None


def _recombine(e: Expr) -> Expr:
    """(x // a) * a + x % a -> x  and  (x // a % b) * a + x % a -> x % (a*b), times any factor.

    The dividend of the remainder may differ from x by a multiple of a, if the remainders of both are the same
    expression.
    """
    terms = dict(e.terms)
    for core, coefficient in e.terms:
        for remainder in core.factors:
            if type(remainder) is Mod:
                others = list(core.factors)
                others.remove(remainder)
                whole = _matching_whole(terms, remainder, monomial(coefficient, others))
                if whole is not None:
                    replaced, partner = whole
                    part = monomial(coefficient, [*others, remainder])
                    return add(combine([(e, 1), (part, -1), (partner, -1)]), replaced)
    return e


def _matching_whole(terms: dict[Expr, int], remainder: Mod, factor: Expr) -> tuple[Expr, Expr] | None:
    x, a = remainder.args
    if not is_positive_divisor(a):
        return None
    quotient = floordiv(x, a)
    stride = multiply(factor, a)
    partner = multiply(stride, quotient)
    if partner.terms and all(terms.get(core) == coefficient for core, coefficient in partner.terms):
        if partner.constant == 0:
            return mul(factor, x), partner
        return None
    for core in terms:
        for digit in core.factors:
            whole = _whole_of(digit, quotient, x, a)
            if whole is not None:
                partner = multiply(stride, digit)
                if all(terms.get(c) == coefficient for c, coefficient in partner.terms):
                    return mul(factor, whole), partner
    return None


def _whole_of(digit: Expr, quotient: Expr, x: Expr, a: Expr) -> Expr | None:
    """The number whose higher digit is `digit` and whose lowest digit is x % a, or None.

    It is y for the digit y // a, y % (a*b) for y // a % b, and (a*z + y) % (a*b) for (z + y // a) % b, where
    y is x or differs from x by a multiple of a.
    """
    if isinstance(digit, Mod):
        whole = x if digit.dividend is quotient else _congruent_dividend(digit.dividend, x, a)
        if whole is None and len(digit.dividend.terms) > 1:
            whole = _whole_of_sum(digit.dividend, x, a)
        known = whole is not None and is_positive_divisor(digit.divisor)
        return mod(whole, multiply(a, digit.divisor)) if known and whole is not None else None
    return _congruent_dividend(digit, x, a)


def _congruent_dividend(quotient: Expr, x: Expr, a: Expr) -> Expr | None:
    """The dividend y of a quotient y // a, if x - y is a multiple of a; else None.

    The quotient may also be a nested one that has the same value. If x is z // b, it may be y // (a*b), and
    the result is y // b. If a is b*c, it may be (x // b + d) // c where c divides d, and the result is
    x + b*d.
    """
    if not isinstance(quotient, FloorDiv):
        return None
    y, divisor = quotient.args
    if divisor is a:
        return y if _is_congruent(x, y, a) else None
    if isinstance(x, FloorDiv) and divisor is multiply(x.divisor, a):
        return floordiv(y, x.divisor) if _is_congruent(x.dividend, y, divisor) else None
    b = exact_quotient(a, divisor)
    if b is None or not is_positive_divisor(b):
        return None
    rest = minus(y, floordiv(x, b))
    return plus(x, multiply(b, rest)) if divides(divisor, rest) else None


def _is_congruent(x: Expr, y: Expr, a: Expr) -> bool:
    """Whether x - y is known to be a multiple of a."""
    return divides(a, minus(y, x)) if isinstance(a, Const) else mod(y, a) is mod(x, a)


def _whole_of_sum(e: Expr, x: Expr, a: Expr) -> Expr | None:
    """a*z + y for a sum z + y // a, else None."""
    for core, coefficient in e.terms:
        y = _congruent_dividend(core, x, a) if coefficient == 1 else None
        if y is not None:
            return add(multiply(a, minus(e, core)), y)
    return None


def _has_remainder(e: Expr) -> bool:
    terms = e.terms
    if len(terms) < 2:
        return False
    for core, _ in terms:
        if type(core) is Mod:
            return True
        if core.kind == "mul":
            for factor in core.factors:
                if type(factor) is Mod:
                    return True
    return False


def _recombined(total: Expr) -> Expr:
    return _recombine(total) if _has_remainder(total) else total


def add(*operands: Expr | int) -> Expr:
    """The sum of the operands."""
    if len(operands) == 2:
        total = plus(as_expr(operands[0]), as_expr(operands[1]))
    else:
        total = combine([(as_expr(operand), 1) for operand in operands])
    return _recombined(total)


def sub(a: Expr | int, b: Expr | int) -> Expr:
    """`a - b`."""
    total = minus(as_expr(a), as_expr(b))
    return _recombined(total)


def mul(*operands: Expr | int) -> Expr:
    """The product of the operands."""
    total: Expr = ONE
    for operand in operands:
        total = multiply(total, as_expr(operand))
    return _recombined(total)
