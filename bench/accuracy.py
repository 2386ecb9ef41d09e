"""Errors of the rows of the operation tables, beside torch's own: `python -m bench accuracy`.

For each row and type the operands of `accuracy_values` are evaluated by a kernel, by torch on the same
device, and in a wider type; the largest differences to the last are counted as `accuracy_bounds` says.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import torch

from bench.accuracy_bounds import APPROXIMATE_BOUNDS, BOUNDS, BY_NORM, EXACT, bound_of
from bench.accuracy_values import operands
from fusewright import FusionDefinition
from fusewright.core.dtype import Category, DataType
from fusewright.core.op import ElementwiseOp, Rule
from fusewright.ops.approximate import (
    ANY_POW,
    COS,
    EXP2_OF_PRODUCT,
    EXPM1,
    HALF_ERFC,
    LOG,
    LOG1P,
    LOGISTIC2,
    POW,
    SIN,
    SQRT,
    TANH,
)
from fusewright.ops.complex_functions import WIDE_FUNCTIONS
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.ops.plugins import registered_op

PAGE = Path(__file__).parents[1] / "docs" / "accuracy.md"
Array = Any
D = DataType
REAL_TYPES = (D.Float, D.Double, D.Half, D.BFloat16)
COMPLEX_TYPES = (D.ComplexFloat, D.ComplexDouble)
# Rows whose results are not numbers, or that draw or convert: tests of their own hold those.
_RULES = {Rule.FLOAT_UP, Rule.SAME_UP, Rule.KEEP, Rule.TO_REAL}
# Sums of products: what is exact is said of their parts.
_COMPOSED = {"lerp", "addcmul", "clamp", "threshold", "nextafter", "mod", "imag"}
# Beyond what any type here holds.
_LARGEST = mpmath.mpf(10) ** 400
# A step of Newton's method that is so small beside the result doubles more digits than a long double has.
_CONVERGED = mpmath.mpf(10) ** -15
# The largest last operand of complex functions whose angle is a product with it: more of it is fewer digits.
_LARGEST_FACTOR = {"exp2": 256.0, "pow": 4.0}
# Evaluated in multiple precision, some 10 us a value: a sample of the operands.
_SAMPLE = 600

# ---- exact results -----------------------------------------------------------------------------------------


def _sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def _multiple(function: Callable[[Any], Any]) -> Callable[[Array], Array]:
    """A function of multiple-precision numbers, of arrays; NaN where it has no value."""

    def one(x: float) -> np.longdouble:
        if not math.isfinite(x):
            return np.longdouble(_AT_INFINITY[function](x))
        with mpmath.workprec(200):
            try:
                result = function(mpmath.mpf(x))
                return np.longdouble(
                    float(result)
                    if mpmath.isinf(result) or abs(result) > _LARGEST
                    else mpmath.nstr(result, 30)
                )
            except (ValueError, ZeroDivisionError):
                return np.longdouble("nan")

    return lambda x: np.array([one(float(v)) for v in x], dtype=np.longdouble)


def _erfc(x: Any) -> Any:
    return mpmath.erfc(max(min(x, 200), -200))  # beyond, 0 and 2 in any type


def _erfinv(x: Any) -> Any:
    if abs(x) >= 1:
        return mpmath.inf * x if abs(x) == 1 else mpmath.nan
    return mpmath.erfinv(x)


def _erfcinv(x: Any) -> Any:
    """By Newton's method on logarithms, from the inverse of 1 - x or the leading term of the tail."""
    if not 0 < x < 2:
        return {0: mpmath.inf, 2: -mpmath.inf}.get(x, mpmath.nan)
    y = mpmath.erfinv(1 - x) if x > mpmath.mpf("1e-20") else mpmath.sqrt(-mpmath.log(x))
    for _ in range(12):
        tail = mpmath.erfc(y)
        step = mpmath.log(tail / x) * tail * mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(y * y)
        y += step
        if abs(step) <= _CONVERGED * abs(y):
            break
    return y


