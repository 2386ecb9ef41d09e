"""What is said of operations that are not there: similar names, or lines that compute what torch's do."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fusewright import DataType, FusionDefinition
from fusewright.core.errors import UnknownOpError
from fusewright.frontend.help.recipes import RECIPES
from fusewright.ops import OPS
from fusewright.ops.evaluate import evaluate_fusion

# How the tensors of a recipe are made, its numbers, and torch's function of both.
Case = tuple[dict[str, Callable[[], torch.Tensor]], dict[str, Any], Callable[..., torch.Tensor]]


def _of(*shapes: tuple[int, ...], function: Any = None, **numbers: Any) -> Case:
    return {n: lambda s=s: torch.randn(s) for n, s in zip("xyz", shapes)}, numbers, function


_SHAPE = (3, 4)
_UNARY = "absolute negative deg2rad rad2deg square clone"
_CASTS = "bfloat16 double float half long"
_BINARY = """copysign divide greater greater_equal hypot less less_equal logaddexp multiply not_equal rsub
    subtract true_divide floor_divide dist"""
_ACTIVATIONS = "hardsigmoid hardswish logsigmoid mish relu6 selu softplus softsign tanhshrink"
CASES: dict[str, Case] = {
    **{name: _of(_SHAPE, function=getattr(torch, name)) for name in _UNARY.split()},
    **{name: _of(_SHAPE, _SHAPE, function=getattr(torch, name)) for name in _BINARY.split()},
    **{name: _of(_SHAPE, function=getattr(F, name)) for name in _ACTIVATIONS.split()},
    **{name: _of(_SHAPE, _SHAPE, function=getattr(F, name)) for name in ("l1_loss", "mse_loss")},
    **{
        name: _of(_SHAPE, _SHAPE, dim=1, function=lambda x, y, dim: torch.cat([x, y], dim))
        for name in ("concat", "concatenate")
    },
    "mm": _of((3, 4), (4, 5), function=torch.mm),
    **{name: _of(_SHAPE, dim=1, function=getattr(torch, name)) for name in ("amax", "amin", "unsqueeze")},
    "addmm": _of((3, 5), (3, 4), (4, 5), function=torch.addmm),
    "baddbmm": _of((2, 3, 5), (2, 3, 4), (2, 4, 5), function=torch.baddbmm),
    "bmm": _of((2, 3, 4), (2, 4, 5), function=torch.bmm),
    "dot": _of((5,), (5,), function=torch.dot),
    "clip": _of(_SHAPE, min=-0.5, max=0.5, function=torch.clip),
    "narrow": _of((5, 6), dim=1, start=2, length=3, function=torch.narrow),
    "swapaxes": _of((2, 3, 4), axis0=0, axis1=2, function=torch.swapaxes),
    "transpose": _of((2, 3, 4), dim0=0, dim1=2, function=torch.transpose),
    "t": _of(_SHAPE, function=torch.t),
    "view": _of(_SHAPE, shape=[2, -1], function=lambda x, shape: x.reshape(shape)),
    "contiguous": _of(_SHAPE, function=torch.Tensor.contiguous),
    "outer": _of((3,), (4,), function=torch.outer),
    "to": _of(_SHAPE, dtype=torch.float16, function=torch.Tensor.to),
    "type_as": _of(_SHAPE, (2,), function=torch.Tensor.type_as),
    **{name: _of(_SHAPE, function=getattr(torch.Tensor, name)) for name in _CASTS.split()},
    "scaled_dot_product_attention": (
        {name: lambda: torch.randn(2, 3, 8, 16).half() for name in "xyz"},
        {},
        lambda *tensors: F.scaled_dot_product_attention(*(t.double() for t in tensors)).half(),
    ),
    "tile": _of(_SHAPE, dims=[2, 3], function=torch.tile),
    "celu": _of(_SHAPE, alpha=0.5, function=F.celu),
    "elu": _of(_SHAPE, alpha=0.5, function=F.elu),
    "leaky_relu": _of(_SHAPE, negative_slope=0.1, function=F.leaky_relu),
    "hardtanh": _of(_SHAPE, min_val=-0.5, max_val=0.5, function=F.hardtanh),
    "glu": _of((3, 8), dim=1, function=F.glu),
    "addcdiv": _of(_SHAPE, _SHAPE, _SHAPE, value=0.5, function=torch.addcdiv),
    "logical_xor": (
        {"x": lambda: torch.arange(4.0), "y": lambda: torch.tensor([0.0, 0.0, 1.0, 1.0])},
        {},
        torch.logical_xor,
    ),
    "logit": ({"x": lambda: torch.rand(3, 4)}, {}, torch.logit),
    "nan_to_num": (
        {"x": lambda: torch.tensor([1.0, math.nan, math.inf, -math.inf])},
        {"nan": 0.5, "posinf": 2.0, "neginf": -3.0},
        torch.nan_to_num,
    ),
    "xlogy": (
        {"x": lambda: torch.tensor([0.0, 1.0, 0.0]), "y": lambda: torch.tensor([0.0, 2.0, 3.0])},
        {},
        torch.xlogy,
    ),
    "count_nonzero": ({"x": lambda: torch.arange(6.0).view(2, 3) % 2}, {"dim": 1}, torch.count_nonzero),
    "nansum": ({"x": lambda: torch.tensor([[1.0, math.nan], [2.0, 3.0]])}, {"dim": 1}, torch.nansum),
    "norm": _of(_SHAPE, function=torch.linalg.norm),
    "normalize": _of(_SHAPE, dim=1, eps=1e-12, function=lambda x, dim, eps: F.normalize(x, dim=dim, eps=eps)),
    "softmin": _of(_SHAPE, dim=1, function=F.softmin),
}


def test_every_recipe_is_tested_and_needed() -> None:
    assert CASES.keys() == RECIPES.keys()
    assert not RECIPES.keys() & OPS.keys(), "an operation needs no recipe"


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_computes_what_torch_does(name: str) -> None:
    made, numbers, function = CASES[name]
    tensors = {key: make() for key, make in made.items()}
    with FusionDefinition() as fd:
        handles = {key: fd.from_pytorch(tensor) for key, tensor in tensors.items()}
        scope: dict[str, Any] = {"fd": fd, "DataType": DataType, **handles, **numbers}
        exec(RECIPES[name], scope)
        fd.add_output(scope["out"])
    (found,) = evaluate_fusion(fd._leaf.fusion, list(tensors.values()))
    torch.testing.assert_close(found, function(*tensors.values(), **numbers))


def test_an_operation_that_is_not_there_names_its_lines() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        with pytest.raises(
            UnknownOpError, match=r"fd\.ops\.hardswish is not.*\n(.|\n)*hint: write it as\n    out = x \* fd"
        ):
            fd.ops.hardswish(x)
        assert not hasattr(fd.ops, "hardswish")
        fd.add_output(x)


@pytest.mark.parametrize(
    "written, meant", [("Sum", "sum"), ("SQRT", "sqrt"), ("logsumexpp", "logsumexp"), ("reduce_sum", None)]
)
def test_similar_names_are_shown(written: str, meant: str | None) -> None:
    hint = f"did you mean {meant}" if meant else r"dir\(fd.ops\) lists"
    with pytest.raises(UnknownOpError, match=f"hint: {hint}"):
        getattr(FusionDefinition().ops, written)


def test_a_method_of_torchs_tensors_names_the_operation() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        fd.add_output(x)
        for name, hint in {
            "exp": "fd.ops.exp is the operation",
            "unsqueeze": "out = fd.ops.broadcast(x, ",
            "ndims": "did you mean ndim?",
            "nothing_like_it": "dir(Tensor) lists what there is",
        }.items():
            with pytest.raises(UnknownOpError, match=f"(?s)Tensor.{name} is not.*{re.escape(hint)}"):
                getattr(x, name)
        assert not hasattr(x, "__array__")
