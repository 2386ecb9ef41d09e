"""Random expressions: simplified, bounded, proved, substituted, against naive evaluation."""

from __future__ import annotations

import itertools

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fusewright import sym
from fusewright.sym import Expr, Symbol, ceildiv, symbol
from tests.sym.exhaustive import Tree, assignments, build_tree, tree_symbols, tree_value

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
ASSIGNMENTS_CHECKED = 150

sizes = st.sampled_from([*SIZES, 2, 3, 4, 8])
divisors = st.one_of(
    sizes,
    st.tuples(st.just("*"), sizes, sizes),
    st.tuples(st.just("+"), sizes, st.sampled_from([1, 2, N])),
    st.just(-3),
)
leaves: st.SearchStrategy[Tree] = st.one_of(
    st.sampled_from(INDICES), st.sampled_from(SIZES), st.sampled_from(CONSTANTS)
)


def _grow(operands: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    return st.one_of(
        st.tuples(st.sampled_from(["+", "-", "*", "min", "max", "^"]), operands, operands),
        st.tuples(st.sampled_from(["//", "%", "ceildiv"]), operands, divisors),
        # The shapes that split, merge and reshape make, so that the rules for them fire.
        st.builds(lambda x, d: ("+", ("*", ("//", x, d), d), ("%", x, d)), operands, divisors),
        st.builds(lambda x, y, z, d: ("^", ("+", ("*", x, d), y), z), operands, operands, operands,
                  st.sampled_from([2, 4, 8])),
        st.builds(lambda x, y, d, o: (o, ("+", ("*", x, d), y), d), operands, operands, divisors,
                  st.sampled_from(["//", "%"])),
    )  # fmt: skip


trees = st.recursive(leaves, _grow, max_leaves=6)
comparisons = st.tuples(st.sampled_from(["<", "<=", "==", "!="]), trees, trees)
predicates: st.SearchStrategy[Tree] = st.recursive(
    comparisons,
    lambda operands: st.one_of(
        st.tuples(st.sampled_from(["and", "or"]), operands, operands),
        st.tuples(st.just("not"), operands),
    ),
    max_leaves=3,
)


def fuzz(examples: int) -> settings:
    return settings(
        max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
    )


def _defined(tree: Tree, e: Expr) -> list[tuple[dict[Symbol, int], int]]:
    """(assignment, naive value) where the tree is defined."""
    found = []
    envs = assignments(tree_symbols(tree) | e.free_symbols, LARGEST_SIZE)
    for env in itertools.islice(envs, ASSIGNMENTS_CHECKED):
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


@fuzz(1000)
@given(trees)
def test_simplified_value_bounds_and_multiple_agree_with_naive_evaluation(tree: Tree) -> None:
    e = _build(tree)
    if e is None:
        return
    low, high = sym.bounds(e)
    multiple = sym.known_multiple(e)
    for env, value in _defined(tree, e):
        assert sym.evaluate(e, env) == value, (e, env)
        assert low is None or low <= value
        assert high is None or value <= high
        assert value % multiple == 0 if multiple else value == 0


@fuzz(800)
@given(predicates)
def test_prove_never_claims_a_falsehood(tree: Tree) -> None:
    cond = _build(tree)
    if cond is None:
        return
    proved, refuted = sym.prove(cond), sym.prove(sym.lnot(cond))
    for env, value in _defined(tree, cond):
        assert sym.evaluate(cond, env) == value, (cond, env)
        assert value or not proved, (cond, env)
        assert not (value and refuted), (cond, env)


@fuzz(400)
@given(trees, divisors)
def test_divides_only_when_it_does(tree: Tree, divisor_tree: Tree) -> None:
    e, divisor = _build(tree), _build(divisor_tree)
    if e is None or divisor is None or not sym.divides(divisor, e):
        return
    for env, value in _defined(("+", tree, ("*", 0, divisor_tree)), e):
        by = tree_value(divisor_tree, env)
        assert value % by == 0 if by else True, (e, divisor, env)


@fuzz(400)
@given(trees, st.sampled_from([1, 2, 4]), st.sampled_from([0, 4, 8]))
def test_substitution_agrees_with_evaluation(tree: Tree, k: int, v: int) -> None:
    e = _build(tree)
    if e is None:
        return
    fixed = {K: k, V: v, N: k}
    try:
        substituted = sym.substitute(e, fixed)
    except ZeroDivisionError:
        return
    assert not substituted.free_symbols & set(fixed)
    for env, value in _defined(tree, e):
        if all(env.get(symbol, value) == value for symbol, value in fixed.items()):
            assert sym.evaluate(substituted, env) == value, (e, substituted, env)


@fuzz(400)
@given(st.one_of(trees, predicates))
def test_python_text_computes_the_same(tree: Tree) -> None:
    e = _build(tree)
    if e is None:
        return
    code = compile(sym.to_python(e, lambda symbol: f"v_{symbol.name}"), "<expression>", "eval")
    for env, value in _defined(tree, e)[:20]:
        names = {f"v_{symbol.name}": number for symbol, number in env.items()}
        assert eval(code, names) == value, (e, env)


natural_leaves = st.sampled_from([*INDICES[:7], *SIZES, 1, 3, 4, 8])
natural_trees = st.recursive(
    natural_leaves,
    lambda operands: st.one_of(
        st.tuples(st.sampled_from(["+", "*"]), operands, operands),
        st.tuples(st.sampled_from(["//", "%", "ceildiv"]), operands, sizes),
        st.builds(lambda x, s, c: ("-", ("+", x, s), c), operands, sizes, st.sampled_from([1, *INDICES[:2]])),
    ),
    max_leaves=6,
)


@fuzz(1000)
@given(natural_trees, divisors, st.sampled_from(["//", "%"]))
def test_simplification_keeps_dividends_provably_non_negative(
    tree: Tree, divisor_tree: Tree, op: str
) -> None:
    """So that a quotient of non-negative operands prints as C's truncating division."""
    dividend, divisor = _build(tree), _build(divisor_tree)
    if dividend is None or divisor is None or sym.prove(sym.lt(divisor, 1)):
        return
    if not sym.is_nonneg_dividend(dividend, divisor) or not _divides_like_c(dividend):
        return
    result = _build((op, dividend, divisor))
    assert result is not None
    assert _divides_like_c(result), (dividend, divisor, result)


def _divides_like_c(e: Expr) -> bool:
    return all(_divides_like_c(arg) for arg in e.args) and (
        not isinstance(e, (sym.FloorDiv, sym.Mod)) or sym.is_nonneg_dividend(e.dividend, e.divisor)
    )
