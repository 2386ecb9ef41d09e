"""What `fd.ops` mean, in torch, with a bound on how far any correct kernel may be from the value.

A second statement of the interface, which shares nothing with Fusewright but the names of its types: type
promotion, shapes and values come from torch and from the reference's text. Beside each value stands a running
error bound (N. Higham, Accuracy and Stability of Numerical Algorithms, 3.3): what the roundings so far can
amount to, given the types, the operations and the lengths of the reductions. No tolerance is chosen by hand.

The error is infinite where nothing can be said: where a comparison, a rounding to an integer or a division is
decided by less than the error of its operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from fusewright.core.dtype import DataType

Tensor = torch.Tensor
Number = bool | int | float | complex

# Unit roundoff: half the distance from 1 to the next number.
ROUNDOFF = {
    torch.float64: 2.0**-53,
    torch.float32: 2.0**-24,
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
    torch.float8_e4m3fn: 2.0**-4,
    torch.float8_e5m2: 2.0**-3,
    # Powers of two alone: of 1.5 either neighbour is a third away.
    torch.float8_e8m0fnu: 2.0**-1,
    torch.complex64: 2.0**-24,
    torch.complex128: 2.0**-53,
}
E4M3_LARGEST = torch.finfo(torch.float8_e4m3fn).max
REDUCED = (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu)
SHORT = (torch.int8, torch.uint8, torch.int16)
INTEGERS = (torch.int32, torch.int64, *SHORT)
# Errors, in units of roundoff, of functions that are not rounded correctly: CUDA's mathematical functions
# stay within 4 ulp (CUDA C++ Programming Guide, "Mathematical Functions"), torch's on the CPU within as much.
FUNCTION_ROUNDOFFS = 16
NUMBER_TYPES = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
INF = math.inf


@dataclass(frozen=True, eq=False)
class Bounded:
    """`data` in its type; `error`: float64 of the same shape, how far a kernel's value may be from it."""

    data: Tensor
    error: Tensor
    scalar: bool = False

    @property
    def dtype(self) -> torch.dtype:
        return self.data.dtype

    @property
    def known(self) -> float:
        """The share of elements that a comparison says something about: within a tenth of the scale."""
        if not self.data.numel():
            return 1.0
        size = widened(self.data).abs().nan_to_num(0.0, 0.0, 0.0)
        return float((self.error <= 0.1 * (size + size.max() + 1e-6)).double().mean())


Operand = Bounded | bool | int | float | complex


def exact(data: Tensor | Number, scalar: bool = False, dtype: DataType | None = None) -> Bounded:
    """An input, or a number."""
    if not isinstance(data, Tensor):
        scalar = True
        data = torch.tensor(data, dtype=NUMBER_TYPES[type(data)] if dtype is None else dtype.torch)
    return Bounded(data, torch.zeros(data.shape, dtype=torch.float64), scalar)


def _operand(x: Operand) -> Bounded:
    return x if isinstance(x, Bounded) else exact(x)


# ---- types -------------------------------------------------------------------------------------------------


def category(dtype: torch.dtype) -> int:
    if dtype.is_complex:
        return 3
    return 2 if dtype.is_floating_point else int(dtype is not torch.bool)


def up(dtype: torch.dtype) -> torch.dtype:
    if dtype in SHORT:
        return torch.int32
    return torch.float32 if dtype in REDUCED else dtype


def is_narrow(dtype: torch.dtype) -> bool:
    """Whether it is a float of 8 bits, for which torch has few functions."""
    return dtype.is_floating_point and dtype.itemsize == 1


def movable(x: Tensor) -> Tensor:
    """The same bits in a type that torch can move in any way."""
    if x.dtype is torch.uint64:
        return x.view(torch.int64)
    return x.view(torch.uint8) if is_narrow(x.dtype) else x


