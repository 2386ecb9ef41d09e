"""Functions of elements that few programs are made of, each with its error bound: see `bounded`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from tests.fuzz.bounded import (
    FUNCTION_ROUNDOFFS,
    INF,
    Bounded,
    Number,
    Operand,
    Tensor,
    Unary,
    applied,
    binary,
    common_dtype,
    convert,
    discrete,
    exact,
    float_up,
    integral,
    rounded,
    smooth,
    spread,
    unary,
    unknown_where,
    up,
    where,
    widened,
)

# Beyond this the function log(|gamma|) grows.
LEAST_GAMMA = 1.4616321449683623
RECIPROCAL_ROOT = 1 / math.sqrt(2)

# ---- of one element ----------------------------------------------------------------------------------------


def _between_poles(x: Tensor, e: Tensor) -> Tensor:
    """The error of the tangent, which grows from each pole to the next."""
    middle, above, below = torch.tan(x), torch.tan(x + e), torch.tan(x - e)
    crosses = (e >= math.pi) | (above < middle) | (below > middle)
    return torch.where(e > 0, torch.where(crosses, INF, torch.maximum(above - middle, middle - below)), 0.0)


def _above_the_least(x: Tensor, e: Tensor) -> Tensor:
    far = torch.lgamma(x + e) - torch.lgamma(x - e)
    return torch.where(e > 0, torch.where(x - e > LEAST_GAMMA, far, INF), 0.0)


def _erfcinv(x: Tensor) -> Tensor:
    return -torch.special.ndtri(x / 2) * RECIPROCAL_ROOT


def _apart_from_steps(x: Tensor, e: Tensor) -> Tensor:
    return e + integral("trunc").error(x, e)


FUNCTIONS: dict[str, Unary] = {
    **{name: smooth(name) for name in ("acos", "acosh", "asin", "atanh", "cosh", "erfc", "erfinv", "log10")},
    "tan": Unary(torch.tan, _between_poles),
    "lgamma": Unary(torch.lgamma, _above_the_least),
    "erfcinv": Unary(_erfcinv, spread(_erfcinv)),
    "frac": Unary(torch.frac, _apart_from_steps, 0, keeps=True, integers=torch.zeros_like),
}
#: Whose results are bools, or other bits.
TESTS: dict[str, Callable[[Tensor], Tensor]] = {
    name: getattr(torch, name)
    for name in ("bitwise_not", "signbit", "isfinite", "isinf", "isnan", "isneginf", "isposinf", "isreal")
}


def _bounded(x: Operand) -> Bounded:
    return x if isinstance(x, Bounded) else exact(x)


def _test(name: str) -> Callable[[Operand], Bounded]:
    def function(x: Operand) -> Bounded:
        given = _bounded(x)
        return discrete(TESTS[name], given if given.dtype is torch.bool else convert(given, up(given.dtype)))

    return function


def _function(name: str) -> Callable[[Operand], Bounded]:
    def function(x: Operand) -> Bounded:
        given = _bounded(x)
        if name == "frac" and given.dtype is torch.bool:
            return Bounded(torch.zeros_like(given.data), given.error, given.scalar)
        return applied(FUNCTIONS[name], name, given)

    return function


def gelu(arg: Bounded, approximate: str = "none") -> Bounded:
    """Step by step as torch documents it, since 1 + erf(x) cancels."""
    x = convert(arg, up(arg.dtype))
    if approximate == "none":
        curve = unary("erf", binary("mul", x, RECIPROCAL_ROOT))
    else:
        cube = binary("mul", binary("mul", x, x), x)
        inner = binary("add", x, binary("mul", cube, 0.044715))
        curve = unary("tanh", binary("mul", inner, math.sqrt(2 / math.pi)))
    return convert(binary("mul", binary("mul", x, 0.5), binary("add", curve, 1.0)), arg.dtype)


# ---- of two elements ---------------------------------------------------------------------------------------


def _in_common(a: Operand, b: Operand, widest: Callable[[torch.dtype], torch.dtype] = up) -> list[Bounded]:
    given = [_bounded(a), _bounded(b)]
    common = widest(common_dtype(given))
    return [convert(x, common) for x in given]


def _unknown(*operands: Bounded) -> Tensor:
    """An error that says nothing where an operand has one."""
    flags = torch.zeros((), dtype=torch.bool)
    for x in operands:
        flags = flags | (x.error > 0)
    return unknown_where(flags)


def _remainder(name: str) -> Callable[[Operand, Operand], Bounded]:
    """Of floats it is within a rounding; C's remainder of integers has more than one name."""
    function: Callable[[Tensor, Tensor], Tensor] = torch.remainder if name == "remainder" else torch.fmod

    def remainder(a: Operand, b: Operand) -> Bounded:
        x, y = _in_common(a, b)
        if not x.dtype.is_floating_point:
            return binary("mod" if name == "fmod" else name, x, y)
        wide = function(widened(x.data), widened(y.data))
        out = rounded(wide, _unknown(x, y).expand(wide.shape), x.dtype)
        return Bounded(out.data, out.error, x.scalar and y.scalar)

    return remainder


