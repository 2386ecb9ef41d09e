"""The rows of operations on one operand."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

import torch

from fusewright.core.dtype import Category
from fusewright.core.op import Domain, ElementwiseOp, Rule, Spelling
from fusewright.ops import complex_functions, real_functions

BOOL, INT, FLOAT, COMPLEX = Category.BOOL, Category.INT, Category.FLOAT, Category.COMPLEX
Torch = Callable[[torch.Tensor], torch.Tensor]

# `Spelling.slots` of most functions that CUDA computes by a polynomial and a special function.
FUNCTION_SLOTS = 32
# Of sine and cosine, whose argument is divided by pi / 2 first, which takes two conversions.
ANGLE_SLOTS = 45


def _unary(
    name: str, rule: Rule, spellings: dict[Category, Spelling], domain: Domain | None = None
) -> ElementwiseOp:
    domains = (domain,) if domain else ()
    return ElementwiseOp(name, 1, rule, MappingProxyType(spellings), domains=domains)


def _identity(x: torch.Tensor) -> torch.Tensor:
    return x


def _false(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(x, dtype=torch.bool)


def _true(x: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(x, dtype=torch.bool)


# ---- float-up: the transcendental functions ----------------------------------------------------------------


def _real_function(name: str, function: Torch, domain: Domain | None = None) -> ElementwiseOp:
    """A function of real numbers that CUDA has, overloaded, under the same name."""
    return _unary(
        name, Rule.FLOAT_UP, {FLOAT: Spelling(f"{name}({{0}})", function, slots=FUNCTION_SLOTS)}, domain
    )


def _analytic(
    name: str,
    function: Torch,
    complex_snippet: str,
    domain: Domain | None = None,
    slots: int = FUNCTION_SLOTS,
    real: Spelling | None = None,
) -> ElementwiseOp:
    """A function of real and complex numbers: `real` or CUDA's own for the real, ours for the others."""
    spellings = {
        FLOAT: real or Spelling(f"{name}({{0}})", function, slots=slots),
        COMPLEX: Spelling(f"fw::{name}({{0}})", complex_functions.FUNCTIONS[name], (complex_snippet,)),
    }
    return _unary(name, Rule.FLOAT_UP, spellings, domain)


def _angle(name: str, function: Torch) -> Spelling:
    return Spelling(f"fw::{name}({{0}})", function, ("trig",), slots=ANGLE_SLOTS)


def _erfcinv(x: torch.Tensor) -> torch.Tensor:
    """Through the normal quantile, in double: 1 - x would lose the digits of a small x."""
    wide: torch.Tensor = -torch.special.ndtri(x.double() / 2) / 2**0.5
    return wide.to(x.dtype)


_UNIT = Domain(-1.0, 1.0)
_POSITIVE = Domain(low=0.0)
# Where the exponential neither overflows nor vanishes in Float.
_EXPONENT = Domain(-80.0, 80.0)

_RECIPROCAL = _unary(
    "reciprocal",
    Rule.FLOAT_UP,
    {
        FLOAT: Spelling(
            "({T})1 / {0}",
            torch.reciprocal,
            precise=Spelling(
                "fw::divide(({T})1, {0})",
                torch.reciprocal,
                ("precise_division",),
                sparing=Spelling(
                    "fw::divide_in_few_registers(({T})1, {0})", torch.reciprocal, ("precise_division",)
                ),
            ),
            slots=8,
        ),
        COMPLEX: Spelling("{T}(1) / {0}", complex_functions.FUNCTIONS["reciprocal"], ("complex",)),
    },
)

