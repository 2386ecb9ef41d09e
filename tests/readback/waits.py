"""The text of bulk copies, mbarriers, barriers and roles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fusewright.core.enums import CacheOp
from fusewright.kernel.ir import (
    THREAD_AXES,
    TRUE,
    Arrive,
    Barrier,
    BulkCopy,
    InitMbarriers,
    Kernel,
    ProxyFence,
    Ref,
    Role,
    Roles,
    Wait,
    WaitForCopies,
    index_name,
)
from fusewright.sym import ZERO, as_int, const, lt, mod, symbol
from tests.readback.indices import Mismatch
from tests.readback.operands import check_address
from tests.readback.reader import Lines, Reader
from tests.readback.syntax import Expression

_COPIES = {
    CacheOp.unspecified: "fw::bulk_copy",
    CacheOp.streaming: "fw::bulk_copy_cs",
    CacheOp.evict_last: "fw::bulk_copy_el",
}


def team(reader: Reader) -> tuple[Any, ...]:
    """The type of the threads that a collective waits for, as parsed."""
    kernel: Kernel = reader.kernel
    extents = [as_int(extent) or 0 for extent in kernel.block]
    if reader.role is None:
        return "fw::block_shape", *extents
    extents[THREAD_AXES.index(reader.role.axis)] = reader.role.count
    return "fw::role_shape", *extents, reader.role_number


def _call(lines: Lines, name: str, count: int) -> Sequence[Expression]:
    [e] = lines.take("call").parts
    if e[:3] != ("call", name, ()) or len(e[3]) != count:
        raise Mismatch(f"no {name} of {count} operands")
    return e[3]


def read_barrier(reader: Reader, stmt: Barrier, lines: Lines) -> None:
    if reader.role is None:
        _call(lines, "__syncthreads", 0)
        return
    if lines.take("call").parts != (("call", "fw::role_barrier", (team(reader),), ()),):
        raise Mismatch(f"no barrier of role {reader.role.name}")


def read_init_mbarriers(reader: Reader, stmt: InitMbarriers, lines: Lines) -> None:
    buffer, count, arrivals = _call(lines, "fw::init_mbarriers", 3)
    check_address(reader.names, buffer, Ref(stmt.buffer, ZERO))
    reader.names.index(count, stmt.buffer.size)
    reader.names.index(arrivals, stmt.arrivals)


def read_bulk_copy(reader: Reader, stmt: BulkCopy, lines: Lines) -> None:
    if stmt.pred is not TRUE:
        guard = lines.take("if")
        reader.names.index(guard.parts[0], stmt.pred)
        inner = Lines(reader, guard.body)
        read_bulk_copy(reader, replace(stmt, pred=TRUE), inner)
        inner.end()
        return
    dst, src, count, mbarrier = _call(lines, _COPIES[stmt.cache], 4)
    check_address(reader.names, dst, stmt.dst)
    check_address(reader.names, src, stmt.src)
    reader.names.index(count, stmt.count)
    check_address(reader.names, mbarrier, stmt.mbarrier)


def read_arrive(reader: Reader, stmt: Arrive, lines: Lines) -> None:
    [mbarrier] = _call(lines, "fw::arrive_by_warp" if stmt.by_warp else "fw::arrive", 1)
    check_address(reader.names, mbarrier, stmt.mbarrier)


def read_proxy_fence(reader: Reader, stmt: ProxyFence, lines: Lines) -> None:
    _call(lines, "fw::proxy_fence", 0)


def read_wait(reader: Reader, stmt: Wait, lines: Lines) -> None:
    mbarrier, parity = _call(lines, "fw::wait", 2)
    check_address(reader.names, mbarrier, stmt.mbarrier)
    reader.names.index(parity, mod(stmt.phase, 2))


def read_roles(reader: Reader, stmt: Roles, lines: Lines) -> None:
    _roles(reader, stmt.body, 1, lines)


def _roles(reader: Reader, roles: Sequence[Role], number: int, lines: Lines) -> None:
    first, *others = roles
    if not others:
        _role(reader, first, number, lines)
        return
    guard = lines.take("if")
    place = symbol(index_name(first.axis), lo=0)
    reader.names.index(guard.parts[0], lt(place, const(first.first + first.count)))
    _role(reader, first, number, Lines(reader, guard.body))
    rest = Lines(reader, lines.take("else").body)
    _roles(reader, others, number + 1, rest)
    rest.end()


def _role(reader: Reader, stmt: Role, number: int, lines: Lines) -> None:
    if stmt.registers:
        [e] = lines.take("call").parts
        if e[1] not in ("fw::take_registers", "fw::give_registers") or e[2] != (stmt.registers,):
            raise Mismatch(f"role {stmt.name} has no {stmt.registers} registers")
    reader.role, reader.role_number = stmt, number
    with reader.scope():
        reader.body(stmt.body, lines)
    reader.role = None


def read_role(reader: Reader, stmt: Role, lines: Lines) -> None:
    raise Mismatch("a role that is none of a block's roles")


def read_wait_for_copies(reader: Reader, stmt: WaitForCopies, lines: Lines) -> None:
    if lines.take("call").parts != (("call", "fw::wait_for_copies", (), ()),):
        raise Mismatch("copies are not waited for")
