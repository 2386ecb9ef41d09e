"""Index expressions as C: what the text computes is what `sym` says."""

from __future__ import annotations

import ctypes
import random
from pathlib import Path

import pytest

from fusewright.core.dtype import DataType
from fusewright.core.errors import InternalError
from fusewright.cuda import snippets
from fusewright.cuda.expressions import NODE_PRINTERS, ExpressionPrinter
from fusewright.sym import (
    Expr,
    as_expr,
    build,
    ceildiv,
    eq,
    evaluate,
    floordiv,
    lnot,
    lor,
    lt,
    minimum,
    mod,
    symbol,
)
from fusewright.sym import nodes as sym_nodes
from tests.cuda.host import build as build_library
from tests.cuda.host import needs_compiler

I, J, N = symbol("i", hi=100), symbol("j", lo=-20, hi=20), symbol("n", lo=1, hi=50)  # noqa: E741


def _text(e: Expr, index_dtype: DataType = DataType.Int32) -> str:
    return ExpressionPrinter(index_dtype, lambda s: s.name, lambda name: None).text(e)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (I * 4 + N - 3, "i * 4 + n - 3"),
        (N - I * 2, "n - 2 * i"),
        (-I, "-i"),
        ((I + N) * N, "n * n + i * n"),
        (floordiv(I, N) * N, "i / n * n"),
        (ceildiv(N, 8), "(n + 7) / 8"),
        (mod(I + N, 8), "(i + n) % 8"),
        (floordiv(J, 7), "fw::floor_div(j, 7)"),
        (lor(lt(I, N), eq(N, 4)), "i < n || n == 4"),
        (lnot(eq(I, N)), "i != n"),
    ],
)
def test_text(expr: Expr, text: str) -> None:
    assert sorted(_text(expr).split()) == sorted(text.split())  # the order of terms is sym's affair


def test_wide_kernels_have_wide_constants() -> None:
    assert _text(I * 2**33, DataType.Int) == "i * 8589934592ll"
    assert _text(minimum(I, N + 5, 7), DataType.Int).count("7ll") == 1
    # Truth values are ints in C's arithmetic, which would be done in 32 bits.
    assert _text(lt(I, N) * 2**31, DataType.Int) == "(long long)(i < n) * 2147483648ll"
    assert _text(lt(I, N) + lt(J, 3), DataType.Int32) == "int(i < n) + int(j < 3)"


FAR, NEAR = symbol("far", hi=2**30), symbol("near", hi=2**30)


@pytest.mark.parametrize(
    "e", [FAR * 9 + I * 2**33, FAR + NEAR - N * 2**32, FAR * NEAR * 2**32, symbol("k") + 2**31]
)
def test_no_terms_that_may_overflow_meet_a_wider_constant(e: Expr) -> None:
    """They would be computed in 32 bits before they meet what is computed in 64."""
    with pytest.raises(InternalError, match=r"a constant of .* does not fit in indices of 32 bits"):
        _text(e)


def test_terms_that_fit_meet_a_wider_constant() -> None:
    assert _text(I + 4 * N + 2**32).endswith("4294967296ll")
    assert _text(J - N * 2**32) == "j - n * 4294967296ll"
    assert _text(lt(symbol("k"), 2**31)) == "k < 2147483648ll"


def test_every_kind_of_expression_has_its_function() -> None:
    def leaves(cls: type) -> set[type]:
        found = cls.__subclasses__()
        return set().union(*map(leaves, found)) if found else {cls}

    assert set(NODE_PRINTERS) == leaves(sym_nodes.Expr)


def _random_expression(rng: random.Random, depth: int) -> Expr:
    if depth == 0:
        return rng.choice([I, J, N, as_expr(rng.randint(-9, 9))])
    kind = rng.choice(
        ["add", "mul", "floordiv", "mod", "min", "max", "xor", "lt", "le", "eq", "not", "and", "or"]
    )
    below = [_random_expression(rng, rng.randrange(depth)) for _ in range(2)]
    if kind in ("floordiv", "mod"):
        return build(kind, [below[0], rng.choice([N, as_expr(rng.choice([-3, 2, 7, 8]))])])
    if kind in ("and", "or", "not"):
        below = [lt(e, N) for e in below]
    return build(kind, below[:1] if kind == "not" else below)


@needs_compiler
@pytest.mark.parametrize("index_dtype", [DataType.Int32, DataType.Int])
def test_the_text_computes_the_expression(tmp_path: Path, index_dtype: DataType) -> None:
    rng = random.Random(2024)
    expressions = list(dict.fromkeys(_random_expression(rng, 4) for _ in range(400)))
    kind = index_dtype.cuda
    functions = [
        f"[]({kind} i, {kind} j, {kind} n) -> long long {{ return {_text(e, index_dtype)}; }}"
        for e in expressions
    ]
    table = ",\n".join(functions)
    library = build_library(
        f"""{snippets.text("floor_division")}{snippets.text("constant_quotient")}
        long long (*const table[])({kind}, {kind}, {kind}) = {{{table}}};
        extern "C" long long value(int which, int i, int j, int n) {{ return table[which](i, j, n); }}""",
        tmp_path,
    )
    library.value.restype = ctypes.c_longlong
    for which, e in enumerate(expressions):
        for _ in range(10):
            i, j, n = rng.randint(0, 100), rng.randint(-20, 20), rng.randint(1, 50)
            assert library.value(which, i, j, n) == evaluate(e, {I: i, J: j, N: n}), (e, i, j, n)
