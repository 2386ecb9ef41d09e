"""Definitions as text: what they look like, and that they run."""

from __future__ import annotations

import ast
import cmath
import math
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensor

from fusewright import DataType, FusionDefinition
from fusewright.frontend.recorded.printing import definition_text, number_text
from fusewright.frontend.recorded.records import ROWS, Literal, Record
from fusewright.frontend.recorded.states import Container, Outcome


def everything(fd: FusionDefinition) -> None:
    contiguity = [True, None, False]
    x = fd.define_tensor([-1, 4, 1], contiguity, DataType.Half, stride_order=[2, 0, 1])
    y = fd.define_tensor(sizes=[8, 4], strides=[1, 8])
    s = fd.define_scalar(DataType.Int)
    fd.define_scalar()
    third = fd.define_scalar(1 / 3, DataType.Float)
    v = fd.define_vector([s, 4])
    z = (fd.ops.cast(x, DataType.Double) + 1e-5) * third - complex(1, -2.5) / y
    z = fd.ops.where(fd.ops.isnan(z), float("inf"), z)
    big, wide = fd.ops.full(v, True, DataType.Bool), fd.ops.broadcast_in_dim(y, [s, -1, 4], [1, 2])
    avg, m2, n = fd.ops.welford(fd.ops.real(z), [-1])
    total = fd.ops.sum(fd.ops.abs(z), [0, 2], keepdim=True, dtype=DataType.Float)
    sizes = fd.ops.tensor_sizes(y)
    clamped = fd.ops.clamp(y, max=sizes[0])
    for out in (z, big, wide, avg, m2, n, total):
        fd.add_output(out)
    fd.add_output(clamped, y)
    fd.add_output(fd.ops.iota(fd.ops.at(v, 0)), stride_order=[0])
    fd.add_output(fd.ops.permute(fd.ops.squeeze(x, [2]), [1, 0]))


def evaluate(text: str, name: str) -> Any:
    scope: dict[str, Any] = {"DataType": DataType, "FusionDefinition": FusionDefinition}
    exec(text, scope)
    return scope[name]


def test_repr_runs_and_is_the_same_definition() -> None:
    with FusionDefinition() as fd:
        everything(fd)
    with FusionDefinition() as again:
        evaluate(repr(fd), "nvfuser_fusion_id0")(again)
        assert again._recorder._building is None  # type: ignore[union-attr]
    assert again.id() == fd.id() == 0
    assert repr(again) == repr(fd)


def _given(record: Record) -> dict[str, Any]:
    """What the printed form of a record gives each parameter."""
    text = definition_text([record], [Outcome(0, (), Container.NONE)])
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)
    (statement,) = function.body
    assert isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    names = [p.name for p in record.row.parameters]
    given = dict(zip(names, (ast.literal_eval(arg) for arg in statement.value.args)))
    return given | {str(k.arg): ast.literal_eval(k.value) for k in statement.value.keywords}


def test_every_argument_of_a_printed_call_stands_where_its_parameter_does() -> None:
    """With all of them given, and with those left out that may be."""
    for name, row in ROWS.items():
        numbers = {p.name: i for i, p in enumerate(row.parameters)}
        assert _given(Record(name, tuple(Literal(int, i) for i in numbers.values()))) == numbers
        left_out = {p.name for p in row.parameters if p.default is None and name != "define_scalar"}
        absent = Literal(type(None), None)
        arguments = tuple(absent if p in left_out else Literal(int, i) for p, i in numbers.items())
        wanted = {p: i for p, i in numbers.items() if p not in left_out}
        assert _given(Record(name, arguments)) == wanted, name


def test_layout() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        s = fd.define_scalar(3.0)
        wide = fd.ops.broadcast_in_dim(x, [2, fd.ops.size(x, 0), 4], [1, 2])
        total = fd.ops.sum(wide * s, 1)
        incomplete = repr(fd)
        fd.add_output(total)
        fd.add_output(fd.ops.neg(x), x)
    assert repr(fd) == (
        "\n"
        "def nvfuser_fusion_id0(fd : FusionDefinition) -> None :\n"
        "    T0 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], "
        "dtype=DataType.Float, is_cpu=False)\n"
        "    S1 = fd.define_scalar(3.00000, dtype=DataType.Double)\n"
        "    S2 = fd.ops.size(T0, dim=0)\n"
        "    T6 = fd.ops.broadcast_in_dim(T0, shape=[2, S2, 4], broadcast_dims=[1, 2])\n"
        "    T7 = fd.ops.mul(T6, S1)\n"
        "    T8 = fd.ops.sum(T7, dims=[1], keepdim=False, dtype=DataType.Null)\n"
        "    fd.add_output(T8)\n"
        "    T9 = fd.ops.neg(T0)\n"
        "    fd.add_output(T9, T0)\n"
    )
    assert incomplete.startswith(
        "\ndef nvfuser_incomplete_fusion(fd : FusionDefinition) -> None :\n    T0 = "
    )


@pytest.mark.parametrize(
    "value",
    [
        *(True, 0, -7, 3.0, 0.1, 1 / 3, 1e-30, 123456789.0, -0.0, math.inf, -math.inf, math.nan),
        *(1 + 2j, -1.5 - 0.25j, complex(math.nan, 1), complex(-0.0, -math.inf)),
    ],
    ids=repr,
)
def test_numbers_evaluate_to_themselves(value: complex) -> None:
    back = eval(number_text(value))
    assert type(back) is type(value)
    if isinstance(value, (bool, int)):
        assert back == value
        return
    for a, b in zip(*([complex(v).real, complex(v).imag] for v in (back, value))):
        assert (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    assert number_text(3.0) == "3.00000"
    assert cmath.isfinite(value) == ('"' not in number_text(value))


def test_repro_scripts_make_inputs_alike(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        fd.add_output(x * fd.define_scalar() + fd.define_tensor([-1]))
    inputs: list[Any] = [torch.randn(4, 6, device=target).t(), math.inf, torch.ones(4, device=target)]
    with pytest.raises(AssertionError, match=r"fd.last_repro_script\(\) cannot provide a repro because"):
        fd.last_repro_script()
    assert fd.fake_inputs is None
    fd.execute(inputs, save_repro_inputs=True)
    fake = fd.fake_inputs
    assert fake is not None and isinstance(fake[0], FakeTensor) and fake[1] == math.inf
    assert (fake[0].shape, fake[0].stride(), fake[0].device) == (inputs[0].shape, (1, 6), inputs[0].device)
    script = fd.last_repro_script()
    assert script == fd.repro_script_for(fake)
    assert script == fd.last_repro_script() == fd.repro_script_for(inputs)
    scope: dict[str, Any] = {}
    exec(script, scope)
    again = scope["inputs"]
    assert (again[0].shape, again[0].stride(), again[0].device) == (inputs[0].shape, (1, 6), inputs[0].device)
    assert again[1] == math.inf
    assert scope["fd"].id() == fd.id()
    assert "inputs" not in fd.repro_script_for()
