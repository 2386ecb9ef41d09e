"""Bank conflicts of a kernel's shared memory accesses and sectors of its loads, from index expressions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fusewright.core.enums import ParallelType
from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.schedulers.sectors import SECTOR_BYTES
from fusewright.sym import Expr, Symbol, as_int, evaluate, substitute

WARP, BANKS, BANK_BYTES = 32, 32, 4
# 0 in the first warp of the first block, which is at least a warp wide.
_BEYOND_THE_WARP = {
    k.index_name(kind) for kind in (ParallelType.block_y, ParallelType.block_z, ParallelType.grid_x)
}


def shared_accesses(kernel: k.Kernel, sizes: Mapping[Symbol, int] | None = None) -> list[tuple[str, int]]:
    """(text, most ways) of every access of the first warp: 1 where it has no conflicts.

    `sizes`: what the kernel's size symbols stand for, where indices depend on them.

    Lanes are served together as far as they ask for 128 bytes at most (CUDA C++ Best Practices Guide); lanes
    that ask for the same word are served at once.
    """
    found: dict[str, int] = {}
    for stmt, values in _points(kernel.body, {}, sizes or {}):
        width = stmt.width if isinstance(stmt, k.Copy) else 1
        for ref in (*access.read_refs(stmt), *access.written_refs(stmt)):
            if ref.buffer.space is k.Space.SHARED:
                ways = _ways(ref, width * ref.buffer.dtype.size, values)
                text = f"{ref.buffer.name}[{ref.index}]"
                found[text] = max(found.get(text, 1), ways)
    return list(found.items())


def loaded_sectors(kernel: k.Kernel) -> dict[str, int]:
    """By tensor: the most sectors of global memory that a load of the first warp touches."""
    found: dict[str, int] = {}
    for stmt, values in _points(kernel.body, {}, {}):
        if isinstance(stmt, k.Copy):
            for ref in access.read_refs(stmt):
                if ref.buffer.space is k.Space.GLOBAL:
                    starts = _starts(ref, values)
                    sectors = {start // SECTOR_BYTES for start in starts}
                    found[ref.buffer.name] = max(found.get(ref.buffer.name, 0), len(sectors))
    return found


def _points(
    body: tuple[k.Stmt, ...], names: Mapping[Symbol, Expr], loops: Mapping[Symbol, int]
) -> Iterator[tuple[k.Stmt, tuple[Mapping[Symbol, Expr], Mapping[Symbol, int]]]]:
    """Every statement at every point of the loops around it."""
    known = dict(names)
    for stmt in body:
        yield stmt, (known, loops)
        if isinstance(stmt, k.Let):
            known[stmt.symbol] = substitute(stmt.value, known)
        elif isinstance(stmt, k.For):
            for i in range(as_int(stmt.extent) or 0):
                yield from _points(stmt.body, known, {**loops, stmt.symbol: i})
        elif isinstance(stmt, k.If):
            yield from _points(stmt.body, known, loops)


def _starts(ref: k.Ref, values: tuple[Mapping[Symbol, Expr], Mapping[Symbol, int]]) -> list[int]:
    """Where each lane's access begins, in bytes."""
    names, loops = values
    index = substitute(ref.index, names)
    (lane,) = (s for s in index.free_symbols if s.name == k.index_name(ParallelType.block_x))
    above = {s: 0 for s in index.free_symbols if s.name in _BEYOND_THE_WARP}
    assert index.free_symbols <= {lane, *loops, *above}
    step = ref.buffer.dtype.size
    return [evaluate(index, {**loops, **above, lane: i}) * step for i in range(WARP)]


def _ways(ref: k.Ref, size: int, values: tuple[Mapping[Symbol, Expr], Mapping[Symbol, int]]) -> int:
    starts = _starts(ref, values)
    together = max(1, min(WARP, BANKS * BANK_BYTES // size))
    worst = 1
    for first in range(0, WARP, together):
        words: dict[int, set[int]] = {}
        for start in starts[first : first + together]:
            for word in range(start // BANK_BYTES, -(-(start + size) // BANK_BYTES)):
                words.setdefault(word % BANKS, set()).add(word)
        worst = max(worst, *(len(asked) for asked in words.values()))
    return worst
