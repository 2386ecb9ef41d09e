"""Loads once, and ahead of all loops, what an index chooses that is the same throughout them.

    for j: t = target[row]; let i = t               t = target[row]; let i = t
           p = x[row, i]                     ->     p = x[row, i]
           y[j] = e[j] - p                          for j: y[j] = e[j] - p

The index has to be there before what it chooses is asked for: two latencies of the memory, one after the
other. At the beginning they pass while the row itself arrives; after a reduction the block would have nothing
else to do. Only what no thread of the kernel writes is loaded so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.passes.loads import without_foreign_guards
from fusewright.sym import ZERO, Symbol, const


def load_chosen_once(kernel: k.Kernel) -> k.Kernel:
    if not any(isinstance(stmt, k.LetValue) for stmt in k.walk(kernel.body)):
        return kernel
    written = {buffer for stmt in k.walk(kernel.body) for buffer in access.written_buffers(stmt)}
    lifter = _Lifter(frozenset(written))
    body = lifter.body(kernel.body)
    allocations = tuple(k.Alloc(buffer) for buffer in lifter.registers)
    return k.with_body(kernel, k.body_of(kernel.body, (*allocations, *body)))


class _Lifter:
    """Attributes:
    written: the buffers that the kernel writes.
    registers: those that hold what is loaded once.
    """

    def __init__(self, written: frozenset[k.Buffer]) -> None:
        self.written = written
        self.registers: list[k.Buffer] = []

    def body(self, body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
        """`body` with what its loops do not change at its beginning, behind what names its indices."""
        lifted: list[k.Stmt] = []
        result: list[k.Stmt] = []
        for stmt in body:
            if isinstance(stmt, k.For):
                found, stmt = self._loop(stmt)
                lifted += found
            else:
                stmt = k.with_children(stmt, self.body)
            result.append(stmt)
        if not lifted:
            return k.body_of(body, result)
        used = frozenset[Symbol]().union(*map(_symbols, lifted))
        named = [i for i, stmt in enumerate(result) if access.defined_symbol(stmt) in used]
        place = max(named, default=-1) + 1
        return (*result[:place], *lifted, *result[place:])

    def _loop(self, loop: k.For) -> tuple[list[k.Stmt], k.For]:
        """(what is the same in all iterations, the loop without)."""
        body: list[k.Stmt] = []
        for stmt in loop.body:
            if isinstance(stmt, k.For):
                found, stmt = self._loop(stmt)
                body += found
            body.append(without_foreign_guards(stmt))
        varying = {loop.symbol, *_defined(body)}
        indices = {stmt.value for stmt in body if isinstance(stmt, k.LetValue)}
        sources = {stmt.src for stmt in body if isinstance(stmt, k.Copy) and stmt.dst in indices}
        held: dict[k.Ref, k.Ref] = {}  # where what is loaded once is, by the register that it was loaded to
        lifted: list[k.Stmt] = []
        kept: list[k.Stmt] = []
        for stmt in body:
            if (
                isinstance(stmt, k.LetValue)
                and stmt.value in held
                and varying.isdisjoint(stmt.pred.free_symbols)
            ):
                assert isinstance(stmt.value, k.Ref)
                lifted.append(dataclasses.replace(stmt, value=held[stmt.value]))
                varying.discard(stmt.symbol)
            elif self._is_load(stmt, body) and varying.isdisjoint(_symbols(stmt)):
                assert isinstance(stmt, k.Copy)
                if stmt.src in sources or not _symbols(stmt).isdisjoint(_defined(lifted)):
                    held[stmt.dst] = self._register(stmt)
                    lifted.append(dataclasses.replace(stmt, dst=held[stmt.dst]))
                    kept += [k.Copy(stmt.dst, held[stmt.dst])] if held[stmt.dst] != stmt.dst else []
                else:
                    kept.append(stmt)
            else:
                kept.append(stmt)
        return lifted, k.with_body(loop, k.body_of(loop.body, kept))

    def _register(self, load: k.Copy) -> k.Ref:
        """Where the element stays; where it is, if it was lifted out of a loop inside this one."""
        if load.dst.buffer in self.registers:
            return load.dst
        name = f"{load.dst.buffer.name}_chosen{len(self.registers)}"
        self.registers.append(k.Buffer(name, load.dst.buffer.dtype, k.Space.LOCAL, const(1)))
        return k.Ref(self.registers[-1], ZERO)

    def _is_load(self, stmt: k.Stmt, body: Sequence[k.Stmt]) -> bool:
        """Whether it brings an element that no thread writes into a register that nothing else sets."""
        if not isinstance(stmt, k.Copy) or not isinstance(stmt.src, k.Ref) or isinstance(stmt.fill, k.Ref):
            return False
        moves = stmt.src.buffer.space is k.Space.GLOBAL and stmt.dst.buffer.space is k.Space.LOCAL
        sets = sum(stmt.dst.buffer in access.written_buffers(each) for each in k.walk(tuple(body)))
        whole = stmt.pred is k.TRUE or stmt.fill is not None
        return moves and stmt.width == 1 and whole and sets == 1 and stmt.src.buffer not in self.written


def _defined(body: Sequence[k.Stmt]) -> set[Symbol]:
    return {s for stmt in k.walk(tuple(body)) if (s := access.defined_symbol(stmt)) is not None}


def _symbols(stmt: k.Stmt) -> frozenset[Symbol]:
    """The symbols of what a leaf reads, and when."""
    operands = [ref.index for ref in access.read_refs(stmt)]
    return frozenset[Symbol]().union(*(e.free_symbols for e in (*access.conditions(stmt), *operands)))