_TRANSCENDENTAL = (
    _analytic("acos", torch.acos, "complex_inverse_trig", _UNIT),
    _analytic("acosh", torch.acosh, "complex_inverse_trig", Domain(low=1.0)),
    _analytic("asin", torch.asin, "complex_inverse_trig", _UNIT),
    _analytic("asinh", torch.asinh, "complex_inverse_trig"),
    _analytic("atan", torch.atan, "complex_inverse_trig"),
    _analytic("atanh", torch.atanh, "complex_inverse_trig", _UNIT),
    _analytic("cos", torch.cos, "complex_trig", real=_angle("cos", torch.cos)),
    _analytic("cosh", real_functions.cosh, "complex_trig", _EXPONENT),
    _analytic("exp", torch.exp, "complex_exp", _EXPONENT, slots=18),
    _analytic("exp2", torch.exp2, "complex_exp", Domain(-120.0, 120.0), slots=8),
    _analytic("expm1", torch.expm1, "complex_exp", _EXPONENT),
    _real_function("erf", torch.erf),
    _real_function("erfc", torch.erfc),
    _real_function("erfcinv", _erfcinv, Domain(0.0, 2.0)),
    _real_function("erfinv", torch.erfinv, _UNIT),
    _real_function("lgamma", torch.lgamma),
    _analytic("log", torch.log, "complex_log", _POSITIVE),
    _analytic("log10", torch.log10, "complex_log", _POSITIVE),
    _analytic("log1p", torch.log1p, "complex_log", Domain(low=-1.0)),
    _analytic("log2", torch.log2, "complex_log", _POSITIVE),
    _RECIPROCAL,
    _analytic("rsqrt", torch.rsqrt, "complex_sqrt", _POSITIVE, slots=8),
    _unary(
        "sigmoid",
        Rule.FLOAT_UP,
        {
            FLOAT: Spelling("fw::sigmoid({0})", real_functions.sigmoid, ("sigmoid",), slots=FUNCTION_SLOTS),
            COMPLEX: Spelling(
                "fw::sigmoid({0})", complex_functions.FUNCTIONS["sigmoid"], ("complex_sigmoid",)
            ),
        },
    ),
    _analytic("sin", torch.sin, "complex_trig", real=_angle("sin", torch.sin)),
    _analytic("sinh", real_functions.sinh, "complex_trig", _EXPONENT),
    _analytic("sqrt", real_functions.sqrt, "complex_sqrt", _POSITIVE, slots=12),
    _analytic("tan", torch.tan, "complex_trig", real=_angle("tan", torch.tan)),
    _analytic("tanh", torch.tanh, "complex_trig"),
)

# ---- keep: rounding and signs ------------------------------------------------------------------------------


def _rounding(name: str, cuda: str, function: Torch) -> ElementwiseOp:
    """Integers and bools are round already."""
    same = Spelling("{0}", _identity)
    return _unary(name, Rule.KEEP, {BOOL: same, INT: same, FLOAT: Spelling(cuda, function)})


def _frac(x: torch.Tensor) -> torch.Tensor:
    return x - torch.trunc(x)


def _relu(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x <= 0, 0, x)  # NaN stays


def _sign(x: torch.Tensor) -> torch.Tensor:
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)  # 0 for NaN


_RELU = Spelling("{0} <= 0 ? ({T})0 : {0}", _relu)
_SIGN = Spelling("({T})(({0} > 0) - ({0} < 0))", _sign)
_ABS_INT = Spelling("fw::wrapping_abs({0})", torch.abs, ("wrapping",))
_NEG = Spelling("-{0}", torch.neg)
_NEG_INT = Spelling("fw::wrapping_neg({0})", torch.neg, ("wrapping",))

_SIGNS_AND_ROUNDING = (
    _rounding("ceil", "ceil({0})", torch.ceil),
    _rounding("floor", "floor({0})", torch.floor),
    _rounding("round", "rint({0})", torch.round),  # half to even
    _rounding("trunc", "trunc({0})", torch.trunc),
    _unary(
        "frac",
        Rule.KEEP,
        {
            BOOL: Spelling("false", torch.zeros_like),
            INT: Spelling("({T})0", torch.zeros_like),
            FLOAT: Spelling("{0} - trunc({0})", _frac),
        },
    ),
    _unary("relu", Rule.KEEP, {BOOL: Spelling("{0}", _identity), INT: _RELU, FLOAT: _RELU}),
    _unary(
        "silu",
        Rule.KEEP,
        {
            FLOAT: Spelling("fw::silu({0})", real_functions.silu, ("silu",), slots=FUNCTION_SLOTS),
            COMPLEX: Spelling("fw::silu({0})", complex_functions.FUNCTIONS["silu"], ("complex_sigmoid",)),
        },
    ),
    _unary(
        "neg", Rule.SAME_UP, {BOOL: Spelling("{0}", _identity), INT: _NEG_INT, FLOAT: _NEG, COMPLEX: _NEG}
    ),
    _unary(
        "abs",
        Rule.TO_REAL,
        {
            BOOL: Spelling("{0}", _identity),
            INT: _ABS_INT,
            FLOAT: Spelling("fabs({0})", torch.abs),
            COMPLEX: Spelling("fw::abs({0})", torch.abs, ("complex",)),
        },
    ),
    _unary("sign", Rule.KEEP, {BOOL: Spelling("{0}", _identity), INT: _SIGN, FLOAT: _SIGN}),
)

