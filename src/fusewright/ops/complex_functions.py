"""The reference functions of complex numbers: sums by parts, others in a wider type, rounded once.

torch's own functions lose digits that the device text keeps (the imaginary part of its atan is off by a tenth
in places), so they cannot be the reference. numpy's wider types and the C library under it can: complex64 is
computed in complex128, and complex128 in C's long double, which has 64 bits on x86, and 53 on machines
without a wider type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

Array = Any  # numpy's generic array types say nothing that holds for both widths
_WIDER: Mapping[torch.dtype, type[np.complexfloating[Any, Any]]] = {
    torch.complex64: np.complex128,
    torch.complex128: np.clongdouble,
}
_NARROW = {torch.complex64: np.complex64, torch.complex128: np.complex128}
# Whole exponents up to this are powers by squaring.
_SQUARED = 64


def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a + b by parts: torch first multiplies b by 1 + 0i, which makes a NaN beside an infinity."""
    return torch.complex(a.real + b.real, a.imag + b.imag)


def sub(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a - b by parts, as `add`."""
    return torch.complex(a.real - b.real, a.imag - b.imag)


def _rounded_once(function: Callable[..., Array]) -> Callable[..., torch.Tensor]:
    """`function` of wider arrays as one of tensors, which are broadcast to each other."""

    def call(*operands: torch.Tensor) -> torch.Tensor:
        first = operands[0]
        arrays = [x.detach().resolve_conj().cpu().numpy().astype(_WIDER[first.dtype]) for x in operands]
        with np.errstate(all="ignore"):
            result = np.asarray(function(*np.broadcast_arrays(*arrays))).astype(_NARROW[first.dtype])
        return torch.from_numpy(result).to(first.device)

    return call


def _parts(re: Array, im: Array) -> Array:
    """re + i im, which as a sum would lose the sign of a zero and make a NaN of an infinity."""
    out = np.empty(np.shape(re), dtype=np.result_type(re, np.complex64))
    out.real, out.imag = re, im
    return out


def _select(condition: Array, yes: Array, no: Array) -> Array:
    return _parts(np.where(condition, yes.real, no.real), np.where(condition, yes.imag, no.imag))


def _split(x: Array) -> tuple[Array, Array]:
    """Two halves of the digits of x, whose products are exact (Veltkamp)."""
    digits = np.finfo(x.dtype).nmant + 1
    spread = x * (x.dtype.type(2) ** ((digits + 1) // 2) + 1)
    high = spread - (spread - x)
    return high, x - high


def _square(x: Array) -> tuple[Array, Array]:
    """x^2 and what its rounding drops (Dekker)."""
    high, low = _split(x)
    square = x * x
    return square, ((high * high - square) + 2 * high * low) + low * low


def _log1p(z: Array) -> Array:
    """Its real part is log1p(2 re + re^2 + im^2) / 2, whose terms may cancel and so are summed exactly."""
    above = _parts(z.real + 1, z.imag)
    near = (np.abs(z.real) < 4) & (np.abs(z.imag) < 4)
    re, im = np.where(near, z.real, 0), np.where(near, z.imag, 0)
    total, rest = 2 * re, np.zeros_like(re)
    for square, dropped in (_square(re), _square(im)):
        following = total + square
        part = following - total
        rest = rest + ((total - (following - part)) + (square - part)) + dropped
        total = following
    beyond = total + rest
    length = np.where(near & (beyond > -0.5), np.log1p(np.maximum(beyond, -0.5)) / 2, np.log(above).real)
    return _parts(length, np.arctan2(above.imag, above.real))


def _polar(length: Array, angle: Array) -> Array:
    return _parts(length * np.cos(angle), np.where(angle == 0, angle, length * np.sin(angle)))


def _exp2(z: Array) -> Array:
    """The angle is im log(2), rounded to so many digits as wide types have."""
    return _polar(np.exp2(z.real), z.imag * np.log(z.real.dtype.type(2)))


def _expm1(z: Array) -> Array:
    half_sine = np.sin(z.imag / 2)
    re = np.expm1(z.real) * np.cos(z.imag) - 2 * half_sine * half_sine
    exp = np.exp(z)
    large = z.real > 60  # 1 is less than the last digit
    return _parts(np.where(large, exp.real, re), exp.imag)


def _sigmoid(z: Array) -> Array:
    """From e^-|re|, which does not overflow; near a pole 1 + e^-z cancels unless it is summed as expm1 is."""
    negative = z.real < 0
    x, y = -np.abs(z.real), np.where(negative, z.imag, -z.imag)
    power, half = _polar(np.exp(x), y), np.cos(y / 2)
    one_more = _parts(np.expm1(x) * np.cos(y) + 2 * half * half, power.imag)
    return _select(negative, power, np.ones_like(power)) / one_more


def _quotient(a: Array, b: Array) -> Array:
    """By parts where the divisor is real, for numpy multiplies by its reciprocal."""
    return _select(b.imag == 0, _parts(a.real / b.real, a.imag / b.real), a / b)


def _power(base: Array, exponent: Array) -> Array:
    whole = (exponent.imag == 0) & (np.rint(exponent.real) == exponent.real)
    whole &= np.abs(exponent.real) <= _SQUARED
    count = np.abs(np.where(whole, exponent.real, 0)).astype(np.int64)
    result, square = np.ones_like(base), base
    while (count > 0).any():
        result = _select(count & 1 == 1, result * square, result)
        count = count >> 1
        square = _select(count > 0, square * square, square)
    result = _select(exponent.real < 0, _quotient(np.ones_like(result), result), result)
    result = _select(whole, result, np.exp(exponent * np.log(base)))
    result = _select((base.real == 0) & (base.imag == 0), np.zeros_like(base), result)
    return _select(exponent == 0, np.ones_like(base), result)


#: The functions of arrays of a wide type.
WIDE_FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "cos": np.cos,
    "cosh": np.cosh,
    "div": _quotient,
    "exp": np.exp,
    "exp2": _exp2,
    "expm1": _expm1,
    "log": np.log,
    "log10": np.log10,
    "log1p": _log1p,
    "log2": np.log2,
    "pow": _power,
    "reciprocal": lambda z: _quotient(np.ones_like(z), z),
    "rsqrt": lambda z: _quotient(np.ones_like(z), np.sqrt(z)),
    "sigmoid": _sigmoid,
    "silu": lambda z: z * _sigmoid(z),
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
}

FUNCTIONS: Mapping[str, Callable[..., torch.Tensor]] = {
    name: _rounded_once(function) for name, function in WIDE_FUNCTIONS.items()
}
