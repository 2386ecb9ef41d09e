"""Random expressions: simplified, bounded, proved, substituted, against naive evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from random import Random

from fusewright import sym
from fusewright.sym import Expr, Symbol, ceildiv, symbol
from tests.sym.exhaustive import Tree, build_tree, drawn_assignments, tree_symbols, tree_value

N, M = symbol("N"), symbol("M", multiple_of=2)
K, V = symbol("K", lo=1), symbol("V", multiple_of=4)
SIZES = [N, M, K, V]
INDICES = [
    symbol("n", hi=N - 1),
    symbol("lane", hi=3),
    symbol("k", hi=K - 1),
    symbol("flat", hi=M * K - 1),
    symbol("vector", hi=V // 4 - 1),
    symbol("tile", hi=ceildiv(N, 2) - 1),
    symbol("even", hi=7, multiple_of=2),
    symbol("signed", lo=-3, hi=4),
    symbol("open", lo=-4),
]
CONSTANTS = [0, 1, 2, 3, 4, 8, 12, -1, -2]
LARGEST_SIZE = 4
ASSIGNMENTS_CHECKED = 40

LEAVES = 5
COMPARISONS = 3


def _draw_leaf(rng: Random) -> Tree:
    return rng.choice(rng.choice([INDICES, SIZES, CONSTANTS]))


def _draw_size(rng: Random) -> Tree:
    return rng.choice([*SIZES, 2, 3, 4, 8])


def _draw_divisor(rng: Random) -> Tree:
    kind = rng.randrange(4)
    if kind == 0:
        return _draw_size(rng)
    if kind == 1:
        return "*", _draw_size(rng), _draw_size(rng)
    return ("+", _draw_size(rng), rng.choice([1, 2, N])) if kind == 2 else -3


def _parts(rng: Random, leaves: int, count: int) -> list[int]:
    """How many of the leaves each of `count` operands has: at least one."""
    more = max(0, leaves - count)
    cuts = sorted(rng.randint(0, more) for _ in range(count - 1))
    return [end - start + 1 for start, end in zip([0, *cuts], [*cuts, more])]


def _draw_tree(rng: Random, leaves: int = 0) -> Tree:
    """A tree of about so many leaves, divisors aside; 0: any number."""
    leaves = leaves or rng.randint(1, LEAVES)
    if leaves == 1 and rng.random() < 0.7:
        return _draw_leaf(rng)
    kind, d = rng.randrange(5), _draw_divisor(rng)
    if kind == 0:
        return rng.choice(["//", "%", "ceildiv"]), _draw_tree(rng, leaves - 1 or 1), d
    x, y = (_draw_tree(rng, part) for part in _parts(rng, leaves, 2))
    if kind == 1:
        return rng.choice(["+", "-", "*", "min", "max", "^"]), x, y
    # The shapes that split, merge and reshape make, so that the rules for them fire.
    if kind == 2:
        return "+", ("*", ("//", x, d), d), ("%", x, d)
    if kind == 3:
        return rng.choice(["//", "%"]), ("+", ("*", x, d), y), d
    return "^", ("+", ("*", x, rng.choice([2, 4, 8])), y), _draw_leaf(rng)


def _draw_predicate(rng: Random, comparisons: int = 0) -> Tree:
    comparisons = comparisons or rng.randint(1, COMPARISONS)
    if rng.random() < 0.2:
        return "not", _draw_predicate(rng, comparisons)
    if comparisons == 1:
        return rng.choice(["<", "<=", "==", "!="]), _draw_tree(rng), _draw_tree(rng)
    return rng.choice(["and", "or"]), *(_draw_predicate(rng, part) for part in _parts(rng, comparisons, 2))


def _draw_natural_tree(rng: Random, leaves: int = 0) -> Tree:
    """A tree that is not negative but for differences."""
    leaves = leaves or rng.randint(1, LEAVES)
    if leaves == 1 and rng.random() < 0.7:
        return rng.choice([*INDICES[:7], *SIZES, 1, 3, 4, 8])
    kind = rng.randrange(3)
    if kind == 0:
        return rng.choice(["//", "%", "ceildiv"]), _draw_natural_tree(rng, leaves - 1 or 1), _draw_size(rng)
    if kind == 1:
        less = rng.choice([1, *INDICES[:2]])
        return "-", ("+", _draw_natural_tree(rng, leaves - 1 or 1), _draw_size(rng)), less
    return rng.choice(["+", "*"]), *(_draw_natural_tree(rng, part) for part in _parts(rng, leaves, 2))


def _each(count: int) -> Iterator[Random]:
    """A generator for each example, the same in every run."""
    return map(Random, range(count))


def _defined(rng: Random, tree: Tree, e: Expr) -> list[tuple[dict[Symbol, int], int]]:
    """(assignment, naive value) of random assignments where the tree is defined."""
    found = []
    symbols = tree_symbols(tree) | e.free_symbols
    for env in drawn_assignments(rng, symbols, LARGEST_SIZE, ASSIGNMENTS_CHECKED):
        try:
            found.append((env, tree_value(tree, env)))
        except ZeroDivisionError:
            continue
    return found


def _build(tree: Tree) -> Expr | None:
    try:
        return sym.as_expr(build_tree(tree))
    except ZeroDivisionError:  # a divisor that folded to the constant zero
        return None


def test_simplified_value_bounds_and_multiple_agree_with_naive_evaluation() -> None:
    for rng in _each(1000):
        tree = _draw_tree(rng)
        e = _build(tree)
        if e is None:
            continue
        low, high = sym.bounds(e)
        multiple = sym.known_multiple(e)
        for env, value in _defined(rng, tree, e):
            assert sym.evaluate(e, env) == value, (e, env)
            assert low is None or low <= value, (e, env)
            assert high is None or value <= high, (e, env)
            assert value % multiple == 0 if multiple else value == 0, (e, env)


def test_prove_never_claims_a_falsehood() -> None:
    for rng in _each(500):
        tree = _draw_predicate(rng)
        cond = _build(tree)
        if cond is None:
            continue
        proved, refuted = sym.prove(cond), sym.prove(sym.lnot(cond))
        for env, value in _defined(rng, tree, cond):
            assert sym.evaluate(cond, env) == value, (cond, env)
            assert value or not proved, (cond, env)
            assert not (value and refuted), (cond, env)


def test_divides_only_when_it_does() -> None:
    for rng in _each(400):
        tree, divisor_tree = _draw_tree(rng), _draw_divisor(rng)
        e, divisor = _build(tree), _build(divisor_tree)
        if e is None or divisor is None or not sym.divides(divisor, e):
            continue
        for env, value in _defined(rng, ("+", tree, ("*", 0, divisor_tree)), e):
            by = tree_value(divisor_tree, env)
            assert value % by == 0 if by else True, (e, divisor, env)


def test_substitution_agrees_with_evaluation() -> None:
    for rng in _each(400):
        tree = _draw_tree(rng)
        e = _build(tree)
        if e is None:
            continue
        k = rng.choice([1, 2, 4])
        fixed = {K: k, V: rng.choice([0, 4, 8]), N: k}
        try:
            substituted = sym.substitute(e, fixed)
        except ZeroDivisionError:
            continue
        assert not substituted.free_symbols & set(fixed)
        for env, value in _defined(rng, tree, e):
            if all(env.get(symbol, value) == value for symbol, value in fixed.items()):
                assert sym.evaluate(substituted, env) == value, (e, substituted, env)


def test_python_text_computes_the_same() -> None:
    for rng in _each(400):
        tree = _draw_tree(rng) if rng.random() < 0.5 else _draw_predicate(rng)
        e = _build(tree)
        if e is None:
            continue
        code = compile(sym.to_python(e, lambda symbol: f"v_{symbol.name}"), "<expression>", "eval")
        for env, value in _defined(rng, tree, e)[:20]:
            names = {f"v_{symbol.name}": number for symbol, number in env.items()}
            assert eval(code, names) == value, (e, env)


def test_simplification_keeps_dividends_provably_non_negative() -> None:
    """So that a quotient of non-negative operands prints as C's truncating division."""
    for rng in _each(1000):
        dividend, divisor = _build(_draw_natural_tree(rng)), _build(_draw_divisor(rng))
        if dividend is None or divisor is None or sym.prove(sym.lt(divisor, 1)):
            continue
        if not sym.is_nonneg_dividend(dividend, divisor) or not _divides_like_c(dividend):
            continue
        result = _build((rng.choice(["//", "%"]), dividend, divisor))
        assert result is not None
        assert _divides_like_c(result), (dividend, divisor, result)


