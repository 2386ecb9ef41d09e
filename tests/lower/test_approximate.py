"""What is rounded to a narrower type is computed with fewer instructions, and nothing else is."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from fusewright import FusionDefinition
from fusewright.core.dtype import DataType
from fusewright.kernel import ir as k
from fusewright.lower.passes.approximate import approximate

Tensor = torch.Tensor


def ops_of(fd: FusionDefinition) -> list[str]:
    [kernel] = fd._finished().executor.last_program.kernels
    return [s.op.name for s in k.walk(kernel.kernel.body) if isinstance(s, k.Compute) and s.op.name != "cast"]


def gelu(fd, x):
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1.0 + fd.ops.tanh(inner))


def gelu_factor_last(fd, x):
    return 0.5 * (x * (fd.ops.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)) + 1.0))


def gelu_slope(fd, x):
    t = fd.ops.tanh(0.8 * x)
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t)


def gelu_erf(fd, x):
    return 0.5 * x * (1.0 + fd.ops.erf(x * math.sqrt(0.5))) + (1.0 - fd.ops.erf(0.3 * x))


def softmax(fd, x):
    e = fd.ops.exp(x - fd.ops.broadcast(fd.ops.max(x, dims=[1]), [False, True]))
    return e / fd.ops.broadcast(fd.ops.sum(e, dims=[1]), [False, True])


def softmax_of_columns(fd, x):
    e = fd.ops.exp(x - fd.ops.max(x, dims=[0], keepdim=True))
    return e / fd.ops.sum(e, dims=[0], keepdim=True)


def swish(fd, x):
    return fd.ops.silu(x) + fd.ops.sigmoid(2.0 * x) * fd.ops.exp(-0.5 * x)


def torch_gelu(x):
    return torch.nn.functional.gelu(x, approximate="tanh")


def torch_gelu_erf(x):
    return torch.nn.functional.gelu(x) + torch.erfc(0.3 * x)


def torch_slope(x):
    t = torch.tanh(0.8 * x)
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t)


def torch_swish(x):
    return torch.nn.functional.silu(x) + torch.sigmoid(2 * x) * torch.exp(-0.5 * x)


CASES: dict[str, tuple[Callable, Callable, set[str], set[str]]] = {
    "gelu": (gelu, torch_gelu, {"logistic2"}, {"tanh"}),
    "gelu, factor last": (gelu_factor_last, torch_gelu, {"logistic2"}, {"tanh"}),
    "gelu's slope": (gelu_slope, torch_slope, {"logistic2"}, {"tanh"}),
    "gelu by erf": (gelu_erf, torch_gelu_erf, {"half_erfc"}, {"erf"}),
    "elu and softplus": (
        lambda fd, x: fd.ops.where(x > 0, x, fd.ops.expm1(x)) + fd.ops.log1p(fd.ops.exp(x)),
        lambda x: torch.nn.functional.elu(x) + torch.log1p(torch.exp(x)),
        {"approximate_expm1", "approximate_log1p", "exp2_of_product"},
        {"expm1", "log1p", "exp"},
    ),
    "tanh": (lambda fd, x: x * fd.ops.tanh(x), lambda x: x * x.tanh(), {"approximate_tanh"}, {"tanh"}),
    "logarithm and root": (
        lambda fd, x: fd.ops.log(x * x + 0.5) * fd.ops.sqrt(fd.ops.abs(x)),
        lambda x: (x * x + 0.5).log() * x.abs().sqrt(),
        {"approximate_log", "approximate_sqrt"},
        {"log", "sqrt"},
    ),
    "sine and cosine": (
        lambda fd, x: fd.ops.sin(x) + fd.ops.cos(64.0 * x),
        lambda x: x.sin() + (64 * x).cos(),
        {"approximate_sin", "approximate_cos"},
        {"sin", "cos"},
    ),
    "power": (
        lambda fd, x: fd.ops.pow(fd.ops.abs(x), 1.7) + fd.ops.pow(x * x + 1.0, -0.3),
        lambda x: x.abs() ** 1.7 + (x * x + 1) ** -0.3,
        {"approximate_pow"},
        {"pow"},
    ),
    "power by a tensor": (
        lambda fd, x: fd.ops.pow(fd.ops.abs(x) + 0.1, x),
        lambda x: (x.abs() + 0.1) ** x,
        {"approximate_power"},
        {"pow"},
    ),
    "softmax": (softmax, lambda x: x.softmax(1), {"exp2_of_product", "reciprocal"}, {"exp", "div"}),
    "softmax of columns": (
        softmax_of_columns,
        lambda x: x.softmax(0),
        {"exp2_of_product", "reciprocal"},
        {"exp", "div"},
    ),
    "quotients of a size and of a constant": (
        lambda fd, x: x / fd.ops.cast(fd.ops.size(x, 0), DataType.Float) / 3.0,
        lambda x: x / x.shape[0] / 3.0,
        {"reciprocal"},
        {"div"},
    ),
    "silu": (
        swish,
        torch_swish,
        {"approximate_silu", "logistic2", "exp2_of_product"},
        {"silu", "sigmoid", "exp"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_functions_are_cheaper_where_the_result_is_rounded(name: str) -> None:
    define, reference, cheap, usual = CASES[name]
    x = torch.randn(512 if "columns" in name else 6, 64, generator=torch.Generator().manual_seed(1)) * 3
    x[0, 0], x[1, 1:] = 0.0, -math.inf if name == "softmax" else -9.0
    for dtype in (DataType.BFloat16, DataType.Float):
        with FusionDefinition() as fd:
            given = fd.define_tensor([-1, -1], contiguity=True, dtype=dtype)
            fd.add_output(fd.ops.cast(define(fd, fd.ops.cast(given, DataType.Float)), dtype))
        given = x.to(dtype.torch)
        [result] = fd.execute([given])
        found = set(ops_of(fd))
        expected, other = (cheap, usual) if dtype is DataType.BFloat16 else (usual, cheap)
        assert expected <= found and other.isdisjoint(found), (dtype, found)
        exact = reference(given.double())
        # Half an ulp of the type, and a little: no more than the rounding itself.
        torch.testing.assert_close(
            result.double(), exact, rtol=torch.finfo(dtype.torch).eps * 0.51 + 4e-6, atol=3e-7
        )
        [made] = fd._finished().executor.last_program.kernels
        assert approximate(made.kernel) is made.kernel


def test_the_power_of_two_meets_its_inverse() -> None:
    for define in (gelu, gelu_factor_last):
        with FusionDefinition() as fd:
            given = fd.define_tensor([-1], contiguity=True, dtype=DataType.BFloat16)
            fd.add_output(fd.ops.cast(define(fd, fd.ops.cast(given, DataType.Float)), DataType.BFloat16))
        fd.execute([torch.randn(64).bfloat16()])
        # x + 0.044715 x^3, and the product with x: neither 0.5 nor 2 is left.
        assert sorted(ops_of(fd)) == ["add", "logistic2", "mul", "mul", "mul", "mul"], define


def test_powers_by_integers_and_large_exponents_are_exact() -> None:
    """A logarithm has no sign of a negative base, and an error near 1 that grows with the exponent."""
    for exponent in (12.0, 12.5):
        with FusionDefinition() as fd:
            x = fd.define_tensor([-1], contiguity=True, dtype=DataType.BFloat16)
            power = fd.ops.pow(fd.ops.cast(x, DataType.Float), exponent)
            fd.add_output(fd.ops.cast(power, DataType.BFloat16))
        fd.execute([torch.randn(64).bfloat16()])
        assert "pow" in ops_of(fd), exponent


def test_what_reaches_memory_or_a_decision_as_a_float_is_exact() -> None:
    """A Float output, a comparison, an integer, an angle: each keeps what it follows from, through reductions
    too.
    """

    def also_as_float(fd, e):
        fd.add_output(fd.ops.sum(e, dims=[1]))
        return e

    def compared(fd, e):
        return fd.ops.where(e > 0.5, 1.0, 2.0)

    def counted(fd, e):
        return fd.ops.cast(e, DataType.Int32)

    def largest(fd, e):
        return fd.ops.argmax(e, 1)

    def turned(fd, e):
        return fd.ops.cos(e * 100.0)

    for use in (also_as_float, compared, counted, largest, turned):
        with FusionDefinition() as fd:
            x = fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.BFloat16)
            e = use(fd, fd.ops.exp(x))
            fd.add_output(fd.ops.cast(e, DataType.BFloat16))
        fd.execute([torch.randn(4, 64).bfloat16()])
        assert "exp" in ops_of(fd), use


def test_logarithms_of_sums_take_approximate_exponentials() -> None:
    """Not what else reads such a sum, or is added up in it."""

    def log_sum(fd, e, x):
        return fd.ops.log(fd.ops.sum(e, dims=[1]))

    def and_sum(fd, e, x):
        total = fd.ops.sum(e, dims=[1])
        return fd.ops.log(total) + total

    def of_products(fd, e, x):
        return fd.ops.log(fd.ops.sum(e * x, dims=[1]))

    values = torch.randn(6, 64, generator=torch.Generator().manual_seed(1)).bfloat16()
    expected = values.double().logsumexp(1).float()
    for define, name in ((log_sum, "exp2_of_product"), (and_sum, "exp"), (of_products, "exp")):
        with FusionDefinition() as fd:
            given = fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.BFloat16)
            x = fd.ops.cast(given, DataType.Float)
            e = fd.ops.exp(x)
            fd.add_output(define(fd, e, x))
            fd.add_output(fd.ops.cast(e, DataType.BFloat16))
        result, _ = fd.execute([values])
        assert name in ops_of(fd), define
        if define is log_sum:
            torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-6)