def float_up(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if category(dtype) < 2 else up(dtype)


def _met(a: torch.dtype, b: torch.dtype) -> torch.dtype:
    """The type of two operands of one tier."""
    if a is not b and (is_narrow(a) or is_narrow(b)):
        a, b = up(a), up(b)
    return torch.promote_types(a, b)


def _meet(higher: torch.dtype, lower: torch.dtype) -> torch.dtype:
    """The type of an operand of a higher tier with one of a lower tier."""
    if category(lower) > category(higher):
        if category(lower) == 3 and category(higher) == 2:
            return torch.complex128 if higher is torch.float64 else torch.complex64
        return torch.promote_types(higher, lower) if category(lower) < 3 else lower
    if higher is torch.bool:
        return torch.promote_types(higher, lower)
    return higher


def common_dtype(operands: Sequence[Bounded]) -> torch.dtype:
    """Promotion by tiers: tensors with axes, tensors without, scalars."""
    if len({x.dtype for x in operands}) == 1:
        return operands[0].dtype
    found: torch.dtype | None = None
    for tier in (2, 1, 0):
        types = [x.dtype for x in operands if (0 if x.scalar else 2 if x.data.ndim else 1) == tier]
        if not tier:
            types = [up(dtype) for dtype in types]
        if types:
            met = types[0]
            for dtype in types[1:]:
                met = _met(met, dtype)
            found = met if found is None else _meet(found, met)
    assert found is not None
    return found


# ---- rounding ----------------------------------------------------------------------------------------------


def widened(x: Tensor) -> Tensor:
    return x.to(torch.complex128 if x.is_complex() else torch.float64)


def _narrow(wide: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype is torch.float8_e4m3fn:  # which saturates; what is out of range was NaN in torch before 2.13
        wide = wide.clamp(-E4M3_LARGEST, E4M3_LARGEST)
    return wide.to(torch.float32).to(dtype) if dtype in REDUCED else wide.to(dtype)


def rounded(wide: Tensor, error: Tensor, dtype: torch.dtype, roundoffs: int = 1) -> Bounded:
    """A result computed in float64 (or complex128) as one of `dtype`.

    roundoffs: 0 for a conversion, which kernels round alike; 1 for an operation that is rounded correctly but
    may be contracted with another; more for a function of so many units of roundoff.
    """
    data = _narrow(wide, dtype)
    unit = ROUNDOFF[dtype]
    differs = error > 0
    if roundoffs:
        # float64 results were themselves rounded here
        differs = (
            differs | (widened(data) != wide)
            if unit > 2.0**-53 and roundoffs == 1
            else torch.ones_like(differs)
        )
    size = wide.abs()
    own = 2 * max(roundoffs, 1) * unit * size + torch.finfo(dtype).tiny
    error = error + torch.where(differs, own, 0.0)
    # Functions may overflow on the way to a result that is half or a quarter of the largest number.
    margin = 4.0 if roundoffs > 1 else 1 + 4 * unit
    overflows = (size + error) * margin >= torch.finfo(dtype).max
    error = torch.where(overflows & ~size.isinf() & differs, INF, error)
    return Bounded(data, error.nan_to_num(INF, INF, INF))


def unknown_where(flags: Tensor) -> Tensor:
    return torch.where(flags, INF, 0.0).to(torch.float64)


def _uncertain(x: Bounded) -> Tensor:
    """Where a discrete value may be another one."""
    return x.error > 0


def convert(x: Bounded, dtype: torch.dtype) -> Bounded:
    """A cast, as C's."""
    if x.dtype is dtype:
        return x
    kind = category(dtype)
    if kind == 0:
        x = convert(x, up(x.dtype))
        return Bounded(
            x.data != 0, unknown_where((x.error > 0) & (widened(x.data).abs() <= x.error)), x.scalar
        )
    if kind == 1:
        if category(x.dtype) < 2:
            return Bounded(x.data.to(dtype), x.error, x.scalar)
        value = widened(x.data.real if x.data.is_complex() else x.data)
        limit = float(torch.iinfo(dtype).max) / 2
        unknown = ((value - x.error).trunc() != (value + x.error).trunc()) | ~(value.abs() < limit)
        return Bounded(torch.where(unknown, 0.0, value).to(dtype), unknown_where(unknown), x.scalar)
    wide = x.data.real if x.data.is_complex() and kind == 2 else x.data
    out = rounded(wide.to(torch.complex128 if kind == 3 else torch.float64), x.error, dtype, 0)
    return Bounded(out.data, out.error, x.scalar)


# ---- elementwise -------------------------------------------------------------------------------------------


def spread(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """The error of a monotone function: how far it goes within the error of its operand."""

    def error(x: Tensor, e: Tensor) -> Tensor:
        middle = function(x)
        far = torch.maximum((function(x + e) - middle).abs(), (function(x - e) - middle).abs())
        return torch.where(e > 0, far, 0.0)

    return error


def _slope(bound: float) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, e: bound * e


def _apart_from_zero(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    within = spread(function)
    return lambda x, e: torch.where((e > 0) & (x.abs() <= e), INF, within(x, e))


@dataclass(frozen=True)
class Unary:
    """A real function of float64, its error, its units of roundoff, and what it is for integers it keeps."""

    function: Callable[[Tensor], Tensor]
    error: Callable[[Tensor, Tensor], Tensor]
    roundoffs: int = FUNCTION_ROUNDOFFS
    keeps: bool = False
    integers: Callable[[Tensor], Tensor] | None = None


def _same(x: Tensor) -> Tensor:
    return x


def smooth(name: str, slope: float | None = None) -> Unary:
    function = getattr(torch, name)
    return Unary(function, spread(function) if slope is None else _slope(slope))


def integral(name: str) -> Unary:
    function = getattr(torch, name)
    return Unary(function, spread(function), 0, keeps=True, integers=_same)


UNARY: dict[str, Unary] = {
    **{name: smooth(name) for name in ("exp", "exp2", "expm1", "tanh", "sigmoid", "sqrt", "log", "log1p")},
    **{name: smooth(name) for name in ("log2", "atan", "asinh", "sinh", "erf")},
    **{name: smooth(name, 1.0) for name in ("sin", "cos")},
    **{name: integral(name) for name in ("floor", "ceil", "trunc", "round")},
    "reciprocal": Unary(torch.reciprocal, _apart_from_zero(torch.reciprocal), 2),
    "rsqrt": Unary(torch.rsqrt, _apart_from_zero(torch.rsqrt)),
    # The derivative of silu is at most 1.0998.
    "silu": Unary(torch.nn.functional.silu, _slope(1.1), keeps=True),
    "relu": Unary(torch.relu, _slope(1.0), 0, keeps=True, integers=torch.relu),
    "abs": Unary(torch.abs, _slope(1.0), 0, keeps=True, integers=torch.abs),
    "neg": Unary(torch.neg, _slope(1.0), 0, integers=torch.neg),
    "sign": Unary(torch.sign, spread(torch.sign), 0, keeps=True, integers=torch.sign),
    "set": Unary(_same, _slope(1.0), 0, keeps=True, integers=_same),
}
KEEPS_BOOLS = ("set", "sign", "neg", "relu", "abs", "floor", "ceil", "trunc", "round")
COMPLEX_UNARY = ("neg", "set")


def unary(name: str, x: Operand) -> Bounded:
    return applied(UNARY[name], name, x)


def applied(row: Unary, name: str, x: Operand) -> Bounded:
    """What a row of `UNARY`, or one like them, is worth."""
    x = _operand(x)
    kind = category(x.dtype)
    if kind < 2 and row.integers is not None:
        x = x if row.keeps else convert(x, up(x.dtype))
        data = x.data if kind == 0 else row.integers(x.data)
        return Bounded(data, x.error, x.scalar)
    if kind == 3:
        if name == "abs":
            real = torch.empty(0, dtype=x.dtype).real.dtype
            out = rounded(widened(x.data).abs(), x.error, real, FUNCTION_ROUNDOFFS)
        elif row.roundoffs:
            unknown = unknown_where(x.error > 0)
            out = rounded(row.function(widened(x.data)), unknown, x.dtype, FUNCTION_ROUNDOFFS)
        else:
            out = Bounded(row.function(x.data), x.error)
        return Bounded(out.data, out.error, x.scalar)
    result = x.dtype if row.keeps else float_up(x.dtype)
    operand = convert(x, float_up(x.dtype))
    wide = widened(operand.data)
    out = rounded(row.function(wide), row.error(wide, operand.error), operand.dtype, row.roundoffs)
    out = convert(out, result)
    return Bounded(out.data, out.error, x.scalar)


def _quotient_error(a: Tensor, ea: Tensor, b: Tensor, eb: Tensor) -> Tensor:
    low = b.abs() - eb
    error = (a.abs() + ea) / low - a.abs() / b.abs()
    # a true quotient lies between; where b may be 0 or change its sign, anything may come out
    return torch.where((ea == 0) & (eb == 0), 0.0, torch.where(low > 0, error, INF))


Errors = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
FLOAT_BINARY: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Errors, int]] = {
    "add": (torch.add, lambda a, ea, b, eb: ea + eb, 1),
    "sub": (torch.sub, lambda a, ea, b, eb: ea + eb, 1),
    "mul": (torch.mul, lambda a, ea, b, eb: a.abs() * eb + b.abs() * ea + ea * eb, 1),
    "div": (torch.div, _quotient_error, 2),
    "truediv": (torch.div, _quotient_error, 2),
    "minimum": (torch.minimum, lambda a, ea, b, eb: torch.maximum(ea, eb), 0),
    "maximum": (torch.maximum, lambda a, ea, b, eb: torch.maximum(ea, eb), 0),
}


def _no_zero(b: Tensor) -> Tensor:
    return torch.where(b == 0, 1, b)


INTEGER_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "minimum": torch.minimum,
    "maximum": torch.maximum,
    "div": lambda a, b: torch.div(a, _no_zero(b), rounding_mode="trunc"),
    "mod": lambda a, b: torch.fmod(a, _no_zero(b)),
    "remainder": lambda a, b: torch.remainder(a, _no_zero(b)),
    "bitwise_and": torch.bitwise_and,
    "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor,
}
BOOL_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "bitwise_and": torch.logical_and,
    "bitwise_or": torch.logical_or,
    "bitwise_xor": torch.logical_xor,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "add": torch.logical_or,
    "mul": torch.logical_and,
    "minimum": torch.logical_and,
    "maximum": torch.logical_or,
}
COMPARISONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    name: getattr(torch, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")
}


