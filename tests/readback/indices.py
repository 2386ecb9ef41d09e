"""Whether a parsed expression computes an index expression.

It must have the same operators and leaves, and the same value for many values of the symbols. The former
finds a wrong bound that few values would show, the latter what C++'s types and its division do otherwise.
"""

from __future__ import annotations

import math
import operator
import random
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, reduce
from typing import Any

from fusewright.sym import (
    Add,
    And,
    Const,
    Eq,
    Expr,
    FloorDiv,
    Le,
    Lt,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    Symbol,
    Xor,
)
from tests.readback.syntax import Expression
from tests.readback.values import Undefined, converted, evaluate

SAMPLES = 8
"""Samples an expression; each parenthesis that matters shows in nearly every one."""
_TRIES = 40
# How far above its least value a symbol without an upper bound is drawn, from one sample to the next.
_SPANS = (40, 5000, 3, 600, 2**20, 100, 2**28, 2**36)

# Of so many sizes that are 1 there is one of a few steps of an unrolled loop.
FEW_STEPS, WHOLE_STEP = 7, 64
# Those of the samples for an expression that all others leave undefined or too large.
_SMALL_SPANS = (3, 8, 1, 5, 2, 16, 40)
_SMALL_TRIES = 200

# A variable of the text: its name, its C++ type and the name of the symbol that it holds.
Variable = tuple[str, str, str]


class Mismatch(Exception):
    """Text that does not mean what the kernel says."""


def check_index(
    e: Expression, expr: Expr, variables: Mapping[str, tuple[str, str]], wide: bool, type_: str | None = None
) -> None:
    """Mismatch unless `e` is `expr` wherever the latter and its parts fit in the index type.

    Args:
        variables: of each name in scope that holds a symbol, its type and the symbol's name.
        wide: whether indices have 64 bits.
        type_: what the value must be of; None: any integer type.
    """
    used = tuple([(name, *variables[name]) for name in free_names(e) if name in variables])
    problem = _compare(e, expr, used, wide, type_)
    if problem is not None:
        raise Mismatch(problem)


@lru_cache(maxsize=1 << 16)
def free_names(e: Expression) -> tuple[str, ...]:
    """The names in `e`, each once."""
    if e[:1] == ("name",):
        return (e[1],)
    parts = [free_names(part) for part in e if isinstance(part, tuple)]
    return tuple(dict.fromkeys(name for names in parts for name in names))


@lru_cache(maxsize=1 << 16)
def _compare(
    e: Expression, expr: Expr, variables: tuple[Variable, ...], wide: bool, type_: str | None
) -> str | None:
    """What is wrong; None if nothing is."""
    table = {name: symbol for name, _, symbol in variables}
    return _compare_trees(e, expr, table) or _compare_values(e, expr, variables, wide, type_)


# ---- trees -------------------------------------------------------------------------------------------------

_SIGNS = {
    FloorDiv: (("binary", "/"), ("call", "fw::floor_div"), ("call", "fw::constant_quotient")),
    Mod: (("binary", "%"), ("call", "fw::floor_mod"), ("call", "fw::constant_rest")),
    Lt: (("binary", "<"),),
    Le: (("binary", "<="),),
    Eq: (("binary", "=="),),
}
_CHAINS = {
    And: ("binary", "&&"),
    Or: ("binary", "||"),
    Min: ("call", "min"),
    Max: ("call", "max"),
    Xor: ("binary", "^"),
}


def _compare_trees(e: Expression, expr: Expr, table: Mapping[str, str]) -> str | None:
    """Whether the operators and leaves are those of `expr`, in any order where order does not matter."""
    while e[0] == "cast":
        e = e[2]  # the values tell whether it may be there
    if isinstance(expr, Symbol):
        return None if e[0] == "name" and table.get(e[1]) == expr.name else f"{e} instead of {expr}"
    if isinstance(expr, Const):
        return None if _literal(e) == expr.value else f"{e} instead of {expr}"
    if isinstance(expr, Add):
        terms = _terms(e)
        numbers = [sign * value for sign, term in terms if (value := _literal(term)) is not None]
        if sum(numbers) != expr.constant:
            return f"{sum(numbers)} is added instead of {expr.constant}, for {expr}"
        others = [(sign, term) for sign, term in terms if _literal(term) is None]
        return _match(others, [arg for arg in expr.args if not isinstance(arg, Const)], table)
    if isinstance(expr, Mul):
        coefficient, factors = _factors(e)
        if coefficient != expr.coefficient:
            return f"another factor than {expr.coefficient}, for {expr}"
        return _match([(1, factor) for factor in factors], expr.factors, table)
    if isinstance(expr, Not) and isinstance(expr.args[0], Eq) and e[:2] == ("binary", "!="):
        return _compare_all(e[2:], expr.args[0].args, table)
    if isinstance(expr, Not):
        if e[:2] != ("unary", "!"):
            return f"no negation for {expr}"
        return _compare_trees(e[2], expr.args[0], table)
    kind: Any = type(expr)
    if kind in _CHAINS:
        return _compare_all(_chain(e, _CHAINS[kind]), expr.args, table)
    if e[:2] not in _SIGNS[kind]:
        return f"{e[:2]} for {expr}"
    if e[0] == "call" and e[2]:  # a divisor and a bound, which evaluation checks
        return _compare_all((*e[3], ("int", e[2][0], "int")), expr.args, table)
    return _compare_all(e[3] if e[0] == "call" else e[2:], expr.args, table)


