"""Inserts block barriers between accesses of different threads to the same shared buffer.

A statement that reads what was written since the last barrier, or writes what was read or written
since, gets a barrier before it. Across iterations of a loop the end of the body meets its beginning again,
except where what each iteration writes is provably apart. A condition that threads may disagree about is
given to each statement under it where barriers have to stand between them. What collectives use as scratch
memory they order themselves.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.passes.unroll import MAX_UNROLL
from fusewright.sym import Expr, as_int, bounds, const, land, lower_bound, substitute


@dataclass
class _Pending:
    """Shared buffers accessed since the last barrier."""

    read: set[k.Buffer] = field(default_factory=set)
    written: set[k.Buffer] = field(default_factory=set)

    def conflicts(self, reads: set[k.Buffer], writes: set[k.Buffer]) -> bool:
        return bool(reads & self.written or writes & (self.read | self.written))

    def add(self, reads: set[k.Buffer], writes: set[k.Buffer]) -> None:
        self.read |= reads
        self.written |= writes

    def copy(self) -> _Pending:
        return _Pending(set(self.read), set(self.written))

    def clear(self) -> None:
        self.read.clear()
        self.written.clear()


def insert_barriers(kernel: k.Kernel) -> k.Kernel:
    declared = map(access.declared_buffer, k.walk(kernel.body))
    if not any(buffer is not None and _is_exchanged(buffer) for buffer in declared):
        return kernel
    return k.with_body(kernel, _walk(kernel.body, _Pending(), ()))


def _accesses(stmt: k.Stmt) -> tuple[set[k.Buffer], set[k.Buffer]]:
    """Shared buffers that `stmt` and what it nests read and write."""
    reads: set[k.Buffer] = set()
    writes: set[k.Buffer] = set()
    for inner in k.walk((stmt,)):
        reads.update(filter(_is_exchanged, access.read_buffers(inner)))
        writes.update(filter(_is_exchanged, access.written_buffers(inner)))
    return reads, writes


def _is_exchanged(buffer: k.Buffer) -> bool:
    """Whether threads read there what others wrote."""
    return buffer.space is k.Space.SHARED and not buffer.private


def _walk(body: tuple[k.Stmt, ...], pending: _Pending, around: tuple[k.For, ...]) -> tuple[k.Stmt, ...]:
    """`around`: the loops that `body` stands in."""
    result: list[k.Stmt] = []
    for stmt in body:
        if isinstance(stmt, k.Barrier):
            pending.clear()
            result.append(stmt)
            continue
        reads, writes = _accesses(stmt)
        if pending.conflicts(reads, writes):
            result.append(k.Barrier())
            pending.clear()
        if isinstance(stmt, k.If) and _walk(stmt.body, _Pending(), around) is not stmt.body:
            result += _walk(tuple(_distributed(stmt.cond, stmt.body)), pending, around)
            continue
        if isinstance(stmt, k.For) and (reads or writes):
            stmt = _walk_loop(stmt, pending, around)
        else:
            pending.add(reads, writes)
        result.append(stmt)
    return k.body_of(body, result)


def _distributed(cond: Expr, body: tuple[k.Stmt, ...]) -> list[k.Stmt]:
    """if (cond) { a; for { b } } -> if (cond) a; for { if (cond) b }, between which barriers can stand."""
    result: list[k.Stmt] = []
    for stmt in body:
        if isinstance(stmt, k.If):
            result += _distributed(land(cond, stmt.cond), stmt.body)
        elif isinstance(stmt, k.For):
            result.append(k.with_body(stmt, tuple(_distributed(cond, stmt.body))))
        elif isinstance(stmt, (k.Let, k.LetMisalignment, k.Alloc)):
            result.append(stmt)  # what follows, under conditions of its own, has to know it
        elif isinstance(stmt, k.LetValue):
            result.append(dataclasses.replace(stmt, pred=land(cond, stmt.pred)))
        else:
            result.append(k.If(cond, (stmt,)))
    return result


def _walk_loop(loop: k.For, pending: _Pending, around: tuple[k.For, ...]) -> k.For:
    before = pending.copy()
    body = _walk(loop.body, pending, (*around, loop))
    result = _with_carried(k.with_body(loop, body), pending, around)
    if not _runs(loop):
        # Its barriers may not have happened.
        pending.add(before.read, before.written)
    return result


def _runs(loop: k.For) -> bool:
    """Whether the loop is known to have an iteration."""
    return (lower_bound(loop.extent) or 0) >= 1


def _with_carried(loop: k.For, pending: _Pending, around: tuple[k.For, ...]) -> k.For:
    """The loop with a barrier at the end of its body, if what an iteration leaves meets the next one's."""
    body = loop.body
    carried = pending.copy()
    apart = _written_apart(loop, around)
    for stmt in body:
        if isinstance(stmt, k.Barrier):
            break
        reads, writes = _accesses(stmt)
        writes -= apart
        if carried.conflicts(reads, writes):
            pending.clear()
            return dataclasses.replace(loop, body=(*body, k.Barrier()))
        has_barrier = any(isinstance(s, k.Barrier) for s in k.walk((stmt,)))
        if isinstance(stmt, k.For) and has_barrier and _runs(stmt):
            break
        carried.add(reads, writes)
    return loop


def _written_apart(loop: k.For, around: tuple[k.For, ...]) -> set[k.Buffer]:
    """Shared buffers that the loop writes in one statement, elsewhere in every iteration, and does not
    read. Iterations of the loops around it are compared where those end.
    """
    accesses: Counter[k.Buffer] = Counter()
    moving: set[k.Buffer] = set()
    for stmt in k.walk(loop.body):
        accesses.update(access.read_buffers(stmt))
        accesses.update(access.written_buffers(stmt))
        width = stmt.width if isinstance(stmt, k.Copy) else 1
        for ref in access.written_refs(stmt):
            if _is_exchanged(ref.buffer) and _moves_past(_within(ref.index, around), width, loop):
                moving.add(ref.buffer)
    return {buffer for buffer in moving if accesses[buffer] == 1}


def _within(index: Expr, around: tuple[k.For, ...]) -> Expr:
    """`index` without what it adds in each iteration of the loops around, where that is a sum of its own."""
    own = substitute(index, {loop.symbol: const(0) for loop in around})
    outside = {loop.symbol for loop in around}
    return own if (index - own).free_symbols <= outside else index


def _moves_past(index: Expr, width: int, loop: k.For) -> bool:
    """Whether each iteration of the loop accesses `width` elements at `index` beyond those of all others."""
    first = substitute(index, {loop.symbol: const(0)})
    step = as_int(substitute(index, {loop.symbol: const(1)}) - first)
    if step is not None and first + step * loop.symbol is index:
        low, high = bounds(first)
        return low is not None and high is not None and high - low + width <= abs(step)
    iterations = as_int(loop.extent)
    if iterations is None or iterations > MAX_UNROLL:
        return False
    spans = [bounds(substitute(index, {loop.symbol: const(i)})) for i in range(iterations)]
    known = sorted((low, high) for low, high in spans if low is not None and high is not None)
    return len(known) == iterations and all(end + width <= start for (_, end), (start, _) in pairwise(known))
