"""Rows that kernels use in place of others if the result is rounded to a narrower type. Definitions do not
have them.

Each uses one or two of the GPU's special functions. Their relative errors, in units of 2^-24, for an operand
x, a factor c, and e = |xc|, are at most: 4 + 1.1 e for `exp2_of_product`; 8 + 1.1 e for `logistic2` and for
silu; 48 + 3 e^2 for `half_erfc`; 128 for `approximate_expm1`, `approximate_log`, `approximate_log1p` and
`approximate_tanh`; 32 for `approximate_sin` and `approximate_cos`; 4 for `approximate_sqrt`. A power x^y is
off by 16 + 4 |log2(x^y)| for a y up to 4; `approximate_power` computes others in full.

Exponentials, logistics and powers below 2^-126 are 0. Exponentials are powers of 2, since those of e take a
factor, which the factor c of the product includes.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

import torch

from fusewright.core.dtype import Category, DataType
from fusewright.core.op import ElementwiseOp, Rule, Spelling
from fusewright.ops import real_functions
from fusewright.ops.elementwise import ELEMENTWISE

#: Types to which rounding is far coarser than these errors.
ROUNDED_TYPES = frozenset({DataType.Half, DataType.BFloat16, DataType.Float8_e4m3fn, DataType.Float8_e5m2})
#: Functions of which a relative error of a large operand is an absolute one of the result.
PERIODIC = frozenset(ELEMENTWISE[name] for name in ("sin", "cos", "tan"))


def _exp2_of_product(x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    return torch.exp2(x * factor)


def _logistic2(x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    return 1 / (1 + torch.exp2(x * factor))


def _half_erfc(x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    return torch.erfc(x * factor) / 2


def _row(name: str, spelling: Spelling, arity: int = 2) -> ElementwiseOp:
    return ElementwiseOp(name, arity, Rule.FLOAT_UP, MappingProxyType({Category.FLOAT: spelling}))


#: 2^(x c)
EXP2_OF_PRODUCT = _row(
    "exp2_of_product",
    Spelling("fw::approximate_exp2({0} * {1})", _exp2_of_product, ("approximate",), slots=9),
)
#: 1 / (1 + 2^(x c)): sigmoid(x) for c = -log2(e), and half of 1 + tanh(x) for twice that.
LOGISTIC2 = _row(
    "logistic2",
    Spelling(
        "fw::approximate_reciprocal(1.0f + fw::approximate_exp2({0} * {1}))",
        _logistic2,
        ("approximate",),
        slots=18,
    ),
)
#: erfc(x c) / 2, half of 1 + erf(x) for c = -1
HALF_ERFC = _row("half_erfc", Spelling("fw::half_erfc({0} * {1})", _half_erfc, ("half_erfc",), slots=32))
#: x / (1 + e^-x)
SILU = _row(
    "approximate_silu",
    Spelling("fw::approximate_silu({0})", real_functions.silu, ("approximate",), slots=30),
    arity=1,
)


def _one(
    name: str, function: Callable[[torch.Tensor], torch.Tensor], slots: int, snippet: str = "approximate"
) -> ElementwiseOp:
    called = f"approximate_{name}"
    return _row(called, Spelling(f"fw::{called}({{0}})", function, (snippet,), slots=slots), arity=1)


COS = _one("cos", torch.cos, 23, "approximate_trig")
EXPM1 = _one("expm1", torch.expm1, 18)
LOG = _one("log", torch.log, 20)
LOG1P = _one("log1p", torch.log1p, 20)
SIN = _one("sin", torch.sin, 22, "approximate_trig")
SQRT = _one("sqrt", torch.sqrt, 12)
TANH = _one("tanh", torch.tanh, 27)
#: x^y for a y that `has_cheap_power`
POW = _row(
    "approximate_pow", Spelling("fw::approximate_pow({0}, {1})", torch.pow, ("approximate",), slots=24)
)
#: x^y for any y, which is computed in full where `POW` would not do
ANY_POW = _row(
    "approximate_power", Spelling("fw::approximate_power({0}, {1})", torch.pow, ("approximate",), slots=40)
)
#: Of exponents: the error of a logarithm near 1, which is absolute, grows by it.
_LARGEST_EXPONENT = 4.0


def has_cheap_power(exponent: float) -> bool:
    """Whether `POW` may stand for a power: its sign of negative bases is not one of integers."""
    return abs(exponent) <= _LARGEST_EXPONENT and not exponent.is_integer()


#: Functions that become another by themselves.
ALONE = {
    ELEMENTWISE["cos"]: COS,
    ELEMENTWISE["expm1"]: EXPM1,
    ELEMENTWISE["log"]: LOG,
    ELEMENTWISE["log1p"]: LOG1P,
    ELEMENTWISE["silu"]: SILU,
    ELEMENTWISE["sin"]: SIN,
    ELEMENTWISE["sqrt"]: SQRT,
    ELEMENTWISE["tanh"]: TANH,
}
#: What functions become; powers as they do where nothing is known of the exponent.
STAND_INS = {
    **ALONE,
    ELEMENTWISE["exp"]: EXP2_OF_PRODUCT,
    ELEMENTWISE["pow"]: ANY_POW,
    ELEMENTWISE["sigmoid"]: LOGISTIC2,
}
