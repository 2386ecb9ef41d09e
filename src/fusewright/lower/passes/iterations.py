"""Separates the first and the last iterations of a loop over vectors if all guards hold in the others.

    for j in 4:                                     if 0 <= i: s += a[0] ..
        if 0 <= 256*j + i < n: s += a[j]     ->     for j in 2: s += a[j + 1]
                                                    if 768 + i < n: s += a[3]

In a row of constant length, the first vectors of threads may start before the row, and the last ones may end
beyond it. All others are whole. The CUDA compiler unrolls such loops but does not recognize this, so each
vector would have predicates, fills and, at the edges of rows, two branches.

    for j in ceil(n / 64):                              for j in n // 64:
        for u in 32:                                        for u in 32: s += a[64*j + 2*u + t]
            if 64*j + 2*u + t < n: s += a[..]    ->     if n // 64 < ceil(n / 64):
                                                            for u in 32: if ..: s += a[64*(n // 64) + ..]

In a row whose length is known only at the call, all iterations except the last are whole. The last one is
separated if the loop loads many single words that are marked as read once: predicates take as many
instructions as elements.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import groupby

from fusewright.core.enums import CacheOp
from fusewright.core.hardware import REGISTER_BYTES
from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.guards import conditions_of, guarded, with_pred
from fusewright.sym import (
    FALSE,
    Expr,
    Or,
    Symbol,
    as_int,
    ceildiv_parts,
    const,
    floordiv,
    lt,
    substitute,
    symbol,
)

# The most iterations of a loop that is separated. The pass evaluates each condition in each iteration.
MOST_ITERATIONS = 32
# The most runs of iterations with the same known conditions: the beginning, the middle and the end of a row.
MOST_PARTS = 3
_PLAIN = (k.For, k.If, k.Copy, k.Window, k.Convert, k.Compute, k.Init, k.Combine)


def separate_iterations(kernel: k.Kernel) -> k.Kernel:
    uses = Counter(buffer for stmt in k.walk(kernel.body) for buffer in access.read_buffers(stmt))
    made: list[k.Buffer] = []
    body = _separated(kernel.body, uses, made)
    return k.with_body(kernel, k.body_of(kernel.body, (*map(k.Alloc, made), *body)))


def _separated(body: tuple[k.Stmt, ...], uses: Counter[k.Buffer], made: list[k.Buffer]) -> tuple[k.Stmt, ...]:
    """`body` with separate iterations.

    Args:
        uses: the number of statements of the kernel that read each buffer.
        made: the list to which new buffers are added.
    """
    result: list[k.Stmt] = []
    for stmt in body:
        parts = _parts(stmt) if isinstance(stmt, k.For) else None
        whole = _whole_iterations(stmt, uses) if isinstance(stmt, k.For) and parts is None else None
        if whole is not None:
            result += whole[0]
            made.extend(whole[1])
            continue
        if parts is None:
            result.append(k.with_children(stmt, lambda inner: _separated(inner, uses, made)))
            continue
        assert isinstance(stmt, k.For)
        for start, count in parts:
            result += _iterations(stmt, start, count)
    return k.body_of(body, result)


def _parts(loop: k.For) -> list[tuple[int, int]] | None:
    """The runs of iterations in which the same conditions are known, as pairs (first iteration, count).

    None if all iterations are alike, or if there are too many runs.
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


def _whole_iterations(loop: k.For, uses: Counter[k.Buffer]) -> tuple[list[k.Stmt], list[k.Buffer]] | None:
    """Separates the last iteration of a loop over a length that is known only at the call.

    The last iteration has its own registers, so that elements that it does not load do not come from another
    iteration.

    Returns:
        The statements and the new registers; None if the other iterations need guards as well, or if the loop
        loads no single words.
    """
    parts = ceildiv_parts(loop.extent)
    statements = list(k.walk(loop.body))
    if loop.unroll or parts is None or as_int(parts[1]) is None:
        return None
    if not all(isinstance(stmt, _PLAIN) for stmt in statements):
        return None
    single = [stmt for stmt in statements if isinstance(stmt, k.Copy) and _is_single(stmt, loop.symbol)]
    count = floordiv(*parts)
    again = symbol(loop.symbol.name, 0, count - 1)
    if not any(substitute(stmt.pred, {loop.symbol: again}) is k.TRUE for stmt in single):
        return None
    inside = Counter(buffer for stmt in statements for buffer in access.read_buffers(stmt))
    loaded = dict.fromkeys(stmt.dst.buffer for stmt in single)
    own = {b: replace(b, name=f"{b.name}_last") for b in loaded if uses[b] == inside[b]}
    last = _with(loop.body, {loop.symbol: count}, own)
    return [_part(loop, again, count, again), k.If(lt(count, loop.extent), last)], [*own.values()]


def _part(loop: k.For, index: Symbol, extent: Expr, value: Expr) -> k.For:
    """A loop over some of the iterations, where `value` is the value of the original loop's symbol."""
    return replace(loop, symbol=index, extent=extent, body=_with(loop.body, {loop.symbol: value}))


def _is_single(copy: k.Copy, iteration: Symbol) -> bool:
    """Whether a copy loads at most one word, marked as read once, that does not exist in all iterations."""
    source = copy.src
    if not isinstance(source, k.Ref) or copy.cache is not CacheOp.streaming:
        return False
    return copy.width * source.buffer.dtype.size <= REGISTER_BYTES and iteration in copy.pred.free_symbols


def _is_of_vector(stmt: k.Stmt, unrolled: bool) -> bool:
    """Whether a statement copies a vector, or is a loop over the elements of one, as in unrolled loops."""
    return (unrolled and isinstance(stmt, k.For)) or (isinstance(stmt, k.Copy) and stmt.width > 1)


def _comparisons(condition: Expr) -> list[Expr]:
    """The comparisons in a condition."""
    parts = condition.args if isinstance(condition, Or) else conditions_of(condition)
    if parts == frozenset((condition,)):
        return [condition]
    return [comparison for part in parts for comparison in _comparisons(part)]


def _iterations(loop: k.For, start: int, count: int) -> tuple[k.Stmt, ...]:
    """`count` iterations of the loop from `start` on."""
    if count == 1:
        return _with(loop.body, {loop.symbol: const(start)})
    again = symbol(loop.symbol.name, 0, count - 1)
    return (_part(loop, again, const(count), again + start),)


def _with(
    body: tuple[k.Stmt, ...], values: dict[Symbol, Expr], buffers: dict[k.Buffer, k.Buffer] | None = None
) -> tuple[k.Stmt, ...]:
    """`body` with values for symbols and other buffers, and without guards that always hold."""

    def change(stmt: k.Stmt) -> list[k.Stmt]:
        stmt = access.map_expressions(stmt, lambda e: substitute(e, values))
        stmt = access.map_buffers(stmt, buffers) if buffers else stmt
        if isinstance(stmt, k.If):
            return [] if stmt.cond is FALSE or not stmt.body else guarded([stmt.cond], stmt.body)
        if isinstance(stmt, k.Copy) and stmt.pred is k.TRUE:
            stmt = with_pred(stmt, stmt.pred)
        stays = stmt.fill is not None if isinstance(stmt, k.Copy) else False
        never = isinstance(stmt, (k.Copy, k.Combine)) and stmt.pred is FALSE
        is_empty = isinstance(stmt, k.For) and not stmt.body
        return [] if (never and not stays) or is_empty else [stmt]

    return k.rewritten(body, change)
