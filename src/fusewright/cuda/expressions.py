"""Index expressions as CUDA C++ text.

All symbols of a kernel have its index type, which is signed. So C's arithmetic is that of `sym`, with two
exceptions:

* Division: C truncates where `sym` floors. The two agree if the dividend is provably not negative and the
  divisor is positive; otherwise the text calls fw::floor_div and fw::floor_mod.
* Width: constants and truth values are narrower than a 64-bit index. The type of each subexpression is known,
  and a subexpression that is narrower than the index type is widened before anything is computed from it
  alone. If a constant is wider than the index type, other terms are not widened: they must be known not to
  overflow before they meet it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from fusewright.core.code import Code, binary, call, cast, chain, primary, unary
from fusewright.core.dtype import INT32_MAX, DataType
from fusewright.core.errors import InternalError
from fusewright.cuda.spelling import literal
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
    bounds,
    fold,
    le,
    product,
    prove,
    to_text,
)


@dataclass(frozen=True, slots=True)
class Printed:
    """A printed expression.

    Attributes:
        code: its text.
        dtype: its type in C: Bool, Int32 or Int.
        negated: the text of its negative, if that is shorter: a sum subtracts it instead.
    """

    code: Code
    dtype: DataType
    negated: Code | None = None


class ExpressionPrinter:
    """Prints index expressions of one kernel.

    Args:
        index_dtype: Int32 or Int.
        name_of: the identifier of a symbol.
        require: called with the name of each snippet that the text needs.
        multipliers: the parameters for divisions by multiplication, by divisor.
    """

    def __init__(
        self,
        index_dtype: DataType,
        name_of: Callable[[Symbol], str],
        require: Callable[[str], None],
        multipliers: Mapping[Expr, str] = MappingProxyType({}),
    ) -> None:
        self.index_dtype = index_dtype
        self.name_of = name_of
        self.require = require
        self.multipliers = multipliers
        self._printed: dict[Expr, Printed] = {}

    def text(self, e: Expr) -> Code:
        """The text of `e`."""
        return self.typed(e).code

    def typed(self, e: Expr) -> Printed:
        """The text of `e` and the type that C gives it."""
        return fold(e, self._visit, self._printed)

    def _visit(self, e: Expr, args: tuple[Printed, ...]) -> Printed:
        return NODE_PRINTERS[type(e)](self, e, args)

    def number(self, printed: Printed) -> Printed:
        """`printed` fit for arithmetic, in which C would take a truth value as an int."""
        if printed.dtype is not DataType.Bool:
            return printed
        return Printed(cast(self.index_dtype.cuda, printed.code), self.index_dtype)


def has_division(e: Expr) -> bool:
    """Whether it divides by anything but a power of two."""

    def visit(e: Expr, args: tuple[bool, ...]) -> bool:
        return any(args) or (isinstance(e, (FloorDiv, Mod)) and not _is_power_of_two(e.divisor))

    return fold(e, visit)


def _is_power_of_two(e: Expr) -> bool:
    return isinstance(e, Const) and e.value > 0 and e.value & (e.value - 1) == 0


def _widest(printed: Sequence[Printed]) -> DataType:
    return DataType.Int if any(p.dtype is DataType.Int for p in printed) else DataType.Int32


def _width(printer: ExpressionPrinter, e: Add | Mul, operands: Sequence[Printed]) -> DataType:
    """The type of a sum or product with these operands, in the order of `e.args`.

    Raises:
        InternalError: a constant is wider than the index type, and what C computes before it meets this
            constant may not fit in that type.
    """
    dtype = _widest(operands)
    if dtype is DataType.Int and printer.index_dtype is DataType.Int32:
        narrow = [arg for arg, operand in zip(e.args, operands) if operand.dtype is not DataType.Int]
        if not _fit_together(narrow if isinstance(e, Add) else [product(narrow)]):
            raise InternalError(f"a constant of {to_text(e)} does not fit in indices of 32 bits")
    return dtype


def _fit_together(terms: Sequence[Expr]) -> bool:
    """Whether 32 bits hold all sums of some of the terms."""
    lows, highs = zip(*map(bounds, terms)) if terms else ((), ())
    if None in lows or None in highs:
        return False
    return (
        sum(min(0, low) for low in lows) >= -INT32_MAX - 1
        and sum(max(0, high) for high in highs) <= INT32_MAX
    )


def _const(printer: ExpressionPrinter, e: Const, args: tuple[Printed, ...]) -> Printed:
    dtype = DataType.Int32 if -(2**31) <= e.value < 2**31 else DataType.Int
    if not -(2**63) <= e.value < 2**63:
        raise InternalError(f"the index constant {e.value} does not fit in 64 bits")
    negated = literal(-e.value, dtype, dtype) if e.value < 0 and -e.value <= dtype.highest else None
    return Printed(literal(e.value, dtype, dtype), dtype, negated)


def _symbol(printer: ExpressionPrinter, e: Symbol, args: tuple[Printed, ...]) -> Printed:
    return Printed(primary(printer.name_of(e)), printer.index_dtype)


def _add(printer: ExpressionPrinter, e: Add, args: tuple[Printed, ...]) -> Printed:
    # Positive terms first, so that the text seldom starts with a sign.
    numbers = list(map(printer.number, args))
    terms = sorted(numbers, key=lambda term: term.negated is not None)
    text = terms[0].code
    for term in terms[1:]:
        text = binary("+", text, term.code) if term.negated is None else binary("-", text, term.negated)
    return Printed(text, _width(printer, e, numbers))


def _mul(printer: ExpressionPrinter, e: Mul, args: tuple[Printed, ...]) -> Printed:
    terms = [printer.number(arg) for arg in args]
    dtype = _width(printer, e, terms)
    if e.coefficient == 1:
        return Printed(chain("*", [term.code for term in terms]), dtype)
    coefficient, factors = terms[0], [term.code for term in terms[1:]]
    if e.coefficient == -1:
        return Printed(chain("*", [unary("-", factors[0]), *factors[1:]]), dtype, chain("*", factors))
    if coefficient.negated is None:
        # `i * 4` reads better than `4 * i`.
        return Printed(chain("*", [*factors, coefficient.code]), dtype)
    return Printed(
        chain("*", [coefficient.code, *factors]), dtype, chain("*", [*factors, coefficient.negated])
    )


def _division(
    operator: str, function: str, multiplied: str
) -> Callable[[ExpressionPrinter, FloorDiv | Mod, tuple[Printed, ...]], Printed]:
    def visit(printer: ExpressionPrinter, e: FloorDiv | Mod, args: tuple[Printed, ...]) -> Printed:
        dividend, divisor = map(printer.number, args)
        dtype = _widest([dividend, divisor])
        # By zero neither is defined.
        if prove(le(0, e.dividend)) and prove(le(0, e.divisor)):
            if e.divisor in printer.multipliers and dtype is DataType.Int32:
                printer.require("quotient")
                over = primary(printer.multipliers[e.divisor])
                return Printed(call(f"fw::{multiplied}", dividend.code, divisor.code, over), dtype)
            most = bounds(e.dividend)[1]
            if isinstance(e.divisor, Const) and dtype is DataType.Int32:
                most = INT32_MAX if most is None else most
                if e.divisor.value <= INT32_MAX and most <= INT32_MAX and not _is_power_of_two(e.divisor):
                    printer.require("constant_quotient")
                    name = f"fw::constant_{multiplied}<{e.divisor.value}, {most}>"
                    return Printed(call(name, dividend.code), dtype)
            return Printed(binary(operator, dividend.code, divisor.code), dtype)
        printer.require("floor_division")
        return Printed(call(f"fw::{function}", dividend.code, divisor.code), dtype)

    return visit


def _extremum(function: str) -> Callable[[ExpressionPrinter, Min | Max, tuple[Printed, ...]], Printed]:
    def visit(printer: ExpressionPrinter, e: Min | Max, args: tuple[Printed, ...]) -> Printed:
        # The overloads of min and max want two operands of one type.
        numbers = [printer.number(arg) for arg in args]
        dtype = _widest(numbers)
        texts = [
            number.code
            if number.dtype is dtype
            else literal(arg.value, dtype, dtype)
            if isinstance(arg, Const)
            else cast(dtype.cuda, number.code)
            for arg, number in zip(e.args, numbers)
        ]
        text = texts[-1]
        for other in reversed(texts[:-1]):
            text = call(function, other, text)
        return Printed(text, dtype)

    return visit


def _xor(printer: ExpressionPrinter, e: Xor, args: tuple[Printed, ...]) -> Printed:
    numbers = [printer.number(arg) for arg in args]
    return Printed(chain("^", [number.code for number in numbers]), _widest(numbers))


def _comparison(operator: str) -> Callable[[ExpressionPrinter, Expr, tuple[Printed, ...]], Printed]:
    def visit(printer: ExpressionPrinter, e: Expr, args: tuple[Printed, ...]) -> Printed:
        left, right = map(printer.number, args)
        return Printed(binary(operator, left.code, right.code), DataType.Bool)

    return visit


def _connective(operator: str) -> Callable[[ExpressionPrinter, Expr, tuple[Printed, ...]], Printed]:
    def visit(printer: ExpressionPrinter, e: Expr, args: tuple[Printed, ...]) -> Printed:
        return Printed(chain(operator, [arg.code for arg in args]), DataType.Bool)

    return visit


def _not(printer: ExpressionPrinter, e: Not, args: tuple[Printed, ...]) -> Printed:
    if isinstance(e.args[0], Eq):
        left, right = (printer.number(printer.typed(arg)) for arg in e.args[0].args)
        return Printed(binary("!=", left.code, right.code), DataType.Bool)
    return Printed(unary("!", args[0].code), DataType.Bool)


NODE_PRINTERS: dict[type[Expr], Callable[..., Printed]] = {
    Const: _const,
    Symbol: _symbol,
    Add: _add,
    Mul: _mul,
    FloorDiv: _division("/", "floor_div", "quotient"),
    Mod: _division("%", "floor_mod", "rest"),
    Min: _extremum("min"),
    Max: _extremum("max"),
    Xor: _xor,
    Lt: _comparison("<"),
    Le: _comparison("<="),
    Eq: _comparison("=="),
    Not: _not,
    And: _connective("&&"),
    Or: _connective("||"),
}
"""How each kind of expression is printed, given the printed operands."""
