"""Moves unaligned vectors that are the same for all rows out of loops over rows.

    for row:                                        around = w[i - off:+16]
      around = w[i - off:+16]                       a = around[off:off+8]
      a = around[off:off+8]                 ->      for row:
      y[row, i:+8] = x[row, i:+8] * a                 y[row, i:+8] = x[row, i:+8] * a

The weights of shifted rows are such vectors if all rows of a block have the same shift. A vector takes two
loads and a selection. If values that are computed from it are kept in shared memory, they are stored before
the loop, too. Other loads stay in their loop, since they would hold registers throughout it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.sym import Symbol


def keep_invariant_vectors(kernel: k.Kernel) -> k.Kernel:
    if not any(isinstance(stmt, k.Window) for stmt in k.walk(kernel.body)):
        return kernel
    written = access.written_in(kernel.body)

    def separated(stmt: k.Stmt) -> list[k.Stmt]:
        if not isinstance(stmt, k.For) or stmt.unroll:
            return [stmt]
        kept = _invariant(stmt, written)
        left = k.body_of(stmt.body, [inner for inner in stmt.body if inner not in kept])
        return [*(inner for inner in stmt.body if inner in kept), k.with_body(stmt, left)]

    return k.with_body(kernel, k.rewritten(kernel.body, separated))


def _invariant(loop: k.For, written: set[k.Buffer]) -> Collection[k.Stmt]:
    """The statements of a loop that can be in front of it: selections of vectors, and their loads.

    Args:
        written: the buffers that the kernel writes.
    """
    varying = {loop.symbol, *access.defined_symbols(k.walk(loop.body))}
    found = [stmt for stmt in loop.body if _only_loads(stmt) and not _uses(stmt, varying)]
    while True:
        others = access.written_in(stmt for stmt in loop.body if stmt not in found)
        given = written - access.written_in(found)
        rest = [
            stmt
            for stmt in found
            if others.isdisjoint(access.written_in([stmt])) and given.isdisjoint(access.read_in([stmt]))
        ]
        if len(rest) == len(found):
            return _with_choices(found)
        found = rest


def _with_choices(found: Sequence[k.Stmt]) -> Collection[k.Stmt]:
    """The statements that select vectors, write registers that these access, or store the result."""
    choices = [stmt for stmt in found if any(isinstance(each, k.Window) for each in k.walk((stmt,)))]
    chosen = access.written_in(choices)
    buffers = access.touched_in(choices)
    buffers |= access.written_in(stmt for stmt in found if not chosen.isdisjoint(access.read_in([stmt])))
    return [stmt for stmt in found if not buffers.isdisjoint(access.written_in([stmt]))]


def _only_loads(stmt: k.Stmt) -> bool:
    """Whether a statement only copies or selects, and writes no global memory."""
    for each in k.walk((stmt,)):
        if not isinstance(each, (k.For, k.If, k.Copy, k.Window)):
            return False
        if isinstance(each, k.For) and not each.unroll:
            return False
    return all(buffer.space is not k.Space.GLOBAL for buffer in access.written_in([stmt]))


def _uses(stmt: k.Stmt, symbols: Collection[Symbol]) -> bool:
    own = access.defined_symbols(k.walk((stmt,)))
    used = {s for each in k.walk((stmt,)) for e in access.expressions(each) for s in e.free_symbols}
    return not used.isdisjoint(set(symbols) - own)
