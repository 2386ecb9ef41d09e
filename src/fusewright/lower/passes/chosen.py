"""Loads a value that a loop-invariant index selects once, before all loops.

    for j: t = target[row]; let i = t               t = target[row]; let i = t
           p = x[row, i]                     ->     p = x[row, i]
           y[j] = e[j] - p                          for j: y[j] = e[j] - p

The index must be loaded before the value that it selects, which takes two memory latencies in sequence. At
the beginning of the kernel they overlap with the loads of the row; after a reduction the block would have
nothing else to do. Only data that no thread of the kernel writes is loaded this way.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import TypeGuard

from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.guards import conditions_of
from fusewright.lower.passes.loads import is_load, used_symbols, without_foreign_guards
from fusewright.lower.passes.registers import Registers
from fusewright.lower.passes.repeated_loads import load_repeated_indices_once
from fusewright.sym import ZERO, Symbol, land


def load_chosen_once(kernel: k.Kernel) -> k.Kernel:
    if not any(isinstance(stmt, k.LetValue) for stmt in k.walk(kernel.body)):
        return kernel
    kernel = load_repeated_indices_once(kernel)
    lifter = _Lifter(access.writers(k.walk(kernel.body)))
    body = lifter.body(kernel.body)
    return lifter.registers.declared(kernel, body)


def _end_of_operands(stmts: Sequence[k.Stmt], before: Sequence[k.Stmt]) -> int:
    """The position in `before` behind all that defines or writes what `stmts` read."""
    used = frozenset[Symbol]().union(*map(used_symbols, stmts))
    read = access.read_in(stmts) - access.written_in(stmts)
    needed = (
        i
        for i, stmt in enumerate(before)
        if access.defined_symbol(stmt) in used or not read.isdisjoint(access.written_in((stmt,)))
    )
    return max(needed, default=-1) + 1


class _Lifter:
    """The state of the pass.

    Attributes:
        writers: the number of statements of the kernel that write each buffer.
        registers: the registers of values that are loaded once.
    """

    def __init__(self, writers: Counter[k.Buffer]) -> None:
        self.writers = writers
        self.registers = Registers()

    def body(self, body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
        """`body` with the invariant loads of each loop before that loop, directly behind what they need."""
        result: list[k.Stmt] = []
        end = 0  # of what was lifted so far, in `result`
        for stmt in body:
            if isinstance(stmt, k.For):
                lifted, stmt = self._loop(stmt)
                if lifted:
                    end = max(end, _end_of_operands(lifted, result))
                    result[end:end] = lifted
                    end += len(lifted)
            else:
                stmt = k.with_children(stmt, self.body)
            result.append(stmt)
        return k.body_of(body, result)

    def _loop(self, loop: k.For) -> tuple[list[k.Stmt], k.For]:
        """The statements that are the same in all iterations, and the loop without them."""
        body: list[k.Stmt] = []
        for stmt in loop.body:
            if isinstance(stmt, k.For):
                found, stmt = self._loop(stmt)
                body += found
            body.append(without_foreign_guards(stmt))
        inside = list(k.walk(tuple(body)))
        varying = {loop.symbol, *access.defined_symbols(inside)}
        writers = access.writers(inside)
        indices = {stmt.value for stmt in body if isinstance(stmt, k.LetValue)}
        sources = {stmt.src for stmt in body if isinstance(stmt, k.Copy) and stmt.dst in indices}
        # The register of an element that is loaded once, by the register that it was loaded to in the loop.
        held: dict[k.Operand, k.Ref] = {}
        lifted: list[k.Stmt] = []
        kept: list[k.Stmt] = []
        for stmt in body:
            if isinstance(stmt, k.LetValue) and (stmt.value in held or self._is_there(stmt.value, writers)):
                # Conditions on the iteration only say whether it needs the element, so they can be dropped.
                pred = land(*[c for c in conditions_of(stmt.pred) if varying.isdisjoint(c.free_symbols)])
                lifted.append(dataclasses.replace(stmt, value=held.get(stmt.value, stmt.value), pred=pred))
                varying.discard(stmt.symbol)
                continue
            if self._is_element(stmt, writers):
                used = used_symbols(stmt, written=False)
                is_chosen = stmt.src in sources or not used.isdisjoint(access.defined_symbols(lifted))
                if is_chosen and varying.isdisjoint(used):
                    held[stmt.dst] = self._register(stmt)
                    lifted.append(dataclasses.replace(stmt, dst=held[stmt.dst]))
                    kept += [k.Copy(stmt.dst, held[stmt.dst])] if held[stmt.dst] != stmt.dst else []
                    continue
            kept.append(stmt)
        return lifted, k.with_body(loop, k.body_of(loop.body, kept))

    def _is_there(self, value: k.Operand, writers: Counter[k.Buffer]) -> bool:
        """Whether an operand is a register that one statement of the kernel sets, outside the loop.

        Args:
            writers: the number of statements of the loop that write each buffer.
        """
        if not isinstance(value, k.Ref) or not access.is_register(value.buffer):
            return False
        return not writers[value.buffer] and self.writers[value.buffer] == 1

    def _register(self, load: k.Copy) -> k.Ref:
        """The register for an element that is loaded once.

        It is the present one if the load was moved out of an inner loop before.
        """
        if load.dst.buffer in self.registers:
            return load.dst
        name = f"{load.dst.buffer.name}_chosen{len(self.registers)}"
        return k.Ref(self.registers.new(name, load.dst.buffer.dtype), ZERO)

    def _is_element(self, stmt: k.Stmt, writers: Counter[k.Buffer]) -> TypeGuard[k.Copy]:
        """Whether a statement loads one element of read-only memory into a register that nothing else sets.

        Args:
            writers: the number of statements of the loop that write each buffer.
        """
        if not is_load(stmt) or stmt.width > 1 or (stmt.pred is not k.TRUE and stmt.fill is None):
            return False
        return self.writers.keys().isdisjoint(access.read_buffers(stmt)) and writers[stmt.dst.buffer] == 1