# ---- parts, bits and classification ------------------------------------------------------------------------


def _real_part(x: torch.Tensor) -> torch.Tensor:
    return x.real.clone()


def _imaginary_part(x: torch.Tensor) -> torch.Tensor:
    return x.imag.clone()


_COPY = Spelling("{0}", _identity)
_ALWAYS = Spelling("true", _true)
_NEVER = Spelling("false", _false)


def _classification(
    name: str, exact: Spelling, real: Spelling, whole: Spelling | None = None
) -> ElementwiseOp:
    """A question about a value: the answer for bools and integers, for floats, for complex numbers."""
    spellings = {BOOL: exact, INT: exact, FLOAT: real}
    if whole is not None:
        spellings[COMPLEX] = whole
    return _unary(name, Rule.PREDICATE, spellings)


_PARTS_AND_CLASSES = (
    _unary(
        "real",
        Rule.TO_REAL,
        {BOOL: _COPY, INT: _COPY, FLOAT: _COPY, COMPLEX: Spelling("{0}.re", _real_part, ("complex",))},
    ),
    _unary("imag", Rule.TO_REAL, {COMPLEX: Spelling("{0}.im", _imaginary_part, ("complex",))}),
    _unary("logical_not", Rule.LOGICAL, {BOOL: Spelling("!{0}", torch.logical_not)}),
    _unary(
        "bitwise_not",
        Rule.KEEP,
        {BOOL: Spelling("!{0}", torch.logical_not), INT: Spelling("~{0}", torch.bitwise_not)},
    ),
    _unary(
        "signbit",
        Rule.PREDICATE,
        {
            BOOL: _NEVER,
            INT: Spelling("{0} < 0", torch.signbit),
            FLOAT: Spelling("signbit({0}) != 0", torch.signbit),
        },
    ),
    _classification(
        "isfinite",
        _ALWAYS,
        Spelling("isfinite({0})", torch.isfinite),
        Spelling("isfinite({0}.re) && isfinite({0}.im)", torch.isfinite, ("complex",)),
    ),
    _classification(
        "isinf",
        _NEVER,
        Spelling("isinf({0})", torch.isinf),
        Spelling("isinf({0}.re) || isinf({0}.im)", torch.isinf, ("complex",)),
    ),
    _classification(
        "isnan",
        _NEVER,
        Spelling("isnan({0})", torch.isnan),
        Spelling("isnan({0}.re) || isnan({0}.im)", torch.isnan, ("complex",)),
    ),
    _classification("isneginf", _NEVER, Spelling("isinf({0}) && {0} < 0", torch.isneginf)),
    _classification("isposinf", _NEVER, Spelling("isinf({0}) && {0} > 0", torch.isposinf)),
    _classification("isreal", _ALWAYS, _ALWAYS, Spelling("{0}.im == 0", torch.isreal, ("complex",))),
)

# The value itself: the types of the operand and the result say what it becomes.
CAST = ElementwiseOp(
    "cast",
    1,
    Rule.CAST,
    MappingProxyType({c: Spelling("{0}", _identity) for c in (BOOL, INT, FLOAT, COMPLEX)}),
)

UNARY: tuple[ElementwiseOp, ...] = (*_TRANSCENDENTAL, *_SIGNS_AND_ROUNDING, *_PARTS_AND_CLASSES, CAST)
