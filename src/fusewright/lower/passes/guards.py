"""Merges neighbouring guarded statements with the same condition into one.

Every node's work was given a guard of its own, between which barriers may stand; where none does, `if (p) a;
if (p) b;` becomes `if (p) { a; b; }`. A loop whose whole body stands under one condition that it does not
change moves inside.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from fusewright.kernel import ir as k
from fusewright.sym import Expr

_COLLECTIVE = (k.BlockReduce, k.BlockScan, k.GridReduce, k.Barrier)


def merge_guards(kernel: k.Kernel) -> k.Kernel:
    return k.with_body(kernel, _merge(kernel.body))


def _merge(body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
    # Neighbours under one condition are collected before their common body is merged, once.
    runs: list[list[k.Stmt]] = []
    for stmt in body:
        if isinstance(stmt, k.For):
            stmt = _hoist_guard(k.with_body(stmt, _merge(stmt.body)))
        if isinstance(stmt, k.If) and runs and _condition(runs[-1][0]) is stmt.cond:
            runs[-1].append(stmt)
        else:
            runs.append([stmt])
    return k.body_of(body, [_merged(run) for run in runs])


def _condition(stmt: k.Stmt) -> Expr | None:
    return stmt.cond if isinstance(stmt, k.If) else None


def _merged(run: Sequence[k.Stmt]) -> k.Stmt:
    """One statement of several with the same condition, or of one."""
    first = run[0]
    if not isinstance(first, k.If):
        return first
    guarded = first.body if len(run) == 1 else tuple(s for stmt in run for s in k.children(stmt))
    return k.with_body(first, _merge(guarded))


def _hoist_guard(loop: k.For) -> k.Stmt:
    """for { if (p) body } -> if (p) for { body }, where p does not depend on the loop."""
    if len(loop.body) != 1 or not isinstance(loop.body[0], k.If):
        return loop
    guard = loop.body[0]
    if loop.symbol in guard.cond.free_symbols or any(isinstance(s, _COLLECTIVE) for s in k.walk(guard.body)):
        return loop
    return k.If(guard.cond, (dataclasses.replace(loop, body=guard.body),))
