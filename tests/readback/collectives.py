"""The text of reductions and scans of blocks, and of reductions of the grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fusewright.kernel.ir import (
    BLOCK_AXES,
    THREAD_AXES,
    TRUE,
    BlockReduce,
    BlockScan,
    Buffer,
    ClusterReduce,
    GridBarrier,
    GridReduce,
    GridReduces,
    GridScan,
    Ref,
    walk,
)
from fusewright.sym import ZERO
from tests.readback.indices import Mismatch
from tests.readback.operands import check_address, check_element
from tests.readback.reader import TURN, Lines, Reader
from tests.readback.structs import Struct
from tests.readback.syntax import Expression
from tests.readback.waits import team


def _collective(
    reader: Reader,
    stmt: BlockReduce | ClusterReduce | GridReduce,
    lines: Lines,
    call: Callable[[Lines, str, Struct], None],
) -> None:
    """The states of `src` go into an array, `call` reduces it, and `dst` takes it up."""
    inner = Lines(reader, lines.take("block").body)
    partial, struct = _gathered(reader, stmt, inner)
    call(inner, partial, struct)
    _taken_up(reader, stmt, inner, partial, struct)
    inner.end()


def _gathered(
    reader: Reader, stmt: BlockReduce | ClusterReduce | GridReduce, inner: Lines
) -> tuple[str, Struct]:
    """The array that the states of `src` go into."""
    op, dtype = stmt.op, reader.reduced(stmt.op, stmt.dst)
    _, kind, partial, count, value = inner.take("declare").parts
    struct = reader.structs.get(kind)
    if struct is None or count != stmt.width or value is not None:
        raise Mismatch(f"no array of {stmt.width} states")
    struct.check(op, dtype, reader.names, isinstance(stmt, ClusterReduce))
    with reader.each(stmt.width, inner) as (each, w):
        target, states = each.take("assign").parts
        reader.check_partial(target, partial, w)
        if stmt.pred is not TRUE:
            if states[0] != "?:" or states[3] != ("call", f"{kind}::identity", (), ()):
                raise Mismatch("threads without a part do not contribute the identity")
            reader.names.index(states[1], stmt.pred)
            states = states[2]
        if states[:2] != ("braces", kind):
            raise Mismatch(f"no states of {kind}")
        matchers = reader.contributions(op, dtype, stmt.src, w)
        if len(matchers) != len(states[2]):
            raise Mismatch(f"{len(matchers)} states are expected")
        for matcher, state in zip(matchers, states[2]):
            matcher(state)
    return partial, struct


def _taken_up(
    reader: Reader,
    stmt: BlockReduce | ClusterReduce | GridReduce,
    inner: Lines,
    partial: str,
    struct: Struct,
) -> None:
    """`dst` takes up what was reduced."""
    with reader.each(stmt.width, inner) as (each, w):
        into = [
            lambda e, ref=ref: check_element(reader.names, e, ref, w)  # type: ignore[misc]
            for ref in stmt.dst
        ]
        values = [
            lambda e, field=field: reader.check_field(e, partial, w, field)  # type: ignore[misc]
            for field in struct.fields
        ]
        reader.combined(stmt.op, reader.reduced(stmt.op, stmt.dst), each, into, values)


def _memory(reader: Reader, e: Expression, buffers: Sequence[Buffer | None]) -> None:
    """`e` is the initializer of a Memory over these buffers."""
    if e[:2] != ("braces", "") or len(e[2]) != len(buffers):
        raise Mismatch(f"{len(buffers)} buffers are expected")
    for part, buffer in zip(e[2], buffers):
        if buffer is None:
            if part != ("name", "nullptr"):
                raise Mismatch("no null pointer")
        else:
            check_address(reader.names, part, Ref(buffer, ZERO))


def _bits(axes: Sequence[Any], of: Sequence[Any]) -> int:
    return sum(2 ** of.index(axis) for axis in axes)


def read_block_reduce(reader: Reader, stmt: BlockReduce, lines: Lines) -> None:
    def check(inner: Lines, partial: str, struct: Struct) -> None:
        [e] = inner.take("call").parts
        ordered = (1,) if stmt.ordered else ()
        template = struct.name, _bits(stmt.axes, THREAD_AXES), team(reader), *ordered
        if e[:3] != ("call", "fw::block_reduce", template) or e[3][0] != ("name", partial):
            raise Mismatch(f"no reduction of {partial} over {', '.join(a.name for a in stmt.axes)}")
        _memory(reader, e[3][1], stmt.workspace)

    _collective(reader, stmt, lines, check)


def read_cluster_reduce(reader: Reader, stmt: ClusterReduce, lines: Lines) -> None:
    def check(inner: Lines, partial: str, struct: Struct) -> None:
        [e] = inner.take("call").parts
        blocks = reader.kernel.cluster
        template = struct.name, _bits(stmt.axes, THREAD_AXES), team(reader), blocks
        if e[:3] != ("call", "fw::cluster_reduce", template) or e[3][0] != ("name", partial):
            raise Mismatch(f"no reduction of {partial} over clusters of {blocks} blocks")
        _memory(reader, e[3][1], stmt.workspace)
        _memory(reader, e[3][2], stmt.exchange)
        if e[3][3] != ("name", TURN):
            raise Mismatch("no count of the reductions across clusters")

    _collective(reader, stmt, lines, check)


def read_block_scan(reader: Reader, stmt: BlockScan, lines: Lines) -> None:
    _read_scan(reader, stmt, lines, "fw::block_scan", (_bits((stmt.axis,), THREAD_AXES),))


def read_grid_scan(reader: Reader, stmt: GridScan, lines: Lines) -> None:
    axes = _bits((stmt.grid_axis,), BLOCK_AXES), _bits((stmt.thread_axis,), THREAD_AXES)
    exchange, *rounds = _read_scan(reader, stmt, lines, "fw::grid_scan", axes)
    check_address(reader.names, exchange, Ref(stmt.exchange, ZERO))
    if rounds != [("name", name) for name in reader.exchanges[stmt.exchange]]:
        raise Mismatch("no count of the rounds, or not the one before the first")


def _read_scan(
    reader: Reader, stmt: BlockScan | GridScan, lines: Lines, function: str, axes: tuple[int, ...]
) -> tuple[Expression, ...]:
    """What is brought and the carry go into arrays, one call scans, and both are taken up.

    Returns what is left of the arguments of the call.
    """
    dtype = reader.reduced(stmt.op, stmt.dst)
    inner = Lines(reader, lines.take("block").body)
    arrays = []
    for _ in range(2):
        const, kind, name, count, value = inner.take("declare").parts
        struct = reader.structs.get(kind)
        if const or struct is None or count != stmt.width or value is not None:
            raise Mismatch(f"no array of {stmt.width} states")
        struct.check(stmt.op, dtype, reader.names)
        arrays.append(name)
    scanned, carried = arrays
    if scanned == carried or reader.reduced(stmt.op, stmt.carry) is not dtype:
        raise Mismatch("what is scanned is not what is carried")
    with reader.each(stmt.width, inner) as (each, w):
        for name, refs in ((scanned, stmt.src), (carried, stmt.carry)):
            target, states = each.take("assign").parts
            reader.check_partial(target, name, w)
            if states[:2] != ("braces", struct.name) or len(states[2]) != len(refs):
                raise Mismatch(f"no states of {struct.name}")
            for e, ref in zip(states[2], refs):
                check_element(reader.names, e, ref, w)
    [e] = inner.take("call").parts
    template = struct.name, *axes, team(reader)
    if e[:3] != ("call", function, template) or e[3][:2] != (("name", scanned), ("name", carried)):
        raise Mismatch(f"no scan along {axes}")
    _memory(reader, e[3][2], stmt.workspace)
    rest: tuple[Expression, ...] = e[3][3:]
    with reader.each(stmt.width, inner) as (each, w):
        for name, refs in ((scanned, stmt.dst), (carried, stmt.carry)):
            for ref, field in zip(refs, struct.fields):
                target, value = each.take("assign").parts
                check_element(reader.names, target, ref, w)
                reader.check_field(value, name, w, field)
    inner.end()
    return rest


def read_beginnings(reader: Reader, lines: Lines) -> None:
    """What a kernel begins with for each buffer that blocks of the grid exchange through.

    Blocks that reduce along the same axes are counted once, so that one of them is last in all reductions.
    """
    started: dict[object, str] = {}
    for stmt in walk(reader.kernel.body):
        if not isinstance(stmt, (GridReduce, GridScan)) or stmt.exchange in reader.exchanges:
            continue
        const, kind, counted, count, value = lines.take("declare").parts
        if (const, kind, count) != (False, "unsigned", None) or value[:3] != ("call", "fw::grid_round", ()):
            raise Mismatch("the rounds of a collective of the grid are not counted")
        check_address(reader.names, value[3][0], Ref(stmt.exchange, ZERO))
        started_before = None
        leaves_last = isinstance(stmt, GridReduce) and stmt.is_last is not None
        axes = (_bits(stmt.grid_axes, BLOCK_AXES),) if leaves_last else None
        if axes in started:
            started_before = started[axes]
        elif axes is not None:
            const, kind, started_before, count, value = lines.take("declare").parts
            if (const, kind, count) != (True, "unsigned", None) or value[:3] != (
                *("call", "fw::grid_started_before"),
                axes,
            ):
                raise Mismatch("no block counts that it has started")
            check_address(reader.names, value[3][0], Ref(stmt.exchange, ZERO))
            started[axes] = started_before
        first = None
        if isinstance(stmt, GridScan):
            const, kind, first, count, value = lines.take("declare").parts
            if (const, kind, count, value) != (True, "unsigned", None, ("name", counted)):
                raise Mismatch("no count of the round before the first")
        reader.exchanges[stmt.exchange] = counted, started_before or first


def _declared_last(reader: Reader, stmt: GridReduce, lines: Lines) -> str:
    assert stmt.is_last is not None
    const, kind, last, count, value = lines.take("declare").parts
    if const or kind != reader.index or count is not None or value is not None:
        raise Mismatch(f"no declaration of {stmt.is_last.name}")
    reader.names.define(last, kind, stmt.is_last)
    return last


def _check_grid_call(
    reader: Reader, e: Expression, function: str, stmt: GridReduce, partial: str, struct: Struct
) -> tuple[Expression, ...]:
    """What is left of the arguments behind those that all such calls have."""
    grid, threads = _bits(stmt.grid_axes, BLOCK_AXES), _bits(stmt.thread_axes, THREAD_AXES)
    if e[:3] != ("call", function, (struct.name, grid, threads, team(reader))):
        raise Mismatch("no such reduction of the grid")
    values, workspace, exchange, round_, *rest = e[3]
    if values != ("name", partial):
        raise Mismatch(f"{partial} is not what is reduced")
    _memory(reader, workspace, stmt.workspace)
    check_address(reader.names, exchange, Ref(stmt.exchange, ZERO))
    counted, started_before = reader.exchanges[stmt.exchange]
    if round_ != ("name", counted):
        raise Mismatch("no count of the rounds")
    if started_before is not None and rest.pop(0) != ("name", started_before):
        raise Mismatch("it is not said how many blocks started before")
    return tuple(rest)


def read_grid_reduce(reader: Reader, stmt: GridReduce, lines: Lines) -> None:
    last = None if stmt.is_last is None else _declared_last(reader, stmt, lines)

    def check(inner: Lines, partial: str, struct: Struct) -> None:
        if last is None:
            [e] = inner.take("call").parts
        else:
            target, e = inner.take("assign").parts
            if target != ("name", last):
                raise Mismatch(f"{last} is not assigned")
        function = "fw::grid_all_reduce" if last is None else "fw::grid_reduce"
        if _check_grid_call(reader, e, function, stmt, partial, struct):
            raise Mismatch("arguments that no reduction has")

    _collective(reader, stmt, lines, check)


def read_grid_reduces(reader: Reader, stmt: GridReduces, lines: Lines) -> None:
    """Each goes into an array, one call reduces them all, and each is taken up."""
    lasts = [_declared_last(reader, each, lines) for each in stmt.body]
    inner = Lines(reader, lines.take("block").body)
    found = [_gathered(reader, each, inner) for each in stmt.body]
    [e] = inner.take("call").parts
    if e[:3] != ("call", "fw::grid_reduce_together", ()) or len(e[3]) != len(stmt.body):
        raise Mismatch(f"no {len(stmt.body)} reductions of the grid together")
    for part, each, last, (partial, struct) in zip(e[3], stmt.body, lasts, found):
        if _check_grid_call(reader, part, "fw::grid_part", each, partial, struct) != (("name", last),):
            raise Mismatch(f"{last} is not set")
    for each, (partial, struct) in zip(stmt.body, found):
        _taken_up(reader, each, inner, partial, struct)
    inner.end()


def read_grid_barrier(reader: Reader, stmt: GridBarrier, lines: Lines) -> None:
    [e] = lines.take("call").parts
    if e[:3] != ("call", "fw::grid_barrier", ()) or len(e[3]) != 1:
        raise Mismatch("no barrier of the grid")
    check_address(reader.names, e[3][0], Ref(stmt.semaphore, ZERO))
