"""Merges two loads of one tensor if a thread needs only one of them.

    a[0:8] = x[i + 64:+8] if p                a[0:8] = x[i - 64 + 128 * p:+8]
    b[0:8] = x[i - 64:+8] if not p     ->     b[0:8] = a[0:8]
    for j: c[j] = f(a[j]) if p else b[j]      for j: c[j] = f(a[j]) if p else b[j]

Rotations that exchange two halves have such loads. So do rows of which one part is changed and the other is
copied. Two loads take twice the registers and the widening instructions. (Rotations of half of each row take
38 us on an H200, and 43 us without this pass.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.guards import Conditions, conditions_of, with_pred
from fusewright.lower.passes.loads import is_load
from fusewright.lower.passes.unrolled_load import UnrolledLoad
from fusewright.sym import Expr, Symbol, divides, land, lnot


def join_exclusive_loads(kernel: k.Kernel) -> k.Kernel:
    statements = list(k.walk(kernel.body))
    if sum(is_load(stmt) and stmt.pred is not k.TRUE for stmt in statements) < 2:
        return kernel
    writers = access.writers(statements)
    needed = needed_conditions(kernel.body)
    named = access.defined_symbols(statements)
    loads: dict[tuple[object, ...], list[_Load]] = defaultdict(list)
    for load in _loads(kernel.body, ()):
        copy, conditions = load.copy, conditions_of(load.copy.pred)
        is_alone = writers[copy.dst.buffer] == 1 and not writers[load.memory] and copy.fill is not None
        is_known = all(named.isdisjoint(each.free_symbols) for each in conditions)
        # Where it is not loaded, its value is not needed, not even as a pad.
        if conditions and is_alone and is_known and conditions <= needed.get(copy.dst.buffer, Conditions()):
            loads[load.key()].append(load)
    joined: dict[k.Stmt, k.Copy] = {}
    for alike in loads.values():
        for i, first in enumerate(alike):
            for second in alike[i + 1 :]:
                split = first.split(second, named)
                if split is not None and joined.keys().isdisjoint((first.copy, second.copy)):
                    joined[first.copy] = first.with_other(second, split)
                    joined[second.copy] = second.taken_from(first)
    return k.with_body(kernel, k.rewritten(kernel.body, lambda stmt: [joined.get(stmt, stmt)]))


def needed_conditions(body: Sequence[k.Stmt]) -> dict[k.Buffer, Conditions]:
    """For each register the conditions that hold wherever its value is needed.

    A value is needed if it reaches memory or a statement that is neither arithmetic nor a selection.
    """
    needed: dict[k.Buffer, Conditions] = {}

    def need(value: k.Operand | None, conditions: Conditions) -> None:
        if isinstance(value, k.Ref):
            needed[value.buffer] = needed.get(value.buffer, conditions) & conditions

    def visit(stmts: Sequence[k.Stmt], around: Conditions) -> None:
        for stmt in reversed(stmts):
            inside = around | conditions_of(stmt.cond) if isinstance(stmt, k.If) else around
            visit(k.children(stmt), inside)
            to = [buffer for buffer in access.written_buffers(stmt) if buffer.space is k.Space.LOCAL]
            if not isinstance(stmt, (k.Compute, k.Copy)):
                for ref in access.read_refs(stmt):
                    need(ref, around)
                continue
            if not needed.keys() >= set(to):
                continue  # no reader is known yet
            after = around.union(*map(needed.__getitem__, to))
            if isinstance(stmt, k.Compute):
                for arg in stmt.args:
                    need(arg, after)
                continue
            conditions = conditions_of(stmt.pred)
            need(stmt.src, after | conditions)
            need(stmt.fill, after | {lnot(each) for each in conditions if len(conditions) == 1})

    before = None
    while before != needed:  # an iteration of a loop may read what the previous one has computed
        before = dict(needed)
        visit(body, Conditions())
    return needed


def _loads(body: Sequence[k.Stmt], loops: tuple[k.For, ...]) -> Iterator[_Load]:
    """Yields the loads of a body that are in no loops except unrolled ones."""
    for stmt in body:
        if isinstance(stmt, k.For) and stmt.unroll:
            yield from _loads(stmt.body, (*loops, stmt))
        elif is_load(stmt) and stmt.covering is None:
            yield _Load(stmt, loops)


class _Load(UnrolledLoad):
    """A load that another one may exclude."""

    def key(self) -> tuple[object, ...]:
        """The properties that are equal for loads that can be merged."""
        copy = self.copy
        return (self.memory, copy.width, copy.cache, copy.dst.buffer.size, self.extents)

    def split(self, later: _Load, named: set[Symbol]) -> Expr | None:
        """The condition under which a thread needs this load, and otherwise needs a later one.

        None if the two do not exclude each other, or if the distance of their elements is not a multiple of
        the vector width or depends on symbols that statements define (`named`).
        """
        ours, theirs = conditions_of(self.copy.pred), conditions_of(later.copy.pred)
        apart = self._apart(later)
        if not named.isdisjoint(apart.free_symbols) or not divides(self.copy.width, apart):
            return None
        return next(
            (each for each in ours if theirs - ours == {lnot(each)} and ours - theirs == {each}), None
        )

    def _apart(self, later: _Load) -> Expr:
        return later.moved(later.src.index, self.loops) - self.src.index

    def with_other(self, later: _Load, split: Expr) -> k.Copy:
        """The load of the elements of either."""
        src = k.Ref(self.memory, self.src.index + self._apart(later) * lnot(split))
        return with_pred(replace(self.copy, src=src), land(*(conditions_of(self.copy.pred) - {split})))

    def taken_from(self, first: _Load) -> k.Copy:
        """A copy of what the merged load has loaded, which replaces this load."""
        dst = first.copy.dst
        return k.Copy(self.copy.dst, k.Ref(dst.buffer, first.moved(dst.index, self.loops)), self.copy.width)
