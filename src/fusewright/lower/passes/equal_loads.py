"""Loads an aligned vector once if several vectors of a thread use it.

    for j: a[j, 0:8] = x[i + j:+8] if p           for j: a[j, 0:8] = x[i + j:+8] if p
    for j: b[j, 0:8] = x[i + j:+8] if p    ->     for j: b[j, 0:8] = a[j, 0:8]
           b[j, 8:16] = x[i + j + 8:+8]                  b[j, 8:16] = x[i + j + 8:+8]

Neighbours of an element that are in the same aligned vector lead to equal loads. The CUDA compiler does not
recognize that two predicated loads are equal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.passes.loads import is_load
from fusewright.lower.passes.unrolled_load import UnrolledLoad, common_symbols
from fusewright.sym import as_int, lor, substitute

_Key = tuple[object, ...]


def share_equal_loads(kernel: k.Kernel) -> k.Kernel:
    statements = list(k.walk(kernel.body))
    if sum(is_load(stmt) and stmt.width > 1 for stmt in statements) < 2:
        return kernel
    written = {buffer for buffer in access.writers(statements) if buffer.space is k.Space.GLOBAL}
    sharing = _Sharing(written)
    sharing.find(kernel.body)
    return k.with_body(kernel, k.rewritten(kernel.body, lambda stmt: [sharing.replaced.get(stmt) or stmt]))


class _Load(UnrolledLoad):
    """A load of a vector in unrolled loops that only load."""

    def key(self) -> _Key:
        """The source, predicate and fill, with the symbols of loops that all loads of these extents share."""
        table = common_symbols(self.loops)
        copy, src = self.copy, self.src
        fill = (None, False) if copy.pred is k.TRUE else (copy.fill, copy.fill_is_value)
        index, pred = substitute(src.index, table), substitute(copy.pred, table)
        return (src.buffer, index, pred, self.extents, copy.width, copy.cache, *fill)

    def may_overwrite(self, other: _Load) -> bool:
        """Whether it may write registers of another load."""
        mine, theirs = self.copy.dst, other.copy.dst
        if mine.buffer is not theirs.buffer:
            return False
        apart = as_int(self.moved(mine.index, other.loops) - theirs.index)
        return len(self.loops) != len(other.loops) or apart is None or abs(apart) < self.copy.width


class _Sharing:
    """The state of the pass.

    Attributes:
        written: the global memory that the kernel writes.
        replaced: the statement that replaces each changed load.
    """

    def __init__(self, written: set[k.Buffer]) -> None:
        self.written = written
        self.replaced: dict[k.Stmt, k.Copy] = {}

    def find(self, body: tuple[k.Stmt, ...]) -> None:
        held: dict[_Key, _Load] = {}  # the loads whose registers have not been overwritten
        for stmt in body:
            if isinstance(stmt, (k.Alloc, k.Let, k.LetMisalignment)):
                continue
            loads = list(_loads(stmt, ()))
            if any(load is None or load.memory in self.written for load in loads):
                held.clear()
                self.find(k.children(stmt))
                continue
            for load in loads:
                assert load is not None
                held = {key: other for key, other in held.items() if not load.may_overwrite(other)}
                first = held.setdefault(load.key(), load)
                if first is not load:
                    self._share(first, load)

    def _share(self, first: _Load, second: _Load) -> None:
        earlier = self.replaced.get(first.copy, first.copy)
        self.replaced[first.copy] = dataclasses.replace(earlier, covering=_of_both(first, earlier, second))
        src = dataclasses.replace(first.copy.dst, index=first.moved(first.copy.dst.index, second.loops))
        self.replaced[second.copy] = k.Copy(second.copy.dst, src, second.copy.width)


def _loads(stmt: k.Stmt, loops: tuple[k.For, ...]) -> Iterator[_Load | None]:
    """Yields the loads of vectors in a statement and its unrolled loops, and None for any other statement."""
    if isinstance(stmt, k.For) and stmt.unroll:
        for inner in stmt.body:
            yield from _loads(inner, (*loops, stmt))
    else:
        yield _Load(stmt, loops) if is_load(stmt) and stmt.width > 1 else None


def _of_both(first: _Load, earlier: k.Copy, second: _Load) -> k.Covering | None:
    """The elements for which one of two equal loads is used.

    Args:
        earlier: the copy of `first`, with the elements for which it replaces loads already.
    """
    one, other = earlier.covering, second.copy.covering
    if one is None or other is None:
        return None
    wanted = substitute(second.moved(other.wanted, first.loops), {other.lane: one.lane})
    return k.Covering(one.lane, lor(one.wanted, wanted))
