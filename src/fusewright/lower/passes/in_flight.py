"""Makes copies from global to shared memory asynchronous if the thread that starts a copy also reads it.

    for j: s[j] = x[j]                   for j: s[j] = async x[j]
    for j: a += s[j]             ->      wait for copies
                                         for j: a += s[j]

So all copies are in flight at once, and none takes registers. Copies of single elements, which replace
partial vectors, may store meanwhile, since they store other elements.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import TypeGuard

from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.kernel.waits import HINTS_OF_COPIES
from fusewright.lower.guards import conditions_of
from fusewright.sym import Expr, Or, as_int, lnot


def copy_asynchronously(kernel: k.Kernel) -> k.Kernel:
    if not any(map(_is_candidate, k.walk(kernel.body))):
        return kernel
    return k.with_body(kernel, _Starter(frozenset(_edges(kernel.body))).walk(kernel.body, set()))


def _is_candidate(stmt: k.Stmt) -> TypeGuard[k.Copy]:
    if not isinstance(stmt, k.Copy) or not isinstance(stmt.src, k.Ref) or stmt.fill is not None:
        return False
    dst, src = stmt.dst.buffer, stmt.src.buffer
    return (
        src.space is k.Space.GLOBAL
        and dst.space is k.Space.SHARED
        and dst.private
        and stmt.cache in HINTS_OF_COPIES
        and stmt.covering is None
        and stmt.width * dst.dtype.size in k.ASYNC_BYTES
    )


def _edges(body: Sequence[k.Stmt]) -> Iterator[k.Stmt]:
    """Yields the copies of single elements that replace a candidate whose vector is partial."""
    for whole, rest in itertools.pairwise(body):
        if isinstance(whole, k.If) and isinstance(rest, k.If) and _exclude(whole.cond, rest.cond):
            vectors = list(filter(_is_candidate, whole.body))
            for lanes in rest.body:
                if isinstance(lanes, k.For):
                    yield from _lanes_of(vectors, lanes)
    for stmt in body:
        yield from _edges(k.children(stmt))


def _lanes_of(vectors: Sequence[k.Copy], loop: k.For) -> Iterator[k.Stmt]:
    """Yields the copies in a loop over lanes that have the same destinations as the lanes of `vectors`."""
    for stmt in k.walk(loop.body):
        if isinstance(stmt, k.Copy) and stmt.width == 1:
            for vector in vectors:
                same = stmt.dst.buffer is vector.dst.buffer and as_int(loop.extent) == vector.width
                if same and stmt.dst.index - vector.dst.index is loop.symbol:
                    yield stmt


def _exclude(one: Expr, other: Expr) -> bool:
    """Whether one condition implies that the other does not hold."""
    refuted = {lnot(part) for part in conditions_of(one)}
    return any(
        refuted.issuperset(part.args if isinstance(part, Or) else (part,)) for part in conditions_of(other)
    )


@dataclasses.dataclass(frozen=True)
class _Starter:
    """Starts copies, and waits for them where their data is accessed.

    Attributes:
        edges: copies of single elements that replace partial vectors (`_edges`).
    """

    edges: Collection[k.Stmt]

    def walk(self, body: tuple[k.Stmt, ...], pending: set[k.Buffer]) -> tuple[k.Stmt, ...]:
        """`body` with asynchronous copies and waits.

        Args:
            pending: the destinations of copies in flight before `body`; on return, those at its end.
        """
        result: list[k.Stmt] = []
        for stmt in body:
            if pending and not pending.isdisjoint(self._touched(stmt)):
                result.append(k.WaitForCopies())
                pending.clear()
            if _is_candidate(stmt):
                stmt = stmt.started()
                pending.add(stmt.dst.buffer)
            elif isinstance(stmt, (k.For, k.If)):
                stmt = self._nested(stmt, pending)
            result.append(stmt)
        return k.body_of(body, result)

    def _nested(self, stmt: k.For | k.If, pending: set[k.Buffer]) -> k.For | k.If:
        own: set[k.Buffer] = set()
        body = self.walk(stmt.body, own)
        if isinstance(stmt, k.For) and any(not own.isdisjoint(self._touched(inner)) for inner in body):
            body = (*body, k.WaitForCopies())  # the next iteration reads what this one started
            own.clear()
        pending |= own
        return k.with_body(stmt, body)

    def _touched(self, stmt: k.Stmt) -> set[k.Buffer]:
        """The buffers that a statement and its nested statements read, and those that they write.

        Writes of candidates and of `edges` do not count.
        """
        found: set[k.Buffer] = set()
        for inner in k.walk((stmt,)):
            found.update(access.read_buffers(inner))
            if not _is_candidate(inner) and inner not in self.edges:
                found.update(access.written_buffers(inner))
        return found
