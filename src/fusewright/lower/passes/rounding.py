"""Keeps a value that is rounded to a narrower type and widened again in a register of the wide type.

    h = bfloat16(x)                         r = round_to_bfloat16(x)
    y = float(h)                     ->     y = r
    z = y + 1                               z = y + 1

Graphs of torch round after each operator. The GPU converts to bfloat16 more slowly than it computes, and the
kernel of an optimizer step converts ten times per element. A value is not rounded if the narrow type
represents it anyway: a loaded value with another sign, or the largest of loaded values. A selection uses wide
registers, too, and its result is converted:

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

# Functions whose result a narrow type represents if it represents their operands.
_EXACT = frozenset(ELEMENTWISE[name] for name in ("neg", "abs", "maximum", "minimum"))


def round_in_registers(kernel: k.Kernel) -> k.Kernel:
    statements = list(k.walk(kernel.body))
    writers = access.writers(statements)
    alone = [s for s in statements if isinstance(s, (k.Compute, k.Copy)) and writers[s.dst.buffer] == 1]
    rounded = [s.dst.buffer for s in alone if isinstance(s, k.Compute) and _rounds(s)]
    choices = _choices(statements, rounded)
    registers = [c.dst.buffer for c in choices if c in alone and access.is_register(c.dst.buffer)]
    wide = _widened_buffers(statements, [*rounded, *registers], choices)
    if not wide:
        return kernel
    pass_ = _Pass(wide, _rounded_later(statements, wide, choices), _exact(alone), choices, Registers())
    return pass_.registers.declared(kernel, k.rewritten(kernel.body, pass_.widened))


def _exact(statements: Sequence[k.Stmt]) -> dict[k.Buffer, DataType]:
    """The Float registers whose values a narrower type represents, with this type."""
    found: dict[k.Buffer, DataType] = {}
    for stmt in statements:
        if not isinstance(stmt, k.Compute) or not access.is_register(stmt.dst.buffer):
            continue
        if stmt.op is CAST:
            types: set[DataType | None] = {k.operand_dtype(stmt.args[0])}
        elif stmt.op in _EXACT:
            types = {found.get(arg.buffer) if isinstance(arg, k.Ref) else None for arg in stmt.args}
        else:
            continue
        dtype = types.pop()
        if not types and dtype is not None and dtype in ROUNDED and stmt.dst.buffer.dtype is DataType.Float:
            found[stmt.dst.buffer] = dtype
    return found


def _rounds(stmt: k.Compute) -> bool:
    """Whether a statement rounds a Float to one register of a type for which `ROUNDED` has an operation."""
    buffer = stmt.dst.buffer
    (value, *_) = stmt.args
    return (
        stmt.op is CAST
        and access.is_register(buffer)
        and buffer.dtype in ROUNDED
        and k.operand_dtype(value) is stmt.dtype is DataType.Float
    )


def _choices(statements: Sequence[k.Stmt], rounded: Sequence[k.Buffer]) -> set[k.Stmt]:
    """The selections between elements in registers of which one is in `rounded` or is such a selection.

    Registers that may not have been set at the selection are excluded, since they cannot be widened before
    it.
    """
    found: set[k.Stmt] = set()
    partial = {buffer for stmt in statements if _is_partial(stmt) for buffer in access.written_buffers(stmt)}
    sources = set(rounded)
    for stmt in statements:
        if isinstance(stmt, k.Copy) and stmt.width == 1 and stmt.dst.buffer.space is k.Space.LOCAL:
            values = [value for value in (stmt.src, stmt.fill) if isinstance(value, k.Ref)]
            are_local = all(value.buffer.space is k.Space.LOCAL for value in values)
            are_there = partial.isdisjoint(value.buffer for value in values)
            if len(values) == 2 and are_local and are_there and any(v.buffer in sources for v in values):
                found.add(stmt)
                sources.add(stmt.dst.buffer)
    return found


def _is_partial(stmt: k.Stmt) -> bool:
    """Whether a statement leaves its destination unchanged if its predicate does not hold."""
    return isinstance(stmt, k.Copy) and stmt.pred is not k.TRUE and stmt.fill is None


def _widened_buffers(
    statements: Sequence[k.Stmt], candidates: Sequence[k.Buffer], choices: set[k.Stmt]
) -> dict[k.Buffer, k.Buffer]:
    """The wide register of each candidate that only arithmetic and these selections read."""
    readers: dict[k.Buffer, list[k.Stmt]] = defaultdict(list)
    for stmt in statements:
        for buffer in access.read_buffers(stmt):
            readers[buffer].append(stmt)
    wide = {buffer: dataclasses.replace(buffer, dtype=DataType.Float) for buffer in candidates}

    def is_read_wide(reader: k.Stmt) -> bool:
        if isinstance(reader, k.Copy):
            return reader in choices
        return isinstance(reader, k.Compute) and reader.op.stored is None

    while True:
        read_narrow = [buffer for buffer in wide if not all(map(is_read_wide, readers[buffer]))]
        if not read_narrow:
            return wide
        for buffer in read_narrow:
            del wide[buffer]


def _rounded_later(
    statements: Sequence[k.Stmt], wide: dict[k.Buffer, k.Buffer], choices: set[k.Stmt]
) -> set[k.Buffer]:
    """The wide registers that only selections with a converted result read."""
    found = set(wide)
    for stmt in reversed(statements):
        is_converted = all(b in found or b not in wide for b in access.written_buffers(stmt))
        if not (stmt in choices and is_converted):
            found.difference_update(access.read_buffers(stmt))
    return found


@dataclass(frozen=True)
class _Pass:
    """The state of the pass.

    Attributes:
        wide: the wide register that replaces each narrow one.
        rounded_later: see `_rounded_later`.
        exact: see `_exact`.
        choices: see `_choices`.
        registers: the added registers.
    """

    wide: dict[k.Buffer, k.Buffer]
    rounded_later: set[k.Buffer]
    exact: dict[k.Buffer, DataType]
    choices: set[k.Stmt]
    registers: Registers

    def widened(self, stmt: k.Stmt) -> list[k.Stmt]:
        if isinstance(stmt, k.Alloc):
            return [k.Alloc(self.wide.get(stmt.buffer, stmt.buffer))]
        if isinstance(stmt, k.Copy) and stmt in self.choices:
            return self._choice(stmt)
        if not isinstance(stmt, k.Compute):
            return [stmt]
        narrow = stmt.dst.buffer
        args = tuple([self._wide(arg) for arg in stmt.args])
        dst = k.Ref(self.wide.get(narrow, narrow), stmt.dst.index)
        op = ROUNDED[narrow.dtype] if narrow in self.wide else stmt.op
        is_exact = isinstance(args[0], k.Ref) and self.exact.get(args[0].buffer) is narrow.dtype
        is_exact = is_exact or narrow in self.rounded_later
        is_widened = op is CAST and args != stmt.args and dst.buffer.dtype is DataType.Float
        if is_widened or (narrow in self.wide and is_exact):
            return [k.Copy(dst, args[0])]
        return [dataclasses.replace(stmt, op=op, dst=dst, args=args)]

    def _choice(self, stmt: k.Copy) -> list[k.Stmt]:
        """A selection between wide values.

        Narrow operands are widened before it, a narrow result after it.
        """
        if not any(v.buffer in self.wide for v in (stmt.dst, stmt.src, stmt.fill) if isinstance(v, k.Ref)):
            return [stmt]
        made: list[k.Stmt] = []
        src, fill = (self._converted(value, made) for value in (stmt.src, stmt.fill))
        if stmt.dst.buffer in self.wide:
            dst = k.Ref(self.wide[stmt.dst.buffer], stmt.dst.index)
            return [*made, dataclasses.replace(stmt, dst=dst, src=src, fill=fill)]
        dst = self._register(stmt.dst)
        chosen = dataclasses.replace(stmt, dst=dst, src=src, fill=fill)
        return [*made, chosen, k.Compute(CAST, stmt.dst, (dst,), DataType.Float)]

    def _converted(self, value: k.Operand | None, made: list[k.Stmt]) -> k.Operand:
        assert isinstance(value, k.Ref)
        if value.buffer in self.wide:
            return self._wide(value)
        register = self._register(value)
        made.append(k.Compute(CAST, register, (value,), DataType.Float))
        return register

    def _register(self, value: k.Ref) -> k.Ref:
        name = f"{value.buffer.name}_wide{len(self.registers)}"
        return k.Ref(self.registers.new(name, DataType.Float), ZERO)

    def _wide(self, value: k.Operand) -> k.Operand:
        if isinstance(value, k.Ref) and value.buffer in self.wide:
            return k.Ref(self.wide[value.buffer], value.index)
        return value
