"""Statements under the condition that their threads have something to do."""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.kernel import ir as k
from fusewright.sym import Expr, as_int, land


def guarded(guards: Sequence[Expr], body: Sequence[k.Stmt]) -> list[k.Stmt]:
    cond = land(*guards) if guards else k.TRUE
    return list(body) if as_int(cond) == 1 else [k.If(cond, tuple(body))]
