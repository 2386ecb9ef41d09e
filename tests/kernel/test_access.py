"""The access table knows every field of every statement: a new statement cannot be overlooked by passes."""

from __future__ import annotations

import dataclasses
import re
import typing
from dataclasses import dataclass

import pytest

from fusewright.core.dtype import DataType
from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.ops.reductions import SUM
from fusewright.sym import lt, substitute, symbol
from tests.kernel import builders as b

STATEMENTS = typing.get_args(k.Stmt)


def types_in(field: dataclasses.Field) -> set[str]:
    return set(re.findall(r"\w+", str(field.type)))


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda cls: cls.__name__)
def test_every_field_that_passes_ask_for_is_listed(statement: type) -> None:
    row = access.FIELDS[statement]
    for field in dataclasses.fields(statement):
        names = types_in(field)
        if names & {"Ref", "Operand"}:
            assert field.name in (*row.reads, *row.writes, *row.mbarriers)
        if "Buffer" in names:
            assert field.name in (*row.reads, *row.writes, *row.scratch, *row.mbarriers, row.declares)
        if "Expr" in names:
            assert field.name in row.conditions
        if "Symbol" in names:
            assert field.name == row.defines
        if field.name == "dst":
            assert field.name in row.writes


def test_every_listed_field_is_there() -> None:
    assert set(access.FIELDS) == set(STATEMENTS)
    for statement, row in access.FIELDS.items():
        buffers = {*row.reads, *row.writes, *row.scratch, *row.mbarriers, row.declares}
        listed = (buffers | {*row.conditions, row.defines}) - {None}
        assert listed <= {field.name for field in dataclasses.fields(statement)}


def test_what_a_collective_works_with_is_no_access_of_its_own() -> None:
    r, work = b.local("r", DataType.Float), b.shared("work", DataType.Float, 32)
    reduce = k.BlockReduce(SUM, (b.at(r),), (b.at(r),), (b.BX,), k.TRUE, (work,))
    assert access.scratch_buffers(reduce) == [work]
    assert access.read_buffers(reduce) == [r, r] and access.written_buffers(reduce) == [r]
    assert access.declared_buffer(k.Alloc(work)) is work


def test_a_buffer_that_is_written_as_a_whole_is_an_access(monkeypatch) -> None:
    @dataclass(frozen=True, eq=False)
    class Arrive:
        signal: k.Buffer
        src: k.Ref

    monkeypatch.setitem(access.FIELDS, Arrive, access.Fields(reads=("src",), writes=("signal",)))
    signal, source = b.shared("signal", DataType.Int, 1), b.shared("source", DataType.Float, 8)
    stmt = Arrive(signal, b.at(source))
    assert access.written_buffers(stmt) == [signal] and not access.written_refs(stmt)
    assert access.read_buffers(stmt) == [source] and access.operands(stmt) == [stmt.src]
    assert access.map_expressions(stmt, lambda e: e + 1).src.index is b.at(source).index + 1


def test_a_load_whose_predicate_becomes_true_has_no_fill() -> None:
    r, x = b.local("r", DataType.Float), b.shared("x", DataType.Float, 8)
    n = symbol("n", hi=9)
    load = k.Copy(b.at(r), b.at(x), pred=lt(n, 8), fill=k.Imm(0.0, DataType.Float), fill_is_value=True)
    always = access.map_expressions(load, lambda e: substitute(e, {n: 3}))
    assert (always.pred, always.fill, always.fill_is_value) == (k.TRUE, None, False)
    assert access.map_expressions(load, lambda e: substitute(e, {n: n + 1})).fill is load.fill
