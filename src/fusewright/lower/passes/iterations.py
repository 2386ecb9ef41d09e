"""Gives the first and the last iterations of a loop over vectors code of their own, where it is known what
holds in the others.

    for j in 4:                                     if 0 <= i: s += a[0] ..
        if 0 <= 256*j + i < n: s += a[j]     ->     for j in 2: s += a[j + 1]
                                                    if 768 + i < n: s += a[3]

In a row of constant length the first vectors of threads may begin before the row, and the last ones end
beyond it. All others are whole. The CUDA compiler unrolls such loops, but does not see that: each vector
would have its predicates, the fills of its loads and, at the edges of rows, two branches.
"""

from __future__ import annotations

import dataclasses
from itertools import groupby

from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.guards import conditions_of, guarded, with_pred
from fusewright.sym import FALSE, Expr, Or, Symbol, as_int, const, substitute, symbol

# Loops of more iterations are not looked at: each condition is decided in each of them.
MOST_ITERATIONS = 32
# What holds changes at the edges of a row. Where it changes more often, it is not the row's ends that differ.
MOST_PARTS = 3
_PLAIN = (k.For, k.If, k.Copy, k.Window, k.Convert, k.Compute, k.Init, k.Combine)


def separate_iterations(kernel: k.Kernel) -> k.Kernel:
    return k.with_body(kernel, _separated(kernel.body))


def _separated(body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
    result: list[k.Stmt] = []
    for stmt in body:
        parts = _parts(stmt) if isinstance(stmt, k.For) else None
        if parts is None:
            result.append(k.with_children(stmt, _separated))
            continue
        assert isinstance(stmt, k.For)
        for start, count in parts:
            result += _iterations(stmt, start, count)
    return k.body_of(body, result)


def _parts(loop: k.For) -> list[tuple[int, int]] | None:
    """(first, count) of the runs of iterations in which the same conditions are known to hold, or not to;
    None where these do not differ, or differ too often.
    """
    extent = as_int(loop.extent) or 0
    if not 1 < extent <= MOST_ITERATIONS:
        return None
    statements = list(k.walk(loop.body))
    is_plain = all(isinstance(stmt, _PLAIN) for stmt in statements)
    if not is_plain or not any(_is_of_vector(stmt, loop.unroll) for stmt in statements):
        return None
    conditions = {
        part
        for stmt in statements
        for condition in access.conditions(stmt)
        for part in _comparisons(condition)
        if loop.symbol in part.free_symbols
    }
    if not conditions:
        return None
    listed = sorted(conditions, key=lambda e: e.order)

    def known(iteration: int) -> list[int | None]:
        at: dict[Symbol, Expr] = {loop.symbol: const(iteration)}
        return [as_int(substitute(condition, at)) for condition in listed]

    runs = [list(run) for _, run in groupby(range(extent), key=known)]
    return [(run[0], len(run)) for run in runs] if 1 < len(runs) <= MOST_PARTS else None


def _is_of_vector(stmt: k.Stmt, unrolled: bool) -> bool:
    """Whether a statement moves a vector, or goes over one in registers, as it does in unrolled loops."""
    return (unrolled and isinstance(stmt, k.For)) or (isinstance(stmt, k.Copy) and stmt.width > 1)


def _comparisons(condition: Expr) -> list[Expr]:
    """The comparisons that a condition is made of."""
    parts = condition.args if isinstance(condition, Or) else conditions_of(condition)
    if parts == frozenset((condition,)):
        return [condition]
    return [comparison for part in parts for comparison in _comparisons(part)]


def _iterations(loop: k.For, start: int, count: int) -> tuple[k.Stmt, ...]:
    """`count` iterations of the loop from `start` on."""
    if count == 1:
        return tuple(each for stmt in loop.body for each in _with(stmt, {loop.symbol: const(start)}))
    again = symbol(loop.symbol.name, 0, count - 1)
    body = tuple(each for stmt in loop.body for each in _with(stmt, {loop.symbol: again + start}))
    return (dataclasses.replace(loop, symbol=again, extent=const(count), body=body),)


def _with(stmt: k.Stmt, values: dict[Symbol, Expr]) -> list[k.Stmt]:
    """The statement with these values of symbols, without guards that always hold."""
    stmt = access.map_expressions(stmt, lambda e: substitute(e, values))
    stmt = k.with_children(stmt, lambda body: tuple(each for inner in body for each in _with(inner, values)))
    if isinstance(stmt, k.If):
        return [] if stmt.cond is FALSE or not stmt.body else guarded([stmt.cond], stmt.body)
    if isinstance(stmt, k.Combine) and stmt.pred is FALSE:
        return []
    if isinstance(stmt, k.Copy) and stmt.pred is FALSE and stmt.fill is None:
        return []
    if isinstance(stmt, k.Copy) and stmt.pred is k.TRUE:
        stmt = with_pred(stmt, stmt.pred)
    if isinstance(stmt, k.For) and not stmt.body:
        return []
    return [stmt]
