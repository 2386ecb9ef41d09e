"""Keeps in registers what vectors that start at any element hold for all iterations of a loop.

    for row:                                  around = w[i - off:+16]
      around = w[i - off:+16]                 a = around[off:off+8]
      a = around[off:off+8]           ->      for row:
      y[row, i:+8] = x[row, i:+8] * a           y[row, i:+8] = x[row, i:+8] * a

The weights of rows that are shifted are such, where a block goes over rows that are shifted alike: two loads a
vector, and the choice from them, are once a block.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.sym import Symbol


def keep_invariant_vectors(kernel: k.Kernel) -> k.Kernel:
    if not any(isinstance(stmt, k.Window) for stmt in k.walk(kernel.body)):
        return kernel
    return k.with_body(kernel, _Keeper(kernel.body).body(kernel.body))


class _Keeper:
    def __init__(self, body: Sequence[k.Stmt]) -> None:
        self._written = _written(body)

    def body(self, body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
        result: list[k.Stmt] = []
        for stmt in body:
            stmt = k.with_children(stmt, self.body)
            if isinstance(stmt, k.For) and not stmt.unroll:
                kept = self._invariant(stmt)
                result += [inner for inner in stmt.body if inner in kept]
                stmt = k.with_body(stmt, k.body_of(stmt.body, [s for s in stmt.body if s not in kept]))
            result.append(stmt)
        return k.body_of(body, result)

    def _invariant(self, loop: k.For) -> Collection[k.Stmt]:
        """The statements of a loop that can stand before it: vectors, and what they are chosen from."""
        varying = {loop.symbol, *(s for s in map(access.defined_symbol, k.walk(loop.body)) if s is not None)}
        found = [stmt for stmt in loop.body if self._only_loads(stmt) and not _uses(stmt, varying)]
        while True:
            others = _written(stmt for stmt in loop.body if stmt not in found)
            made = _written(found)
            rest = [
                stmt
                for stmt in found
                if others.isdisjoint(_written([stmt]))
                and all(b in made or b not in self._written for b in _read([stmt]))
            ]
            if len(rest) == len(found):
                break
            found = rest
        return self._chosen_from(found)

    def _chosen_from(self, found: Sequence[k.Stmt]) -> Collection[k.Stmt]:
        """Those of the statements that vectors are chosen by, load what they are chosen from, or the rest."""
        windows = [stmt for stmt in found if any(isinstance(each, k.Window) for each in k.walk((stmt,)))]
        buffers = _written(windows) | _read(windows)
        return [stmt for stmt in found if not buffers.isdisjoint(_written([stmt]))]

    def _only_loads(self, stmt: k.Stmt) -> bool:
        """Whether a statement brings what no thread writes into registers, and does nothing else."""
        for each in k.walk((stmt,)):
            if isinstance(each, k.For) and not each.unroll:
                return False
            if not isinstance(each, (k.For, k.If, k.Copy, k.Window)):
                return False
        return all(buffer.space is k.Space.LOCAL for buffer in _written([stmt]))


def _uses(stmt: k.Stmt, symbols: Collection[Symbol]) -> bool:
    own = {s for s in map(access.defined_symbol, k.walk((stmt,))) if s is not None}
    used = {s for each in k.walk((stmt,)) for e in access.expressions(each) for s in e.free_symbols}
    return not used.isdisjoint(set(symbols) - own)


def _written(body: Iterable[k.Stmt]) -> set[k.Buffer]:
    return {buffer for stmt in k.walk(tuple(body)) for buffer in access.written_buffers(stmt)}


def _read(body: Iterable[k.Stmt]) -> set[k.Buffer]:
    return {buffer for stmt in k.walk(tuple(body)) for buffer in access.read_buffers(stmt)}
