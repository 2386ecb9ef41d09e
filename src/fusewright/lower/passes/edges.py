"""Separates whole vectors from vectors at the edges of a row in loops that reduce lanes.

    for j in 8: s += a[j] if 0 <= i + j < n      ->      if 0 <= i and i + 7 < n: for j in 8: s += a[j]
                                                         else: for j in 8: s += a[j] if 0 <= i + j < n

A predicate for each element takes as many instructions as reducing it. Nearly all vectors are whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from fusewright.kernel import ir as k
from fusewright.lower.guards import Conditions, conditions_of, lanes_of, with_pred
from fusewright.sym import Expr, as_int, land, lnot


def separate_edges(kernel: k.Kernel) -> k.Kernel:
    return k.with_body(kernel, k.rewritten(kernel.body, _separated))


def _separated(stmt: k.Stmt) -> list[k.Stmt]:
    whole = _whole(stmt) if isinstance(stmt, k.For) else None
    if whole is None:
        return [stmt]
    assert isinstance(stmt, k.For)
    cond, implied = whole
    inside = tuple([_without(each, implied) for each in stmt.body])
    return [k.If(cond, (dataclasses.replace(stmt, body=inside),)), k.If(lnot(cond), (stmt,))]


def _whole(loop: k.For) -> tuple[Expr, Conditions] | None:
    """The condition that all lanes of a reducing loop exist, and the conditions in the loop that then hold.

    None if no condition depends on the lane, or if one is not monotonic in it.
    """
    width = as_int(loop.extent) or 1
    if not loop.unroll or width < 2 or any(k.children(stmt) for stmt in loop.body):
        return None
    if not any(isinstance(stmt, k.Combine) and _varies(stmt.pred, loop) for stmt in loop.body):
        return None
    found: dict[Expr, Expr] = {}
    for condition in _conditions(loop.body):
        if loop.symbol in condition.free_symbols and condition not in found:
            lanes = lanes_of(condition, loop.symbol, width)
            if lanes is None or abs(lanes.step) != 1:  # the lanes are not neighbours, as in a vector
                return None
            found[condition] = lanes.all
    return land(*found.values()), frozenset(found)


def _varies(pred: Expr, loop: k.For) -> bool:
    return loop.symbol in pred.free_symbols


def _conditions(body: Sequence[k.Stmt]) -> list[Expr]:
    predicates = (stmt.pred for stmt in body if isinstance(stmt, (k.Copy, k.Combine)))
    return [part for pred in predicates for part in sorted(conditions_of(pred), key=lambda e: e.order)]


def _without(stmt: k.Stmt, implied: Conditions) -> k.Stmt:
    """The statement without the implied conditions."""
    if not isinstance(stmt, (k.Copy, k.Combine)):
        return stmt
    own = conditions_of(stmt.pred)
    return stmt if own.isdisjoint(implied) else with_pred(stmt, land(*(own - implied)))