def _lgamma(x: Any) -> Any:
    return mpmath.inf if x <= 0 and x == mpmath.floor(x) else mpmath.log(abs(mpmath.gamma(x)))


_AT_INFINITY: Mapping[Callable[[Any], Any], Callable[[float], float]] = {
    mpmath.erf: lambda x: math.copysign(1, x) if math.isinf(x) else x,
    _erfc: lambda x: 1 - math.copysign(1, x) if math.isinf(x) else x,
    _erfinv: lambda x: math.nan,
    _erfcinv: lambda x: math.nan,
    _lgamma: abs,
}
_MULTIPLE: Mapping[str, Callable[[Array], Array]] = {
    "erf": _multiple(mpmath.erf),
    "erfc": _multiple(_erfc),
    "erfinv": _multiple(_erfinv),
    "erfcinv": _multiple(_erfcinv),
    "lgamma": _multiple(_lgamma),
}
_NUMPY_NAMES = {"acos": "arccos", "asin": "arcsin", "atan": "arctan", "atan2": "arctan2", "pow": "power"}
_NUMPY_NAMES |= {
    "acosh": "arccosh",
    "asinh": "arcsinh",
    "atanh": "arctanh",
    "neg": "negative",
    "round": "rint",
}
_NUMPY_NAMES |= {"div": "divide", "truediv": "divide", "add": "add", "sub": "subtract", "mul": "multiply"}
_REAL: Mapping[str, Callable[..., Array]] = {
    **_MULTIPLE,
    "frac": lambda x: x - np.trunc(x),
    "real": lambda x: x,
    "reciprocal": lambda x: 1 / x,
    "relu": lambda x: np.where(x <= 0, 0, x),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": _sigmoid,
    "sign": lambda x: np.where(np.isnan(x), 0, np.sign(x)),
    "silu": lambda x: x * _sigmoid(x),
}
_COMPLEX: Mapping[str, Callable[..., Array]] = {
    **WIDE_FUNCTIONS,
    "abs": lambda z: np.hypot(z.real, z.imag),
    "add": np.add,
    "mul": np.multiply,
    "neg": np.negative,
    "real": np.real,
    "sub": np.subtract,
    "truediv": WIDE_FUNCTIONS["div"],
}


def exact(op: ElementwiseOp, dtype: DataType, given: Sequence[torch.Tensor]) -> Array:
    """The results in a wider type: C's long double, or its complex numbers."""
    # complex64 in complex128: the C library's functions of long doubles are slower and no better here.
    wide: Any = np.longdouble
    if dtype.is_complex:
        wide = np.complex128 if dtype is D.ComplexFloat else np.clongdouble
    arrays = [(x if x.dtype.itemsize > 2 else x.double()).numpy().astype(wide) for x in given]
    table = _COMPLEX if dtype.is_complex else _REAL
    function = table.get(op.name) or getattr(np, _NUMPY_NAMES.get(op.name, op.name))
    with np.errstate(all="ignore"):
        return np.asarray(function(*arrays))


# ---- errors ------------------------------------------------------------------------------------------------


def _ulp(reference: Array, dtype: torch.dtype) -> Array:
    """The last place of numbers of `dtype` near the reference."""
    info = torch.finfo(dtype)
    least = np.longdouble(info.smallest_normal) * np.longdouble(info.eps)
    size = np.minimum(np.abs(reference), np.longdouble(info.max))
    _, exponent = np.frexp(np.where(np.isfinite(size) & (size > 0), size, 1))
    unit = np.ldexp(np.longdouble(info.eps), exponent - 1)
    return np.maximum(np.where(size > 0, unit, least), least)


