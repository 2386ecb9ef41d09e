"""Each row's torch function against an expectation written here with Python's and numpy's arithmetic."""

import cmath
import itertools
import math

import numpy as np
import pytest
import torch

from fusewright.core.dtype import Category, DataType
from fusewright.core.op import Rule
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.ops.random import NORMAL, UNIFORM

D = DataType
DTYPES = {
    Category.BOOL: (D.Bool,),
    Category.INT: (D.Int, D.Int32),
    Category.FLOAT: (D.Float, D.Double),
    Category.COMPLEX: (D.ComplexFloat, D.ComplexDouble),
}
INF, NAN = math.inf, math.nan
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.25, -7.75, 1e-3, 20.0, -20.0, INF, -INF, NAN]
COMPLEXES = [complex(re, im) for re in (-1.5, -0.25, 0.5, 2.25) for im in (-2.0, -0.5, 0.75, 1.25)]

# The reference's sections on unary, binary and ternary operations.
NAMES = """
    acos acosh asin asinh atan atanh cos cosh exp exp2 expm1 erf erfc erfinv erfcinv lgamma log log10
    log1p log2 reciprocal rsqrt sigmoid sin sinh sqrt tan tanh ceil floor round trunc frac relu silu neg
    abs sign real imag logical_not bitwise_not signbit isfinite isinf isnan isneginf isposinf isreal
    cast add sub mul div truediv mod fmod remainder pow minimum maximum atan2 nextafter eq ne lt le gt
    ge logical_and logical_or bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift
    logical_right_shift gcd complex where lerp addcmul clamp threshold
"""


def test_the_tables_hold_every_operation_of_the_reference():
    assert sorted(ELEMENTWISE) == sorted(NAMES.split())


def values(dtype):
    if dtype is D.Bool:
        return [False, True]
    if dtype.is_integral:
        return [0, 1, -1, 2, -3, 7, 31, 64, 100, dtype.lowest, dtype.highest]
    return COMPLEXES if dtype.is_complex else FLOATS


def wrapped(value, dtype):
    """A Python result as a value of `dtype`: integers wrap around, and C makes a bool of what is not 0."""
    if dtype is D.Bool:
        return bool(value)
    if dtype.is_integral:
        bits = 8 * dtype.size
        return (int(value) + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
    return value


def lgamma(x):
    poles = x == -INF or (x <= 0 and x == math.floor(x)) or x == INF
    return INF if poles else math.lgamma(x)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def c_div(a, b):
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def int_pow(a, b):
    if b >= 0:
        return pow(a, b, 2**64)
    return {1: 1, -1: 1 if b % 2 == 0 else -1}.get(a, 0)


def shift_width(dtype):
    return 8 * dtype.size


REAL_UNARY = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "cos": np.cos,
    "cosh": np.cosh,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "erf": math.erf,
    "erfc": math.erfc,
    "lgamma": lgamma,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": sigmoid,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    "ceil": np.ceil,
    "floor": np.floor,
    "round": np.rint,
    "trunc": np.trunc,
    "frac": lambda x: x - np.trunc(x),
    "relu": lambda x: x if x != x else max(x, 0),
    "silu": lambda x: x * sigmoid(x),
    "neg": lambda x: -x,
    "abs": abs,
    "sign": lambda x: (x > 0) * 1 - (x < 0) * 1,
    "real": lambda x: x,
    "imag": lambda x: x.imag,
    "logical_not": lambda x: not x,
    "bitwise_not": lambda x: ~int(x),
    "signbit": lambda x: math.copysign(1, x) < 0,
    "isfinite": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "isneginf": lambda x: x == -INF,
    "isposinf": lambda x: x == INF,
    "isreal": lambda x: True,
}
# Where a function of complex numbers, of bools or of integers is no plain reading of the one above.
SPECIAL_UNARY = {
    ("real", Category.COMPLEX): lambda z: z.real,
    ("isreal", Category.COMPLEX): lambda z: z.imag == 0,
    ("isfinite", Category.COMPLEX): cmath.isfinite,
    ("bitwise_not", Category.BOOL): lambda x: not x,
    ("round", Category.INT): lambda x: x,
    ("frac", Category.INT): lambda x: 0,
    ("frac", Category.BOOL): lambda x: False,
}
BINARY = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": np.divide,
    "truediv": np.divide,
    "mod": np.fmod,
    "fmod": np.fmod,
    "remainder": np.remainder,
    "pow": lambda a, b: a**b,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "atan2": np.arctan2,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "logical_and": lambda a, b: a and b,
    "logical_or": lambda a, b: a or b,
    "bitwise_and": lambda a, b: a & b,
    "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b,
    "gcd": math.gcd,
    "complex": complex,
}
INT_BINARY = {
    "div": c_div,
    "mod": lambda a, b: a - b * c_div(a, b),
    "fmod": lambda a, b: a - b * c_div(a, b),
    "remainder": lambda a, b: a % b,
    "pow": int_pow,
    "minimum": min,
    "maximum": max,
}
DIVISIONS = ("div", "mod", "fmod", "remainder")


