"""Every row of the table of ATen operators records what torch computes, by the reference evaluator."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch._inductor.inductor_prims  # defines more of torch.ops.prims

from fusewright import FusionDefinition
from fusewright.ops.evaluate import evaluate_fusion
from fusewright.torch_compile import from_fx
from fusewright.torch_compile.rows import ROWS
from tests.torch_compile.graphs import assert_same, graph_of
from tests.torch_compile.samples import BOOLS, INTS, KEYWORDS, RANDOM, SAMPLES, X

#: Operands in (0, 1), where every real function is defined, and bounded ones for the rest.
UNIT = X.sigmoid()
INTEGERS = ("bitwise", "gcd")


def _overload(name: str) -> Any:
    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


def _known(name: str) -> Any:
    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet, None), overload, None)


def _operand(name: str, argument: Any, place: int) -> Any:
    """A value for one of the arguments of a row that is made from the table of operations."""
    kind, integers = str(argument.type), any(word in name for word in INTEGERS)
    if argument.name in ("condition", "mask"):
        return BOOLS
    if kind == "Tensor" and name.startswith("aten._foreach_") and place:
        tensor: Any = torch.tensor(0.5)
    elif kind in ("List[Tensor]", "Tensor") and integers:
        tensor = INTS.abs() % 5 + place if "shift" not in name or not place else INTS.abs() % 5
    elif "acosh" in name:
        tensor = UNIT + 1
    elif name.startswith("aten.complex"):
        tensor = X
    else:
        tensor = UNIT if not place else UNIT.flip(place % 2)
    if kind == "Tensor":
        return tensor
    if kind == "List[Tensor]":
        return [tensor, tensor + 0, tensor[:2]]
    number = place + 2 if integers else (0.25 if place < 2 else 0.75)
    return [number] * 3 if kind == "List[number]" else number


def _samples(name: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    if name in SAMPLES:
        return [(args, KEYWORDS.get(name, {})) for args in SAMPLES[name]]
    schema = _overload(name)._schema.arguments
    values = [(a, _operand(name, a, i)) for i, a in enumerate(schema)]
    positional = tuple(value for a, value in values if not a.kwarg_only)
    return [(positional, {a.name: value for a, value in values if a.kwarg_only})]


@pytest.fixture(autouse=True)
def evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Definitions are run by the evaluator, node by node: no kernel is made."""

    def run(fd: FusionDefinition, inputs: Any) -> list[torch.Tensor]:
        return evaluate_fusion(fd._finished().fusion, inputs, lambda: (1, 2))

    monkeypatch.setattr(FusionDefinition, "execute", run)


#: Rows are tested so many at a time: what a graph costs is more than what a row does.
CHUNK = 40
NAMES = sorted(name for name in ROWS if not name.startswith("prims.") or _known(name))


@pytest.mark.parametrize(
    "names", [NAMES[i : i + CHUNK] for i in range(0, len(NAMES), CHUNK)], ids=lambda n: n[0]
)
def test_a_row_records_what_torch_computes(names: list[str]) -> None:
    calls = [(name, (_overload(name), *sample)) for name in names for sample in _samples(name)]
    graph, tensors = graph_of([call for _, call in calls])
    converted = from_fx(graph)
    assert not converted.report().evaluated
    for (name, (overload, args, kwargs)), made in zip(calls, converted(*tensors), strict=True):
        expected = overload(*args, **kwargs)
        try:
            assert_same(made, tuple(expected) if isinstance(expected, list) else expected, name not in RANDOM)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None


@pytest.mark.sampled(0.5)
@pytest.mark.parametrize(
    "names", [NAMES[i : i + CHUNK] for i in range(0, len(NAMES), CHUNK)], ids=lambda n: n[0]
)
def test_a_row_records_what_torch_computes_of_symbolic_sizes(names: list[str]) -> None:
    """Where a row needs a number it leaves its operator to torch, and says so: it takes no size for one."""
    for name in names:
        for args, kwargs in _samples(name):
            overload = _overload(name)
            try:
                graph, tensors = graph_of([(overload, args, kwargs)], symbolic=True)
            except RuntimeError:  # torch has no symbolic form of it
                continue
            converted = from_fx(graph)
            for evaluated in converted.report().evaluated:
                assert "incompatible" not in evaluated.reason, f"{name}: {evaluated.reason}"
            (made,) = converted(*tensors)
            expected = overload(*args, **kwargs)
            expected = tuple(expected) if isinstance(expected, list) else expected
            assert_same(made, expected, name not in RANDOM)


def test_samples_are_of_rows() -> None:
    missing = [name for name in SAMPLES if name not in ROWS]
    # Overloads that this version of torch does not have.
    assert all(_known(name) is None for name in missing)


@pytest.mark.parametrize(
    "name, args",
    [
        ("aten.add.Tensor", (INTS, X)),
        ("aten.add.Tensor", (X.bfloat16(), torch.tensor(2.0))),
        ("aten.add.Tensor", (X.bfloat16(), X)),
        ("aten.add.Tensor", (BOOLS, 2)),
        ("aten.mul.Tensor", (INTS, 0.5)),
        ("aten.mul.Tensor", (INTS.int(), torch.tensor(0.5, dtype=torch.float64))),
        ("aten.div.Tensor", (INTS, INTS.abs() + 1)),
        ("aten.le.Scalar", (INTS, 0.5)),
        ("aten.where.self", (BOOLS, X, torch.tensor(0.0, dtype=torch.float64))),
        ("aten.pow.Tensor_Scalar", (INTS, 2)),
        ("aten.maximum.default", (INTS.int(), INTS)),
    ],
)
def test_types_are_promoted_as_torch_does(name: str, args: tuple[Any, ...]) -> None:
    graph, tensors = graph_of([(_overload(name), args, {})])
    (made,) = from_fx(graph)(*tensors)
    assert_same(made, _overload(name)(*args))


#: Values whose quotients are whole, inexact, of either sign, infinite or no number.
SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.3, -0.1, 7.0, -7.5, 1e30, torch.inf, -torch.inf, torch.nan])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "name, keywords",
    [("div.Tensor_mode", {"rounding_mode": "floor"}), ("copysign.Tensor", {}), ("fmax.default", {})],
)
def test_special_values(name: str, keywords: dict[str, Any], dtype: torch.dtype) -> None:
    a, b = (each.to(dtype).contiguous() for each in torch.meshgrid(SPECIAL, SPECIAL, indexing="ij"))
    overload = _overload(f"aten.{name}")
    graph, tensors = graph_of([(overload, (a, b), keywords)])
    converted = from_fx(graph)
    assert not converted.report().evaluated
    (made,) = converted(*tensors)
    expected = overload(a, b, **keywords)
    torch.testing.assert_close(made, expected, rtol=0, atol=0, equal_nan=True)
    if name != "fmax.default":  # of two zeros it may be either
        assert torch.equal(made.signbit() & ~made.isnan(), expected.signbit() & ~expected.isnan())