def _compare_all(found: Sequence[Expression], wanted: Sequence[Expr], table: Mapping[str, str]) -> str | None:
    if len(found) != len(wanted):
        return f"{len(found)} operands instead of {len(wanted)}"
    pairs = zip(found, wanted)
    return next((problem for e, expr in pairs if (problem := _compare_trees(e, expr, table))), None)


def _match(
    found: Sequence[tuple[int, Expression]], wanted: Sequence[Expr], table: Mapping[str, str]
) -> str | None:
    """As `_compare_all` in any order, of expressions with a sign."""
    rest = list(wanted)
    for sign, e in found:
        for expr in rest:
            if _compare_trees(e, expr if sign > 0 else -expr, table) is None:
                rest.remove(expr)
                break
        else:
            return f"{e} is none of {', '.join(map(str, rest))}"
    return f"without {', '.join(map(str, rest))}" if rest else None


def _chain(e: Expression, sign: tuple[str, str]) -> list[Expression]:
    """The operands of nested operators or calls."""
    if e[:2] != sign:
        return [e]
    return [operand for part in (e[3] if e[0] == "call" else e[2:]) for operand in _chain(part, sign)]


def _terms(e: Expression) -> list[tuple[int, Expression]]:
    """The summands with their signs."""
    if e[:2] == ("binary", "+"):
        return [*_terms(e[2]), *_terms(e[3])]
    if e[:2] == ("binary", "-"):
        return [*_terms(e[2]), *((-sign, term) for sign, term in _terms(e[3]))]
    return [(1, e)]


def _literal(e: Expression) -> int | None:
    """The value of a literal with its sign, or of the sum that stands for the least integer."""
    if e[:2] == ("unary", "-"):
        value = _literal(e[2])
        return None if value is None else -value
    if e[:2] == ("binary", "-"):
        values = [_literal(part) for part in e[2:]]
        return None if None in values else values[0] - values[1]
    return e[1] if e[0] == "int" else None


def _factors(e: Expression) -> tuple[int, list[Expression]]:
    """(product of the literals, the other factors)"""
    value = _literal(e)
    if value is not None:
        return value, []
    if e[:2] == ("unary", "-"):
        value, factors = _factors(e[2])
        return -value, factors
    if e[:2] == ("binary", "*"):
        (a, left), (b, right) = _factors(e[2]), _factors(e[3])
        return a * b, [*left, *right]
    return 1, [e]


# ---- values ------------------------------------------------------------------------------------------------


def _compare_values(
    e: Expression, expr: Expr, variables: tuple[Variable, ...], wide: bool, type_: str | None
) -> str | None:
    symbols = frozenset(expr.free_symbols)
    drawn = samples(symbols, wide)
    if not drawn:
        return None  # ranges that leave no values: the body of a loop, or a grid, that is always empty
    checked = [_compare_value(e, expr, env, variables, wide, type_) for env in drawn]
    if checked.count(UNDEFINED) == len(checked):
        small = samples(symbols, wide, small=True)
        checked = [_compare_value(e, expr, env, variables, wide, type_) for env in small]
    problems = [problem for problem in checked if problem is not UNDEFINED]
    return next(filter(None, problems), None) if problems else f"no sample for {expr}"


#: What `_compare_value` says where `expr` has no value that the kernel promises.
UNDEFINED = "undefined"


