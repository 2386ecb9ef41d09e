"""Interning, identity, operators, traversal and text of expressions."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
import threading

import pytest

from fusewright import sym
from fusewright.sym import Add, Const, Expr, Mul, Symbol, as_int, ceildiv, const, fold, substitute, symbol

x, y, N = symbol("x"), symbol("y", hi=7), symbol("N")


def test_equal_structure_is_one_object() -> None:
    assert x + y * 4 is 4 * y + x
    assert symbol("x") is x
    assert symbol("x", hi=3) is not x
    assert symbol("x", hi=const(3)) is symbol("x", hi=3)
    assert symbol("x", hi=N - 1) is symbol("x", hi=-1 + N)
    assert (x + y) - y is x
    assert hash(x * N) == hash(N * x)


def test_copies_and_pickles_are_the_same_object() -> None:
    e = sym.land(sym.lt(symbol("i", hi=N - 1) * 4 % N + y, x // (N * 3)), sym.ne(x, sym.minimum(y, N)))
    assert copy.deepcopy(e) is e
    assert copy.copy(e) is e
    assert pickle.loads(pickle.dumps(e)) is e


def test_operators_take_integers_on_either_side() -> None:
    assert 1 + x is x + 1
    assert 5 - x is -(x - 5)
    assert 3 * x is x * 3
    assert as_int(const(17) // 5) == 3
    assert as_int(-17 // const(5)) == -4
    assert as_int(-17 % const(5)) == 3
    assert isinstance(7 // x, sym.FloorDiv)
    with pytest.raises(TypeError):
        x + 1.5  # type: ignore[operator]


def test_truth_value_is_refused() -> None:
    with pytest.raises(TypeError, match="truth value"):
        bool(sym.lt(x, y))


def test_a_symbol_needs_a_positive_multiple() -> None:
    with pytest.raises(ValueError, match="multiple_of"):
        symbol("bad", multiple_of=0)


def test_args_and_kinds_describe_the_value() -> None:
    e = 4 * x + N * y - 3
    assert isinstance(e, Add)
    assert e.kind == "add"
    assert sym.add(*e.args) is e
    assert [arg.kind for arg in e.args] == ["mul", "mul", "const"]
    product = 6 * x * N
    assert isinstance(product, Mul)
    assert as_int(product.args[0]) == 6
    assert sym.product(product.args) is product
    assert sym.product([]) is sym.ONE
    assert e.free_symbols == {x, y, N}


def test_fold_visits_a_shared_node_once() -> None:
    shared = x // 3
    visits: list[Expr] = []

    def visit(e: Expr, below: tuple[int, ...]) -> int:
        visits.append(e)
        return 1 + max(below, default=0)

    depth = fold((shared % 5) * shared + (shared % 7), visit)
    assert depth == 5
    assert visits.count(shared) == 1


def test_substitute_simplifies_again() -> None:
    i = symbol("i", hi=N - 1)
    assert substitute((i * N + y) // N, {N: 8}) is i
    assert substitute(sym.lt(x, N), {x: 3, N: const(4)}) is sym.TRUE
    assert substitute(x + y, {x: y, y: x}) is x + y


def test_evaluate_reports_what_is_missing_or_undefined() -> None:
    with pytest.raises(KeyError):
        sym.evaluate(x + N, {x: 1})
    with pytest.raises(ZeroDivisionError):
        sym.evaluate(x // N, {x: 1, N: 0})


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (4 * x + y - 3, "4*x + y - 3"),
        (y - 2 * x, "y - 2*x"),
        (-x, "-x"),
        (ceildiv(N, 4), "ceilDiv(N, 4)"),
        (ceildiv(N, x), "ceilDiv(N, x)"),
        (ceildiv(3 * N, x) * 2 + N // 3, "N // 3 + 2*ceilDiv(3*N, x)"),
        ((x + 1) // N % 3, "(x + 1) // N % 3"),
        (x // (N + 1), "x // (N + 1)"),
        (x % (N // 2), "x % (N // 2)"),
        ((x // N) * (x % N), "(x // N)*(x % N)"),
        (sym.lt(x, N), "x < N"),
        (sym.le(x, N), "x <= N"),
        (sym.lt(3, x), "3 < x"),
        (sym.ne(x, N), "N != x"),
        (sym.lor(sym.land(sym.lt(x, N), sym.lt(y, N)), sym.eq(N, 3)), "N == 3 or x < N and y < N"),
        (sym.land(sym.lor(sym.lt(x, N), sym.lt(y, N)), sym.eq(N, 3)), "N == 3 and (x < N or y < N)"),
        (sym.minimum(x, N + 1), "min(N + 1, x)"),
        (const(-2), "-2"),
    ],
)
def test_text(expression: Expr, text: str) -> None:
    assert str(expression) == text


def test_python_text_names_symbols_and_spells_ceilings_out() -> None:
    blocks = ceildiv(symbol("T0.size[0]"), 128) + x
    assert sym.to_python(blocks, lambda s: {"x": "x"}.get(s.name, "s0")) == "(s0 + 127) // 128 + x"


def test_order_and_text_are_the_same_in_every_process() -> None:
    program = (
        "from fusewright.sym import *\n"
        "names = [symbol(n) for n in 'qwertyuiop']\n"
        "print(add(*[n // (3 + k) * names[k - 1] for k, n in enumerate(names)]))\n"
        "print(land(*[lt(n % 7, names[k - 1]) for k, n in enumerate(names)]))\n"
    )

    def output(seed: str) -> bytes:
        env = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        return subprocess.run(
            [sys.executable, "-c", program], env=env, check=True, capture_output=True
        ).stdout

    assert output("1") == output("2")


def test_dead_expressions_leave_the_table() -> None:
    gc.collect()
    before = sym.interned_count()
    held: list[Expr] = [sym.nodes.symbol(f"temporary{k}") for k in range(2000)]
    assert sym.interned_count() >= before + 1900  # others may leave meanwhile
    held.clear()
    gc.collect()
    assert sym.interned_count() < before + 200


def test_caches_bound_what_a_long_process_keeps() -> None:
    from fusewright.sym.nodes import CACHE_SIZE

    def work(start: int) -> None:
        for k in range(start, start + CACHE_SIZE):
            _ = symbol("grow", hi=1 << 40) + k

    work(1)
    before = sym.interned_count()
    work(CACHE_SIZE * 10)
    work(CACHE_SIZE * 20)
    assert sym.interned_count() < before + CACHE_SIZE


def test_threads_agree_on_one_object() -> None:
    barrier = threading.Barrier(4)
    made: list[list[Expr]] = [[] for _ in range(4)]

    def work(slot: int) -> None:
        barrier.wait()
        for k in range(500):
            made[slot].append((symbol(f"thread{k}") * 3 + k) // 7 + symbol(f"thread{k}") % (k + 2))

    threads = [threading.Thread(target=work, args=(slot,)) for slot in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    for others in made[1:]:
        assert all(a is b for a, b in zip(made[0], others))
    assert isinstance(const(1), Const) and isinstance(x, Symbol)


def test_function_of_several_expressions():
    n, m = sym.symbol("n"), sym.symbol("m.size")
    values = sym.to_function([sym.ceildiv(n, 4) * m, sym.lt(n, m), sym.const(3)])
    assert values({n: 9, m: 5}) == (15, False, 3)
    assert sym.to_function([])({}) == ()
    with pytest.raises(KeyError):
        values({n: 9})


def test_what_is_below_a_multiple_of_a_positive_divisor_is_its_remainder() -> None:
    lane, size = symbol("lane", lo=0, hi=1), symbol("n", lo=0)
    assert lane // (2 * size) is const(0)
    assert lane % (2 * size) is lane
    assert lane // size is not const(0)


def test_a_quotient_joins_the_remainder_of_another_dividend() -> None:
    """What is left of a merged index: (2*x + lane) split by 2*n, then by n, which is even."""
    x, lane = symbol("x", lo=0), symbol("lane", lo=0, hi=1)
    n = symbol("n", lo=2, multiple_of=2)
    merged = 2 * x + lane
    outer, inner = merged // (2 * n), merged % (2 * n)
    assert outer * 2 * n + inner // n * n + merged % n is merged
    assert outer * 2 * n + inner // n * n + (merged + 1) % n is not merged
