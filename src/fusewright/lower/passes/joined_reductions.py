"""Joins independent reductions of a block or cluster, so that one exchange with its barriers serves all.

    block reduce a into s                   pair = a, b
    store s                                 c = x * y
    c = x * y                      ->       block reduce pair into both
    block reduce b into t                   s, t = both
                                            store s

The reductions must have the same operation, axes and predicate. The earlier one moves to the later one. Short
statements between them that need its result move behind both; no other statement between them may need it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.guards import zero
from fusewright.lower.passes.registers import Registers
from fusewright.sym import ZERO, Expr, const

# The most reductions that share an exchange. Each takes registers and room in the workspace.
MAX_JOINED = 4

# Statements that a reduction may move behind, if they do not need its result and no other thread sees them.
_PRIVATE = (k.Copy, k.Window, k.Compute, k.Init, k.Combine, k.For, k.If, k.Let, k.LetValue, k.LetMisalignment)
# Statements that may move behind further reductions: they define no symbol and are short.
_WAITING = (k.Copy, k.Compute, k.Init, k.Combine, k.If)

_Reduction = k.BlockReduce | k.ClusterReduce


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


def _may_join(stmt: k.Stmt) -> TypeGuard[_Reduction]:
    if not isinstance(stmt, (k.BlockReduce, k.ClusterReduce)):
        return False
    return stmt.width == 1 and len(stmt.src) == len(stmt.dst)


@dataclass(frozen=True)
class _Group:
    """Reductions that become one.

    Attributes:
        members: the positions of the reductions.
        waiting: the positions of statements between them that move behind them.
        end: the position after the last statement that the reductions move behind.
    """

    members: tuple[int, ...]
    waiting: tuple[int, ...]
    end: int


class _Joiner:
    """The state of the pass.

    Attributes:
        made: the added buffers.
        left: the workspaces that joined reductions no longer use.
    """

    def __init__(self) -> None:
        self.made = Registers()
        self.left: set[k.Buffer] = set()
        self._rooms: dict[tuple[k.Buffer, int], k.Buffer] = {}

    def body(self, body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
        stmts = [k.with_children(stmt, self.body) for stmt in body]
        result: list[k.Stmt] = []
        place = 0
        while place < len(stmts):
            group = _group(stmts, place)
            if group is None:
                result.append(stmts[place])
                place += 1
                continue
            moved = {*group.members, *group.waiting}
            result += [stmts[n] for n in range(place, group.end) if n not in moved]
            result += self._joined([stmt for n in group.members if _may_join(stmt := stmts[n])])
            result += [stmts[n] for n in group.waiting]
            place = group.end
        return k.body_of(body, result)

    def _joined(self, reductions: Sequence[_Reduction]) -> list[k.Stmt]:
        """One reduction of the values of all `reductions`, with copies to and from its registers."""
        first, count = reductions[0], len(reductions)
        given = [self._registers(ref, "given", count) for ref in first.dst]
        found = [self._registers(ref, "found", count) for ref in first.dst]
        body: list[k.Stmt] = []
        for i, each in enumerate(reductions):
            body += [_taken(k.Ref(buffer, const(i)), src, each.pred) for buffer, src in zip(given, each.src)]
        into = tuple(k.Ref(buffer, ZERO) for buffer in found)
        joined: k.Stmt = dataclasses.replace(
            first,
            dst=into,
            src=tuple(k.Ref(buffer, ZERO) for buffer in given),
            workspace=self._rooms_for(first.workspace, count),
            width=count,
        )
        if isinstance(joined, k.ClusterReduce):
            joined = dataclasses.replace(joined, exchange=self._rooms_for(joined.exchange, count))
        body += [k.Init(first.op, into, count), joined]
        for i, each in enumerate(reductions):
            body.append(k.Combine(each.op, each.dst, tuple(k.Ref(buffer, const(i)) for buffer in found)))
        return body

    def _registers(self, ref: k.Ref, what: str, count: int) -> k.Buffer:
        return self.made.new(f"{ref.buffer.name}_{what}{len(self.made)}", ref.buffer.dtype, count)

    def _rooms_for(self, scratch: Sequence[k.Buffer | None], count: int) -> tuple[Any, ...]:
        self.left.update(buffer for buffer in scratch if buffer is not None)
        return tuple([None if buffer is None else self._room(buffer, count) for buffer in scratch])

    def _room(self, workspace: k.Buffer, count: int) -> k.Buffer:
        """A workspace for `count` times as many values.

        Reductions that shared a workspace share the new one.
        """
        key = workspace, count
        if key not in self._rooms:
            name, size = f"{workspace.name}_of{count}", workspace.size * count
            self._rooms[key] = self.made.add(dataclasses.replace(workspace, name=name, size=size))
        return self._rooms[key]


def _taken(dst: k.Ref, src: k.Operand, pred: Expr) -> k.Copy:
    """A copy of a reduction's operand. In memory it may exist only where the reduction reads it."""
    is_register = not isinstance(src, k.Ref) or src.buffer.space is k.Space.LOCAL
    if is_register or pred is k.TRUE:
        return k.Copy(dst, src)
    return k.Copy(dst, src, pred=pred, fill=zero(dst.buffer.dtype))