def _part_errors(got: torch.Tensor, reference: Array, unit: Array) -> Array:
    ours = got.double().numpy().astype(np.longdouble)
    with np.errstate(all="ignore"):
        error = np.abs(ours - reference) / unit
        # The wide result may be beyond the type: it is infinity there.
        rounded = torch.from_numpy(np.asarray(reference.astype(np.float64))).to(got.dtype).double().numpy()
    same = (rounded == ours) | (np.isnan(rounded) & np.isnan(ours))
    agreeing = same & ~(np.isfinite(ours) & np.isfinite(reference))
    return np.where(agreeing, 0, np.where(np.isnan(error), np.inf, error)).astype(np.float64)


def errors(op: ElementwiseOp, got: torch.Tensor, reference: Array) -> Array:
    """The error of each result in ulp; of a complex one, that of its worse part."""
    got = got.cpu()
    if not got.is_complex():
        return _part_errors(
            got, np.real(reference).astype(np.longdouble), _ulp(np.real(reference), got.dtype)
        )
    parts = [np.asarray(p).astype(np.longdouble) for p in (reference.real, reference.imag)]
    units = [_ulp(p, got.real.dtype) for p in parts]
    if op.name in BY_NORM:
        units = [np.maximum(*units)] * 2
    return np.maximum(*(_part_errors(g, p, u) for g, p, u in zip((got.real, got.imag), parts, units)))


@dataclass(frozen=True)
class Measurement:
    """The largest error of a row in ulp, the operands that have it, and torch's own (None: no function)."""

    row: str
    dtype: str
    ulp: float
    worst: str
    torch_ulp: float | None
    bound: float


def worst(found: Array, given: Sequence[torch.Tensor]) -> tuple[float, str]:
    """The largest error, and the operands that have it."""
    at = int(found.argmax())
    return float(found[at]), ", ".join(f"{x[at].item()!r}" for x in given)


# ---- what is measured --------------------------------------------------------------------------------------


def rows(
    dtypes: Sequence[DataType] = (*REAL_TYPES, *COMPLEX_TYPES),
) -> Iterator[tuple[ElementwiseOp, DataType]]:
    """Every row that gives numbers, with every type of its operands that it is measured for."""
    for op in ELEMENTWISE.values():
        if op.rule not in _RULES or op.name in _COMPOSED:
            continue
        for dtype in dtypes:
            category = Category.COMPLEX if dtype.is_complex else Category.FLOAT
            if category in op.supports:
                yield op, dtype


