"""What type checkers, editors and `help` are told about methods that are made from tables."""

from __future__ import annotations

import inspect

import pytest

from fusewright import DataType, FusionDefinition, Tensor
from fusewright.core.errors import UnknownOpError
from fusewright.frontend.stubs import STUB, stub_text
from fusewright.ops import OPS
from fusewright.schedule import Schedule


def test_stub_is_what_the_tables_say() -> None:
    assert STUB.read_text(encoding="utf-8") == stub_text(), "run ./dev stubs"


def test_every_operation_has_parameters_and_a_docstring() -> None:
    ops = FusionDefinition().ops
    assert set(dir(ops)) >= set(OPS)
    for name, row in OPS.items():
        method = getattr(ops, name)
        assert list(inspect.signature(method).parameters) == [p.name for p in row.parameters]
        assert method.__doc__ == row.doc and row.doc, name


def test_every_primitive_has_parameters_and_a_docstring() -> None:
    sched = FusionDefinition().sched
    for name in Schedule.PRIMITIVES:
        method = getattr(sched, name)
        declared = inspect.signature(getattr(Schedule, name)).parameters
        assert ["self", *inspect.signature(method).parameters] == list(declared)
        assert method.__name__ == name and method.__doc__ == inspect.getdoc(getattr(Schedule, name))
        assert name in dir(sched)


def test_signatures_are_in_the_types_that_users_hold() -> None:
    fd = FusionDefinition()
    total = inspect.signature(fd.ops.sum)
    assert total.parameters["arg"].annotation is total.return_annotation is Tensor
    assert total.parameters["dtype"].default is DataType.Null
    assert str(inspect.signature(fd.ops.gelu)) == (
        "(arg: fusewright.Tensor, approximate: str = 'none') -> fusewright.Tensor"
    )
    assert str(inspect.signature(Tensor.split)) == (
        "(self, /, dim: int, factor: int, inner_split: bool = True) -> None"
    )
    assert list(inspect.signature(fd.define_tensor).parameters)[:2] == ["shape", "contiguity"]


@pytest.mark.parametrize(
    ("look", "nearest"),
    [
        (lambda fd: fd.ops.addd, "add"),
        (lambda fd: fd.sched.splitt, "split"),
        (lambda fd: fd.sched.tensor_, "tensors"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest(look, nearest: str) -> None:
    with pytest.raises(UnknownOpError, match=f"did you mean .*{nearest}"):
        look(FusionDefinition())
