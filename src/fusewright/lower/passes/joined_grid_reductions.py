"""Joins independent grid reductions: a block publishes its parts of all of them before it waits for others.

    grid reduce a, last p                   c = x * y
    if p: store a                           together:
    c = x * y                      ->           grid reduce a, last p
    grid reduce b, last q                       grid reduce b, last q
    if q: store b                           if p: store a
                                            if q: store b

Otherwise other blocks would wait for a block's part of the later reduction until the earlier one has ended in
that block. Statements between the two reductions that compute the operand of the later one move in front of
both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from fusewright.core.hardware import MAX_GRID_REDUCES
from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.passes.loads import used_symbols


def join_grid_reductions(kernel: k.Kernel) -> k.Kernel:
    if sum(_may_join(stmt) for stmt in k.walk(kernel.body)) < 2:
        return kernel
    return k.with_body(kernel, _body(kernel.body))


def _may_join(stmt: k.Stmt) -> TypeGuard[k.GridReduce]:
    return isinstance(stmt, k.GridReduce) and stmt.is_last is not None


def _body(body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
    result: list[k.Stmt] = []
    rest = list(body)
    while rest:
        stmt = rest.pop(0)
        if not _may_join(stmt):
            if not isinstance(stmt, k.GridReduces):
                stmt = k.with_children(stmt, _body)
            result.append(stmt)
            continue
        together: list[k.GridReduce] = [stmt]
        while len(together) < MAX_GRID_REDUCES and (found := _next(together, rest)) is not None:
            early, other, rest = found
            result += early
            together.append(other)
        result.append(k.GridReduces(tuple(together)) if len(together) > 1 else stmt)
    return k.body_of(body, result)


def _next(
    together: Sequence[k.GridReduce], rest: Sequence[k.Stmt]
) -> tuple[list[k.Stmt], k.GridReduce, list[k.Stmt]] | None:
    """The next reduction in `rest` that can join the reductions `together`; None if there is none.

    Returns:
        The statements that move in front of all reductions, the reduction, and the remaining statements.
    """
    place = next((i for i, stmt in enumerate(rest) if any(map(_may_join, k.walk((stmt,))))), None)
    if place is None or any(map(_orders, k.walk(tuple(rest[:place])))):
        return None
    other = rest[place]
    if not _may_join(other):
        return None
    moved: list[k.Stmt] = [other]  # and the statements that it depends on, in reverse order
    left: list[k.Stmt] = []
    for stmt in reversed(rest[:place]):
        (moved if any(_depends(each, stmt) for each in moved) else left).append(stmt)
    if not all(map(_is_private, moved)) or any(_depends(each, stmt) for each in moved for stmt in together):
        return None
    return moved[:0:-1], other, [*left[::-1], *rest[place + 1 :]]


def _orders(stmt: k.Stmt) -> bool:
    """Whether threads wait for each other, or for copies, at a statement."""
    return isinstance(stmt, (*k.COLLECTIVES, k.Wait, k.Arrive, k.WaitForCopies, k.ProxyFence, k.Roles))


def _is_private(stmt: k.Stmt) -> bool:
    """Whether a statement reads and writes only registers."""
    return all(buffer.space is k.Space.LOCAL for buffer in access.touched_in((stmt,)))


def _depends(later: k.Stmt, earlier: k.Stmt) -> bool:
    """Whether two statements have to stay in their order.

    They do if one accesses a buffer that the other writes, or if the later one uses a symbol or a buffer that
    the earlier one defines.
    """
    if not _written(earlier).isdisjoint(_touched(later)) or not _written(later).isdisjoint(_touched(earlier)):
        return True
    declared = {access.declared_buffer(inner) for inner in k.walk((earlier,))} - {None}
    defined = access.defined_symbols(k.walk((earlier,)))
    return not (declared.isdisjoint(_touched(later)) and defined.isdisjoint(used_symbols(later)))


def _written(stmt: k.Stmt) -> set[k.Buffer]:
    """The buffers that a statement writes or uses as scratch memory.

    Workspaces of grid reductions do not count, since joined reductions may share them.
    """
    return {
        buffer
        for inner in k.walk((stmt,))
        for buffer in (*access.written_buffers(inner), *access.scratch_buffers(inner))
        if buffer.space is not k.Space.SHARED or not _may_join(inner)
    }


def _touched(stmt: k.Stmt) -> set[k.Buffer]:
    return _written(stmt) | access.read_in((stmt,))