def _divides_like_c(e: Expr) -> bool:
    return all(_divides_like_c(arg) for arg in e.args) and (
        not isinstance(e, (sym.FloorDiv, sym.Mod)) or sym.is_nonneg_dividend(e.dividend, e.divisor)
    )


def test_digits_of_a_position_join_however_they_are_divided() -> None:
    """The digits of a position of vectors, threads and blocks add up to the position again."""
    for seed in range(300):
        rng = Random(f"digits {seed}")
        width = rng.choice([2, 4, 8])
        sizes = [rng.choice([2, 3, 4, 5, 6, 7, 8, 9, 12, 16]) for _ in range(rng.randint(2, 4))]
        threads = prod(rng.sample(sizes, rng.randint(0, len(sizes))))
        thread = symbol("thread", hi=threads - 1)
        block = symbol("block", hi=prod(sizes) * width // threads - 1)
        position = rest = symbol("lane", hi=width - 1) + width * (thread + threads * block)
        digits, stride = [], 1
        for size in sizes:
            digits.append(rest % size * stride)
            rest, stride = rest // size, stride * size
        digits.append(rest * stride)
        rng.shuffle(digits)
        total = digits[0]
        for digit in digits[1:]:
            total = total + digit
        assert total is position, (seed, sizes, total, position)
