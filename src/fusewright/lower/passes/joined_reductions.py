"""Joins independent reductions of a block: one exchange, with its barriers, serves all.

    block reduce a into s                   pair = a, b
    c = x * y                               c = x * y
    block reduce b into t          ->       block reduce pair into both
                                            s, t = both

The reductions must have one operation, the same axes and the same predicate. The earlier one moves to the
later one if nothing between them needs its result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.passes.registers import Registers
from fusewright.sym import ZERO, const

# Reductions that share an exchange, at most: each takes registers and room in the workspace.
MAX_JOINED = 4

# What a reduction may come after as well as before, if it needs no result of it and no other thread sees it.
_PRIVATE = (k.Copy, k.Window, k.Compute, k.Init, k.Combine, k.For, k.If, k.Let, k.LetValue, k.LetMisalignment)


def join_reductions(kernel: k.Kernel) -> k.Kernel:
    if sum(_may_join(stmt) for stmt in k.walk(kernel.body)) < 2:
        return kernel
    joiner = _Joiner()
    body = joiner.body(kernel.body)
    if body is kernel.body:
        return kernel
    used = {buffer for stmt in k.walk(body) for buffer in access.scratch_buffers(stmt)}
    idle = joiner.left - used
    kept = [stmt for stmt in body if not (isinstance(stmt, k.Alloc) and stmt.buffer in idle)]
    return joiner.made.declared(kernel, kept)


def _may_join(stmt: k.Stmt) -> bool:
    return isinstance(stmt, k.BlockReduce) and stmt.width == 1 and len(stmt.src) == len(stmt.dst)


@dataclass
class _Pending:
    """A reduction that waits for another.

    Attributes:
        place: its position among the statements made so far.
    """

    stmt: k.BlockReduce
    place: int


class _Joiner:
    """Attributes:
    made: buffers of joined reductions. left: workspaces that they do without.
    """

    def __init__(self) -> None:
        self.made = Registers()
        self.left: set[k.Buffer] = set()
        self._rooms: dict[tuple[k.Buffer, int], k.Buffer] = {}

    def body(self, body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
        result: list[k.Stmt] = []
        pending: list[_Pending] = []
        for stmt in body:
            stmt = k.with_children(stmt, self.body)
            if isinstance(stmt, k.BlockReduce) and _may_join(stmt):
                if pending and not _joins(stmt, pending):
                    self._flush(pending, result)
                pending.append(_Pending(stmt, len(result)))
                continue
            if pending and not _may_precede(stmt, pending):
                self._flush(pending, result)
            result.append(stmt)
        self._flush(pending, result)
        return k.body_of(body, result)

    def _flush(self, pending: list[_Pending], result: list[k.Stmt]) -> None:
        if len(pending) == 1:
            result.insert(pending[0].place, pending[0].stmt)
        elif pending:
            result += self._joined([each.stmt for each in pending])
        pending.clear()

    def _joined(self, reductions: Sequence[k.BlockReduce]) -> list[k.Stmt]:
        """One reduction of all their values side by side, and what brings these there and away."""
        first, count = reductions[0], len(reductions)
        given = [self._registers(ref, "given", count) for ref in first.dst]
        found = [self._registers(ref, "found", count) for ref in first.dst]
        body: list[k.Stmt] = []
        for i, each in enumerate(reductions):
            body += [k.Copy(k.Ref(buffer, const(i)), src) for buffer, src in zip(given, each.src)]
        into = tuple(k.Ref(buffer, ZERO) for buffer in found)
        self.left.update(buffer for buffer in first.workspace if buffer is not None)
        joined = dataclasses.replace(
            first,
            dst=into,
            src=tuple(k.Ref(buffer, ZERO) for buffer in given),
            workspace=tuple(
                None if buffer is None else self._room(buffer, count) for buffer in first.workspace
            ),
            width=count,
        )
        body += [k.Init(first.op, into, count), joined]
        for i, each in enumerate(reductions):
            body.append(k.Combine(each.op, each.dst, tuple(k.Ref(buffer, const(i)) for buffer in found)))
        return body

    def _registers(self, ref: k.Ref, what: str, count: int) -> k.Buffer:
        return self.made.new(f"{ref.buffer.name}_{what}{len(self.made)}", ref.buffer.dtype, count)

    def _room(self, workspace: k.Buffer, count: int) -> k.Buffer:
        """A workspace for `count` times as many values; the same for all reductions that had the same."""
        key = workspace, count
        if key not in self._rooms:
            name, size = f"{workspace.name}_of{count}", workspace.size * count
            self._rooms[key] = self.made.add(dataclasses.replace(workspace, name=name, size=size))
        return self._rooms[key]


def _joins(stmt: k.BlockReduce, pending: Sequence[_Pending]) -> bool:
    """Whether a reduction can be one with those that wait, which are alike."""
    first = pending[0].stmt
    types = [ref.buffer.dtype for ref in stmt.dst]
    return (
        len(pending) < MAX_JOINED
        and stmt.op is first.op
        and stmt.axes == first.axes
        and stmt.pred is first.pred
        and stmt.workspace == first.workspace
        and types == [ref.buffer.dtype for ref in first.dst]
        and not any(_needs(stmt, each.stmt) for each in pending)
    )


def _may_precede(stmt: k.Stmt, pending: Sequence[_Pending]) -> bool:
    """Whether a statement that follows the reductions may as well come before them."""
    return not any(_needs(stmt, each.stmt) for each in pending) and all(
        isinstance(inner, _PRIVATE)
        and not any(buffer.space is k.Space.SHARED for buffer in access.written_buffers(inner))
        for inner in k.walk((stmt,))
    )


def _needs(stmt: k.Stmt, reduction: k.BlockReduce) -> bool:
    """Whether a statement has to come after a reduction: it touches the result, or what is reduced."""
    results = {ref.buffer for ref in reduction.dst}
    sources = {src.buffer for src in reduction.src if isinstance(src, k.Ref)}
    touched, written = access.touched_in((stmt,)), access.written_in((stmt,))
    return not results.isdisjoint(touched) or not sources.isdisjoint(written)