def discrete(function: Callable[..., Tensor], *operands: Bounded) -> Bounded:
    """Of integers and bools: uncertain where an operand is."""
    data = function(*[x.data for x in operands])
    unknown = torch.zeros((), dtype=torch.bool)
    for x in operands:
        unknown = unknown | _uncertain(x)
    return Bounded(data, unknown_where(unknown).expand(data.shape), all(x.scalar for x in operands))


def binary(name: str, a: Operand, b: Operand) -> Bounded:
    x, y = _operand(a), _operand(b)
    scalar = x.scalar and y.scalar
    if name.startswith("logical"):
        return discrete(BOOL_BINARY[name], convert(x, torch.bool), convert(y, torch.bool))
    common = up(common_dtype([x, y]))
    if name == "truediv":
        common = float_up(common)
    x, y = convert(x, common), convert(y, common)
    kind = category(common)
    if name in COMPARISONS:
        data = COMPARISONS[name](x.data, y.data)
        reach = x.error + y.error
        unknown = (reach > 0) & ~((widened(x.data) - widened(y.data)).abs() > reach)
        return Bounded(data, unknown_where(unknown), scalar)
    if kind == 0:
        return discrete(BOOL_BINARY[name], x, y)
    if kind == 1:
        return discrete(INTEGER_BINARY[name], x, y)
    function, errors, roundoffs = FLOAT_BINARY[name]
    wide_x, wide_y = widened(x.data), widened(y.data)
    error = errors(wide_x, x.error, wide_y, y.error)
    if kind == 3 and name in ("mul", "div", "truediv"):
        roundoffs = FUNCTION_ROUNDOFFS  # several operations a part
    out = rounded(function(wide_x, wide_y), error, common, roundoffs)
    return Bounded(out.data, out.error, scalar)