def given_for(op: ElementwiseOp, dtype: DataType) -> tuple[list[torch.Tensor], Array]:
    """The operands, a sample of them where the exact result takes long, and the exact results."""
    found = operands(op, dtype)
    if op.name in _MULTIPLE:
        step = max(1, len(found[0]) // _SAMPLE)
        found = [x[::step] for x in found]
    reference = exact(op, dtype, found)
    if dtype.is_complex:  # what comes close to overflow has infinities or NaN for parts, by no rule
        limit = torch.finfo(dtype.torch).max / 4
        with np.errstate(all="ignore"):
            fits = (np.abs(reference.real) < limit) & (np.abs(np.imag(reference)) < limit)
        limit = _LARGEST_FACTOR.get(op.name, math.inf)
        fits &= ((found[-1].real.abs() <= limit) & (found[-1].imag.abs() <= limit)).numpy()
        found, reference = [x[torch.from_numpy(fits)] for x in found], reference[fits]
    return [x.contiguous() for x in found], reference


def by_kernel(op: ElementwiseOp, dtype: DataType, given: Sequence[torch.Tensor]) -> torch.Tensor:
    """The row's results by a fused kernel, on the device of the operands."""
    with FusionDefinition() as fd:
        handles = [fd.define_tensor([-1], contiguity=True, dtype=dtype) for _ in given]
        fd.add_output(getattr(fd.ops, op.name)(*handles))
    [result] = fd.execute(list(given))
    assert isinstance(result, torch.Tensor)
    return result


#: Rows of kernels, which stand for others where the result is rounded to a narrower type.
APPROXIMATE = (EXP2_OF_PRODUCT, LOGISTIC2, HALF_ERFC, EXPM1, LOG, LOG1P, TANH, SIN, COS, SQRT, POW, ANY_POW)
#: The second operand of rows that take two: a factor that is no power of two, an exponent.
SECOND = {POW: 1.7, ANY_POW: 3.0}
_FACTOR = math.log2(math.e) / 2


def given_for_approximate(op: ElementwiseOp) -> tuple[torch.Tensor, ...]:
    """Operands of such a row: over the range of its function, dense near 0, down to the least of a half."""
    near = torch.logspace(-24, 0, 20_001, base=2.0)
    x = torch.cat([torch.linspace(-126, 126, 200_001), torch.linspace(-1, 1, 50_001), near, -near])
    if op is LOG1P:
        x = x[x > -1]
    if op in (SIN, COS):
        multiples = math.pi / 2 * torch.arange(-70_000, 70_000, dtype=torch.double)
        x = torch.cat([x, multiples.float(), torch.linspace(-2e5, 2e5, 50_001)])
    if op in (LOG, SQRT):
        x = torch.cat([x[x > 0], torch.logspace(-149, 127, 50_001, base=2.0)])
    if op in (POW, ANY_POW):
        x = torch.logspace(-70, 70, 200_001, base=2.0)
    second = torch.full_like(x, np.float32(SECOND.get(op, _FACTOR)).item())
    return (x, second) if op.arity == 2 else (x,)


def approximate_error(op: ElementwiseOp, device: torch.device) -> tuple[float, float, float]:
    """Those of such a row by a fused kernel: see `approximate_errors`."""
    given = given_for_approximate(op)
    with registered_op(op):
        with FusionDefinition() as fd:
            handles = [fd.define_tensor([-1], contiguity=True) for _ in given]
            fd.add_output(getattr(fd.ops, op.name)(*handles))
        [result] = fd.execute([x.to(device) for x in given])
    assert isinstance(result, torch.Tensor)
    return approximate_errors(op, given, result)


def approximate_errors(
    op: ElementwiseOp, given: Sequence[torch.Tensor], result: torch.Tensor
) -> tuple[float, float, float]:
    """The largest relative error in units of 2^-24, where what the bound grows with is at most 1; everywhere;
    and the largest as a fraction of the bound.
    """
    exact_values = op.spelling(D.Double).torch(*(x.double() for x in given))
    is_normal = (exact_values.abs() >= 2.0**-126) & (exact_values.abs() < 2.0**127)
    exact_values = exact_values[is_normal]
    if op in (POW, ANY_POW):
        grows = exact_values.log2().abs()
    else:
        grows = math.prod(x.double() for x in given)[is_normal].abs()
        grows = grows**2 if op is HALF_ERFC else grows
    error = (result.cpu().double()[is_normal] / exact_values - 1).abs() * 2**24
    a, b = APPROXIMATE_BOUNDS[op.name]
    return float(error[grows <= 1].max()), float(error.max()), float((error / (a + b * grows)).max())


def by_torch(op: ElementwiseOp, given: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """torch's own results; None if it has no such function for these types."""
    name = {"truediv": "div", "mod": "fmod", "silu": "silu", "real": "", "relu": "relu"}.get(op.name, op.name)
    function = getattr(torch, name, None) or getattr(torch.nn.functional, name, None)
    try:
        return None if function is None else function(*given)
    except (RuntimeError, TypeError):
        return None


def measured(op: ElementwiseOp, dtype: DataType, device: torch.device) -> Measurement:
    """One line of the table."""
    given, reference = given_for(op, dtype)
    there = [x.to(device) for x in given]
    ulp, where = worst(errors(op, by_kernel(op, dtype, there), reference), given)
    own = by_torch(op, there)
    theirs = None if own is None else worst(errors(op, own, reference), given)[0]
    return Measurement(op.name, dtype.name, ulp, where, theirs, allowed(op, dtype))


def allowed(op: ElementwiseOp, dtype: DataType) -> float:
    """The bound in ulp of the result, which is Float for most rows of Half and BFloat16."""
    bound = bound_of(op.name, dtype.name)
    rounded = dtype.is_reduced_float and op.rule in (Rule.KEEP, Rule.TO_REAL)
    return min(1.0, bound) if rounded else bound


# ---- tables ------------------------------------------------------------------------------------------------


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def bounds_table() -> str:
    """The bounds as a table in markdown; rows that are correctly rounded are listed after it."""
    lines = [
        "| row | Float | Double | ComplexFloat | ComplexDouble | why |",
        "| --- | --: | --: | --: | --: | --- |",
    ]
    for name, b in sorted(BOUNDS.items()):
        numbers = (b.float_, b.double, b.complex_float, b.complex_double)
        norm = " (by norm)" if name in BY_NORM else ""
        lines.append(f"| {name}{norm} | {' | '.join(map(_number, numbers))} | {b.reason} |")
    others = sorted({op.name for op, _ in rows() if op.name not in BOUNDS})
    lines += ["", f"Within {EXACT.float_} ulp, which is correctly rounded: {', '.join(others)}."]
    return "\n".join(lines)


def measured_table(found: Sequence[Measurement]) -> str:
    """What was measured as a table in markdown."""
    lines = [
        "| row | type | error (ulp) | at | torch's (ulp) | bound |",
        "| --- | --- | --: | --- | --: | --: |",
    ]
    for m in found:
        own = _number(m.torch_ulp)
        lines.append(f"| {m.row} | {m.dtype} | {_number(m.ulp)} | {m.worst} | {own} | {_number(m.bound)} |")
    return "\n".join(lines)


def page(place: str, version: str, day: date, found: Sequence[Measurement], text: str) -> str:
    """The page `text` with both tables, and where, when and how the second was measured."""
    head = f"Measured by `./dev bench accuracy` on {day.isoformat()}: {place}, torch {version}.\n\n"
    text = replace_block(text, "bounds", bounds_table())
    return replace_block(text, "measured", head + measured_table(found))


def replace_block(text: str, name: str, content: str) -> str:
    """`text` with `content` between the comments that begin and end block `name`."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    return f"{head}{begin}{content}\n{end}{tail}"


# ---- command line ------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rows", nargs="*", help="names of rows (default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the measurements to FILE")
    parser.add_argument(
        "--write",
        type=Path,
        metavar="PAGE",
        help="put both tables into PAGE (docs/accuracy.md); a new file is a copy of that page",
    )


def run(parsed: argparse.Namespace) -> int:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    place = torch.cuda.get_device_name() if device.type == "cuda" else "the simulator"
    for written in filter(None, (parsed.json, parsed.write)):  # before what takes minutes
        if not written.parent.is_dir():
            raise SystemExit(f"{written}: there is no folder {written.parent}")
    found = []
    for op, dtype in rows():
        if not parsed.rows or op.name in parsed.rows:
            found.append(measured(op, dtype, device))
            print(found[-1], file=sys.stderr, flush=True)
    table = measured_table(found)
    print(f"Measured on {place}, torch {torch.__version__}.\n\n{table}")
    if parsed.json:
        parsed.json.write_text(json.dumps({"device": place, "rows": [asdict(m) for m in found]}, indent=1))
    if parsed.write:
        before = (parsed.write if parsed.write.exists() else PAGE).read_text(encoding="utf-8")
        after = page(place, torch.__version__, date.today(), found, before)
        parsed.write.write_text(after, encoding="utf-8")
    beyond = [m for m in found if not m.ulp <= m.bound]
    for m in beyond:
        print(f"beyond its bound: {m}", file=sys.stderr)
    return 1 if beyond else 0
