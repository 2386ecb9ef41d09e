"""Inserts barriers between accesses of different threads to the same buffer: block barriers for shared
memory, and grid barriers for memory through which blocks exchange results.

A barrier is inserted before a statement that reads data written since the last barrier, or writes data read
or written since. In a loop, the end of the body is followed by its beginning, unless the accesses of
different iterations are provably disjoint. A condition on which threads may disagree is moved to each
statement under it if barriers must separate these statements. Collectives order the accesses to their scratch
memory themselves.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from fusewright.core.dtype import DataType
from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.guards import Conditions, conditions_of
from fusewright.lower.passes.unroll import MAX_UNROLL
from fusewright.sym import ONE, Expr, Lt, as_int, bounds, const, land, lower_bound, substitute

_SEMAPHORE = "grid_semaphore"


@dataclass
class _Pending:
    """The exchanged buffers that were read and written since the last barrier that orders them."""

    read: set[k.Buffer] = field(default_factory=set)
    written: set[k.Buffer] = field(default_factory=set)

    def conflicts(self, reads: set[k.Buffer], writes: set[k.Buffer]) -> set[k.Buffer]:
        """The buffers that a barrier has to order before these accesses.

        In global memory each element has its own place, which is written once.
        """
        rewritten = {buffer for buffer in writes if buffer.space is not k.Space.GLOBAL}
        return (reads & self.written) | (rewritten & (self.read | self.written))

    def add(self, reads: set[k.Buffer], writes: set[k.Buffer]) -> None:
        self.read |= reads
        self.written |= writes

    def copy(self) -> _Pending:
        return _Pending(set(self.read), set(self.written))

    def pass_barrier(self, barrier: k.Stmt) -> None:
        """Removes the accesses that the barrier orders."""
        kept = k.Space.GLOBAL if isinstance(barrier, k.Barrier) else None
        self.read = {buffer for buffer in self.read if buffer.space is kept}
        self.written = {buffer for buffer in self.written if buffer.space is kept}

    @property
    def is_empty(self) -> bool:
        return not (self.read or self.written)


def insert_barriers(kernel: k.Kernel) -> k.Kernel:
    exchanged = _exchanged(kernel)
    if not exchanged:
        return kernel
    inserter = _Inserter(exchanged)
    kernel = k.with_body(kernel, inserter.body(kernel.body, _Pending(), ()))
    if any(isinstance(stmt, k.GridBarrier) for stmt in k.walk(kernel.body)):
        semaphore = k.WorkspaceParam(inserter.semaphore, zeroed=True)
        kernel = dataclasses.replace(kernel, params=(*kernel.params, semaphore))
    return kernel


def _exchanged(kernel: k.Kernel) -> frozenset[k.Buffer]:
    """The buffers in which threads read what other threads wrote."""
    shared = filter(None, map(access.declared_buffer, k.walk(kernel.body)))
    found = {buffer for buffer in shared if buffer.space is k.Space.SHARED}
    found.update(param.buffer for param in kernel.params if isinstance(param, k.WorkspaceParam))
    return frozenset(buffer for buffer in found if not buffer.private)


def _is_barrier(stmt: k.Stmt) -> bool:
    return isinstance(stmt, (k.Barrier, k.GridBarrier))


def _distributed(cond: Expr, body: tuple[k.Stmt, ...]) -> list[k.Stmt]:
    """Moves a condition to each statement, so that barriers can be between them.

    if (cond) { a; for { b } } -> if (cond) a; for { if (cond) b }
    """
    result: list[k.Stmt] = []
    for stmt in body:
        if isinstance(stmt, k.If):
            result += _distributed(land(cond, stmt.cond), stmt.body)
        elif isinstance(stmt, k.For):
            result.append(k.with_body(stmt, tuple(_distributed(cond, stmt.body))))
        elif isinstance(stmt, (k.Let, k.LetMisalignment, k.Alloc)):
            result.append(stmt)  # the following statements need it, and have their own conditions
        elif isinstance(stmt, k.LetValue):
            result.append(dataclasses.replace(stmt, pred=land(cond, stmt.pred)))
        else:
            result.append(k.If(cond, (stmt,)))
    return result


def _runs(loop: k.For) -> bool:
    """Whether the loop is known to have at least one iteration."""
    return (lower_bound(loop.extent) or 0) >= 1


class _Inserter:
    """The state of the pass.

    Attributes:
        exchanged: the buffers whose accesses barriers order.
        semaphore: the semaphore of the grid barriers.
    """

    def __init__(self, exchanged: frozenset[k.Buffer]) -> None:
        self.exchanged = exchanged
        self.semaphore = k.Buffer(_SEMAPHORE, DataType.Int32, k.Space.GLOBAL, ONE)

    def body(
        self, body: tuple[k.Stmt, ...], pending: _Pending, around: tuple[k.For, ...]
    ) -> tuple[k.Stmt, ...]:
        """`body` with barriers.

        Args:
            pending: the accesses before `body`; on return, those at its end.
            around: the loops around `body`.
        """
        result: list[k.Stmt] = []
        for stmt in body:
            if _is_barrier(stmt):
                pending.pass_barrier(stmt)
                result.append(stmt)
                continue
            reads, writes = self._accesses(stmt)
            if conflicts := pending.conflicts(reads, writes):
                result.append(self._barrier(conflicts))
                pending.pass_barrier(result[-1])
            if isinstance(stmt, k.If) and self.body(stmt.body, _Pending(), around) is not stmt.body:
                result += self.body(tuple(_distributed(stmt.cond, stmt.body)), pending, around)
                continue
            if isinstance(stmt, k.For) and (reads or writes):
                stmt = self._loop(stmt, pending, around)
            else:
                pending.add(reads, writes)
            result.append(stmt)
        return k.body_of(body, result)

    def _accesses(self, stmt: k.Stmt) -> tuple[set[k.Buffer], set[k.Buffer]]:
        """The exchanged buffers that `stmt` and its nested statements read and write."""
        reads: set[k.Buffer] = set()
        writes: set[k.Buffer] = set()
        for inner in k.walk((stmt,)):
            reads.update(self.exchanged.intersection(access.read_buffers(inner)))
            writes.update(self.exchanged.intersection(access.written_buffers(inner)))
        return reads, writes

    def _barrier(self, conflicts: set[k.Buffer]) -> k.Stmt:
        """A grid barrier if blocks exchange one of the buffers, else a block barrier.

        A grid barrier orders shared memory as well.
        """
        if any(buffer.space is k.Space.GLOBAL for buffer in conflicts):
            return k.GridBarrier(self.semaphore)
        return k.Barrier()

    def _loop(self, loop: k.For, pending: _Pending, around: tuple[k.For, ...]) -> k.For:
        before = pending.copy()
        body = self.body(loop.body, pending, (*around, loop))
        result = self._with_carried(k.with_body(loop, body), pending, around)
        if not _runs(loop):
            # The loop may have no iteration, and so no barrier.
            pending.add(before.read, before.written)
        return result

    def _with_carried(self, loop: k.For, pending: _Pending, around: tuple[k.For, ...]) -> k.For:
        """The loop with a barrier at the end of its body, if accesses of two iterations conflict."""
        body = loop.body
        carried = pending.copy()
        apart = self._written_apart(loop, around)
        for stmt in body:
            if carried.is_empty:
                break
            if _is_barrier(stmt):
                carried.pass_barrier(stmt)
                continue
            reads, writes = self._accesses(stmt)
            if conflicts := carried.conflicts(reads, writes - apart):
                barrier = self._barrier(conflicts)
                pending.pass_barrier(barrier)
                return dataclasses.replace(loop, body=(*body, barrier))
            if isinstance(stmt, k.For) and _runs(stmt):
                for inner in filter(_is_barrier, k.walk((stmt,))):
                    carried.pass_barrier(inner)
        return loop

    def _written_apart(self, loop: k.For, around: tuple[k.For, ...]) -> set[k.Buffer]:
        """The buffers of which each iteration of the loop writes different elements.

        One statement of the loop writes the buffer, and none reads it. Iterations of the loops `around` are
        compared when these are processed.
        """
        accesses: Counter[k.Buffer] = Counter()
        moving: set[k.Buffer] = set()
        for stmt, conditions in _under_conditions(loop.body, frozenset()):
            accesses.update(access.read_buffers(stmt))
            accesses.update(access.written_buffers(stmt))
            width = stmt.width if isinstance(stmt, k.Copy) else 1
            for ref in access.written_refs(stmt):
                if ref.buffer not in self.exchanged:
                    continue
                moves_past = _moves_past(_within(ref.index, around), width, loop)
                if moves_past or (
                    _tells_iterations_apart(ref.index, loop) and _are_digits(ref.index, width, conditions)
                ):
                    moving.add(ref.buffer)
        return {buffer for buffer in moving if accesses[buffer] == 1}


def _under_conditions(
    body: tuple[k.Stmt, ...], conditions: Conditions
) -> Iterator[tuple[k.Stmt, Conditions]]:
    """Yields the statements and their nested statements, with the conditions of the branches around each."""
    for stmt in body:
        own = conditions | conditions_of(stmt.cond) if isinstance(stmt, k.If) else conditions
        yield stmt, conditions
        yield from _under_conditions(k.children(stmt), own)


def _tells_iterations_apart(index: Expr, loop: k.For) -> bool:
    """Whether in each iteration of a loop the terms of an index that depend on it have other values."""
    own = [core for core, _ in index.terms if loop.symbol in core.free_symbols]
    if loop.symbol in own:
        return True
    iterations = as_int(loop.extent)
    if not own or iterations is None or iterations > MAX_UNROLL:
        return False
    if any(core.free_symbols != {loop.symbol} for core in own):
        return False
    values = {tuple(substitute(core, {loop.symbol: const(i)}) for core in own) for i in range(iterations)}
    return len(values) == iterations


def _are_digits(index: Expr, width: int, conditions: Conditions) -> bool:
    """Whether different values of the terms of an index access different elements, under these conditions.

    They do if the terms are like the digits of a number: `257 * row + 32 * step + lane` with
    `32 * step + lane < 257` and `lane < 32`.
    """
    digits = sorted(index.terms, key=lambda term: term[1])
    below: Expr = const(0)
    reach = width
    for core, step in digits:
        low, high = bounds(core)
        if low != 0 or high is None or step < reach:
            return False
        below = below + core * step
        reach += step * high
        for condition in conditions:
            if isinstance(condition, Lt) and condition.args[0] is below:
                limit = as_int(condition.args[1])
                reach = reach if limit is None else min(reach, limit - 1 + width)
    return True


def _within(index: Expr, around: tuple[k.For, ...]) -> Expr:
    """`index` without the terms of the loops around, if these terms depend on nothing else."""
    own = substitute(index, {loop.symbol: const(0) for loop in around})
    outside = {loop.symbol for loop in around}
    return own if (index - own).free_symbols <= outside else index


def _moves_past(index: Expr, width: int, loop: k.For) -> bool:
    """Whether different iterations of the loop access different elements: `width` elements at `index`."""
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
