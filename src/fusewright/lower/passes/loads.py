"""Moves loads from global memory forward: out of loops in which they are invariant, and ahead of computation.

    for j: a[j] = x[j] if p(j) else 0           for j: a[j] = x[j] if p(j) else 0
    for j: b[j] = exp(a[j])                     for j: c[j] = y[j] if p(j) else 0
    for j: c[j] = y[j] if p(j) else 0     ->    r = z[i] if q else 0
    for j: d[j] = z[i] if q else 0              for j: b[j] = exp(a[j])
                                                for j: d[j] = r

So all loads are in flight at the same time. The CUDA compiler moves no load across a branch and does not
recognize that two predicated loads are equal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeGuard

from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.guards import conditions_of, with_pred
from fusewright.lower.passes.registers import Registers
from fusewright.sym import ZERO, Expr, Lt, Symbol, as_int, land

# The most bytes that a thread has in flight: a quarter of its registers.
MAX_BYTES_IN_FLIGHT = 256


def bring_loads_forward(kernel: k.Kernel) -> k.Kernel:
    lifter = _Lifter()
    return lifter.registers.declared(kernel, _ahead(k.rewritten(kernel.body, lifter.lifted)))


def is_load(stmt: k.Stmt) -> TypeGuard[k.Copy]:
    """Whether a statement only loads elements from global memory to registers."""
    return (
        isinstance(stmt, k.Copy)
        and isinstance(stmt.src, k.Ref)
        and stmt.src.buffer.space is k.Space.GLOBAL
        and stmt.dst.buffer.space is k.Space.LOCAL
        and not isinstance(stmt.fill, k.Ref)
    )


def _writes_memory(stmt: k.Stmt) -> bool:
    return any(buffer.space is not k.Space.LOCAL for buffer in access.written_buffers(stmt))


# ---- out of loops ------------------------------------------------------------------------------------------


class _Lifter:
    """Moves loads out of unrolled loops.

    Attributes:
        registers: the registers of values that are loaded once.
    """

    def __init__(self) -> None:
        self.registers = Registers()

    def lifted(self, loop: k.Stmt) -> list[k.Stmt]:
        """An unrolled loop behind its loads that are the same in all iterations, or another statement."""
        if not isinstance(loop, k.For) or not loop.unroll or not as_int(loop.extent):
            return [without_foreign_guards(loop)]
        inner = list(k.walk(loop.body))
        ordering = (k.Barrier, k.GridBarrier, k.LetValue)
        if any(_writes_memory(stmt) or isinstance(stmt, ordering) for stmt in inner):
            return [loop]
        varying = {loop.symbol, *access.defined_symbols(inner)}
        lifted: list[k.Stmt] = []
        kept: list[k.Stmt] = []
        for stmt in loop.body:
            if not is_load(stmt) or not varying.isdisjoint(used_symbols(stmt, written=False)):
                kept.append(stmt)
                continue
            if stmt.dst.buffer in self.registers:  # it was moved out of an inner loop before
                lifted.append(stmt)
            elif stmt.width > 1 or (stmt.pred is not k.TRUE and stmt.fill is None):
                kept.append(stmt)
            else:
                name = f"{stmt.dst.buffer.name}_once{len(self.registers)}"
                register = self.registers.new(name, stmt.dst.buffer.dtype)
                lifted.append(dataclasses.replace(stmt, dst=k.Ref(register, ZERO)))
                kept.append(k.Copy(stmt.dst, k.Ref(register, ZERO)))
        return [*lifted, k.with_body(loop, k.body_of(loop.body, kept))]


def without_foreign_guards(stmt: k.Stmt) -> k.Stmt:
    """A load of one element without the conditions that have no symbol in common with its address.

    Such a condition only says that this iteration does not need the element. The element exists, since other
    iterations need it.
    """
    if not is_load(stmt):
        return stmt
    assert isinstance(stmt.src, k.Ref)
    if stmt.width > 1 or stmt.fill is None or stmt.fill_is_value:
        return stmt
    conditions = conditions_of(stmt.pred)
    symbols = stmt.src.index.free_symbols
    kept = [c for c in conditions if _is_nonempty(c) or not symbols.isdisjoint(c.free_symbols)]
    if not symbols or len(kept) == len(conditions):
        return stmt
    return with_pred(stmt, land(*kept))


def _is_nonempty(condition: Expr) -> bool:
    """Whether a condition says that there is something to load at all, such as that a size is not 0."""
    return not condition.free_symbols or (isinstance(condition, Lt) and condition.args[0] is ZERO)


# ---- ahead of computations ---------------------------------------------------------------------------


def _ahead(body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
    """`body` with its loads moved forward as far as possible."""
    named = frozenset(stmt.symbol for stmt in body if isinstance(stmt, k.LetValue))
    inner = [  # the CUDA compiler orders the statements of unrolled loops itself, since they have no branches
        stmt if isinstance(stmt, k.For) and stmt.unroll else k.with_children(stmt, _ahead) for stmt in body
    ]
    return k.body_of(body, _moved(inner, named))


def before_gathers(body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
    """`body` with its loads also in front of loops that load by indices."""
    named = frozenset(stmt.symbol for stmt in k.walk(body) if isinstance(stmt, k.LetValue))
    return k.body_of(body, _moved(body, named)) if named else body


def _moved(body: Sequence[k.Stmt], named: frozenset[Symbol]) -> list[k.Stmt]:
    """`body` with its loads moved forward.

    Args:
        named: the symbols of loaded index values. Other loads move in front of statements that wait for
            these.
    """
    result: list[k.Stmt] = []
    for stmt in body:
        place = len(result)
        if _loaded_bytes(stmt) is not None:
            place = _place(result, stmt, named)
        result.insert(place, stmt)
    return result


def _place(before: Sequence[k.Stmt], load: k.Stmt, named: frozenset[Symbol]) -> int:
    """The position among the statements `before` it to which a load can move.

    Args:
        named: the symbols of loaded index values.
    """
    symbols = used_symbols(load)
    place = len(before)
    while place > 0 and _may_follow(before[place - 1], load, symbols, named):
        place -= 1
    in_flight = _loaded_bytes(load) or 0
    for stmt in reversed(before[:place]):
        size = _loaded_bytes(stmt)
        if size is None:
            break
        in_flight += size
    return place if in_flight <= MAX_BYTES_IN_FLIGHT else len(before)


def used_symbols(stmt: k.Stmt, written: bool = True) -> frozenset[Symbol]:
    """The symbols of a statement's expressions.

    Args:
        written: whether the indices of destinations count.
    """
    found: set[Symbol] = set()
    for each in k.walk((stmt,)):
        stored = () if written else access.written_refs(each)
        operands = [ref.index for ref in access.read_refs(each) if ref not in stored]
        for e in access.expressions(each) if written else (*access.conditions(each), *operands):
            found |= e.free_symbols
    return frozenset(found)


def _loaded_bytes(stmt: k.Stmt) -> int | None:
    """The bytes that a leaf or an unrolled loop loads; None if it does anything else."""
    if isinstance(stmt, k.For):
        extent = as_int(stmt.extent)
        inner = [_loaded_bytes(each) for each in stmt.body]
        if not stmt.unroll or extent is None or not inner or any(size is None for size in inner):
            return None
        return extent * sum(size for size in inner if size is not None)
    if is_load(stmt):
        return stmt.width * stmt.dst.buffer.dtype.size
    return None


def _may_follow(stmt: k.Stmt, load: k.Stmt, symbols: frozenset[Symbol], named: frozenset[Symbol]) -> bool:
    """Whether a statement in front of a load, which uses `symbols`, may be behind it.

    Args:
        named: the symbols of loaded index values.
    """
    if isinstance(stmt, k.LetValue):
        return stmt.symbol not in symbols
    if isinstance(stmt, (k.Alloc, k.Let, k.LetMisalignment)):
        return False
    waits = bool(used_symbols(stmt) & named - symbols)
    if _loaded_bytes(stmt) is not None and not waits:
        return False
    if not access.written_in((load,)).isdisjoint(access.touched_in((stmt,))):
        return False
    for each in k.walk((stmt,)):
        # The load may read data that other threads stored before the collective.
        if isinstance(each, k.COLLECTIVES) or (isinstance(each, k.LetValue) and each.symbol not in named):
            return False
        if _writes_memory(each) or (isinstance(each, k.For) and not each.unroll):
            return False
    return True
