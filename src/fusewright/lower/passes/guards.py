"""Merges neighbouring guarded statements with the same condition into one.

Barriers were placed while every node's work stood under a guard of its own; now `if (p) a; if (p) b;`
becomes `if (p) { a; b; }`. A loop whose whole body stands under one condition that it does not change moves
inside.
"""

from __future__ import annotations

import dataclasses

from fusewright.kernel import ir as k
from fusewright.sym import Expr

_COLLECTIVE = (k.BlockReduce, k.GridReduce, k.Barrier)


def merge_guards(kernel: k.Kernel) -> k.Kernel:
    return dataclasses.replace(kernel, body=_merge(kernel.body))


def _merge(body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
    # Neighbours under one condition are collected before their common body is merged, once.
    runs: list[tuple[Expr | None, list[k.Stmt]]] = []
    for stmt in body:
        if isinstance(stmt, k.For):
            stmt = _hoist_guard(dataclasses.replace(stmt, body=_merge(stmt.body)))
        cond, inner = (stmt.cond, stmt.body) if isinstance(stmt, k.If) else (None, (stmt,))
        if cond is not None and runs and runs[-1][0] is cond:
            runs[-1][1].extend(inner)
        else:
            runs.append((cond, list(inner)))
    result: list[k.Stmt] = []
    for cond, collected in runs:
        if cond is None:
            result += collected
        else:
            result.append(k.If(cond, _merge(tuple(collected))))
    return tuple(result)


def _hoist_guard(loop: k.For) -> k.Stmt:
    """for { if (p) body } -> if (p) for { body }, where p does not depend on the loop."""
    if len(loop.body) != 1 or not isinstance(loop.body[0], k.If):
        return loop
    guard = loop.body[0]
    if loop.symbol in guard.cond.free_symbols or any(isinstance(s, _COLLECTIVE) for s in k.walk(guard.body)):
        return loop
    return k.If(guard.cond, (dataclasses.replace(loop, body=guard.body),))
