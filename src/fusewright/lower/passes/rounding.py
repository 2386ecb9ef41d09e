"""Keeps what is rounded to a narrower type and widened again in a register of the wide type.

    h = bfloat16(x)                         r = round_to_bfloat16(x)
    y = float(h)                     ->     y = r
    z = y + 1                               z = y + 1

Graphs of torch round after each operator. The GPU converts to a bfloat16 more slowly than it computes, and
the kernel of an optimizer step does so ten times for each element. What has changed its sign only since it was
loaded is not rounded at all, and a choice between such values is one of wide registers, too:

    x = float(a[j])                         x = float(a[j])
    h = bfloat16(-x)                 ->     b = float(a[j + n])
    c = h if p else a[j + n]                c = -x if p else b
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from fusewright.core.dtype import DataType
from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.passes.registers import Registers
from fusewright.ops.elementwise import CAST, ELEMENTWISE
from fusewright.ops.rounding import ROUNDED
from fusewright.sym import ZERO

# What of a value of a narrow type has that type, too.
_EXACT = frozenset((ELEMENTWISE["neg"], ELEMENTWISE["abs"]))


def round_in_registers(kernel: k.Kernel) -> k.Kernel:
    statements = list(k.walk(kernel.body))
    writers = access.writers(statements)
    alone = [s for s in statements if isinstance(s, (k.Compute, k.Copy)) and writers[s.dst.buffer] == 1]
    exact = _exact(alone)
    rounded = {
        stmt.dst.buffer: stmt for stmt in alone if isinstance(stmt, k.Compute) and _rounds(stmt)
    }
    chosen = _chosen(alone, rounded)
    wide = _widened_buffers(statements, [*rounded, *chosen])
    if not wide:
        return kernel
    pass_ = _Pass(wide, exact, Registers())
    return pass_.registers.declared(kernel, k.rewritten(kernel.body, pass_.widened))


def _exact(statements: Sequence[k.Stmt]) -> dict[k.Buffer, DataType]:
    """The registers of Float that hold values of a narrower type, and that type."""
    found: dict[k.Buffer, DataType] = {}
    for stmt in statements:
        if not isinstance(stmt, k.Compute) or not access.is_register(stmt.dst.buffer):
            continue
        value = stmt.args[0]
        if stmt.dst.buffer.dtype is DataType.Float and isinstance(value, k.Ref):
            if stmt.op is CAST and value.buffer.dtype in ROUNDED:
                found[stmt.dst.buffer] = value.buffer.dtype
            elif stmt.op in _EXACT and value.buffer in found:
                found[stmt.dst.buffer] = found[value.buffer]
    return found


def _rounds(stmt: k.Compute) -> bool:
    """Whether it rounds a Float to one register of a type that has a row for that."""
    buffer = stmt.dst.buffer
    (value, *_) = stmt.args
    return (
        stmt.op is CAST
        and access.is_register(buffer)
        and buffer.dtype in ROUNDED
        and k.operand_dtype(value) is stmt.dtype is DataType.Float
    )


def _chosen(statements: Sequence[k.Stmt], rounded: dict[k.Buffer, k.Compute]) -> list[k.Buffer]:
    """The registers that one of `rounded` is chosen for."""
    found: dict[k.Buffer, None] = {}
    for stmt in statements:
        if not isinstance(stmt, k.Copy) or stmt.width > 1 or not access.is_register(stmt.dst.buffer):
            continue
        values = [value for value in (stmt.src, stmt.fill) if isinstance(value, k.Ref)]
        locals_ = all(value.buffer.space is k.Space.LOCAL for value in values)
        if len(values) == 2 and locals_ and any(v.buffer in rounded or v.buffer in found for v in values):
            found[stmt.dst.buffer] = None
    return list(found)


def _widened_buffers(
    statements: Sequence[k.Stmt], candidates: Sequence[k.Buffer]
) -> dict[k.Buffer, k.Buffer]:
    """The wide register of each of the candidates that nothing but arithmetic, and choices among wide
    registers, reads.
    """
    readers: dict[k.Buffer, list[k.Stmt]] = defaultdict(list)
    for stmt in statements:
        for buffer in access.read_buffers(stmt):
            readers[buffer].append(stmt)
    wide = {buffer: dataclasses.replace(buffer, dtype=DataType.Float) for buffer in candidates}

    def is_read_wide(reader: k.Stmt) -> bool:
        if isinstance(reader, k.Copy):
            return reader.dst.buffer in wide
        return isinstance(reader, k.Compute) and reader.op.stored is None

    while True:
        read_narrow = [buffer for buffer in wide if not all(map(is_read_wide, readers[buffer]))]
        if not read_narrow:
            return wide
        for buffer in read_narrow:
            del wide[buffer]


@dataclass(frozen=True)
class _Pass:
    """Attributes:
    wide: the wide register in place of each narrow one.
    exact: see `_exact`.
    registers: those that were added.
    """

    wide: dict[k.Buffer, k.Buffer]
    exact: dict[k.Buffer, DataType]
    registers: Registers

    def widened(self, stmt: k.Stmt) -> list[k.Stmt]:
        if isinstance(stmt, k.Alloc):
            return [k.Alloc(self.wide.get(stmt.buffer, stmt.buffer))]
        if isinstance(stmt, k.Copy) and stmt.dst.buffer in self.wide:
            return self._choice(stmt)
        if not isinstance(stmt, k.Compute):
            return [stmt]
        narrow = stmt.dst.buffer
        args = tuple([self._wide(arg) for arg in stmt.args])
        dst = k.Ref(self.wide.get(narrow, narrow), stmt.dst.index)
        op = ROUNDED[narrow.dtype] if narrow in self.wide else stmt.op
        is_exact = isinstance(args[0], k.Ref) and self.exact.get(args[0].buffer) is narrow.dtype
        if narrow in self.wide and is_exact:
            return [k.Copy(dst, args[0])]
        if op is CAST and args != stmt.args and dst.buffer.dtype is DataType.Float:
            return [k.Copy(dst, args[0])]
        return [dataclasses.replace(stmt, op=op, dst=dst, args=args)]

    def _choice(self, stmt: k.Copy) -> list[k.Stmt]:
        """A choice of wide values, those that are narrow widened before."""
        made: list[k.Stmt] = []
        dst = self._wide(stmt.dst)
        src, fill = (self._converted(value, made) for value in (stmt.src, stmt.fill))
        assert isinstance(dst, k.Ref)
        return [*made, dataclasses.replace(stmt, dst=dst, src=src, fill=fill)]

    def _converted(self, value: k.Operand | None, made: list[k.Stmt]) -> k.Operand:
        assert isinstance(value, k.Ref)
        if value.buffer in self.wide:
            return self._wide(value)
        register = self.registers.new(f"{value.buffer.name}_wide{len(self.registers)}", DataType.Float)
        made.append(k.Compute(CAST, k.Ref(register, ZERO), (value,), DataType.Float))
        return k.Ref(register, ZERO)

    def _wide(self, value: k.Operand) -> k.Operand:
        if isinstance(value, k.Ref) and value.buffer in self.wide:
            return k.Ref(self.wide[value.buffer], value.index)
        return value
