"""Issues a body's loads before a thread waits for many indices, or for data that it stores to a tile.

    for j: v[j] = index[j]                for j: v[j] = index[j]
    for j:                                issue loads
        t = index_below(v[j], n)    ->    for j:
        b[j] = y[t]                           t = index_below(v[j], n)
                                              b[j] = y[t]

    for j: a[j] = x[j]                    for j: a[j] = x[j]
    for j: shared[j] = a[j]         ->    issue loads
                                          for j: shared[j] = a[j]

The CUDA assembler orders a thread's instructions by the longest chain: index[j], then y[t]. If there are many
indices, it loads the last ones only after rows of the first ones have arrived. If loads take many registers,
it stores the first elements to shared memory before it loads the last.

If there are few indices, the pass leaves the order to the assembler. `IssueLoads` is a branch, before which
the assembler waits for all loads, also for those that the index does not concern. (Rotary embeddings at given
positions took 43.3 us with such a branch and 39.4 without.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusewright.core.hardware import REGISTER_BYTES
from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.passes.loads import before_gathers, is_load, used_symbols
from fusewright.sym import as_int

# Up to this many loads before the wait for an index, the assembler issues all of them together itself. (It
# does for 8 indices of a table's columns, but not for 16 indices of a bag's rows.)
MAX_INDICES = 8
# Up to this many registers that are loaded before a store to shared memory, the assembler issues almost all
# loads together itself. (In SASS of sm_90 it loads 24 elements of a transpose in one or two steps, and 48
# elements of a sum with a transpose in eight.)
MAX_REGISTERS = 24


def issue_loads(kernel: k.Kernel) -> k.Kernel:
    return k.with_body(kernel, _issued(kernel.body))


def _issued(body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
    ordered = before_gathers(body)
    result = [k.with_children(each, _issued) if _has_own_branches(each) else each for each in ordered]
    first, last = 0, None
    for position, stmt in enumerate(ordered):
        inner = list(k.walk((stmt,)))
        if isinstance(stmt, k.IssueLoads):
            break
        if last is not None and _waits(stmt, ordered[first:position], ordered[position + 1 :]):
            result.insert(last + 1, k.IssueLoads())
            break
        if any(map(is_load, inner)):
            last = position
        if any(isinstance(each, k.COLLECTIVES) for each in inner):  # earlier loads have arrived
            first, last = position + 1, None
    return k.body_of(body, result)


def _has_own_branches(stmt: k.Stmt) -> bool:
    """Whether the pass also changes the body of a statement.

    Iterations of an unrolled loop overlap, which a branch in each iteration would prevent. Under a condition,
    the assembler waited for uniform indices before the branch (in the gradient of an embedding with four
    rows).
    """
    return not isinstance(stmt, k.If) and not (isinstance(stmt, k.For) and stmt.unroll)


def _waits(stmt: k.Stmt, before: Sequence[k.Stmt], after: Sequence[k.Stmt]) -> bool:
    """Whether the assembler would wait for a load at a statement before it has issued all earlier loads."""
    if _names_an_index(stmt, after):
        return sum(map(_loads, before)) > MAX_INDICES
    if not any(map(_fills_a_tile, k.walk((stmt,)))) or sum(map(_registers, before)) <= MAX_REGISTERS:
        return False
    leaves = [each for each in k.walk(tuple(before)) if not isinstance(each, k.NESTING)]
    loaded = {each.dst.buffer for each in leaves if is_load(each)}
    # If one of them reads a loaded value, the thread has waited already.
    return all(loaded.isdisjoint(access.read_buffers(each)) for each in leaves)


def _fills_a_tile(stmt: k.Stmt) -> bool:
    return (
        isinstance(stmt, k.Copy)
        and stmt.dst.buffer.space is k.Space.SHARED
        and isinstance(stmt.src, k.Ref)
        and stmt.src.buffer.space is k.Space.LOCAL
    )


def _names_an_index(stmt: k.Stmt, after: Sequence[k.Stmt]) -> bool:
    """Whether a statement names a loaded index that it, or a statement `after` it, loads by."""
    named = {each.symbol for each in k.walk((stmt,)) if isinstance(each, k.LetValue)}
    loads = (each for each in k.walk((stmt, *after)) if is_load(each)) if named else ()
    return any(not named.isdisjoint(used_symbols(load)) for load in loads)


def _loads(stmt: k.Stmt) -> int:
    """The number of loads of a statement, with all iterations of unrolled loops."""
    return _total(stmt, lambda load: 1)


def _registers(stmt: k.Stmt) -> int:
    """The number of registers that these loads take: at least one per load."""
    return _total(stmt, lambda load: -(-load.width * load.dst.buffer.dtype.size // REGISTER_BYTES))


def _total(stmt: k.Stmt, count: Callable[[k.Copy], int]) -> int:
    if is_load(stmt):
        return count(stmt)
    inner = sum(_total(each, count) for each in k.children(stmt))
    times = as_int(stmt.extent) if isinstance(stmt, k.For) and stmt.unroll else None
    return inner * (1 if times is None else times)
