"""One line of text for a statement, for errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fusewright.kernel.ir import (
    Alloc,
    Barrier,
    BlockReduce,
    Combine,
    Compute,
    Copy,
    For,
    GridReduce,
    If,
    Imm,
    IndexValue,
    Init,
    Let,
    Operand,
    Ref,
    Stmt,
)
from fusewright.sym import to_text


def describe_operand(operand: Operand) -> str:
    if isinstance(operand, Ref):
        return f"{operand.buffer.name}[{to_text(operand.index)}]"
    if isinstance(operand, Imm):
        return repr(operand.value)
    if isinstance(operand, IndexValue):
        return to_text(operand.expr)
    return operand.param.name


def _list(operands: Iterable[Operand]) -> str:
    return ", ".join(map(describe_operand, operands))


def _width(width: int) -> str:
    return f" x{width}" if width > 1 else ""


def _reduction(stmt: BlockReduce | GridReduce) -> str:
    kind = "block_reduce" if isinstance(stmt, BlockReduce) else "grid_reduce"
    return f"{_list(stmt.dst)} = {kind} {stmt.op.name}({_list(stmt.src)}){_width(stmt.width)}"


DESCRIBE: dict[type[Stmt], Callable[..., str]] = {
    Alloc: lambda stmt: f"{stmt.buffer.space.value} {stmt.buffer.name}[{to_text(stmt.buffer.size)}]",
    Let: lambda stmt: f"{stmt.symbol.name} = {to_text(stmt.value)}",
    For: lambda stmt: f"for {stmt.symbol.name} in range({to_text(stmt.extent)})",
    If: lambda stmt: f"if {to_text(stmt.cond)}",
    Copy: lambda stmt: f"{describe_operand(stmt.dst)} = {describe_operand(stmt.src)}{_width(stmt.width)}",
    Compute: lambda stmt: f"{describe_operand(stmt.dst)} = {stmt.op.name}({_list(stmt.args)})",
    Init: lambda stmt: f"{_list(stmt.dst)} = identity of {stmt.op.name}{_width(stmt.width)}",
    Combine: lambda stmt: f"{_list(stmt.dst)} = {stmt.op.name}({_list(stmt.dst)}; {_list(stmt.src)})",
    BlockReduce: _reduction,
    GridReduce: _reduction,
    Barrier: lambda stmt: "barrier",
}


def describe(stmt: Stmt) -> str:
    """The statement without its body."""
    return DESCRIBE[type(stmt)](stmt)
