"""Whether a kernel may write a result over one of its inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from fusewright.kernel import ir as k
from fusewright.kernel.access import conditions, read_refs, written_refs
from fusewright.sym import Eq, Expr, Symbol, as_int, substitute, symbol


def may_overwrite(kernel: k.Kernel, source: k.Buffer, target: k.Buffer, sizes: Mapping[Symbol, int]) -> bool:
    """Whether `target` may share the memory of `source`, element by element.

    It may if one statement reads `source`, no earlier one writes `target`, and both use the same position in
    terms of the thread and the loops around them, another one for each thread and iteration: then whoever
    overwrites an element is the only one to read it, and has read it before. (Of two different loops the
    first runs through before the second begins.) `sizes` are the values of the kernel's symbols.
    """
    reads: list[_Access] = []
    writes: list[_Access] = []
    for place in _places(kernel.body):
        read, written = read_refs(place.stmt), written_refs(place.stmt)
        if any(ref.buffer is target for ref in read) or any(ref.buffer is source for ref in written):
            return False
        reads += [_Access(place, ref, sizes) for ref in read if ref.buffer is source]
        writes += [_Access(place, ref, sizes) for ref in written if ref.buffer is target]
    if not reads:
        return True
    if len(reads) != 1 or len(writes) != 1:
        return False
    (read_,), (write,) = reads, writes
    order = [place.stmt for place in _places(kernel.body)]
    positions = {id(stmt): i for i, stmt in enumerate(order)}
    return (
        read_.key == write.key
        and positions[id(read_.stmt)] <= positions[id(write.stmt)]
        and not write.chosen
        and write.symbols >= _threads(kernel, sizes)
    )


@dataclass(frozen=True, eq=False)
class _Place:
    """A statement with the loops around it, its conditions and those around it, and the names given before:
    `names` to expressions, `loaded` to values.
    """

    stmt: k.Stmt
    loops: tuple[k.For, ...]
    conditions: tuple[Expr, ...]
    names: Mapping[Symbol, Expr]
    loaded: frozenset[Symbol]


class _Access:
    """One reference, in a form that can be compared with accesses in other loops: loops are named by depth,
    sizes are numbers.

    Attributes:
        chosen: whether a condition selects one of several threads for it, or a loaded index may lead several
            to the same element.
        symbols: the names of the thread positions that the index depends on, if it also depends on every loop
            around it (else empty).
    """

    def __init__(self, place: _Place, ref: k.Ref, sizes: Mapping[Symbol, int]) -> None:
        self.stmt = place.stmt
        depths = {loop.symbol: symbol(f"depth{i}") for i, loop in enumerate(place.loops)}
        index = substitute(substitute(ref.index, place.names), {**sizes, **depths})
        extents = tuple(substitute(loop.extent, sizes) for loop in place.loops)
        width = place.stmt.width if isinstance(place.stmt, k.Copy) else 1
        self.key = (index, width, extents)
        used = index.free_symbols
        self.chosen = any(map(_has_equality, place.conditions)) or not place.loaded.isdisjoint(used)
        looping = {depths[loop.symbol] for loop, e in zip(place.loops, extents) if as_int(e) != 1}
        self.symbols = {s.name for s in used} if looping <= used else set()


def _places(
    body: tuple[k.Stmt, ...],
    loops: tuple[k.For, ...] = (),
    around: tuple[Expr, ...] = (),
    names: Mapping[Symbol, Expr] = MappingProxyType({}),
    loaded: frozenset[Symbol] = frozenset(),
) -> Iterator[_Place]:
    """All statements in program order."""
    known = dict(names)
    for stmt in body:
        if isinstance(stmt, k.Let):
            known[stmt.symbol] = substitute(stmt.value, known)
        elif isinstance(stmt, k.LetValue):
            loaded |= {stmt.symbol}
        own = () if isinstance(stmt, k.For) else tuple(conditions(stmt))
        yield _Place(stmt, loops, (*around, *own), dict(known), loaded)
        inner_loops = (*loops, stmt) if isinstance(stmt, k.For) else loops
        yield from _places(k.children(stmt), inner_loops, (*around, *own), known, loaded)


def _has_equality(condition: Expr) -> bool:
    """Whether some part of it compares for equality, as the choice of one of several threads does."""
    parts: Sequence[Expr] = [condition]
    while parts:
        if any(isinstance(part, Eq) for part in parts):
            return True
        parts = [argument for part in parts for argument in part.args]
    return False


def _threads(kernel: k.Kernel, sizes: Mapping[Symbol, int]) -> set[str]:
    """The built-ins of the block and grid axes that have more than one position."""
    axes = (*k.THREAD_AXES, *k.BLOCK_AXES)
    extents = (*kernel.block, *kernel.grid)
    return {k.index_name(axis) for axis, e in zip(axes, extents) if as_int(substitute(e, sizes)) != 1}
