"""Every rewrite rule of division and remainder is proved.

Twice: as a statement about integers, by z3, and as code, by calling the rule alone on
instances of its pattern and comparing with naive evaluation over all small assignments.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
import z3

from fusewright import sym
from fusewright.sym import Expr, FloorDiv, as_expr, division, floordiv, le, lt, symbol
from tests.sym.exhaustive import assignments

A, B, K = symbol("A", lo=1), symbol("B", lo=1), symbol("K")
V = symbol("V", multiple_of=4)
i, j = symbol("i", hi=7), symbol("j", hi=3)
a, b, k = symbol("a", hi=A - 1), symbol("b", hi=B - 1), symbol("k", hi=K - 1)
s = symbol("s", lo=-5, hi=4)

# rule -> (dividend, divisor) pairs on which it must fire
INSTANCES: dict[Callable[[Expr, Expr], Expr | None], list[tuple[Expr | int, Expr | int]]] = {
    division.quotient_extract: [
        (4 * i + j + s, 4),
        (a * B + s, B),
        (i * A * B + a, A * B),
        (i * (K + 2) + s, K + 2),
        (i + 9, 4),
        (i * K + a + 2 * K - 1, K),
        (A * K - 1, K),
        (17 * i + 33 * j, 16),
        (5 * j + 4, 4),
    ],
    division.quotient_known: [(j, 4), (a, A), (s - 6, 12), (-k - 1, K), (i + 8, 8), (k, K + 3)],
    division.quotient_of_quotient: [(i // 3, 2), (s // 3 + 2, 2), (i // A, B), (i // 2 + 1, A)],
    division.quotient_of_sum: [(2 * s + (4 * i + j) // 6, 2), (2 * a + (4 * i + j) // 6, 2 * K)],
    division.quotient_of_remainder: [(sym.mod(i, 6), 3), (sym.mod(i, A * B), A), (sym.mod(i, 2 * K), K)],
    division.quotient_drop_low: [
        (4 * i + j, V),
        (4 * i + j, 8),
        (i * B + b, A * B),
        (V + 4 * i + j + 8, 12),
        (4 * i * K + j * K + k, 2 * K),
    ],
    division.quotient_cancel: [(4 * i, 6), (a * K, B * K), (2 * a * K, 4 * K), (4 * s + 2, 8)],
    division.remainder_of_multiple: [(4 * i, 2), (V * s, 4), (4 * s + V + 8, 4)],
    division.remainder_extract: [
        (4 * i + j + s, 4),
        (a * B + s, B),
        (7 * i, 4),
        (-9 * i, 4),
        (i * (K + 2) + s, K + 2),
        (i + 9, 4),
        (A * K - 1, K),
    ],
    division.remainder_known: [(j, 4), (a, A), (s - 6, 12), (-k - 1, K), (i + 8, 8)],
    division.remainder_of_remainder: [
        (sym.mod(i, 6), 3),
        (sym.mod(i, A * B), A),
        (3 * sym.mod(i, 6) + j, 2),
        (sym.mod(i, 2 * K) + j, K),
    ],
    division.remainder_of_digits: [
        (i // 2 + 3 * sym.mod(i, 2) + s, 5),
        (-2 * (i // 4) + 2 * sym.mod(i, 4), 5),
        (sym.mod(i // 2, 3) + 3 * sym.mod(i, 2) + j, 5),
        (a // 27 * 4 + sym.mod((4 * a + j) // 9, 12), 8),
        (2 * sym.mod(K // 3, 2) + 3 * sym.mod(K, 3), 7),
    ],
    division.remainder_split_low: [
        (4 * i + j, V),
        (4 * i + j, 8),
        (i * B + b, A * B),
        (V + 4 * i + j + 8, 12),
    ],
    division.remainder_cancel: [(4 * i, 6), (a * K, B * K), (2 * a * K, 4 * K), (4 * s + 2, 8)],
}

LARGEST = 4


def test_every_rule_in_the_tables_has_instances_and_a_proof() -> None:
    rules = {*division.FLOORDIV_RULES, *division.MOD_RULES}
    assert rules == set(INSTANCES)
    assert rules <= set(STATEMENTS)


@pytest.mark.parametrize(
    ("rule", "dividend", "divisor"),
    [(rule, as_expr(x), as_expr(d)) for rule, pairs in INSTANCES.items() for x, d in pairs],
    ids=lambda part: getattr(part, "__name__", None) or str(part),
)
def test_rule_fires_and_keeps_the_value(
    rule: Callable[[Expr, Expr], Expr | None], dividend: Expr, divisor: Expr
) -> None:
    result = rule(dividend, divisor)
    assert result is not None
    checked = 0
    for env in assignments({*dividend.free_symbols, *divisor.free_symbols}, LARGEST):
        d = sym.evaluate(divisor, env)
        if d > 0:
            x = sym.evaluate(dividend, env)
            expected = x // d if rule in division.FLOORDIV_RULES else x % d
            assert sym.evaluate(result, env) == expected, env
            checked += 1
    assert checked > 3


class Integers:
    """Integer variables of one proof, with the facts assumed about them."""

    def __init__(self) -> None:
        self.facts: list[z3.BoolRef] = []

    def any(self, *names: str) -> list[z3.ArithRef]:
        return [z3.Int(name) for name in names]

    def positive(self, *names: str) -> list[z3.ArithRef]:
        variables = self.any(*names)
        self.facts += [variable >= 1 for variable in variables]
        return variables

    def divmod(self, x: z3.ArithRef, d: z3.ArithRef) -> tuple[z3.ArithRef, z3.ArithRef]:
        """Quotient and remainder by their definition for a positive divisor, x = q*d + r, 0 <= r < d."""
        q, r = z3.FreshInt("q"), z3.FreshInt("r")
        self.facts += [x == q * d + r, r >= 0, r < d]
        return q, r


# Each statement gives a list of goals; later ones may use those before them.
Statement = Callable[[Integers], "list[z3.BoolRef]"]


def _known(n: Integers) -> list[z3.BoolRef]:
    x, q = n.any("x", "q")
    (d,) = n.positive("d")
    n.facts += [q * d <= x, x < (q + 1) * d]
    quotient, remainder = n.divmod(x, d)
    return [quotient == q, remainder == x - q * d]


def _multiple(n: Integers) -> list[z3.BoolRef]:
    (x,) = n.any("x")
    (d,) = n.positive("d")
    _, remainder = n.divmod(x * d, d)
    return [remainder == 0]


def _extract(n: Integers) -> list[z3.BoolRef]:
    x, y = n.any("x", "y")
    (d,) = n.positive("d")
    quotient, remainder = n.divmod(x * d + y, d)
    rest_quotient, rest_remainder = n.divmod(y, d)
    return [quotient == x + rest_quotient, remainder == rest_remainder]


def _drop_low(n: Integers) -> list[z3.BoolRef]:
    x, low = n.any("x", "low")
    y, g = n.positive("y", "g")
    n.facts += [low >= 0, low < g]
    quotient, remainder = n.divmod(g * x + low, g * y)
    high_quotient, high_remainder = n.divmod(g * x, g * y)
    return [quotient == high_quotient, remainder == high_remainder + low]


def _cancel(n: Integers) -> list[z3.BoolRef]:
    (x,) = n.any("x")
    y, g = n.positive("y", "g")
    quotient, remainder = n.divmod(g * x, g * y)
    small_quotient, small_remainder = n.divmod(x, y)
    return [quotient == small_quotient, remainder == g * small_remainder]


def _quotient_of_quotient(n: Integers) -> list[z3.BoolRef]:
    x, c = n.any("x", "c")
    y, z = n.positive("y", "z")
    outer, _ = n.divmod(n.divmod(x, y)[0] + c, z)
    flat, _ = n.divmod(x + y * c, y * z)
    return [outer == flat]


def _quotient_of_remainder(n: Integers) -> list[z3.BoolRef]:
    (x,) = n.any("x")
    y, z = n.positive("y", "z")
    whole, rest = n.divmod(x, y * z)
    digit, _ = n.divmod(rest, y)
    quotient, _ = n.divmod(x, y)
    _, expected = n.divmod(quotient, z)
    return [digit >= 0, digit < z, quotient == z * whole + digit, digit == expected]


def _remainder_of_remainder(n: Integers) -> list[z3.BoolRef]:
    x, y, c = n.any("x", "y", "c")
    z, d = n.positive("z", "d")
    _, inner = n.divmod(x, z * d)
    _, nested = n.divmod(c * inner + y, d)
    _, flat = n.divmod(c * x + y, d)
    return [nested == flat]


def _remainder_of_digits(n: Integers) -> list[z3.BoolRef]:
    x, z, c, d, m = n.any("x", "z", "c", "d", "m")
    y, k = n.positive("y", "k")
    n.facts += [c == d * y + m * k]
    quotient, low = n.divmod(x, y)
    _, digits = n.divmod(c * quotient + d * low + z, k)
    _, joined = n.divmod(d * x + z, k)
    return [c * quotient + d * low == d * x + m * k * quotient, digits == joined]


def _recombine(n: Integers) -> list[z3.BoolRef]:
    x, c = n.any("x", "c")
    y, z = n.positive("y", "z")
    quotient, remainder = n.divmod(x, y)
    _, digit = n.divmod(quotient, z)
    _, joined = n.divmod(x, y * z)
    _, congruent = n.divmod(x + c * y, y)
    coarse, _ = n.divmod(quotient + c * z, z)
    flat, low = n.divmod(x + y * c * z, y * z)
    return [
        congruent == remainder,
        coarse == flat,
        low == joined,
        quotient * y + remainder == x,
        digit * y <= (z - 1) * y,
        digit * y + remainder == joined,
    ]


def _drop_low_of_comparison(n: Integers) -> list[z3.BoolRef]:
    x, low, q = n.any("x", "low", "q")
    (g,) = n.positive("g")
    n.facts += [q * g <= low, low < (q + 1) * g]
    return [(g * x + low >= 0) == (x + q >= 0), (g * x + q * g >= 0) == (x + q >= 0)]


STATEMENTS: dict[Callable[..., object], Statement] = {
    division.quotient_known: _known,
    division.remainder_known: _known,
    division.quotient_extract: _extract,
    division.remainder_extract: _extract,
    division.quotient_drop_low: _drop_low,
    division.remainder_split_low: _drop_low,
    division.quotient_cancel: _cancel,
    division.remainder_of_multiple: _multiple,
    division.remainder_cancel: _cancel,
    division.quotient_of_quotient: _quotient_of_quotient,
    division.quotient_of_sum: _quotient_of_quotient,
    division.quotient_of_remainder: _quotient_of_remainder,
    division.remainder_of_remainder: _remainder_of_remainder,
    division.remainder_of_digits: _remainder_of_digits,
    sym.add: _recombine,
    sym.lt: _drop_low_of_comparison,
}

Z3_TIMEOUT_MS = 20_000


@pytest.mark.parametrize("statement", list(dict.fromkeys(STATEMENTS.values())))
def test_rule_holds_for_all_integers(statement: Statement) -> None:
    integers = Integers()
    for goal in statement(integers):
        solver = z3.Solver()
        solver.set("timeout", Z3_TIMEOUT_MS)
        solver.add(*integers.facts, z3.Not(goal))
        assert solver.check() == z3.unsat, goal
        integers.facts.append(goal)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ((i // 4) * 4 + i % 4, i),
        ((s // A) * A + s % A, s),
        (((i // 2) % 3) * 2 + i % 2, i % 6),
        ((18 * a + i) // 6 * 2 + (i // 3) % 2, (18 * a + i) // 3),
        ((18 * K + i) // 9 * 3 + (9 * K + i) // 3 % 3, (18 * K + i) // 3),
        ((i // 2 + 4 * a) // 9 * 18 + (8 * a + i) % 18, 8 * a + i),
        ((i // 4 + a) // K % B * 4 * K + (4 * a + i) % (4 * K), (4 * a + i) % (4 * B * K)),
        ((j // 2 + 2 * i) // 3 * 6 + (j + 4 * i) % 6, 4 * i + j),
        ((j // 2 + 2 * i + 3 * k) // 3 * 6 + (j + 4 * i) % 6, 4 * i + j + 6 * k),
        ((j // 2 + 2 * i) // K * 2 * K + (j + 4 * i) % (2 * K), 4 * i + j),
        ((j // 2 + 2 * i) // 3 % 5 * 6 + (j + 4 * i) % 6, (j + 4 * i) % 30),
        ((64 * a + k) // 63 * 63 + (64 * a + k) % 63, 64 * a + k),
        (((64 * a + k) // 63 % 9) * 63 * K + (64 * a + k) % 63 * K, (64 * a + k) % 567 * K),
        ((i // A % B) * A * K + (i % A) * K, (i % (A * B)) * K),
        ((4 * i + j) % V, (4 * i) % V + j),
        ((4 * i + j) // V, (4 * i) // V),
        (sym.ceildiv(sym.ceildiv(K, 4), 8), sym.ceildiv(K, 32)),
        (4 * (V // 4), V),
        (K * (V // 4) * 8, 2 * K * V),
        ((a * B + b) * K // (B * K), a),
        (sym.ceildiv(V, 4), V // 4),
        (sym.ceildiv(a * K, K), a),
        ((i * (K + 2) + k) // (K + 2), i),
        (sym.minimum(a, A, A + 1), a),
        (sym.maximum(K, K + 2, 0), K + 2),
        (sym.lt(4 * i + j, V), sym.lt(4 * i, V)),
        (sym.le(K, i - 1), sym.lt(K, i)),
        (sym.lnot(sym.lt(K, i)), sym.le(i, K)),
        (sym.lnot(sym.land(sym.lt(K, i), sym.eq(K, s))), sym.lor(sym.le(i, K), sym.ne(K, s))),
        (sym.lor(sym.lt(K, i), sym.le(i, K)), sym.TRUE),
        (sym.eq(2 * i, 4 * K + 1), sym.FALSE),
        ((i + 1) * K - i * K, K),
        (sym.bitxor(i, 0, K, i), K),
        (sym.bitxor(i, 5, sym.bitxor(K, i, 3)), sym.bitxor(6, K)),
        (sym.bitxor(V, j), V + j),
        (sym.bitxor(4 * i + j, i), sym.bitxor(j, i, 4 * i)),
        (sym.bitxor(8 * i, 8 * K), 8 * sym.bitxor(K, i)),
        (sym.bitxor(8 * a + i, 8 * b + j), 8 * sym.bitxor(a, b) + sym.bitxor(i, j)),
        ((8 * a + sym.bitxor(i, j)) // 8, a),
        ((8 * a + sym.bitxor(i, j)) % 8, sym.bitxor(i, j)),
        (4 * sym.bitxor(a, i) // 8, sym.bitxor(a, i) // 2),
        (sym.lt(4 * sym.bitxor(i, K) + j, V), sym.lt(4 * sym.bitxor(i, K), V)),
        (sym.lt(sym.bitxor(a, b), A + B), sym.TRUE),
    ],
    ids=str,
)
def test_normal_form(expression: Expr, expected: Expr) -> None:
    assert expression is expected


@pytest.mark.parametrize("compare", [sym.lt, sym.le, sym.eq])
@pytest.mark.parametrize("scale", [-1, 1, 2])
def test_comparison_of_multiples_keeps_its_truth(compare: Callable[..., Expr], scale: int) -> None:
    """A low part, of any width and offset, beside terms that are multiples of four or six."""
    meaning = {sym.lt: operator.lt, sym.le: operator.le, sym.eq: operator.eq}[compare]
    row = symbol("row", hi=2)
    for width in range(5):
        low = symbol("low", hi=width)
        for offset in range(-9, 10):
            for step in (4, 6):
                left, right = step * row + scale * low + offset, 3 * V
                cond = compare(left, right)
                for env in assignments({row, low, V}, 8):
                    holds = meaning(sym.evaluate(left, env), sym.evaluate(right, env))
                    assert sym.evaluate(cond, env) == holds, (left, right, cond, env)


def test_a_rule_that_would_lose_the_sign_refuses() -> None:
    assert division.quotient_of_remainder(sym.mod(s, A * B), A) is None
    assert division.remainder_of_remainder(sym.mod(s, A * B), A) is None
    assert ((4 * K - k) // K).kind == "floordiv"


def test_division_by_a_constant_zero_raises() -> None:
    with pytest.raises(ZeroDivisionError, match="i by zero"):
        i // 0
    with pytest.raises(ZeroDivisionError, match="i by zero"):
        i % 0


def test_the_whole_of_a_sum_of_digits_is_made_of_digits_too() -> None:
    """One number of two digits is found first, then the number that it is a digit of."""
    x, lane = symbol("x", multiple_of=2), symbol("lane", hi=1)
    i0, i1 = symbol("i0", multiple_of=2), symbol("i1")
    y = sym.mod(x, i0 * i1) + lane
    digits = sym.mod(floordiv(x, i0 * i1) * i0 + floordiv(y, i1), i1) * i1 + sym.mod(y, i1)
    assert digits is sym.mod(x + lane, i1 * i1)


def test_a_remainder_meets_the_digit_of_a_sum() -> None:
    """What a block begins at is a multiple of the inner size, and the place in it is not."""
    place = 4 * i + j
    joined = 6 * sym.mod(2 * s + place // 6, 6) + sym.mod(place, 6)
    assert joined is sym.mod(12 * s + place, 36)
    for env in assignments(joined.free_symbols, LARGEST):
        at = 4 * env[i] + env[j]
        assert sym.evaluate(joined, env) == 6 * ((2 * env[s] + at // 6) % 6) + at % 6


def test_a_quotient_is_compared_without_division() -> None:
    x = symbol("x")
    assert lt(floordiv(x, 6), 4) is lt(x, 24)
    assert le(floordiv(x, 6), 4) is lt(x, 30)
    assert lt(3, floordiv(x, 6)) is lt(23, x)
    assert lt(0, 7 - 2 * floordiv(x, 6)) is lt(x, 24)
    assert lt(floordiv(x, -6), 4) is not lt(x, -24)
    large = lt(floordiv(x, 2**20), 2**12)
    assert any(isinstance(e, FloorDiv) for e in large.args)
