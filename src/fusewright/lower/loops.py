"""Determines which axes share a loop, and orders all statements in one loop nest."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fusewright.analyze.shared_loops import LoopPosition, SharedLoops
from fusewright.core.enums import ParallelType
from fusewright.core.errors import ScheduleError
from fusewright.ir.node import Node
from fusewright.ir.value import TensorView
from fusewright.kernel.ir import CLUSTER_INDEX, CLUSTER_RANK, For, Let, Stmt, index_name, index_symbol
from fusewright.lower.domains import Domains
from fusewright.sym import ONE, ZERO, Expr, Symbol, as_int, floordiv, maximum, mod, symbol

_LOWERED = {p for p in ParallelType if p.is_thread} | {
    ParallelType.serial,
    ParallelType.tma,
    ParallelType.unroll,
    ParallelType.unswitch,
    ParallelType.vectorize,
}
#: The names of a block's positions in a kernel with clusters.
_CLUSTERED = {ParallelType.grid_x: CLUSTER_INDEX, ParallelType.cluster_x: CLUSTER_RANK}
_UNROLLED = (ParallelType.unroll, ParallelType.unswitch, ParallelType.vectorize)


@dataclass(eq=False)
class Loop:
    """The loop that a class of axes shares.

    Attributes:
        extent, parallel, padded: as of the axes.
        place: the position in an iteration: a loop variable, or a thread's or block's index. None until
            `name_loops` has assigned it.
        unroll: whether the loop is unrolled.
        trips: the number of iterations, if a block has fewer than `extent`.
    """

    extent: Expr
    parallel: ParallelType
    padded: int
    place: Expr | None = None
    unroll: bool = False
    trips: Expr | None = None

    @property
    def index(self) -> Expr:
        assert self.place is not None, "a loop without an index: name_loops comes first"
        return self.place

    @property
    def is_parallel(self) -> bool:
        return self.parallel.is_block or self.parallel.is_grid

    @property
    def is_real(self) -> bool:
        """Whether the kernel has a loop for it."""
        return not self.is_parallel and as_int(self.extent) != 1


class LoopMap:
    """The loops of every node: `of(node)` outermost first, one per loop axis of its lead output."""

    def __init__(self, nodes: Sequence[Node], domains: Domains) -> None:
        shared = SharedLoops(nodes)
        members: dict[LoopPosition, list[LoopPosition]] = {}
        classes: dict[Node, list[LoopPosition]] = {}
        for node in nodes:
            positions = [(node.output, position) for position in range(len(node.output.loop))]
            classes[node] = [shared.of(position) for position in positions]
            for representative, position in zip(classes[node], positions):
                members.setdefault(representative, []).append(position)
        self._loops = {key: _make_loop(positions, domains) for key, positions in members.items()}
        self._of = {node: tuple([self._loops[key] for key in keys]) for node, keys in classes.items()}

    def of(self, node: Node) -> tuple[Loop, ...]:
        return self._of[node]

    def all(self) -> Iterable[Loop]:
        return self._loops.values()


def _make_loop(positions: Sequence[LoopPosition], domains: Domains) -> Loop:
    extents: dict[Expr, TensorView] = {}
    kinds: dict[ParallelType, TensorView] = {}
    padded = 1
    for tensor, position in positions:
        axis = tensor.loop[position]
        extents.setdefault(domains.extent(tensor, axis), tensor)
        kinds.setdefault(axis.parallel, tensor)
        padded = max(padded, axis.padded)
    # A tensor whose axis has extent 1 does not determine the extent of the shared loop.
    extents.pop(ONE, None)
    if len(extents) > 1:
        (e1, t1), (e2, t2) = list(extents.items())[:2]
        raise ScheduleError(
            f"inlined tensors {t1.name} and {t2.name} share a loop but differ in its extent: {e1} and {e2}",
            hint="inline them less far",
        )
    if len(kinds) > 1:
        (k1, t1), (k2, t2) = list(kinds.items())[:2]
        raise ScheduleError(
            f"inlined tensors {t1.name} and {t2.name} share a loop that one binds to {k1.name}, "
            f"the other to {k2.name}",
            hint="call parallelize_like before inlining",
        )
    kind = next(iter(kinds))
    if kind not in _LOWERED:
        tensor = kinds[kind]
        raise ScheduleError(
            f"{tensor.name} has an axis bound to {kind.name}, which no kernel makes use of yet",
            hint="leave the axis serial, or bind it to threads or blocks",
        )
    extent = next(iter(extents), ONE)
    return Loop(extent, kind, padded, unroll=kind in _UNROLLED and as_int(extent) is not None)


def name_loops(nodes: Sequence[Node], loops: LoopMap, dims: dict[ParallelType, Expr]) -> None:
    """Gives every loop its index. The order of the program makes names reproducible."""
    from_thread = {}
    count = 0
    seen: set[int] = set()
    for node in nodes:
        for loop in loops.of(node):
            if id(loop) in seen:
                continue
            seen.add(id(loop))
            if as_int(loop.extent) == 1:
                # If other loops have more threads or blocks along this axis, all of them do the same work.
                loop.place = ZERO
            elif loop.is_parallel:
                if loop.parallel not in from_thread:
                    from_thread[loop.parallel] = position(loop.parallel, dims)
                loop.place = from_thread[loop.parallel]
            else:
                loop.place = symbol(f"j{count}", lo=0, hi=loop.extent - 1)
                count += 1


def position(parallel: ParallelType, dims: Mapping[ParallelType, Expr]) -> Expr:
    """The position of a thread or block along an axis.

    Args:
        dims: the extents of all thread and block axes.
    """
    dim = dims[parallel]
    if as_int(dim) == 1:
        return ZERO
    name = _CLUSTERED.get(parallel) if ParallelType.cluster_x in dims else None
    return index_symbol(parallel, dim) if name is None else symbol(name, lo=0, hi=dim - 1)


def position_names(parallel: ParallelType) -> tuple[str, ...]:
    """The names that a position along an axis may have."""
    names = (_CLUSTERED.get(parallel), None if parallel is ParallelType.cluster_x else index_name(parallel))
    return tuple(name for name in names if name is not None)


def cluster_size(dims: Mapping[ParallelType, Expr]) -> int:
    """The number of blocks of a cluster; 1 without clusters.

    Raises:
        ScheduleError: the number is not constant, or is zero.
    """
    extent = dims.get(ParallelType.cluster_x, ONE)
    size = as_int(extent)
    if size is None or size < 1:
        raise ScheduleError(
            "the blocks of a cluster are not constant",
            expected="an axis of constant extent, as the factor of a split is",
            given=str(extent),
        )
    return size


def cluster_places(dims: Mapping[ParallelType, Expr]) -> list[Stmt]:
    """Defines the positions of a block in its cluster and of the cluster. Clusters lie along x."""
    size = cluster_size(dims)
    if size == 1:
        return []
    grid = dims.get(ParallelType.grid_x, ONE)
    block = index_symbol(ParallelType.grid_x, maximum(grid, ONE) * size)
    places = {ParallelType.grid_x: floordiv(block, size), ParallelType.cluster_x: mod(block, size)}
    symbols = {parallel: position(parallel, dims) for parallel in places if parallel in dims}
    return [Let(s, places[parallel]) for parallel, s in symbols.items() if isinstance(s, Symbol)]


@dataclass(eq=False)
class Item:
    """Statements of a node, or of a part of one.

    Attributes:
        loops: the loops around the statements, without thread and block axes and axes of extent 1.
        body: the statements.
        reads, writes: the tensors that they read and write.
        order: the position in program order.
        reduces: the loops that must end before the value that the item writes is complete.
        depends: the order numbers of items that precede it.
        barriers: the number of grid barriers that precede it.
    """

    loops: tuple[Loop, ...]
    body: Sequence[Stmt]
    reads: tuple[TensorView, ...]
    writes: tuple[TensorView, ...]
    order: int
    reduces: tuple[Loop, ...] = ()
    depends: set[int] = field(default_factory=set)
    barriers: int = 0

    def __post_init__(self) -> None:
        self.loops = tuple(loop for loop in self.loops if loop.is_real)


def link(items: Sequence[Item]) -> None:
    """Sets the dependences between items in program order.

    An item depends on the earlier writers of tensors that it reads or writes.

    Raises:
        ScheduleError: an item reads a reduction inside a loop of the reduction.
    """
    writers: dict[TensorView, list[Item]] = {}
    for item in items:
        for value in item.reads:
            if any(loop in item.loops for writer in writers.get(value, ()) for loop in writer.reduces):
                raise ScheduleError(
                    f"{', '.join(t.name for t in item.writes)} reads the reduction {value.name} inside the "
                    "loop that is reduced, where it is not complete",
                    hint=f"inline {value.name} less far",
                )
        for value in (*item.reads, *item.writes):
            item.depends.update(w.order for w in writers.get(value, ()) if w is not item)
        for value in item.writes:
            writers.setdefault(value, []).append(item)


def build_nest(items: Sequence[Item], depth: int = 0) -> list[Stmt]:
    """The statements of `items` inside their common outer `depth` loops.

    Items that share their next loop form one cluster. Clusters are ordered by dependence, then by the number
    of grid barriers before them, so that one barrier serves all tensors that blocks exchange at a time, and
    then by first item.

    Raises:
        ScheduleError: clusters depend on each other, since tensors are inlined too far.
    """
    clusters: dict[object, list[Item]] = {}
    for item in items:
        key: object = item.loops[depth] if len(item.loops) > depth else item
        clusters.setdefault(key, []).append(item)
    home = {item.order: key for key, members in clusters.items() for item in members}
    waiting: dict[object, set[object]] = {
        key: {home[d] for item in members for d in item.depends if d in home and home[d] is not key}
        for key, members in clusters.items()
    }
    users: dict[object, list[object]] = {}
    for key, needs in waiting.items():
        for need in needs:
            users.setdefault(need, []).append(key)
    rank = {
        key: (max([item.barriers for item in members]), members[0].order) for key, members in clusters.items()
    }
    ready = [(rank[key], i, key) for i, (key, needs) in enumerate(waiting.items()) if not needs]
    heapq.heapify(ready)
    position = {key: i for i, key in enumerate(clusters)}
    body: list[Stmt] = []
    done = 0
    while ready:
        _, _, key = heapq.heappop(ready)
        done += 1
        body += _emit(key, clusters[key], depth)
        for user in users.get(key, ()):
            waiting[user].discard(key)
            if not waiting[user]:
                heapq.heappush(ready, (rank[user], position[user], user))
    if done < len(clusters):
        names = sorted(
            str(w) for key, needs in waiting.items() if needs for m in clusters[key] for w in m.writes
        )
        raise ScheduleError(
            f"the inlining of {', '.join(names)} makes loops that need each other's results",
            hint="inline the tensors between them less far",
        )
    return body


def _emit(key: object, members: list[Item], depth: int) -> list[Stmt]:
    if isinstance(key, Item):
        return list(key.body)
    assert isinstance(key, Loop)
    assert isinstance(key.index, Symbol)
    trips = key.extent if key.trips is None else key.trips
    return [For(key.index, trips, tuple(build_nest(members, depth + 1)), key.unroll)]