def _group(stmts: Sequence[k.Stmt], start: int) -> _Group | None:
    """The reductions from `start` on that become one; None if there is only one."""
    first = stmts[start]
    if not _may_join(first):
        return None
    reductions, members = [first], [start]
    waiting: list[int] = []
    found: _Group | None = None
    for n in range(start + 1, len(stmts)):
        stmt = stmts[n]
        is_free = not any(_conflict(stmt, stmts[other]) for other in waiting)
        if _may_join(stmt):
            if not is_free or not _joins(stmt, reductions):
                break
            reductions.append(stmt)
            members.append(n)
            found = _Group(tuple(members), tuple(waiting), n + 1)
        elif is_free and _may_precede(stmt, reductions):
            if found is not None and len(found.waiting) == len(waiting):
                found = dataclasses.replace(found, end=n + 1)
        elif _may_wait(stmt):
            waiting.append(n)
        else:
            break
    return found


def _joins(stmt: _Reduction, reductions: Sequence[_Reduction]) -> bool:
    """Whether a reduction can be joined with others that have been joined already."""
    first = reductions[0]
    types = [ref.buffer.dtype for ref in stmt.dst]
    return (
        len(reductions) < MAX_JOINED
        and type(stmt) is type(first)
        and stmt.op is first.op
        and stmt.axes == first.axes
        and stmt.pred is first.pred
        and access.scratch_buffers(stmt) == access.scratch_buffers(first)
        and types == [ref.buffer.dtype for ref in first.dst]
        and not any(_needs(stmt, each) for each in reductions)
    )


def _may_precede(stmt: k.Stmt, reductions: Sequence[_Reduction]) -> bool:
    """Whether a statement that follows reductions may move in front of them."""
    return not any(_needs(stmt, each) for each in reductions) and _is_private(stmt, _PRIVATE)


def _may_wait(stmt: k.Stmt) -> bool:
    """Whether a statement that follows a reduction may move behind later ones."""
    return _is_private(stmt, _WAITING)


def _is_private(stmt: k.Stmt, kinds: tuple[type[k.Stmt], ...]) -> bool:
    """Whether a statement and its nested statements are of these kinds and write no shared memory."""
    return all(
        isinstance(inner, kinds)
        and not any(buffer.space is k.Space.SHARED for buffer in access.written_buffers(inner))
        for inner in k.walk((stmt,))
    )


def _conflict(a: k.Stmt, b: k.Stmt) -> bool:
    """Whether two statements have to stay in their order."""
    written = access.written_in((a,)), access.written_in((b,))
    touched = access.touched_in((a,)), access.touched_in((b,))
    return not (written[0].isdisjoint(touched[1]) and written[1].isdisjoint(touched[0]))


def _needs(stmt: k.Stmt, reduction: _Reduction) -> bool:
    """Whether a statement has to stay behind a reduction: it accesses the result or writes an operand."""
    results = {ref.buffer for ref in reduction.dst}
    sources = {src.buffer for src in reduction.src if isinstance(src, k.Ref)}
    touched, written = access.touched_in((stmt,)), access.written_in((stmt,))
    return not results.isdisjoint(touched) or not sources.isdisjoint(written)
