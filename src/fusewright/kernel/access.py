"""What a statement touches: its index expressions, the symbols it defines, the buffers it reads and writes.

One table of rules, one entry a statement class, so that passes need no case analysis of their own. All
functions speak of the statement itself, not of the statements nested in it.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterable

from fusewright.kernel import ir as k
from fusewright.sym import Expr, Symbol

_REF_FIELDS = {
    k.Copy: (("src",), ("dst",)),
    k.Compute: (("args",), ("dst",)),
    k.Init: ((), ("dst",)),
    k.Combine: (("src", "dst"), ("dst",)),
    k.BlockReduce: (("src", "dst"), ("dst",)),
    k.GridReduce: (("src", "dst"), ("dst",)),
}
_EXPR_FIELDS = {
    k.Let: ("value",),
    k.For: ("extent",),
    k.If: ("cond",),
    k.BlockReduce: ("pred",),
    k.GridReduce: ("pred",),
}
#: the fields of both, each once
_OPERAND_FIELDS = {
    cls: tuple(dict.fromkeys((*reads, *writes))) for cls, (reads, writes) in _REF_FIELDS.items()
}
_DEFINES = {k.Let: "symbol", k.For: "symbol", k.GridReduce: "is_last"}


def _operands(stmt: k.Stmt, names: Iterable[str]) -> list[k.Operand]:
    found: list[k.Operand] = []
    for name in names:
        value = getattr(stmt, name)
        if isinstance(value, tuple):
            found += value
        else:
            found.append(value)
    return found


def read_refs(stmt: k.Stmt) -> list[k.Ref]:
    """The references that the statement loads from, accumulators included."""
    names = _REF_FIELDS.get(type(stmt), ((), ()))[0]
    return [o for o in _operands(stmt, names) if isinstance(o, k.Ref)]


def written_refs(stmt: k.Stmt) -> list[k.Ref]:
    """The references that the statement stores to."""
    names = _REF_FIELDS.get(type(stmt), ((), ()))[1]
    return [o for o in _operands(stmt, names) if isinstance(o, k.Ref)]


def operands(stmt: k.Stmt) -> list[k.Operand]:
    """All operands, read or written."""
    return _operands(stmt, _OPERAND_FIELDS.get(type(stmt), ()))


def conditions(stmt: k.Stmt) -> list[Expr]:
    """The expressions of the statement that no operand has: its extent, condition, predicate or value."""
    return [getattr(stmt, name) for name in _EXPR_FIELDS.get(type(stmt), ())]


def expressions(stmt: k.Stmt) -> list[Expr]:
    """Every index expression and condition in the statement."""
    found = conditions(stmt)
    for operand in operands(stmt):
        if isinstance(operand, k.Ref):
            found.append(operand.index)
        elif isinstance(operand, k.IndexValue):
            found.append(operand.expr)
    return found


def defined_symbol(stmt: k.Stmt) -> Symbol | None:
    """The symbol that the statement gives a value."""
    name = _DEFINES.get(type(stmt))
    return getattr(stmt, name) if name is not None else None


def map_expressions(stmt: k.Stmt, change: Callable[[Expr], Expr]) -> k.Stmt:
    """The statement with `change` applied to every expression of `expressions`."""

    def operand(value: k.Operand) -> k.Operand:
        if isinstance(value, k.Ref):
            index = change(value.index)
            return value if index is value.index else k.Ref(value.buffer, index)
        if isinstance(value, k.IndexValue):
            expr = change(value.expr)
            return value if expr is value.expr else k.IndexValue(expr, value.dtype)
        return value

    changed: dict[str, object] = {}
    for name in _EXPR_FIELDS.get(type(stmt), ()):
        old = getattr(stmt, name)
        new = change(old)
        if new is not old:
            changed[name] = new
    for name in _OPERAND_FIELDS.get(type(stmt), ()):
        value = getattr(stmt, name)
        if isinstance(value, tuple):
            values = tuple(map(operand, value))
            if any(map(operator.is_not, values, value)):
                changed[name] = values
        elif (single := operand(value)) is not value:
            changed[name] = single
    return dataclasses.replace(stmt, **changed) if changed else stmt  # type: ignore[arg-type]


def map_buffers(stmt: k.Stmt, table: dict[k.Buffer, k.Buffer]) -> k.Stmt:
    """The statement with every buffer in `table` replaced."""

    old = {f.name: getattr(stmt, f.name) for f in dataclasses.fields(stmt)}
    new = {name: _with_buffers(value, table) for name, value in old.items()}
    changed = {name: value for name, value in new.items() if value != old[name]}
    return dataclasses.replace(stmt, **changed) if changed else stmt  # type: ignore[arg-type]


def _with_buffers(value: object, table: dict[k.Buffer, k.Buffer]) -> object:
    if isinstance(value, k.Ref):
        return k.Ref(table[value.buffer], value.index) if value.buffer in table else value
    if isinstance(value, k.Buffer):
        return table.get(value, value)
    if isinstance(value, tuple):
        return tuple([_with_buffers(item, table) for item in value])
    return value