def cast(x: Operand, dtype: DataType) -> Bounded:
    return convert(_operand(x), dtype.torch)


def bitcast(x: Operand, dtype: DataType) -> Bounded:
    """Of inexact values, nothing is known; nor of zeros and NaNs, as several bits are equal to those."""
    x = _operand(x)
    if x.dtype is dtype.torch:
        return x
    unknown = _uncertain(x)
    if x.dtype.is_floating_point:
        wide = widened(x.data)
        unknown = unknown | (wide == 0) | wide.isnan()
    return Bounded(x.data.view(dtype.torch), unknown_where(unknown), x.scalar)


def where(condition: Operand, a: Operand, b: Operand) -> Bounded:
    c, x, y = _operand(condition), _operand(a), _operand(b)
    common = common_dtype([x, y])
    x, y = convert(x, common), convert(y, common)
    apart = (widened(x.data) - widened(y.data)).abs() + torch.maximum(x.error, y.error)
    if category(common) < 2:
        apart = unknown_where(apart > 0)
    error = torch.where(_uncertain(c), apart, torch.where(c.data, x.error, y.error))
    data = torch.where(c.data, x.data, y.data)
    return Bounded(data, error.nan_to_num(INF, INF, INF), c.scalar and x.scalar and y.scalar)


def clamp(x: Operand, low: Number | None = None, high: Number | None = None) -> Bounded:
    x = _operand(x)
    bounds = [None if v is None else convert(exact(v), x.dtype).data for v in (low, high)]
    if x.dtype is not torch.bool and x.dtype not in REDUCED:
        return Bounded(torch.clamp(x.data, *bounds), x.error, x.scalar)
    wide = [None if v is None else v.float() for v in bounds]
    return Bounded(torch.clamp(x.data.float(), *wide).to(x.dtype), x.error, x.scalar)


