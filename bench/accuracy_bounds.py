"""The largest error of each row of the operation tables that tests allow, in units of the last place (ulp).

An error is the distance to the exact result of the given operands, in ulp of that result's binade (of the
smallest subnormal below the normal numbers). A correctly rounded function is off by half an ulp. Half and
BFloat16 operands are computed in Float, whose bounds are theirs; results stored in them are off by 1 at most.

The tables in CUDA's programming guide count from the correctly rounded result instead: a function that is off
by N there is off by up to N + 0.5 here.

Of complex results each part is measured by itself, unless the row is in `BY_NORM`: where the exact part is a
difference that cancels, its error is measured in ulp of the larger part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Bound:
    """Errors in ulp for each type; a reason where one is above 4.

    complex_float, complex_double: None where the row takes no complex numbers.
    """

    float_: float
    double: float
    complex_float: float | None = None
    complex_double: float | None = None
    reason: str = ""


EXACT = Bound(0.5, 0.5, 0.5, 0.5)

_LIBRARY = "CUDA's own is off by {} from the correctly rounded result"
_PRODUCTS = "a few roundings of products of sines and exponentials"
_LOGARITHM = "of complex numbers the logarithm's error and the product's"
_ROOTS = "Kahan's formulas: two roots, their products and an inverse function, each of a few ulp"
_TANGENT = "1 + tan^2 doubles the tangent's error, and a square, a sum and a division follow"
_POWER = (
    "CUDA's own, or products for small whole exponents (`rewrite.candidate.powers`) within the same "
    "bounds, of complex numbers within 3; else of complex numbers exp(b log a), b of at most 4 in "
    "magnitude: a rounding of b log a is one of the angle; complex64 is computed in double"
)

#: Float, Double, ComplexFloat, ComplexDouble. Rows that are not here are exact, or correctly rounded.
BOUNDS: Mapping[str, Bound] = {
    "acos": Bound(2, 2, 8, 8, _ROOTS),
    "acosh": Bound(4, 3, 8, 8, _ROOTS),
    "asin": Bound(2, 2, 8, 8, _ROOTS),
    "asinh": Bound(3, 3, 8, 8, _ROOTS),
    "atan": Bound(2, 2, 6, 6, "log1p of a quotient whose terms have three roundings"),
    "atanh": Bound(3, 2, 6, 6, "log1p of a quotient whose terms have three roundings"),
    "cos": Bound(2, 2, 6, 6, _PRODUCTS),
    "cosh": Bound(2.5, 1.5, 6, 6, f"{_LIBRARY.format('2 in Float')}; {_PRODUCTS}"),
    "exp": Bound(2, 1, 6, 6, _PRODUCTS),
    "exp2": Bound(2.5, 1, 6, 6, f"{_LIBRARY.format('2 in Float')}; {_PRODUCTS}"),
    "expm1": Bound(1.5, 1.5, 6, 6, f"{_LIBRARY.format('1')}; {_PRODUCTS}"),
    "erf": Bound(2, 2),
    "erfc": Bound(4, 5, reason="CUDA's erfc in double"),
    "erfinv": Bound(3, 5, reason="CUDA's erfinv in double"),
    "erfcinv": Bound(4, 6, reason="CUDA's erfcinv in double"),
    "lgamma": Bound(
        6, 4, reason="CUDA's lgammaf; between -11.1 and -2.2 it crosses zero, and is not measured"
    ),
    "log": Bound(1, 1, 4, 4),
    "log10": Bound(2.5, 2, 5, 5, f"{_LIBRARY.format('2 in Float')}; {_LOGARITHM}"),
    "log1p": Bound(1, 1.5, 4, 4, _LIBRARY.format("1 in Double")),
    "log2": Bound(1.5, 1.5, 5, 5, f"{_LIBRARY.format('1')}; {_LOGARITHM}"),
    "reciprocal": Bound(2.5, 0.5, 1, 4),
    "rsqrt": Bound(2, 1.5, 8, 8, "a root and a division of complex numbers"),
    "sigmoid": Bound(5, 3, 10, 8, "an exponential, a sum and a division of 2 ulp"),
    "sin": Bound(2, 2, 6, 6, _PRODUCTS),
    "sinh": Bound(3, 2, 6, 6, _PRODUCTS),
    "sqrt": Bound(0.5, 0.5, 5, 4, "a root, and the other part divided by it"),
    "tan": Bound(4, 2, 16, 10, _TANGENT),
    "tanh": Bound(2, 2, 16, 10, _TANGENT),
    "silu": Bound(6, 4, 12, 10, "sigmoid's error, and a product's"),
    "abs": Bound(0.5, 0.5, 3, 2),
    "frac": Bound(0.5, 0.5),
    "div": Bound(2.5, 0.5, 1, 4),
    "truediv": Bound(2.5, 0.5, 1, 4),
    "mul": Bound(0.5, 0.5, 2, 2),
    "pow": Bound(4, 2, 1, 8000, _POWER),
    "atan2": Bound(3, 2),
    "remainder": Bound(1, 1),
}

#: Rows whose complex results have parts that cancel.
BY_NORM = frozenset(
    {"div", "exp2", "expm1", "mul", "pow", "reciprocal", "rsqrt", "sigmoid", "silu", "truediv"}
)


def bound_of(row: str, dtype: str) -> float:
    """The bound in ulp for operands of a type, by its name."""
    bound = BOUNDS.get(row, EXACT)
    field = {"Double": "double", "ComplexFloat": "complex_float", "ComplexDouble": "complex_double"}
    found = getattr(bound, field.get(dtype, "float_"))
    assert found is not None, f"no bound for {row} of {dtype}"
    return float(found)


#: Of the rows of `ops.approximate`: (a, b) such that the relative error is at most a + b e in units of 2^-24,
#: where the result is at least 2^-126. For an operand x and a factor c, e is |x c|, of half_erfc its square,
#: of a power the magnitude of its logarithm to base 2.
APPROXIMATE_BOUNDS: Mapping[str, tuple[float, float]] = {
    "exp2_of_product": (4, 1.1),
    "logistic2": (8, 1.1),
    "half_erfc": (48, 3),
    "approximate_cos": (32, 0),
    "approximate_expm1": (128, 0),
    "approximate_log": (128, 0),
    "approximate_log1p": (128, 0),
    "approximate_sin": (32, 0),
    "approximate_sqrt": (4, 0),
    "approximate_tanh": (128, 0),
    "approximate_pow": (16, 4),
    "approximate_power": (16, 4),
}
