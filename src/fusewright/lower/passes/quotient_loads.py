"""Loads a value per row once for the elements of a vector that are in the same row.

    for j < 8: a[j] = x[(i + j) / n]                    one = x[i / n]; other = x[(i + 7) / n]
                                              ->        for j < 8: a[j] = one if i % n + j < n else other

Such loads occur if vectors run along several rows as along one. A vector with no more elements than a row has
elements of at most two rows. Otherwise each element would take a division, an address and a load.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.passes.loads import is_load
from fusewright.lower.passes.registers import Registers
from fusewright.lower.passes.unrolled_load import UnrolledLoad, nested_in, single_nest
from fusewright.sym import ZERO, Expr, FloorDiv, as_int, floordiv, lt, mod, replace

# For vectors of at least this many elements, two loads and the selections take less than a load for each
# element.
FEWEST_ELEMENTS = 4


def load_quotients_once(kernel: k.Kernel) -> k.Kernel:
    registers = Registers()
    written = {b for b in access.writers(k.walk(kernel.body)) if b.space is k.Space.GLOBAL}

    def body(stmts: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
        result: list[k.Stmt] = []
        for stmt in stmts:
            load = _load(stmt)
            found = load if load is not None and load.memory not in written else None
            result += [k.with_children(stmt, body)] if found is None else found.loaded_once(registers)
        return k.body_of(stmts, result)

    return registers.declared(kernel, body(kernel.body))


@dataclass(frozen=True)
class _QuotientLoad(UnrolledLoad):
    """A load of an element in a loop over the lanes of a vector.

    Attributes:
        quotient: the quotient in the index.
    """

    quotient: FloorDiv

    def loaded_once(self, registers: Registers) -> Iterator[k.Stmt]:
        *outer, lane = self.loops
        count = 1
        place: Expr = ZERO
        for loop in reversed(outer):
            place, count = place + loop.symbol * count, count * (as_int(loop.extent) or 1)
        places, size = self.quotient.args
        start = places - lane.symbol
        number = len(registers) // 2
        name, dtype = self.copy.dst.buffer.name, self.copy.dst.buffer.dtype
        ends = []
        for which, last in (("first", ZERO), ("last", lane.extent - 1)):
            register = k.Ref(registers.new(f"{name}_{which}{number}", dtype, count), place)
            at = replace(self.src.index, {self.quotient: floordiv(start + last, size)}, {})
            ends.append((register, dataclasses.replace(self.copy, dst=register, src=k.Ref(self.memory, at))))
        (one, first), (other, second) = ends
        is_first = lt(mod(start, size) + lane.symbol, size)
        chosen = k.Copy(self.copy.dst, one, pred=is_first, fill=other, fill_is_value=True)
        yield from nested_in(outer, (first, second))
        yield from nested_in(self.loops, (chosen,))


def _load(stmt: k.Stmt) -> _QuotientLoad | None:
    """The load by a quotient that is the only statement in nested unrolled loops, if there is one."""
    loops, stmt = single_nest(stmt)
    if not loops or not is_load(stmt) or stmt.width > 1 or stmt.asynchronous or stmt.covering is not None:
        return None
    if stmt.pred is not k.TRUE and stmt.fill is None:
        return None
    lane, src = loops[-1], stmt.src
    assert isinstance(src, k.Ref)
    count = as_int(lane.extent)
    if count is None or count < FEWEST_ELEMENTS or lane.symbol in stmt.pred.free_symbols:
        return None
    if any(as_int(loop.extent) is None for loop in loops):
        return None
    quotients = [e for e in _parts(src.index) if isinstance(e, FloorDiv) and lane.symbol in e.free_symbols]
    if len(set(quotients)) != 1:
        return None
    quotient = quotients[0]
    places, size = quotient.args
    start, divisor = places - lane.symbol, as_int(size)
    rest = replace(src.index, {quotient: floordiv(start, size)}, {})
    if divisor is None or divisor < count or lane.symbol in start.free_symbols | rest.free_symbols:
        return None
    return _QuotientLoad(stmt, loops, quotient)


def _parts(e: Expr) -> Iterator[Expr]:
    yield e
    for arg in e.args:
        yield from _parts(arg)
