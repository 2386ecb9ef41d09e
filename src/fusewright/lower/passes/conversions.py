"""Converts the elements of a vector together if the GPU converts two at a time.

    for j < 8:                                  for j < 8:
        a = x[j] * s                                a = x[j] * s
        v[j] = e4m3(a)                  ->          w[j] = a
    y[i .. i + 7] = v[0 .. 7]                   v[0 .. 7] = e4m3(w[0 .. 7])
                                                y[i .. i + 7] = v[0 .. 7]

Converting one element takes as long as converting two, and three more instructions assemble the bytes of a
vector. The CUDA compiler pairs halves and bfloat16 itself, unless they are also stored by element, as at the
edges of a row.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable

from fusewright.core.dtype import DataType
from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.passes.registers import Registers
from fusewright.ops.elementwise import CAST
from fusewright.sym import ZERO, as_int, substitute


def convert_in_pairs(kernel: k.Kernel) -> k.Kernel:
    statements = list(k.walk(kernel.body))
    if not any(map(_converts, statements)):
        return kernel
    pass_ = _Pass(access.writers(statements), _copied_by_element(statements))
    body = k.rewritten(kernel.body, pass_.converted)
    return pass_.registers.declared(kernel, body)


def _converts(stmt: k.Stmt) -> bool:
    """Whether a statement converts a Float in a register to an element of an array in registers."""
    if not isinstance(stmt, k.Compute) or stmt.op is not CAST or stmt.dtype is not DataType.Float:
        return False
    buffer, value = stmt.dst.buffer, stmt.args[0]
    return (
        buffer.space is k.Space.LOCAL
        and buffer.dtype in k.PACKED_TYPES
        and isinstance(value, k.Ref)
        and value.buffer.space is k.Space.LOCAL
        and value.buffer.dtype is DataType.Float
    )


def _copied_by_element(statements: Iterable[k.Stmt]) -> set[k.Buffer]:
    copies = (stmt for stmt in statements if isinstance(stmt, k.Copy) and stmt.width == 1)
    return {copy.src.buffer for copy in copies if isinstance(copy.src, k.Ref)}


class _Pass:
    """The state of the pass.

    Attributes:
        writers: the number of statements that write each buffer.
        by_element: the buffers that are copied element by element.
        registers: the added registers.
    """

    def __init__(self, writers: Counter[k.Buffer], by_element: set[k.Buffer]) -> None:
        self.writers = writers
        self.by_element = by_element
        self.registers = Registers()

    def converted(self, loop: k.Stmt) -> list[k.Stmt]:
        """A loop over the elements of a vector without its conversions, and the conversions behind it.

        Other statements are not changed.
        """
        if not isinstance(loop, k.For) or not loop.unroll or (as_int(loop.extent) or 1) % 2:
            return [loop]
        read = access.read_in(loop.body)
        kept: list[k.Stmt] = []
        after: list[k.Stmt] = []
        for stmt in loop.body:
            if not isinstance(stmt, k.Compute) or not _converts(stmt) or not self._is_run(stmt, loop, read):
                kept.append(stmt)
                continue
            narrow = stmt.dst.buffer
            wide = dataclasses.replace(narrow, name=f"{narrow.name}_wide", dtype=DataType.Float, align=0)
            self.registers.add(wide)
            kept.append(k.Copy(k.Ref(wide, stmt.dst.index), stmt.args[0]))
            first = substitute(stmt.dst.index, {loop.symbol: ZERO})
            after.append(k.Convert(k.Ref(narrow, first), k.Ref(wide, first), as_int(loop.extent) or 0))
        return [k.with_body(loop, k.body_of(loop.body, kept)), *after]

    def _is_run(self, stmt: k.Compute, loop: k.For, read: set[k.Buffer]) -> bool:
        """Whether the iterations of a loop convert to adjacent elements that nothing in the loop reads, and
        converting in pairs pays.
        """
        index = stmt.dst.index
        steps = [factor for core, factor in index.terms if loop.symbol in core.free_symbols]
        is_next = steps == [1] and loop.symbol in (core for core, _ in index.terms)
        buffer = stmt.dst.buffer
        pays = buffer.dtype is DataType.Float8_e4m3fn or buffer in self.by_element
        return is_next and pays and buffer not in read and self.writers[buffer] == 1