def rows(arity):
    for op in ELEMENTWISE.values():
        if op.arity == arity and op.rule is not Rule.CAST:
            for category in sorted(op.supports):
                for dtype in DTYPES[category]:
                    yield pytest.param(op, dtype, id=f"{op.name}-{dtype.name}")


def check(op, dtype, operands, expected):
    """`operands`: one list of values an operand; `expected`: the values the function should give."""
    tensors = [torch.tensor(list(column), dtype=dtype.torch) for column in operands]
    got = op.spelling(dtype).torch(*tensors)
    result = op.result_of(dtype)
    assert got.dtype == result.torch
    want = torch.tensor(expected, dtype=result.torch)
    if result.category < Category.FLOAT:
        assert got.tolist() == want.tolist()
    else:
        rtol = 1e-12 if dtype.real is D.Double else 1e-5
        torch.testing.assert_close(got, want, rtol=rtol, atol=rtol / 10, equal_nan=True)


@pytest.mark.parametrize(("op", "dtype"), [p for p in rows(1) if "inv" not in p.id])
def test_unary_values(op, dtype):
    function = SPECIAL_UNARY.get((op.name, dtype.category), REAL_UNARY[op.name])
    kind = {Category.FLOAT: np.float64, Category.COMPLEX: np.complex128}.get(dtype.category, lambda x: x)
    given = torch.tensor(values(dtype), dtype=dtype.torch).tolist()  # as rounded to the type
    with np.errstate(all="ignore"):
        expected = [wrapped(function(kind(x)), op.result_of(dtype)) for x in given]
    check(op, dtype, [given], expected)


@pytest.mark.parametrize("dtype", DTYPES[Category.FLOAT], ids=str)
def test_inverse_error_functions(dtype):
    inside = [1e-6, 0.1, 0.5, 0.9, 0.999]
    for name, forward in (("erfinv", math.erf), ("erfcinv", math.erfc)):
        x = torch.tensor(inside, dtype=dtype.torch)
        back = [forward(y) for y in ELEMENTWISE[name].spelling(dtype).torch(x).tolist()]
        torch.testing.assert_close(torch.tensor(back, dtype=dtype.torch), x, rtol=1e-5, atol=0)
    ends = torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=dtype.torch)
    assert ELEMENTWISE["erfinv"].spelling(dtype).torch(ends).tolist()[:2] == [0.0, INF]
    got = ELEMENTWISE["erfcinv"].spelling(dtype).torch(ends).tolist()
    assert got[:3] == [INF, 0.0, -INF] and math.isnan(got[3])


def expected_binary(op, dtype):
    if op.name == "nextafter":
        kind = np.float64 if dtype is D.Double else np.float32
        return lambda a, b: np.nextafter(kind(a), kind(b)).item()
    if "shift" in op.name:
        width = shift_width(dtype)
        if op.name == "bitwise_left_shift":
            return lambda a, b: a << b if 0 <= b < width else 0
        if op.name == "bitwise_right_shift":
            return lambda a, b: a >> (b if 0 <= b < width else width)
        return lambda a, b: a % 2**width >> b if 0 <= b < width else 0
    if dtype.category <= Category.INT and op.name in INT_BINARY:
        return INT_BINARY[op.name]
    return BINARY[op.name]


@pytest.mark.parametrize(("op", "dtype"), list(rows(2)))
def test_binary_values(op, dtype):
    function = expected_binary(op, dtype)
    kind = {Category.FLOAT: np.float64, Category.COMPLEX: np.complex128}.get(dtype.category, int)
    given = torch.tensor(values(dtype), dtype=dtype.torch).tolist()
    pairs = list(itertools.product(given, given))
    if dtype.category <= Category.INT and op.name in DIVISIONS:
        # Undefined in C: any value will do, but none may raise or trap.
        op.spelling(dtype).torch(*(torch.tensor(column, dtype=dtype.torch) for column in zip(*pairs)))
        pairs = [(a, b) for a, b in pairs if b]
    if op.name == "atan2" or (op.name == "pow" and dtype.is_floating):
        pairs = [(a, b) for a, b in pairs if not (a == b == 0)]  # signed zeros, below
    with np.errstate(all="ignore"):
        expected = [wrapped(function(kind(a), kind(b)), op.result_of(dtype)) for a, b in pairs]
    check(op, dtype, zip(*pairs), expected)