def _of_exact(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Operand, Operand], Bounded]:
    """Whose result says nothing unless both operands are exact."""
    return lambda a, b: discrete(function, *_in_common(a, b))


def atan2(a: Operand, b: Operand) -> Bounded:
    x, y = _in_common(a, b, float_up)
    wide = torch.atan2(widened(x.data), widened(y.data))
    out = rounded(wide, _unknown(x, y).expand(wide.shape), x.dtype, FUNCTION_ROUNDOFFS)
    return Bounded(out.data, out.error, x.scalar and y.scalar)


def complex_(real: Bounded, imag: Bounded) -> Bounded:
    shape = torch.broadcast_shapes(real.data.shape, imag.data.shape)
    return Bounded(torch.complex(real.data, imag.data), (real.error + imag.error).expand(shape))


def _logical_right_shift(x: Tensor, y: Tensor) -> Tensor:
    bits = torch.iinfo(x.dtype).bits
    kept = torch.where(y > 0, (1 << (bits - y.clamp(1, bits - 1))) - 1, -1).to(x.dtype)
    return (x >> y) & kept


#: What arithmetic is for two bools.
_OF_BOOLS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sub": torch.logical_xor,
    "div": lambda a, b: a.expand(torch.broadcast_shapes(a.shape, b.shape)),
    **dict.fromkeys(("mod", "fmod", "remainder"), lambda a, b: torch.zeros_like(a & b)),
}


def _also_of_bools(name: str, otherwise: Callable[..., Bounded]) -> Callable[[Operand, Operand], Bounded]:
    def function(a: Operand, b: Operand) -> Bounded:
        x, y = _bounded(a), _bounded(b)
        return discrete(_OF_BOOLS[name], x, y) if x.dtype is y.dtype is torch.bool else otherwise(a, b)

    return function


def sub_alpha(a: Operand, b: Operand, alpha: Number) -> Bounded:
    x, y = _in_common(a, b)
    return FURTHER["sub"](x, binary("mul", convert(exact(alpha), x.dtype), y))


def _binary(name: str) -> Callable[[Operand, Operand], Bounded]:
    return lambda a, b: binary(name, a, b)


# ---- masks and constants -----------------------------------------------------------------------------------


def masked_fill(arg: Bounded, mask: Bounded, value: Number) -> Bounded:
    return where(mask, convert(exact(value), arg.dtype), arg)


def full_like(arg: Bounded, value: Number, dtype: Any = None) -> Bounded:
    number = torch.tensor(value).to(arg.dtype if dtype is None else dtype.torch)
    return exact(number.expand(arg.data.shape))


FURTHER: dict[str, Callable[..., Bounded]] = {
    **{name: _function(name) for name in FUNCTIONS},
    **{name: _test(name) for name in TESTS},
    "gelu": gelu,
    **{name: _of_exact(getattr(torch, name)) for name in ("nextafter", "gcd")},
    **{name: _of_exact(getattr(torch, name)) for name in ("bitwise_left_shift", "bitwise_right_shift")},
    "logical_right_shift": _of_exact(_logical_right_shift),
    **{name: _also_of_bools(name, _remainder(name)) for name in ("mod", "fmod", "remainder")},
    **{name: _also_of_bools(name, _binary(name)) for name in ("sub", "div")},
    "atan2": atan2,
    "complex": complex_,
    "masked_fill": masked_fill,
    "full_like": full_like,
    "zeros_like": lambda arg, dtype=None: full_like(arg, 0, dtype),
    "ones_like": lambda arg, dtype=None: full_like(arg, 1, dtype),
}
