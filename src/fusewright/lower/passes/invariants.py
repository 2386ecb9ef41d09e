"""Moves computation that is the same in all iterations of a loop in front of the loop.

    for j: if guard: a = s / n; y[j] = x[j] * a      becomes      a = s / n; for j: if guard: y[j] = x[j] * a

Values that depend only on a reduction are inlined into the loops of their readers, under the readers' guards.
The CUDA compiler moves neither divisions nor loads out of guards. A load moves out of a loop and its guards
if its index is provably inside the tensor: for example, a channel's weight is loaded once. If a thread has a
value only under a guard, such as a load without a fill, statements that read it stay under the guard:

    a = x[i] if guard; for j: if guard: b = a % 3; ...
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from functools import partial

from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.guards import Conditions, conditions_of
from fusewright.sym import Symbol, le, lt, prove

# The buffers that have values at a statement, each with the further conditions under which a thread has its
# value.
Known = Mapping[k.Buffer, Conditions]


def hoist_invariants(kernel: k.Kernel) -> k.Kernel:
    writers = access.writers(k.walk(kernel.body))
    return k.with_body(kernel, _Hoister(writers).body(kernel.body, {}))


class _Hoister:
    """The state of the pass.

    Args:
        writers: the number of statements that write each buffer.
    """

    def __init__(self, writers: Counter[k.Buffer]) -> None:
        self._writers = writers

    def body(self, body: tuple[k.Stmt, ...], known: Known) -> tuple[k.Stmt, ...]:
        """`body` with invariant computation in front of the statements that contained it.

        Args:
            known: the buffers that have values before `body`.
        """
        known = dict(known)
        result: list[k.Stmt] = []
        for stmt in body:
            if k.children(stmt):
                changed = set(access.writers(k.walk(k.children(stmt))))
                always = {buffer for buffer, conditions in known.items() if not conditions}
                moved: list[k.Stmt] = []
                own = access.defined_symbols(k.walk((stmt,))) if isinstance(stmt, k.For) else None
                stmt = self._without(stmt, always, changed, moved, own)
                result += moved
                for each in moved:
                    note_values(each, known)
                stmt = k.with_children(stmt, partial(self.body, known=known_inside(stmt, known)))
                if k.children(stmt):
                    result.append(stmt)
                continue
            result.append(stmt)
            note_values(stmt, known)
        return k.body_of(body, result)

    def _without(
        self,
        stmt: k.Stmt,
        known: set[k.Buffer],
        changed: set[k.Buffer],
        moved: list[k.Stmt],
        own: Collection[Symbol] | None,
    ) -> k.Stmt:
        """`stmt` without the nested statements that can be in front of it. They are added to `moved`.

        Args:
            known: the buffers that have values before `stmt`.
            changed: the buffers that `stmt` writes.
            own: the symbols that a loop and its statements define; None if `stmt` is not a loop. Loads then
            stay.
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
        """Whether a statement computes a register that it alone writes from scalars and `known` registers."""
        args = access.computed_from(stmt)
        if args is None:
            return False
        [dst] = access.written_buffers(stmt)
        if not access.is_register(dst) or self._writers[dst] != 1:
            return False

        def is_invariant(arg: k.Operand) -> bool:
            if isinstance(arg, k.Ref):
                return access.is_register(arg.buffer) and arg.buffer in known and arg.buffer not in changed
            return not isinstance(arg, k.IndexValue)

        return any(isinstance(arg, (k.Ref, k.ScalarRef)) for arg in args) and all(map(is_invariant, args))

    def _is_invariant_load(self, stmt: k.Stmt, own: Collection[Symbol]) -> bool:
        """Whether a statement loads an existing element of read-only memory by an index without `own`."""
        if not isinstance(stmt, k.Copy) or stmt.width != 1 or stmt.pred is not k.TRUE or stmt.asynchronous:
            return False
        src, dst = stmt.src, stmt.dst.buffer
        if not isinstance(src, k.Ref) or src.buffer.space is not k.Space.GLOBAL:
            return False
        return (
            access.is_register(dst)
            and self._writers[src.buffer] == 0
            and self._writers[dst] == 1
            and src.index.free_symbols.isdisjoint(own)
            and prove(le(0, src.index))
            and prove(lt(src.index, src.buffer.size))
        )


def note_values(stmt: k.Stmt, known: dict[k.Buffer, Conditions], under: Conditions = frozenset()) -> None:
    """Adds the buffers that a leaf sets, if it runs under the conditions `under`."""
    written = access.written_buffers(stmt)
    if isinstance(stmt, k.GridReduce) and stmt.is_last is not None:
        for buffer in written:  # only the last block holds the result
            known.pop(buffer, None)
        return
    without_fill = stmt.pred if isinstance(stmt, k.Copy) and stmt.fill is None else k.TRUE
    conditions = under | conditions_of(without_fill)
    for buffer in written:
        known[buffer] = min(conditions, known.get(buffer, conditions), key=len)


def known_inside(stmt: k.Stmt, known: Known) -> Known:
    """`known` at the beginning of a statement's body."""
    if not isinstance(stmt, k.If):
        return known
    given = conditions_of(stmt.cond)
    return {buffer: conditions - given for buffer, conditions in known.items()}