def threshold(x: Operand, limit: Number, value: Number) -> Bounded:
    x = _operand(x)
    at, then = convert(exact(limit), x.dtype), convert(exact(value), x.dtype)
    near = (x.error > 0) & ~((widened(x.data) - widened(at.data)).abs() > x.error)
    below = widened(x.data) <= widened(at.data)
    error = torch.where(near, INF, torch.where(below, 0.0, x.error))
    return Bounded(torch.where(below, then.data, x.data), error, x.scalar)


def _promoted(*operands: Operand) -> list[Bounded]:
    values = [_operand(x) for x in operands]
    common = up(common_dtype(values))
    return [convert(x, common) for x in values]


def lerp(start: Operand, end: Operand, weight: Operand) -> Bounded:
    a, b, w = _promoted(start, end, weight)
    # a + w (b - a) has up to two roundings more than this, and may be evaluated from the other end
    out = binary("add", a, binary("mul", w, binary("sub", b, a)))
    size = widened(a.data).abs() + (widened(w.data) * (widened(b.data).abs() + widened(a.data).abs())).abs()
    # Of infinite ends one way is infinite where the other is none: torch says which it is.
    from_torch = torch.lerp(*torch.broadcast_tensors(a.data, b.data, w.data))
    data = torch.where(out.data.isfinite(), out.data, from_torch)
    return Bounded(data, out.error + 4 * ROUNDOFF[out.dtype] * size, out.scalar)


def addcmul(a: Operand, b: Operand, c: Operand, alpha: Number) -> Bounded:
    x, y, z = _promoted(a, b, c)
    return binary("add", x, binary("mul", convert(exact(alpha), x.dtype), binary("mul", y, z)))


def scaled(name: str, a: Operand, b: Operand, alpha: Number) -> Bounded:
    x, y = _promoted(a, b)
    return binary(name, x, binary("mul", convert(exact(alpha), x.dtype), y))


def logical_not(x: Operand) -> Bounded:
    return discrete(torch.logical_not, convert(_operand(x), torch.bool))


def power(x: Operand, exponent: int) -> Bounded:
    """x ** a small positive integer."""
    x = _operand(x)
    out = convert(x, up(common_dtype([x, exact(exponent)])))
    if category(out.dtype) == 1:
        return discrete(lambda t: torch.pow(t, exponent), out)
    wide = widened(out.data)
    error = (wide.abs() + out.error) ** exponent - wide.abs() ** exponent
    result = rounded(wide**exponent, error, out.dtype, FUNCTION_ROUNDOFFS)
    return Bounded(result.data, result.error, x.scalar)


def part(name: str, x: Operand) -> Bounded:
    x = _operand(x)
    return Bounded(getattr(x.data, name), x.error, x.scalar)


def disagreement(actual: Tensor, expected: Bounded) -> str | None:
    """What is wrong with `actual`, in words; None if it is within the bound."""
    if actual.dtype is not expected.dtype or actual.shape != expected.data.shape:
        return f"{actual.dtype}{list(actual.shape)} instead of {expected.dtype}{list(expected.data.shape)}"
    ours, theirs = widened(actual), widened(expected.data)
    alike = (ours == theirs) | (ours.isnan() & theirs.isnan())
    wrong = ~(alike | ((ours - theirs).abs() <= expected.error) | expected.error.isinf())
    if not bool(wrong.any()):
        return None
    at = tuple(wrong.nonzero()[0].tolist())
    return (
        f"{int(wrong.sum())} of {wrong.numel()} elements; first at {at}: {actual[at].item()} instead of "
        f"{expected.data[at].item()} +- {expected.error[at].item():.3g}"
    )
