"""Takes out of loops over rows the vectors that are the same in all of them, but start at any element.

    for row:                                        around = w[i - off:+16]
      around = w[i - off:+16]                       a = around[off:off+8]
      a = around[off:off+8]                 ->      for row:
      y[row, i:+8] = x[row, i:+8] * a                 y[row, i:+8] = x[row, i:+8] * a

Such are the weights of shifted rows, where all rows of a block are shifted alike. A vector takes
two loads, and a choice from them. What is kept in shared memory of such a vector is stored before the loop,
too. Other loads stay in their loop: they would hold registers throughout it.
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
    """`body`: of the whole kernel."""

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
        """The statements of a loop that can stand before it: choices of vectors, and their loads."""
        varying = {loop.symbol, *access.defined_symbols(k.walk(loop.body))}
        found = [stmt for stmt in loop.body if _only_loads(stmt) and not _uses(stmt, varying)]
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
        return _with_choices(found)


def _with_choices(found: Sequence[k.Stmt]) -> Collection[k.Stmt]:
    """Those of the statements that choose vectors, write the registers that these read or write, or store
    what was chosen.
    """
    choices = [stmt for stmt in found if any(isinstance(each, k.Window) for each in k.walk((stmt,)))]
    chosen = _written(choices)
    buffers = chosen | _read(choices)
    buffers |= _written(stmt for stmt in found if not chosen.isdisjoint(_read([stmt])))
    return [stmt for stmt in found if not buffers.isdisjoint(_written([stmt]))]


def _only_loads(stmt: k.Stmt) -> bool:
    """Whether a statement copies into memory of the block, or chooses from registers, and does nothing
    else.
    """
    for each in k.walk((stmt,)):
        if not isinstance(each, (k.For, k.If, k.Copy, k.Window)):
            return False
        if isinstance(each, k.For) and not each.unroll:
            return False
    return all(buffer.space is not k.Space.GLOBAL for buffer in _written([stmt]))


def _uses(stmt: k.Stmt, symbols: Collection[Symbol]) -> bool:
    own = access.defined_symbols(k.walk((stmt,)))
    used = {s for each in k.walk((stmt,)) for e in access.expressions(each) for s in e.free_symbols}
    return not used.isdisjoint(set(symbols) - own)


def _written(body: Iterable[k.Stmt]) -> set[k.Buffer]:
    return {buffer for stmt in k.walk(tuple(body)) for buffer in access.written_buffers(stmt)}


def _read(body: Iterable[k.Stmt]) -> set[k.Buffer]:
    return {buffer for stmt in k.walk(tuple(body)) for buffer in access.read_buffers(stmt)}
