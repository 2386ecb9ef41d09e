"""Deals the rows of a block to teams of its threads, where one role loads them all.

    for k < n: row k            ->      team 0: for k < (n + 1) / 2: row 2k
                                        team 1: for k < n / 2: row 2k + 1

One team reduces its row as that arrives while the other reads its own again, writes and leaves room. So the
block waits for neither alone: stages become empty, and are filled, at an even rate, and no barrier stops all
threads. Each team has workspaces of its own, and mbarriers of its own that say which stages of its rows are
full: one that told of the rows of all teams could end two phases while a team looks at none of them, and
parities tell neighbouring phases apart alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from fusewright.core.enums import ParallelType
from fusewright.core.errors import ScheduleError
from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.sym import Expr, Symbol, bounds, ceildiv, const, substitute, symbol


def take_turns(
    kernel: k.Kernel, declared: int, axis: ParallelType, count: int, rings: Sequence[k.Ring]
) -> tuple[k.Kernel, list[tuple[k.Stmt, ...]]]:
    """(the kernel with what is declared alone, what each team does), of `count` threads along `axis` each.

    The first `declared` statements declare what the others use: one loop, over rows.
    Raises ScheduleError where anything else passes from one row to the next.
    """
    before, work = kernel.body[:declared], kernel.body[declared:]
    if len(work) != 1 or not isinstance(work[0], k.For):
        raise ScheduleError(
            "teams of threads take rows in turns, but the block does more than one loop over rows",
            hint="inline everything into that loop, or give warp_specialize one team",
        )
    exchanged = {buffer for ring in rings for buffer in (ring.buffer, ring.full, ring.empty)}
    shared = [s.buffer for s in before if isinstance(s, k.Alloc) and s.buffer.space is k.Space.SHARED]
    own = [buffer for buffer in shared if buffer not in exchanged]
    bodies: list[tuple[k.Stmt, ...]] = []
    result = list(before)
    for team in range(rings[0].teams):
        table = {b: dataclasses.replace(b, name=f"{b.name}_team{team}") for b in own} if team else {}
        result += map(k.Alloc, table.values())
        bodies.append((_Team(work[0], team, axis, count, rings, table).rows(),))
    return k.with_body(kernel, tuple(result)), bodies


def tell_teams(body: tuple[k.Stmt, ...], ring: k.Ring, row: Symbol, rows_stages: Expr) -> tuple[k.Stmt, ...]:
    """The statements that fill a ring, of whose loops `row` counts the rows, of so many stages each; the
    mbarriers of the team whose row it is say that a stage is full.
    """
    if ring.teams == 1:
        return body
    least, _ = bounds(rows_stages)
    if least is None or least * ring.teams < ring.stages:
        raise ScheduleError(
            f"{ring.buffer.name} has {ring.stages} stages, and a row may be of {least}: a team could be two "
            "of its rows behind what fills them",
            expected=f"at most {ring.teams} rows of stages",
        )
    index = row % ring.teams * ring.stages + substitute(ring.filled, {row: const(0)})
    return _redirected(body, ring.full, index)


def _redirected(body: tuple[k.Stmt, ...], full: k.Buffer, index: Expr) -> tuple[k.Stmt, ...]:
    result = []
    for stmt in body:
        if isinstance(stmt, (k.Arrive, k.BulkCopy)) and stmt.mbarrier.buffer is full:
            stmt = dataclasses.replace(stmt, mbarrier=k.Ref(full, index))
        result.append(k.with_children(stmt, lambda inner: _redirected(inner, full, index)))
    return tuple(result)


class _Team:
    """What one team does. `table`: the buffers in shared memory that it has instead of the first team's."""

    def __init__(
        self,
        rows: k.For,
        team: int,
        axis: ParallelType,
        count: int,
        rings: Sequence[k.Ring],
        table: dict[k.Buffer, k.Buffer],
    ) -> None:
        self._loop, self._number, self._rings, self._table = rows, team, rings, table
        self._teams = rings[0].teams
        self._turn = symbol(f"{rows.symbol.name}_turn{team}", lo=0, hi=rows.symbol.hi)
        self._thread, self._first, self._count = k.index_name(axis), team * count, count

    def rows(self) -> k.For:
        extent = ceildiv(self._change(self._loop.extent) - self._number, self._teams)
        return k.For(self._turn, extent, self._changed(self._loop.body), self._loop.unroll)

    def _change(self, e: Expr) -> Expr:
        """An expression as this team has it: its threads are numbered from 0, and its rows are its own."""
        values: dict[Symbol, Expr] = {self._loop.symbol: self._turn * self._teams + self._number}
        for thread in e.free_symbols:
            if thread.name == self._thread:
                here = symbol(self._thread, lo=self._first, hi=self._first + self._count - 1)
                values[thread] = here - self._first
        return substitute(e, values)

    def _changed(self, body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
        return tuple(
            k.with_children(access.map_expressions(stmt, self._change), self._changed)
            if k.children(stmt)
            else access.map_buffers(access.map_expressions(self._waiting(stmt), self._change), self._table)
            for stmt in body
        )

    def _waiting(self, stmt: k.Stmt) -> k.Stmt:
        """The statement; if it waits for a stage to be full, for that of the team's own row."""
        for ring in self._rings:
            if isinstance(stmt, k.Wait) and stmt.mbarrier.buffer is ring.full:
                [number] = {n for n in ring.read if n % ring.stages is stmt.mbarrier.index}
                index = self._number * ring.stages + substitute(number, {self._loop.symbol: const(0)})
                return k.Wait(k.Ref(ring.full, index), self._loop.symbol // self._teams)
        return stmt
