"""Lets copies from global to shared memory go on by themselves, where the thread that starts one reads it.

    for j: s[j] = x[j]                   for j: s[j] = async x[j]
    for j: a += s[j]             ->      wait for copies
                                         for j: a += s[j]

So all of them are in flight at once, and none takes registers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from fusewright.core.enums import CacheOp
from fusewright.kernel import access
from fusewright.kernel import ir as k


def copy_asynchronously(kernel: k.Kernel) -> k.Kernel:
    copies = [stmt for stmt in k.walk(kernel.body) if _is_candidate(stmt)]
    # What lowering made so is waited for already.
    ahead = {stmt.dst.buffer for stmt in copies if isinstance(stmt, k.Copy) and stmt.asynchronous}
    chosen = {stmt.dst.buffer for stmt in copies if isinstance(stmt, k.Copy)} - ahead
    if not chosen:
        return kernel
    return k.with_body(kernel, _Starter(chosen).walk(kernel.body, set()))


def _is_candidate(stmt: k.Stmt) -> bool:
    if not isinstance(stmt, k.Copy) or not isinstance(stmt.src, k.Ref) or stmt.fill is not None:
        return False
    dst, src = stmt.dst.buffer, stmt.src.buffer
    return (
        src.space is k.Space.GLOBAL
        and dst.space is k.Space.SHARED
        and dst.private
        and stmt.cache is CacheOp.unspecified
        and stmt.covering is None
        and stmt.width * dst.dtype.size in k.ASYNC_BYTES
    )


@dataclasses.dataclass(frozen=True)
class _Starter:
    """Attributes:
    chosen: the buffers that copies go to by themselves.
    """

    chosen: Collection[k.Buffer]

    def _starts(self, stmt: k.Stmt) -> bool:
        return _is_candidate(stmt) and isinstance(stmt, k.Copy) and stmt.dst.buffer in self.chosen

    def walk(self, body: tuple[k.Stmt, ...], pending: set[k.Buffer]) -> tuple[k.Stmt, ...]:
        """`pending`: the buffers that copies are on their way to; those of `body` are added."""
        result: list[k.Stmt] = []
        for stmt in body:
            if pending and not pending.isdisjoint(self._touched(stmt)):
                result.append(k.WaitForCopies())
                pending.clear()
            if self._starts(stmt):
                assert isinstance(stmt, k.Copy)
                stmt = dataclasses.replace(stmt, asynchronous=True)
                pending.add(stmt.dst.buffer)
            elif isinstance(stmt, (k.For, k.If)):
                stmt = self._nested(stmt, pending)
            result.append(stmt)
        return k.body_of(body, result)

    def _nested(self, stmt: k.For | k.If, pending: set[k.Buffer]) -> k.For | k.If:
        own: set[k.Buffer] = set()
        body = self.walk(stmt.body, own)
        if isinstance(stmt, k.For) and not own.isdisjoint(self._touched_before(body)):
            body = (*body, k.WaitForCopies())  # the next iteration reads what this one started
            own.clear()
        pending |= own
        return k.with_body(stmt, body)

    def _touched_before(self, body: tuple[k.Stmt, ...]) -> set[k.Buffer]:
        """The shared buffers that are accessed otherwise than by a copy that is started."""
        return {buffer for stmt in body for buffer in self._touched(stmt)}

    def _touched(self, stmt: k.Stmt) -> set[k.Buffer]:
        """The buffers that a statement, or one nested in it, reads; and writes, but by copies it starts."""
        found: set[k.Buffer] = set()
        for inner in k.walk((stmt,)):
            found.update(access.read_buffers(inner))
            if not self._starts(inner):
                found.update(access.written_buffers(inner))
        return found
