"""Operators and methods of handles."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition, MemoryType, ParallelType
from fusewright.core.errors import ArgumentTypeError
from fusewright.frontend import Scalar, Tensor, Vector
from fusewright.ops.evaluate import evaluate_fusion


def evaluated(write: Callable[[FusionDefinition, Tensor], Any], x: torch.Tensor) -> torch.Tensor:
    with FusionDefinition() as fd:
        out = write(fd, fd.from_pytorch(x))
        fd.add_output(out)
    (found,) = evaluate_fusion(fd._complete().fusion, [x])
    return found


FLOAT_OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.mod, operator.pow]
INT_OPERATORS = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge]


def expected(function: Callable[[Any, Any], Any], a: Any, b: Any) -> torch.Tensor:
    if function is operator.mod:
        return torch.fmod(torch.as_tensor(a, dtype=torch.float32), torch.as_tensor(b, dtype=torch.float32))
    return function(a, b)


@pytest.mark.parametrize("function", FLOAT_OPERATORS + COMPARISONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("reflected", [False, True])
def test_operators_with_numbers(function: Callable[[Any, Any], Any], reflected: bool) -> None:
    x = torch.tensor([0.5, 1.5, 2.5, 4.0])
    both = (lambda a: (1.5, a)) if reflected else (lambda a: (a, 1.5))
    found = evaluated(lambda fd, t: function(*both(t)), x)
    torch.testing.assert_close(found, expected(function, *both(x)))


@pytest.mark.parametrize("function", INT_OPERATORS, ids=lambda f: f.__name__)
def test_integer_operators(function: Callable[[Any, Any], Any]) -> None:
    x = torch.tensor([1, 2, 5, 12])
    assert torch.equal(evaluated(lambda fd, t: function(t, 3), x), function(x, 3))
    reflected = torch.tensor([function(3, int(n)) for n in x])
    assert torch.equal(evaluated(lambda fd, t: function(3, t), x), reflected)


def test_unary_operators() -> None:
    x = torch.tensor([1, -2, 3])
    assert evaluated(lambda fd, t: -t, x).tolist() == [-1, 2, -3]
    assert evaluated(lambda fd, t: abs(t), x).tolist() == [1, 2, 3]
    assert evaluated(lambda fd, t: ~t, x).tolist() == [-2, 1, -4]


def test_division_of_integers_truncates() -> None:
    assert evaluated(lambda fd, t: t / 2, torch.tensor([7, -7])).tolist() == [3, -3]


def test_operators_of_scalars_and_sizes() -> None:
    x = torch.ones(3, 4)
    assert evaluated(lambda fd, t: t * (t.size(0) * 2 + t.shape()[-1]), x)[0, 0].item() == 10.0


def test_equality_is_identity() -> None:
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([-1]), fd.define_tensor([-1])
        s = fd.define_scalar()
        same: object = x
        assert (x == y, x == same, x != y, s == s) == (False, True, True, True)
        assert len({x, y, s}) == 3


def test_comparison_with_values_is_an_operation() -> None:
    x = torch.tensor([0.0, 1.0, 2.0])
    assert evaluated(lambda fd, t: fd.ops.where(t == 0.0, 5.0, t), x).tolist() == [5.0, 1.0, 2.0]
    assert evaluated(lambda fd, t: fd.ops.where(t != 1.0, 5.0, t), x).tolist() == [5.0, 1.0, 5.0]
    assert evaluated(lambda fd, t: fd.ops.where(2.0 == t, 5.0, t), x).tolist() == [0.0, 1.0, 5.0]  # noqa: SIM300
    assert evaluated(lambda fd, t: t == t.size(0) - 1.0, x).tolist() == [False, False, True]


def test_handles_have_no_truth() -> None:
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1])
        fd.add_output(t)
        assert t in {t: 1} and t in [t]
        with pytest.raises(
            ArgumentTypeError, match=r"(?s)bool\(\).*a Tensor of a definition.*fd\.ops\.where"
        ):
            fd.ops.where(0.0 < t < 1.0, t, 0.0)
        with pytest.raises(ArgumentTypeError, match="a Scalar of a definition"):
            assert t.size(0) > 3


def test_torchs_functions_name_the_operation_to_use() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        fd.add_output(x)
        with pytest.raises(
            ArgumentTypeError, match=r"(?s)torch\.exp\(\).*a Tensor of a definition.*fd\.ops\.exp"
        ):
            torch.exp(x)  # type: ignore[call-overload]
        with pytest.raises(ArgumentTypeError, match=r"mul\(\).*torch\.Tensor"):
            torch.ones(3) * x


def test_names() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        s, v = x.size(-1), x.shape()
        assert (repr(x), repr(s), repr(v)) == (
            "Tensor(index=0, ndim=2)",
            "Scalar(index=1)",
            "Vector(index=2, size=2)",
        )
        assert isinstance(s, Scalar)
        assert isinstance(v, Vector)
        assert x._get_fusion_definition() is fd
        assert [e.index for e in v] == [3, 4]
        with pytest.raises(RuntimeError, match=r"Tried to access out of boundary index 2\. total index: 2"):
            v.at(2)


def test_methods_of_ops_are_documented() -> None:
    fd = FusionDefinition()
    assert "The sum over `dims`" in (fd.ops.sum.__doc__ or "")
    assert list(inspect.signature(fd.ops.sum).parameters) == ["arg", "dims", "keepdim", "dtype"]
    assert {"add", "sum", "var_mean", "broadcast_in_dim"} <= set(dir(fd.ops))


def test_torch_types_and_sizes_are_taken() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(torch.Size([2, 3]), dtype=torch.float16)
        assert (x.ndim, x.dtype) == (2, DataType.Half)
        assert fd.ops.cast(x, torch.int32).dtype is DataType.Int32


def test_enumerations_are_public() -> None:
    assert str(ParallelType.block_x) == "ParallelType.block_x"
    assert MemoryType.shared.name == "shared"
