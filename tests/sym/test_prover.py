"""What the prover must prove for index arithmetic, and what it must not."""

from __future__ import annotations

import pytest

from fusewright import sym
from fusewright.sym import Expr, as_expr, ceildiv, divides, le, lor, lt, maximum, minimum, prove, symbol

M, N, K = symbol("M"), symbol("N"), symbol("K")
V = symbol("V", multiple_of=4)
POSITIVE = symbol("D", lo=1)
m, n, k = symbol("m", hi=M - 1), symbol("n", hi=N - 1), symbol("k", hi=K - 1)
d = symbol("d", hi=POSITIVE - 1)
lane = symbol("lane", hi=3)
vector = symbol("i", hi=V // 4 - 1)
tile = symbol("tile", hi=ceildiv(N, 128) - 1)
thread = symbol("threadIdx.x", hi=127)
outer, inner = symbol("o", hi=ceildiv(N, K) - 1), symbol("f", hi=K - 1)
flat = symbol("t", hi=M * N * K - 1)
padded = symbol("p", hi=N + 1)


@pytest.mark.parametrize(
    "cond",
    [
        lt(n, N),
        lt(vector * 4 + lane, V),
        lt(tile * 128, N),
        lt(tile * 128 + thread, ceildiv(N, 128) * 128),
        lt(outer * K, N),
        lt(outer * K + inner, ceildiv(N, K) * K),
        lt(m % N, N),
        lt(flat // (N * K), M),
        lt(flat // K % N, N),
        lt((m * N + n) * K + k, M * N * K),
        lt(m * (N + 2) + padded, M * (N + 2)),
        lt(padded - 2, N),
        le(N // 4 * 4, N),
        lt(N, N // 4 * 4 + 4),
        le(N, ceildiv(N, M) * M),
        le(ceildiv(N, POSITIVE), N),
        le(minimum(m, K), m),
        le(m, maximum(m, K)),
        lt(minimum(m, n), N),
        le(minimum(m, n), maximum(m, k)),
        lt(d * d, POSITIVE * POSITIVE),
        lt(4 * thread % V + lane, V),
        lor(le(V, 4 * thread), lt(4 * thread + lane, V)),
    ],
    ids=str,
)
def test_proves(cond: Expr) -> None:
    assert prove(cond)


@pytest.mark.parametrize(
    "cond",
    [
        lt(0, N),
        lt(tile * 128 + thread, N),
        lt(n, N - 1),
        lt(n, M),
        le(V, 4 * (N // 4)),
        lt(flat // K, M),
        sym.eq(n, N - 1),
        sym.ne(n, 0),
    ],
    ids=str,
)
def test_does_not_prove_what_may_fail(cond: Expr) -> None:
    assert not prove(cond)
    assert not prove(sym.lnot(cond))


@pytest.mark.parametrize(
    ("divisor", "dividend", "expected"),
    [
        (4, V, True),
        (8, V, False),
        (8, 2 * V, True),
        (16, V * (4 * N), True),
        (2, V // 2, True),
        (4, V // 2, False),
        (4, V % 12, True),
        (4, M * 3 + V - (M * 3 + 4) % 16, True),
        (8, M - M % 12, False),
        (N, N * M + N, True),
        (N, N + 1, False),
        (N * M, N * M * K, True),
        (4 * N, V * N, True),
        (N + 2, m * (N + 2), True),
        (7, 0, True),
        (N, 0, True),
        (3, 10, False),
    ],
    ids=str,
)
def test_divides(divisor: Expr | int, dividend: Expr | int, expected: bool) -> None:
    assert divides(divisor, dividend) is expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (symbol("x", lo=1, hi=10, multiple_of=4), (4, 8)),
        (thread * -2 + 3, (-251, 3)),
        (N // 4, (0, None)),
        (thread // POSITIVE, (0, 127)),
        (thread % 24, (0, 23)),
        (V % 24, (0, 20)),
        (thread * lane, (0, 381)),
        (symbol("y", lo=-3, hi=2) * lane, (-9, 6)),
        (minimum(N, 9), (0, 9)),
        (maximum(N, 9), (9, None)),
        (maximum(thread - 3, 4 - thread), (1, 124)),  # half of what they add up to, or more
        (minimum(thread - 3, 3 - thread), (-124, 0)),
        (lt(N, M), (0, 1)),
        (as_expr(5), (5, 5)),
        (symbol("z", lo=-7, hi=20) // symbol("w", lo=2, hi=3), (-4, 10)),
    ],
    ids=str,
)
def test_numeric_bounds(expression: Expr, expected: tuple[int | None, int | None]) -> None:
    assert (sym.lower_bound(expression), sym.upper_bound(expression)) == expected
