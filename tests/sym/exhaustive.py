"""Naive evaluation of expression trees over every assignment: the oracle of the sym tests.

A tree is nested tuples `(operator, operand, ...)` over symbols and ints. It is evaluated
without the simplifier; `build_tree` makes the simplified expression of the same tree.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

from fusewright import sym
from fusewright.sym import Expr, Symbol

Tree = Any

CONSTRUCTORS: dict[str, Callable[..., Expr]] = {
    "+": sym.add,
    "-": sym.sub,
    "*": sym.mul,
    "//": sym.floordiv,
    "%": sym.mod,
    "ceildiv": sym.ceildiv,
    "min": sym.minimum,
    "max": sym.maximum,
    "^": sym.bitxor,
    "<": sym.lt,
    "<=": sym.le,
    "==": sym.eq,
    "!=": sym.ne,
    "and": sym.land,
    "or": sym.lor,
    "not": sym.lnot,
}

MEANINGS: dict[str, Callable[..., int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "ceildiv": lambda a, b: -(-a // b),
    "min": min,
    "max": max,
    "^": operator.xor,
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "and": lambda a, b: int(bool(a) and bool(b)),
    "or": lambda a, b: int(bool(a) or bool(b)),
    "not": lambda a: int(not a),
}


def build_tree(tree: Tree) -> Expr | int:
    if isinstance(tree, tuple):
        return CONSTRUCTORS[tree[0]](*[build_tree(operand) for operand in tree[1:]])
    return tree


def tree_value(tree: Tree, env: Mapping[Symbol, int]) -> int:
    """Raises ZeroDivisionError where the tree is undefined."""
    if isinstance(tree, tuple):
        return MEANINGS[tree[0]](*[tree_value(operand, env) for operand in tree[1:]])
    return env[tree] if isinstance(tree, Symbol) else tree


def tree_symbols(tree: Tree) -> set[Symbol]:
    if isinstance(tree, tuple):
        return set().union(*[tree_symbols(operand) for operand in tree[1:]])
    return {tree} if isinstance(tree, Symbol) else set()


def assignments(symbols: set[Symbol], largest: int) -> Iterator[dict[Symbol, int]]:
    """Every assignment within the symbols' ranges, with `largest` where a range has no end.

    Symbols in bounds are assigned too, so an assignment may hold more symbols than asked for.
    """
    needed = _with_bounds(symbols)

    def extend(env: dict[Symbol, int], position: int) -> Iterator[dict[Symbol, int]]:
        if position == len(needed):
            yield dict(env)
            return
        symbol = needed[position]
        for value in _values(symbol, env, largest):
            env[symbol] = value
            yield from extend(env, position + 1)
        env.pop(symbol, None)

    yield from extend({}, 0)


def drawn_assignments(
    rng: Random, symbols: set[Symbol], largest: int, tries: int
) -> Iterator[dict[Symbol, int]]:
    """Random ones of these, fewer where ranges are empty."""
    needed = _with_bounds(symbols)
    for _ in range(tries if needed else 1):
        env: dict[Symbol, int] = {}
        for symbol in needed:
            values = _values(symbol, env, largest)
            if not values:
                break
            env[symbol] = rng.choice(values)
        else:
            yield env


def _with_bounds(symbols: set[Symbol]) -> list[Symbol]:
    """The symbols, each after those that its range depends on."""
    needed: list[Symbol] = []

    def require(symbol: Symbol) -> None:
        if symbol not in needed:
            if isinstance(symbol.hi, Expr):
                for inner in sorted(symbol.hi.free_symbols, key=lambda s: s.order):
                    require(inner)
            needed.append(symbol)

    for symbol in sorted(symbols, key=lambda s: s.order):
        require(symbol)
    return needed


def _values(symbol: Symbol, env: Mapping[Symbol, int], largest: int) -> range:
    """Those that a symbol may have, where those are known that its range depends on."""
    hi = sym.evaluate(symbol.hi, env) if isinstance(symbol.hi, Expr) else symbol.hi
    step = symbol.multiple_of
    return range(-(-symbol.lo // step) * step, (largest if hi is None else hi) + 1, step)
