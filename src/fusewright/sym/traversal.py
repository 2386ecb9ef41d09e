"""Walking expressions: generic fold, substitution, evaluation."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import TypeVar

from fusewright.sym.bitwise import bitxor
from fusewright.sym.division import add, floordiv, mod, mul
from fusewright.sym.nodes import Const, Expr, Symbol, as_expr, const
from fusewright.sym.predicates import eq, land, le, lnot, lor, lt, maximum, minimum

ResultT = TypeVar("ResultT")

_CONSTRUCTORS: dict[str, Callable[..., Expr]] = {
    "add": add,
    "mul": mul,
    "floordiv": floordiv,
    "mod": mod,
    "min": minimum,
    "max": maximum,
    "xor": bitxor,
    "lt": lt,
    "le": le,
    "eq": eq,
    "not": lnot,
    "and": land,
    "or": lor,
}

_EVALUATORS: dict[str, Callable[..., int]] = {
    "add": lambda *args: sum(args),
    "mul": lambda *args: math.prod(args),
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": lambda *args: min(args),
    "max": lambda *args: max(args),
    "xor": lambda *args: reduce(operator.xor, args),
    "lt": lambda a, b: int(a < b),
    "le": lambda a, b: int(a <= b),
    "eq": lambda a, b: int(a == b),
    "not": lambda a: int(not a),
    "and": lambda *args: int(all(args)),
    "or": lambda *args: int(any(args)),
}


def build(kind: str, args: Iterable[Expr | int]) -> Expr:
    """The simplified node of an inner `kind` ("add", "lt", ...) with these operands."""
    return _CONSTRUCTORS[kind](*args)


def fold(
    e: Expr, visit: Callable[[Expr, tuple[ResultT, ...]], ResultT], memo: dict[Expr, ResultT] | None = None
) -> ResultT:
    """`visit(node, results of node.args)` from the leaves up, once for each distinct node.

    A `memo` passed in is read and filled, so that several expressions share the work.
    """
    return _fold(e, visit, {} if memo is None else memo)


# The recursions here are separate functions. A local function would refer to itself, and each call would
# leave a cycle for the garbage collector.
def _fold(
    node: Expr, visit: Callable[[Expr, tuple[ResultT, ...]], ResultT], results: dict[Expr, ResultT]
) -> ResultT:
    if node in results:
        return results[node]
    result = visit(node, tuple([_fold(arg, visit, results) for arg in node.args]))
    results[node] = result
    return result


def substitute(
    e: Expr, replacements: Mapping[Symbol, Expr | int], memo: dict[Expr, Expr] | None = None
) -> Expr:
    """`e` with symbols replaced, simplified again. Bounds of symbols that stay are not rewritten.

    Each replacement must lie in its symbol's declared range, since `e` was simplified under it. A `memo`
    passed in is read and filled, so that several expressions share the work.
    """
    return _substitute(e, replacements, {} if memo is None else memo)


def _substitute(node: Expr, replacements: Mapping[Symbol, Expr | int], results: dict[Expr, Expr]) -> Expr:
    found = results.get(node)
    if found is None:
        if isinstance(node, Symbol) and node in replacements:
            found = as_expr(replacements[node])
        elif replacements.keys().isdisjoint(node.free_symbols):
            found = node
        else:
            args = [_substitute(arg, replacements, results) for arg in node.args]
            found = _CONSTRUCTORS[node.kind](*args)
        results[node] = found
    return found


def replace(e: Expr, replacements: Mapping[Expr, Expr], memo: dict[Expr, Expr]) -> Expr:
    """`e` with whole subexpressions replaced, the outermost first; `memo` is read and filled.

    Each replacement must have the value, and be in the range, of what it replaces.
    """
    found = memo.get(e)
    if found is None:
        found = replacements.get(e)
        if found is None:
            args = [replace(arg, replacements, memo) for arg in e.args]
            same = all(new is old for new, old in zip(args, e.args))
            found = e if same else _CONSTRUCTORS[e.kind](*args)
        memo[e] = found
    return found


def defined(e: Expr) -> Expr:
    """`e` with divisors of zero replaced by one, so that it has a value even where `e` is undefined."""
    args = [defined(arg) for arg in e.args]
    if e.kind in ("floordiv", "mod"):
        args[1] = _CONSTRUCTORS["max"](args[1], const(1))
    same = all(new is old for new, old in zip(args, e.args))
    return e if same else _CONSTRUCTORS[e.kind](*args)


def evaluate(e: Expr, env: Mapping[Symbol, int]) -> int:
    """The value of `e`; predicates give 0 or 1.

    Raises KeyError for a symbol that `env` lacks and ZeroDivisionError where `e` is undefined.
    """
    if isinstance(e, Symbol):
        return env[e]
    if isinstance(e, Const):
        return e.value

    def visit(node: Expr, args: tuple[int, ...]) -> int:
        if isinstance(node, Const):
            return node.value
        if isinstance(node, Symbol):
            return env[node]
        return _EVALUATORS[node.kind](*args)

    return fold(e, visit)


class Product:
    """Computes the value of `product(factors)` repeatedly, several times as fast as `evaluate`.

    It is fast if most factors are symbols or constants.
    """

    __slots__ = ("_constant", "_symbols", "_others")

    def __init__(self, factors: Iterable[Expr]) -> None:
        self._constant = 1
        self._symbols: list[Symbol] = []
        self._others: list[Expr] = []
        for factor in factors:
            if isinstance(factor, Const):
                self._constant *= factor.value
            elif isinstance(factor, Symbol):
                self._symbols.append(factor)
            else:
                self._others.append(factor)

    def value(self, env: Mapping[Symbol, int]) -> int:
        """The value of the product, as `evaluate` gives it."""
        result = math.prod(map(env.__getitem__, self._symbols), start=self._constant)
        for other in self._others:
            result *= evaluate(other, env)
        return result


def product(operands: Iterable[Expr | int]) -> Expr:
    """The product of a sequence, one for an empty one."""
    return mul(*operands)
