"""Separates complete chunks of rows from chunks at the ends of a row, for reads from rings.

    for c: for j in V:                            for c:
        if whole(c, j, thread): s += a[..]          if whole(c, j, thread) for all j and threads:
        else: s += a[..] where it exists     ->         for j in V: s += a[..]
                                                    else: for j in V: (as before)

Checking which elements of a chunk exist takes as many instructions as reducing them. Nearly all chunks of a
row that is long enough for a ring are complete.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.guards import Conditions, conditions_of, guarded, necessary, with_pred
from fusewright.sym import FALSE, Expr, Le, Lt, Symbol, as_int, const, land, le, lnot, substitute


def separate_whole_chunks(kernel: k.Kernel) -> k.Kernel:
    rings = {ring.buffer for ring in kernel.rings}
    if not rings:
        return kernel
    threads = [
        k.index_symbol(axis, extent)
        for axis, extent in zip(k.THREAD_AXES, kernel.block)
        if as_int(extent) is not None
    ]
    return k.with_body(kernel, _separated(kernel.body, rings, frozenset(threads)))


def _separated(
    body: tuple[k.Stmt, ...], rings: set[k.Buffer], threads: frozenset[Symbol]
) -> tuple[k.Stmt, ...]:
    result: list[k.Stmt] = []
    for stmt in body:
        if isinstance(stmt, k.For) and _covers(stmt, rings) and not _is_of_rows(stmt):
            result.append(_of_chunks(stmt, threads))
        else:
            result.append(k.with_children(stmt, lambda inner: _separated(inner, rings, threads)))
    return k.body_of(body, result)


def _covers(loop: k.For, rings: set[k.Buffer]) -> bool:
    """Whether a loop reads vectors of a ring that may be partly outside the row."""
    copies = (stmt for stmt in k.walk(loop.body) if isinstance(stmt, k.Copy) and stmt.covering is not None)
    return any(not rings.isdisjoint(access.read_buffers(copy)) for copy in copies)


def _is_of_rows(loop: k.For) -> bool:
    """Whether a loop is not only over chunks.

    It may contain loops over chunks, or be over rows that the blocks of a cluster reduce together. In
    separate branches these blocks would wait for each other at different places.
    """
    inner = list(k.walk(loop.body))
    return any((isinstance(s, k.For) and not s.unroll) or isinstance(s, k.ClusterReduce) for s in inner)


def _of_chunks(loop: k.For, threads: frozenset[Symbol]) -> k.For:
    """The loop over chunks with a separate body for complete chunks, if these imply conditions in it."""
    moving = threads | {stmt.symbol for stmt in k.walk(loop.body) if isinstance(stmt, k.For)}
    conditions = (condition for stmt in k.walk(loop.body) for condition in access.conditions(stmt))
    everywhere: dict[Expr, Expr] = {}
    for part in (part for condition in conditions for part in conditions_of(condition)):
        least = None if moving.isdisjoint(part.free_symbols) else _everywhere(part, moving)
        if least is not None:
            everywhere[part] = least
    whole = land(*necessary(everywhere.values()))
    if not everywhere or as_int(whole) is not None:
        return loop
    implied = frozenset(everywhere)
    inside = k.rewritten(loop.body, lambda stmt: _where(stmt, implied))
    return k.with_body(loop, (k.If(whole, inside), k.If(lnot(whole), loop.body)))


def _everywhere(condition: Expr, moving: frozenset[Symbol]) -> Expr | None:
    """The condition that a comparison holds for all values of the `moving` symbols.

    None if it is not a comparison of sums with multiples of these symbols.
    """
    if not isinstance(condition, (Lt, Le)):
        return None
    low, high = condition.args
    slack = high - low - isinstance(condition, Lt)
    ends: dict[Symbol, Expr] = {}
    for core, coefficient in slack.terms:
        if moving.isdisjoint(core.free_symbols):
            continue
        end = (core.lo if coefficient > 0 else core.hi) if isinstance(core, Symbol) else None
        if end is None or (not isinstance(end, int) and as_int(end) is None):
            return None
        assert isinstance(core, Symbol)
        ends[core] = const(end) if isinstance(end, int) else end
    return le(0, substitute(slack, ends))


def _where(stmt: k.Stmt, implied: Conditions) -> Sequence[k.Stmt]:
    """The statement simplified under these conditions."""
    if isinstance(stmt, k.If):
        cond = _left(stmt.cond, implied)
        return () if cond is FALSE or not stmt.body else guarded([cond], stmt.body)
    if isinstance(stmt, (k.Copy, k.Combine)):
        pred = _left(stmt.pred, implied)
        return [stmt if pred is stmt.pred else with_pred(stmt, pred)]
    return [stmt] if k.children(stmt) or not isinstance(stmt, k.NESTING) else ()


def _left(cond: Expr, implied: Conditions) -> Expr:
    """The condition simplified under the implied ones."""
    parts = conditions_of(cond)
    if any(conditions_of(lnot(part)) <= implied for part in parts - implied):
        return FALSE
    return cond if parts.isdisjoint(implied) else land(*(parts - implied))
