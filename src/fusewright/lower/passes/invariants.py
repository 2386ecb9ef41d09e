"""Computes what is the same for all iterations of a loop once, before it.

    for j: if guard: a = s / n; y[j] = x[j] * a      becomes      a = s / n; for j: if guard: y[j] = x[j] * a

What follows from a reduction alone is inlined into the loops of its readers, and stands under their guards,
which the CUDA compiler moves neither a division nor a load out of. A load moves out of a loop, whatever the
guards, if its index is provably one of the tensor: a channel's weight is loaded once. A value that a thread
has only under a guard, as of a load without a fill, keeps what reads it there:

    a = x[i] if guard; for j: if guard: b = a % 3; ...
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from functools import partial

from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.guards import Conditions, conditions_of
from fusewright.sym import Expr, Symbol, as_int, le, lt, prove

# Registers that have values, and the conditions under which a thread has them beyond those that hold here.
_Known = Mapping[k.Buffer, Conditions]


def hoist_invariants(kernel: k.Kernel) -> k.Kernel:
    writers = access.writers(k.walk(kernel.body))
    return k.with_body(kernel, _Hoister(writers).body(kernel.body, {}))


class _Hoister:
    """`writers`: how many statements write each buffer."""

    def __init__(self, writers: Counter[k.Buffer]) -> None:
        self._writers = writers

    def body(self, body: tuple[k.Stmt, ...], known: _Known) -> tuple[k.Stmt, ...]:
        """`body` with what is invariant in its statements before them; `known` is written before it."""
        known = dict(known)
        result: list[k.Stmt] = []
        for stmt in body:
            if k.children(stmt):
                changed = {b for inner in k.walk(k.children(stmt)) for b in access.written_buffers(inner)}
                always = {buffer for buffer, conditions in known.items() if not conditions}
                moved: list[k.Stmt] = []
                inside_of = (
                    {
                        symbol
                        for inner in k.walk((stmt,))
                        if (symbol := access.defined_symbol(inner)) is not None
                    }
                    if isinstance(stmt, k.For)
                    else None
                )
                stmt = self._without(stmt, always, changed, moved, inside_of)
                result += moved
                for each in moved:
                    _note_values(each, known)
                inside = _under(stmt.cond, known) if isinstance(stmt, k.If) else known
                stmt = k.with_children(stmt, partial(self.body, known=inside))
                if k.children(stmt):
                    result.append(stmt)
                continue
            result.append(stmt)
            _note_values(stmt, known)
        return k.body_of(body, result)

    def _without(
        self,
        stmt: k.Stmt,
        known: set[k.Buffer],
        changed: set[k.Buffer],
        moved: list[k.Stmt],
        own: Collection[Symbol] | None,
    ) -> k.Stmt:
        """`stmt` without the statements in it that can stand before it; they are added to `moved`.

        own: the symbols of a loop and of what is in it; None for what is no loop, where loads stay.
        """

        def change(body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
            kept: list[k.Stmt] = []
            for inner in body:
                if self._is_invariant(inner, known, changed) or (
                    own is not None and self._is_invariant_load(inner, own)
                ):
                    moved.append(inner)
                    buffers = access.written_buffers(inner)
                    known.update(buffers)
                    changed.difference_update(buffers)
                    continue
                if k.children(inner):
                    inner = k.with_children(inner, change)
                    if not k.children(inner):
                        continue
                kept.append(inner)
            return k.body_of(body, kept)

        return k.with_children(stmt, change)

    def _is_invariant(self, stmt: k.Stmt, known: Collection[k.Buffer], changed: Collection[k.Buffer]) -> bool:
        """Whether a statement computes one register, which no other does, from scalars and `known` ones."""
        if isinstance(stmt, k.Compute):
            dst, args = stmt.dst, stmt.args
        elif isinstance(stmt, k.Copy) and stmt.width == 1 and stmt.pred is k.TRUE:
            dst, args = stmt.dst, (stmt.src,)
        else:
            return False
        if not _is_register(dst) or self._writers[dst.buffer] != 1:
            return False
        return any(isinstance(arg, (k.Ref, k.ScalarRef)) for arg in args) and all(
            _is_register(arg) and arg.buffer in known and arg.buffer not in changed
            if isinstance(arg, k.Ref)
            else not isinstance(arg, k.IndexValue)
            for arg in args
        )

    def _is_invariant_load(self, stmt: k.Stmt, own: Collection[Symbol]) -> bool:
        """Whether a statement loads one element, that exists, of a tensor that the kernel only reads."""
        if not isinstance(stmt, k.Copy) or stmt.width != 1 or stmt.pred is not k.TRUE or stmt.asynchronous:
            return False
        src, dst = stmt.src, stmt.dst
        if not isinstance(src, k.Ref) or src.buffer.space is not k.Space.GLOBAL or not _is_register(dst):
            return False
        return (
            self._writers[src.buffer] == 0
            and self._writers[dst.buffer] == 1
            and src.index.free_symbols.isdisjoint(own)
            and prove(le(0, src.index))
            and prove(lt(src.index, src.buffer.size))
        )


def _note_values(stmt: k.Stmt, known: dict[k.Buffer, Conditions]) -> None:
    """Adds the registers that a leaf gives values."""
    written = access.written_buffers(stmt)
    if (
        isinstance(stmt, k.GridReduce) and stmt.is_last is not None
    ):  # one block alone holds the result of a reduction across blocks
        for buffer in written:
            known.pop(buffer, None)
        return
    without_fill = stmt.pred if isinstance(stmt, k.Copy) and stmt.fill is None else k.TRUE
    conditions = conditions_of(without_fill)
    for buffer in written:
        known[buffer] = min(conditions, known.get(buffer, conditions), key=len)


def _under(cond: Expr, known: _Known) -> _Known:
    """`known` where `cond` holds."""
    given = conditions_of(cond)
    return {buffer: conditions - given for buffer, conditions in known.items()}


def _is_register(ref: k.Ref) -> bool:
    return ref.buffer.space is k.Space.LOCAL and as_int(ref.buffer.size) == 1
