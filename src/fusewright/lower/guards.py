"""Statements under the condition that their threads have something to do, or something to read."""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.core.dtype import DataType
from fusewright.kernel import ir as k
from fusewright.sym import Expr, as_int, const, land, symbol


def guarded(guards: Sequence[Expr], body: Sequence[k.Stmt]) -> list[k.Stmt]:
    cond = land(*guards) if guards else k.TRUE
    return list(body) if as_int(cond) == 1 else [k.If(cond, tuple(body))]


def or_zero(guards: Sequence[Expr], dst: k.Ref, width: int, body: Sequence[k.Stmt]) -> list[k.Stmt]:
    """`body`, which sets `width` elements from `dst` on, under the guards; else these are zero.

    Others may read them where the guards do not hold: nothing depends on what they find, but it is defined.
    """
    if not guards:
        return list(body)
    fill = zero(dst.buffer.dtype)
    if width == 1:
        filled: k.Stmt = k.Copy(dst, fill)
    else:
        lane = symbol("lane", lo=0, hi=width - 1)
        each = k.Copy(k.Ref(dst.buffer, dst.index + lane), fill)
        filled = k.For(lane, const(width), (each,), unroll=True)
    return [filled] if as_int(land(*guards)) == 0 else [filled, *guarded(guards, body)]


def zero(dtype: DataType) -> k.Imm:
    """Zero, or False."""
    return k.Imm(dtype.zero, dtype)