def test_float_edge_cases_that_scripts_rely_on():
    x = torch.tensor([0.0, -0.0])

    def run(name, *operands):
        return ELEMENTWISE[name].spelling(D.Float).torch(*operands).tolist()

    assert run("pow", x, x) == [1.0, 1.0]
    assert run("atan2", x, torch.tensor([-1.0, -1.0])) == pytest.approx([math.pi, -math.pi])
    assert run("round", torch.tensor([0.5, 1.5, -2.5])) == [0.0, 2.0, -2.0]
    assert run("signbit", x) == [False, True]
    nan = torch.full((2,), NAN)
    assert all(math.isnan(v) for v in run("maximum", nan, x) + run("minimum", x, nan) + run("relu", nan))


@pytest.mark.parametrize("dtype", DTYPES[Category.FLOAT], ids=str)
def test_ternary_floats_agree_with_torch(dtype):
    some = torch.tensor([-3.0, -0.5, 0.0, 0.25, 0.75, 1.0, 4.0], dtype=dtype.torch)
    a, b, c = torch.meshgrid(some, some, some, indexing="ij")

    def run(name, *operands):
        return ELEMENTWISE[name].spelling(dtype).torch(*operands)

    torch.testing.assert_close(run("lerp", a, b, c), torch.lerp(a, b, c))
    either = torch.meshgrid(*[torch.cat([some, some.new_tensor([NAN, INF, -INF])])] * 3, indexing="ij")
    torch.testing.assert_close(run("clamp", *either), torch.clamp(*either), equal_nan=True)
    half = torch.tensor(0.5, dtype=dtype.torch)
    torch.testing.assert_close(run("addcmul", a, b, c, half), torch.addcmul(a, b, c, value=0.5))
    assert torch.equal(run("where", a > 0, b, c), torch.where(a > 0, b, c))
    with_nan = torch.cat([some, some.new_tensor([NAN, INF, -INF])])
    for t, v in itertools.product((-0.5, 1.0), (7.0, NAN)):
        want = torch.nn.functional.threshold(with_nan, t, v)
        got = run("threshold", with_nan, some.new_tensor(t), some.new_tensor(v))
        torch.testing.assert_close(got, want, equal_nan=True)


def test_lerp_is_exact_at_both_ends():
    start, end = torch.tensor([1e8, 0.1]), torch.tensor([1.0, 1e8])
    lerp = ELEMENTWISE["lerp"].spelling(D.Float).torch
    assert torch.equal(lerp(start, end, torch.ones(2)), end)
    assert torch.equal(lerp(start, end, torch.zeros(2)), start)


@pytest.mark.parametrize("dtype", (D.Bool, D.Int, D.Int32), ids=str)
def test_ternary_integers(dtype):
    some = [False, True] if dtype is D.Bool else [-3, -1, 0, 2, 5]
    triples = list(itertools.product(some, repeat=3))
    expected = {
        "lerp": lambda a, b, c: a + c * (b - a),
        "clamp": lambda x, low, high: min(max(x, low), high),
        "threshold": lambda x, limit, value: value if x <= limit else x,
    }
    for name, function in expected.items():
        op = ELEMENTWISE[name]
        if dtype.category in op.supports:
            check(op, dtype, zip(*triples), [function(*triple) for triple in triples])
    quads = list(itertools.product(some, repeat=4))
    want = [wrapped(a + alpha * b * c, dtype) for a, b, c, alpha in quads]
    check(ELEMENTWISE["addcmul"], dtype, zip(*quads), want)


def test_ternary_complex_agrees_with_torch():
    a = torch.tensor(COMPLEXES)
    b, c, alpha = a.flip(0), a.roll(3), torch.tensor(0.5 - 1j)
    got = ELEMENTWISE["lerp"].spelling(D.ComplexFloat).torch(a, b, c)
    torch.testing.assert_close(got, torch.lerp(a, b, c))
    got = ELEMENTWISE["addcmul"].spelling(D.ComplexFloat).torch(a, b, c, alpha)
    torch.testing.assert_close(got, torch.addcmul(a, b, c, value=0.5 - 1j))


ROWS = [r for r in (*ELEMENTWISE.values(), *UNIFORM.values(), *NORMAL.values()) if r.rule is not Rule.CAST]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_operands_may_have_shapes_that_broadcast(row):
    """Each may be the only one that differs along a dimension."""
    for category, spelling in row.spellings.items():
        dtype = DTYPES[category][0]
        for turn in range(row.arity):
            types = row.operand_dtypes(dtype)
            operands = [torch.arange(3 if i == turn else 1).to(of.torch) for i, of in enumerate(types)]
            whole = torch.broadcast_tensors(*operands)
            found = torch.broadcast_to(spelling.torch(*operands), whole[0].shape)
            assert torch.equal(found.nan_to_num(), spelling.torch(*whole).nan_to_num()), (row.name, dtype)
