"""Keeps what is rounded to a narrower type and widened again in a register of the wide type.

    h = bfloat16(x)                         r = round_to_bfloat16(x)
    y = float(h)                     ->     y = r
    z = y + 1                               z = y + 1

Graphs of torch round after each operator. The GPU converts to a bfloat16 more slowly than it computes, and
the kernel of an optimizer step does so ten times for each element.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict

from fusewright.core.dtype import DataType
from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.ops.elementwise import CAST
from fusewright.ops.rounding import ROUNDED


def round_in_registers(kernel: k.Kernel) -> k.Kernel:
    statements = list(k.walk(kernel.body))
    writers = access.writers(statements)
    rounded = [
        s for s in statements if isinstance(s, k.Compute) and _rounds(s) and writers[s.dst.buffer] == 1
    ]
    readers: dict[k.Buffer, list[k.Stmt]] = defaultdict(list)
    for stmt in statements:
        for buffer in access.read_buffers(stmt):
            readers[buffer].append(stmt)
    wide = {
        stmt.dst.buffer: dataclasses.replace(stmt.dst.buffer, dtype=DataType.Float)
        for stmt in rounded
        if all(
            isinstance(reader, k.Compute) and reader.op.stored is None for reader in readers[stmt.dst.buffer]
        )
    }
    if not wide:
        return kernel
    return k.with_body(kernel, k.rewritten(kernel.body, lambda stmt: [_widened(stmt, wide)]))


def _rounds(stmt: k.Compute) -> bool:
    """Whether it rounds a Float to one register of a type that has a row for that."""
    buffer = stmt.dst.buffer
    is_register = access.is_register(buffer)
    (value, *_) = stmt.args
    return (
        stmt.op is CAST
        and is_register
        and buffer.dtype in ROUNDED
        and k.operand_dtype(value) is stmt.dtype is DataType.Float
    )


def _widened(stmt: k.Stmt, wide: dict[k.Buffer, k.Buffer]) -> k.Stmt:
    if isinstance(stmt, k.Alloc):
        return k.Alloc(wide.get(stmt.buffer, stmt.buffer))
    if not isinstance(stmt, k.Compute):
        return stmt
    op = ROUNDED[stmt.dst.buffer.dtype] if stmt.dst.buffer in wide else stmt.op
    args = tuple(
        k.Ref(wide[a.buffer], a.index) if isinstance(a, k.Ref) and a.buffer in wide else a for a in stmt.args
    )
    dst = k.Ref(wide.get(stmt.dst.buffer, stmt.dst.buffer), stmt.dst.index)
    if op is CAST and args != stmt.args and dst.buffer.dtype is DataType.Float:
        return k.Copy(dst, args[0])
    return dataclasses.replace(stmt, op=op, dst=dst, args=args)
