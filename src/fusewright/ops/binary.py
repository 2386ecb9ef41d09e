"""The rows of operations on two operands."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

import torch

from fusewright.core.dtype import Category
from fusewright.core.op import Domain, ElementwiseOp, Rule, Spelling
from fusewright.ops import complex_functions, real_functions

BOOL, INT, FLOAT, COMPLEX = Category.BOOL, Category.INT, Category.FLOAT, Category.COMPLEX
Tensor = torch.Tensor
Torch = Callable[[Tensor, Tensor], Tensor]

# Not the extrema: which zero is the larger one depends on the order.
COMMUTING = frozenset(
    {"add", "mul", "eq", "ne", "logical_and", "logical_or", "bitwise_and", "bitwise_or", "bitwise_xor"}
)


def _binary(
    name: str,
    rule: Rule,
    spellings: dict[Category, Spelling],
    symbol: str | None = None,
    domains: tuple[Domain, ...] = (),
) -> ElementwiseOp:
    return ElementwiseOp(
        name, 2, rule, MappingProxyType(spellings), symbol=symbol, domains=domains, commutes=name in COMMUTING
    )


# ---- arithmetic --------------------------------------------------------------------------------------------


def _arithmetic(
    name: str, symbol: str, function: Torch, on_bools: Spelling, on_complex: Torch
) -> ElementwiseOp:
    plain = Spelling(f"{{0}} {symbol} {{1}}", function)
    in_complex = Spelling(plain.cuda, on_complex, ("complex",))
    wrapping = Spelling(f"fw::wrapping_{name}({{0}}, {{1}})", function, ("wrapping",))
    spellings = {BOOL: on_bools, INT: wrapping, FLOAT: plain, COMPLEX: in_complex}
    return _binary(name, Rule.SAME_UP, spellings, symbol)


def _nonzero(divisor: Tensor) -> Tensor:
    """The divisor with 1 for 0, whose quotient C leaves undefined and whose division traps on a CPU."""
    return torch.where(divisor == 0, 1, divisor)


def _int_div(a: Tensor, b: Tensor) -> Tensor:
    # The least integer divided by -1 traps too; negation wraps.
    safe = torch.where(b == -1, 1, _nonzero(b))
    return torch.where(b == -1, -a, torch.div(a, safe, rounding_mode="trunc"))


def _int_mod(a: Tensor, b: Tensor) -> Tensor:
    return torch.fmod(a, torch.where(b == -1, 1, _nonzero(b)))  # x % -1 is 0, as is x % 1


def _int_remainder(a: Tensor, b: Tensor) -> Tensor:
    return torch.remainder(a, torch.where(b == -1, 1, _nonzero(b)))


def _int_pow(base: Tensor, exponent: Tensor) -> Tensor:
    """By squaring, with the wrap-around of the type; a negative exponent leaves 1, +-1 or 0."""
    result, power, left = torch.ones_like(base * exponent), base, exponent.clamp(min=0)
    while bool((left > 0).any()):
        result = torch.where((left & 1) == 1, result * power, result)
        power, left = power * power, left >> 1
    odd = (exponent & 1) == 1
    negative = torch.where(base == 1, 1, torch.where(base == -1, torch.where(odd, -1, 1), 0)).to(base.dtype)
    return torch.where(exponent < 0, negative, result)


def _gcd(a: Tensor, b: Tensor) -> Tensor:
    return torch.gcd(a, b).abs()  # torch gives a negative one where an operand is the least integer


# `/` is within 2 ulp for Float (NVRTC's --prec-div=false); once a row it is correctly rounded.
_DIV = Spelling(
    "{0} / {1}",
    torch.div,
    precise=Spelling(
        "fw::divide({0}, {1})",
        torch.div,
        ("precise_division",),
        sparing=Spelling("fw::divide_in_few_registers({0}, {1})", torch.div, ("precise_division",)),
    ),
    slots=14,
)
# Complex numbers are divided by the division of doubles, which is correctly rounded.
_COMPLEX_DIV = Spelling("{0} / {1}", complex_functions.FUNCTIONS["div"], ("complex",))
_FMOD = Spelling("fw::float_fmod({0}, {1})", real_functions.fmod, ("float_remainder",), slots=40)
_INT_MOD = Spelling("{0} % {1}", _int_mod, divides=True)
# A bool divided by true is itself, with nothing left over; by false it is undefined.
_BOOL_DIV = Spelling("{0}", lambda a, b: a | torch.zeros_like(b))
_BOOL_MOD = Spelling("false", lambda a, b: (a & b) & False)
_POWER_DOMAIN = (Domain(low=0.0), Domain())

_ARITHMETIC = (
    _arithmetic("add", "+", torch.add, Spelling("{0} || {1}", torch.logical_or), complex_functions.add),
    _arithmetic("sub", "-", torch.sub, Spelling("{0} != {1}", torch.logical_xor), complex_functions.sub),
    _arithmetic("mul", "*", torch.mul, Spelling("{0} && {1}", torch.logical_and), torch.mul),
    _binary(
        "div",
        Rule.SAME_UP,
        {
            BOOL: _BOOL_DIV,
            INT: Spelling("{0} / {1}", _int_div, divides=True),
            FLOAT: _DIV,
            COMPLEX: _COMPLEX_DIV,
        },
        "/",
    ),
    _binary("truediv", Rule.FLOAT_UP, {FLOAT: _DIV, COMPLEX: _COMPLEX_DIV}, "/"),
    _binary("mod", Rule.SAME_UP, {BOOL: _BOOL_MOD, INT: _INT_MOD, FLOAT: _FMOD}, "%"),
    _binary("fmod", Rule.SAME_UP, {BOOL: _BOOL_MOD, INT: _INT_MOD, FLOAT: _FMOD}),
    _binary(
        "remainder",
        Rule.SAME_UP,
        {
            BOOL: _BOOL_MOD,
            INT: Spelling("fw::int_remainder({0}, {1})", _int_remainder, ("int_remainder",), divides=True),
            FLOAT: Spelling("fw::float_remainder({0}, {1})", real_functions.remainder, ("float_remainder",)),
        },
    ),
    _binary(
        "pow",
        Rule.SAME_UP,
        {
            BOOL: Spelling("{0} || !{1}", lambda a, b: a | ~b),
            INT: Spelling("fw::int_pow({0}, {1})", _int_pow, ("int_pow",)),
            FLOAT: Spelling("pow({0}, {1})", torch.pow, slots=110),
            COMPLEX: Spelling("fw::pow({0}, {1})", complex_functions.FUNCTIONS["pow"], ("complex_pow",)),
        },
        domains=_POWER_DOMAIN,
    ),
    _binary("atan2", Rule.FLOAT_UP, {FLOAT: Spelling("atan2({0}, {1})", torch.atan2, slots=51)}),
    _binary("nextafter", Rule.FULL_FLOAT, {FLOAT: Spelling("nextafter({0}, {1})", torch.nextafter)}),
    _binary(
        "complex",
        Rule.MAKE_COMPLEX,
        {FLOAT: Spelling("fw::complex<{T}>({0}, {1})", torch.complex, ("complex",))},
    ),
    _binary("gcd", Rule.SAME_UP, {INT: Spelling("fw::gcd({0}, {1})", _gcd, ("gcd",))}),
)

# ---- order -------------------------------------------------------------------------------------------------


def _extremum(name: str, function: Torch, on_bools: Spelling) -> ElementwiseOp:
    of_numbers = Spelling(f"fw::{name}({{0}}, {{1}})", function, (name,))
    return _binary(name, Rule.SAME_UP, {BOOL: on_bools, INT: of_numbers, FLOAT: of_numbers})


def _equality(name: str, symbol: str, function: Torch) -> ElementwiseOp:
    plain = Spelling(f"{{0}} {symbol} {{1}}", function)
    in_complex = Spelling(plain.cuda, function, ("complex",))
    return _binary(name, Rule.COMPARE, {BOOL: plain, INT: plain, FLOAT: plain, COMPLEX: in_complex}, symbol)


def _comparison(name: str, symbol: str, function: Torch) -> ElementwiseOp:
    plain = Spelling(f"{{0}} {symbol} {{1}}", function)
    return _binary(name, Rule.COMPARE, {BOOL: plain, INT: plain, FLOAT: plain}, symbol)


_ORDER = (
    _extremum("maximum", torch.maximum, Spelling("{0} || {1}", torch.logical_or)),
    _extremum("minimum", torch.minimum, Spelling("{0} && {1}", torch.logical_and)),
    _equality("eq", "==", torch.eq),
    _equality("ne", "!=", torch.ne),
    _comparison("lt", "<", torch.lt),
    _comparison("le", "<=", torch.le),
    _comparison("gt", ">", torch.gt),
    _comparison("ge", ">=", torch.ge),
)

# ---- logic and bits ----------------------------------------------------------------------------------------


def _bits(dtype: torch.dtype) -> int:
    return torch.iinfo(dtype).bits


def _outside(amount: Tensor) -> Tensor:
    """Shift amounts that C leaves undefined: negative, or the width of the type or more."""
    return (amount < 0) | (amount >= _bits(amount.dtype))


def _left_shift(a: Tensor, amount: Tensor) -> Tensor:
    outside = _outside(amount)
    return torch.where(outside, 0, a << torch.where(outside, 0, amount))


def _right_shift(a: Tensor, amount: Tensor) -> Tensor:
    return a >> torch.where(_outside(amount), _bits(a.dtype) - 1, amount)


def _logical_right_shift(a: Tensor, amount: Tensor) -> Tensor:
    outside = _outside(amount)
    inside = torch.where(outside, 0, amount)
    # The copies of the sign bit that `>>` brings in are cleared: `kept` has ones in the low bits only.
    kept = torch.where(inside == 0, -1, ~(torch.full_like(amount, -1) << (_bits(a.dtype) - inside)))
    return torch.where(outside, 0, (a >> inside) & kept)


def _bitwise(name: str, symbol: str, function: Torch, on_bools: Spelling) -> ElementwiseOp:
    return _binary(
        name, Rule.SAME_UP, {BOOL: on_bools, INT: Spelling(f"{{0}} {symbol} {{1}}", function)}, symbol
    )


def _shift(name: str, function: Torch, symbol: str | None) -> ElementwiseOp:
    spelling = Spelling(f"fw::{name}({{0}}, {{1}})", function, ("shift",))
    return _binary(name, Rule.SAME_UP, {INT: spelling}, symbol, (Domain(), Domain(0, 31)))


_LOGIC_AND_BITS = (
    _binary("logical_and", Rule.LOGICAL, {BOOL: Spelling("{0} && {1}", torch.logical_and)}, "&&"),
    _binary("logical_or", Rule.LOGICAL, {BOOL: Spelling("{0} || {1}", torch.logical_or)}, "||"),
    _bitwise("bitwise_and", "&", torch.bitwise_and, Spelling("{0} && {1}", torch.logical_and)),
    _bitwise("bitwise_or", "|", torch.bitwise_or, Spelling("{0} || {1}", torch.logical_or)),
    _bitwise("bitwise_xor", "^", torch.bitwise_xor, Spelling("{0} != {1}", torch.logical_xor)),
    _shift("bitwise_left_shift", _left_shift, "<<"),
    _shift("bitwise_right_shift", _right_shift, ">>"),
    _shift("logical_right_shift", _logical_right_shift, None),
)

BINARY: tuple[ElementwiseOp, ...] = (*_ARITHMETIC, *_ORDER, *_LOGIC_AND_BITS)
