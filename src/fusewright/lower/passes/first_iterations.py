"""Moves stores that only the first iteration of a loop executes in front of the loop.

    for j:                                          if threadIdx.x == 0: s[r] = m
        if j + threadIdx.x == 0: s[r] = m    ->     for j:
        y[j] = x[j] * m                                 y[j] = x[j] * m

The thread with a row's first element stores the row's result. In the loop, each iteration would have a
branch, and the CUDA compiler moves no instruction across branches.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.guards import Conditions, conditions_of, guarded
from fusewright.sym import ZERO, Eq, Symbol, as_int, is_nonneg, substitute


def store_before_loops(kernel: k.Kernel) -> k.Kernel:
    return k.with_body(kernel, k.rewritten(kernel.body, _with_stores_before))


def _with_stores_before(stmt: k.Stmt) -> Sequence[k.Stmt]:
    if not isinstance(stmt, k.For) or not as_int(stmt.extent):
        return [stmt]
    moved = tuple(inner for inner in stmt.body if _is_of_first(inner, stmt))
    if not moved:
        return [stmt]
    kept = tuple(inner for inner in stmt.body if inner not in moved)
    return (*_at_first(moved, stmt), *([k.with_body(stmt, kept)] if kept else []))


def _at_first(body: tuple[k.Stmt, ...], loop: k.For) -> tuple[k.Stmt, ...]:
    """The statements in the loop's first iteration, without guards that always hold there."""

    def at(stmt: k.Stmt) -> Sequence[k.Stmt]:
        stmt = access.map_expressions(stmt, lambda e: substitute(e, {loop.symbol: ZERO}))
        return guarded([stmt.cond], stmt.body) if isinstance(stmt, k.If) else [stmt]

    return k.rewritten(body, at)


def _is_of_first(stmt: k.Stmt, loop: k.For) -> bool:
    """Whether a statement only stores registers in the first iteration, and could be in front of the loop."""
    cond = stmt.cond if isinstance(stmt, k.If) else stmt.pred if isinstance(stmt, k.Copy) else k.TRUE
    own = list(k.walk((stmt,)))
    if not _is_zero(loop.symbol, conditions_of(cond)) or not all(map(_stores, k.children(stmt) or own)):
        return False
    others = [inner for inner in k.walk(loop.body) if inner not in own]
    written = set(access.writers(others))
    touched = written | set(access.readers(others))
    if not touched.isdisjoint(access.writers(own)):
        return False
    named = access.defined_symbols(others)
    symbols = {symbol for each in own for e in access.expressions(each) for symbol in e.free_symbols}
    return named.isdisjoint(symbols) and written.isdisjoint(access.readers(own))


def _stores(stmt: k.Stmt) -> bool:
    """Whether a statement copies a register to global memory."""
    return (
        isinstance(stmt, k.Copy)
        and stmt.fill is None
        and stmt.dst.buffer.space is k.Space.GLOBAL
        and isinstance(stmt.src, k.Ref)
        and stmt.src.buffer.space is k.Space.LOCAL
    )


def _is_zero(symbol: Symbol, conditions: Conditions) -> bool:
    """Whether one of the conditions implies that `symbol` is 0.

    It does if it says that a sum of terms >= 0 is 0 and one of the terms is a multiple of `symbol`.
    """
    for cond in conditions:
        if isinstance(cond, Eq) and ZERO in cond.args:
            [total] = [arg for arg in cond.args if arg is not ZERO] or [ZERO]
            terms = [core * factor for core, factor in total.terms]
            is_term = any(core is symbol and factor > 0 for core, factor in total.terms)
            if is_term and total.constant >= 0 and all(map(is_nonneg, terms)):
                return True
    return False