def _compare_value(
    e: Expression,
    expr: Expr,
    env: Mapping[str, int],
    variables: tuple[Variable, ...],
    wide: bool,
    type_: str | None,
) -> str | None:
    """What is wrong for one sample; None if nothing is."""
    try:
        values = {name: (kind, env[of]) for name, kind, of in variables}
    except KeyError as error:
        return f"{expr} does not depend on {error}"
    largest = [0]
    try:
        wanted = ideal(expr, env, largest)
    except ZeroDivisionError:
        return UNDEFINED
    if largest[0] >= 2 ** (63 if wide else 31):
        return UNDEFINED
    try:
        kind, value = evaluate(e, values)
        if kind in ("float", "double"):
            wanted = converted(("long long", int(wanted)), kind)[1]  # type: ignore[assignment]
    except Undefined as problem:
        return f"{problem}, for {expr} at {env}"
    except KeyError as error:
        return f"{error} has no value here"
    if type_ is not None and kind != type_:
        return f"of type {kind}, not {type_}"
    if value != (bool(wanted) if kind == "bool" else wanted):
        return f"{value} instead of {wanted}, for {expr} at {env}"
    return None


# ---- samples -----------------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 14)
def samples(symbols: frozenset[Symbol], wide: bool, small: bool = False) -> tuple[dict[str, int], ...]:
    """Values, by name, that lie in the symbols' ranges: the same in every run."""
    spans, tries = (_SMALL_SPANS, _SMALL_TRIES) if small else (_SPANS if wide else _SPANS[:-1], _TRIES)
    names = sorted(symbol.name for symbol in symbols)
    rng = random.Random(zlib.crc32(" ".join(names).encode()))
    found: list[dict[str, int]] = []
    for attempt in range(tries):
        env = _sample(symbols, spans[attempt % len(spans)], rng)
        if env is not None:
            found.append(env)
        if (len(found) == SAMPLES and not small) or (found and not symbols):
            break
    return tuple(found)


def _sample(symbols: Iterable[Symbol], span: int, rng: random.Random) -> dict[str, int] | None:
    """None where the symbols drawn first leave one no value, as for the counter of an empty loop."""
    groups: dict[str, list[Symbol]] = {}

    def collect(symbol: Symbol) -> None:
        group = groups.setdefault(symbol.name, [])
        if symbol not in group:
            group.append(symbol)
            if isinstance(symbol.hi, Expr):
                for other in sorted(symbol.hi.free_symbols, key=lambda s: s.order):
                    collect(other)

    for symbol in sorted(symbols, key=lambda s: s.order):
        collect(symbol)
    env: dict[str, int] = {}

    def draw(name: str) -> bool:
        if name in env:
            return True
        group = groups[name]
        for symbol in group:
            if isinstance(symbol.hi, Expr) and not all(draw(s.name) for s in symbol.hi.free_symbols):
                return False
        highs = [ideal(s.hi, env, [0]) if isinstance(s.hi, Expr) else s.hi for s in group if s.hi is not None]
        # What may be any index is drawn around 0.
        low = max([min([0, *highs]) - span, *(symbol.lo for symbol in group)])
        high = min([*highs, max(low, 0) + span])
        step = math.lcm(*(symbol.multiple_of for symbol in group))
        first, last = -(-low // step), high // step
        if first > last and not highs:
            last = first
        if first > last:
            return False
        choices = [first, last, rng.randint(first, last), rng.randint(first, last)]
        if span == 1 and (not highs or step <= min(highs)):
            # Nearly every size as small as can be but 0: so is the product of many, while a loop over it has
            # whole steps.
            smallest = max(first, 1)
            choices = [smallest] * FEW_STEPS + [max(smallest, min([*highs, WHOLE_STEP]) // step)]
        env[name] = rng.choice(choices) * step
        return True

    try:
        return env if all(draw(name) for name in list(groups)) else None
    except ZeroDivisionError:
        return None


def ideal(e: Expr, env: Mapping[str, int], largest: list[int]) -> int:
    """The value of `e` in integers without bound; largest[0] becomes the largest magnitude of any part."""
    if isinstance(e, Const):
        value = e.value
    elif isinstance(e, Symbol):
        value = env[e.name]
    else:
        args = [ideal(arg, env, largest) for arg in e.args]
        value = int(_IDEAL[type(e)](*args))
        if value == 0 and isinstance(e, Mul):
            # The factors before the zero are multiplied, too.
            largest[0] = max(largest[0], abs(math.prod(arg or 1 for arg in args)))
    largest[0] = max(largest[0], abs(value))
    return value


_IDEAL: dict[type[Expr], Callable[..., int]] = {
    Add: lambda *args: sum(args),
    Mul: lambda *args: math.prod(args),
    FloorDiv: lambda a, b: a // b,
    Mod: lambda a, b: a % b,
    Min: min,
    Max: max,
    Xor: lambda *args: reduce(operator.xor, args),
    Lt: lambda a, b: a < b,
    Le: lambda a, b: a <= b,
    Eq: lambda a, b: a == b,
    Not: lambda a: not a,
    And: lambda *args: all(args),
    Or: lambda *args: any(args),
}
