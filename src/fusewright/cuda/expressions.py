"""Index expressions as CUDA C++ text.

All symbols of a kernel have its index type, which is signed, so that C's arithmetic is that of `sym` but for
division: C truncates where `sym` floors. The two agree where the dividend is provably not negative and the
divisor positive; elsewhere the text calls fw::floor_div and fw::floor_mod.
"""

from __future__ import annotations

from collections.abc import Callable

from fusewright.core.dtype import DataType
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
    fold,
    le,
    lt,
    prove,
)

# Binding strengths, those of C's grammar.
OR, AND, EQUALITY, RELATION, SUM, PRODUCT, UNARY, ATOM = range(8)

Printed = tuple[str, int]
"""Text and how strongly its outermost operator binds."""

_INT32_MAX = 2**31 - 1


class ExpressionPrinter:
    """Prints index expressions of one kernel.

    Args:
        index_dtype: Int32 or Int.
        name_of: the identifier of a symbol.
        require: told the name of each snippet that the text needs.
    """

    def __init__(
        self, index_dtype: DataType, name_of: Callable[[Symbol], str], require: Callable[[str], None]
    ) -> None:
        self.wide = index_dtype is DataType.Int
        self.name_of = name_of
        self.require = require
        self._printed: dict[Expr, Printed] = {}

    def text(self, e: Expr, strength: int = OR) -> str:
        """`e`, in parentheses if it binds less than `strength`."""
        return _within(fold(e, self._visit, self._printed), strength)

    def _visit(self, e: Expr, args: tuple[Printed, ...]) -> Printed:
        return NODE_PRINTERS[type(e)](self, e, args)


def _within(printed: Printed, strength: int) -> str:
    text, own = printed
    return text if own >= strength else f"({text})"


def _const(printer: ExpressionPrinter, e: Const, args: tuple[Printed, ...]) -> Printed:
    suffix = "ll" if abs(e.value) > _INT32_MAX else ""
    return f"{e.value}{suffix}", ATOM if e.value >= 0 else UNARY


def _symbol(printer: ExpressionPrinter, e: Symbol, args: tuple[Printed, ...]) -> Printed:
    return printer.name_of(e), ATOM


def _add(printer: ExpressionPrinter, e: Add, args: tuple[Printed, ...]) -> Printed:
    # Positive terms first, so that the text seldom starts with a sign.
    texts = sorted((_within(arg, PRODUCT) for arg in args), key=lambda text: text.startswith("-"))
    signed = [f" - {text[1:]}" if text.startswith("-") else f" + {text}" for text in texts[1:]]
    return texts[0] + "".join(signed), SUM


def _mul(printer: ExpressionPrinter, e: Mul, args: tuple[Printed, ...]) -> Printed:
    if e.coefficient == -1:
        return "-" + " * ".join(_within(arg, UNARY + 1) for arg in args[1:]), PRODUCT
    # The factors first: `i * 4` reads better than `4 * i`, but a sign must lead for the sum to see it.
    texts = [_within(arg, UNARY) for arg in args]
    if e.coefficient > 1:
        texts = texts[1:] + texts[:1]
    return " * ".join(texts), PRODUCT


def _division(
    operator: str, function: str
) -> Callable[[ExpressionPrinter, FloorDiv | Mod, tuple[Printed, ...]], Printed]:
    def visit(printer: ExpressionPrinter, e: FloorDiv | Mod, args: tuple[Printed, ...]) -> Printed:
        if prove(le(0, e.dividend)) and prove(lt(0, e.divisor)):
            return f"{_within(args[0], PRODUCT)} {operator} {_within(args[1], UNARY)}", PRODUCT
        printer.require("floor_division")
        return f"fw::{function}({args[0][0]}, {args[1][0]})", ATOM

    return visit


def _extremum(function: str) -> Callable[[ExpressionPrinter, Min | Max, tuple[Printed, ...]], Printed]:
    def visit(printer: ExpressionPrinter, e: Min | Max, args: tuple[Printed, ...]) -> Printed:
        # The overloads of min and max want two operands of one type.
        cast = "(long long)" if printer.wide else "(int)"
        texts = [
            f"{cast}{_within(printed, UNARY)}"
            if (printer.wide and isinstance(arg, Const)) or arg.is_boolean
            else printed[0]
            for arg, printed in zip(e.args, args)
        ]
        text = texts[-1]
        for other in reversed(texts[:-1]):
            text = f"{function}({other}, {text})"
        return text, ATOM

    return visit


def _infix(operator: str, own: int) -> Callable[[ExpressionPrinter, Expr, tuple[Printed, ...]], Printed]:
    def visit(printer: ExpressionPrinter, e: Expr, args: tuple[Printed, ...]) -> Printed:
        return f" {operator} ".join(_within(arg, own + 1) for arg in args), own

    return visit


def _not(printer: ExpressionPrinter, e: Not, args: tuple[Printed, ...]) -> Printed:
    inner = e.args[0]
    if isinstance(inner, Eq):
        left, right = (printer.text(arg, RELATION) for arg in inner.args)
        return f"{left} != {right}", EQUALITY
    return f"!{_within(args[0], ATOM)}", UNARY


NODE_PRINTERS: dict[type[Expr], Callable[..., Printed]] = {
    Const: _const,
    Symbol: _symbol,
    Add: _add,
    Mul: _mul,
    FloorDiv: _division("/", "floor_div"),
    Mod: _division("%", "floor_mod"),
    Min: _extremum("min"),
    Max: _extremum("max"),
    Lt: _infix("<", RELATION),
    Le: _infix("<=", RELATION),
    Eq: _infix("==", EQUALITY),
    Not: _not,
    # && inside || is parenthesised: compilers warn about it, and readers trip over it.
    And: _infix("&&", AND),
    Or: _infix("||", AND),
}
"""How each kind of expression is printed, given the printed operands."""
