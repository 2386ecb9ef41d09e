"""Makes copies from global to shared memory asynchronous if the thread that starts a copy also reads it.

    for j: s[j] = x[j]                   for j: s[j] = async x[j]
    for j: a += s[j]             ->      wait for copies
                                         for j: a += s[j]

So all of them are in flight at once, and none takes registers. Elements of partial vectors may be stored
meanwhile, since they are different elements.
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
    """The copies of single elements that take the place of a candidate where its vector is not whole."""
    for whole, rest in itertools.pairwise(body):
        if isinstance(whole, k.If) and isinstance(rest, k.If) and _exclude(whole.cond, rest.cond):
            vectors = list(filter(_is_candidate, whole.body))
            for lanes in rest.body:
                if isinstance(lanes, k.For):
                    yield from _lanes_of(vectors, lanes)
    for stmt in body:
        yield from _edges(k.children(stmt))


def _lanes_of(vectors: Sequence[k.Copy], loop: k.For) -> Iterator[k.Stmt]:
    """The copies in a loop over the lanes of `vectors` to the places that these go to."""
    for stmt in k.walk(loop.body):
        if isinstance(stmt, k.Copy) and stmt.width == 1:
            for vector in vectors:
                same = stmt.dst.buffer is vector.dst.buffer and as_int(loop.extent) == vector.width
                if same and stmt.dst.index - vector.dst.index is loop.symbol:
                    yield stmt


def _exclude(one: Expr, other: Expr) -> bool:
    """Whether one condition says that the other does not hold."""
    refuted = {lnot(part) for part in conditions_of(one)}
    return any(
        refuted.issuperset(part.args if isinstance(part, Or) else (part,)) for part in conditions_of(other)
    )


@dataclasses.dataclass(frozen=True)
class _Starter:
    """Starts copies, and waits for them where their data is accessed.

    Attributes:
        edges: stores of elements that are not targets of such copies.
    """

    edges: Collection[k.Stmt]

    def walk(self, body: tuple[k.Stmt, ...], pending: set[k.Buffer]) -> tuple[k.Stmt, ...]:
        """`pending`: the buffers that copies are on their way to; those of `body` are added."""
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
        """The buffers that a statement, or one nested in it, reads; and writes, but by copies that it starts,
        and at edges.
        """
        found: set[k.Buffer] = set()
        for inner in k.walk((stmt,)):
            found.update(access.read_buffers(inner))
            if not _is_candidate(inner) and inner not in self.edges:
                found.update(access.written_buffers(inner))
        return found
