"""The access tables know every field of every statement: a new statement cannot be overlooked by passes."""

from __future__ import annotations

import dataclasses
import typing

import pytest

from fusewright.kernel import access
from fusewright.kernel import ir as k


@pytest.mark.parametrize("statement", typing.get_args(k.Stmt), ids=lambda cls: cls.__name__)
def test_every_reference_and_expression_is_listed(statement: type) -> None:
    reads, writes = access._REF_FIELDS.get(statement, ((), ()))
    expressions = access._EXPR_FIELDS.get(statement, ())
    for field in dataclasses.fields(statement):
        names = set(str(field.type).replace("[", " ").replace("]", " ").replace(",", " ").split())
        if names & {"Ref", "Operand"}:
            assert field.name in (*reads, *writes)
        if "Expr" in names:
            assert field.name in expressions
        if field.name == "dst":
            assert field.name in writes
