"""The rules of `verify` for mbarriers, bulk copies and roles."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fusewright.core.dtype import DataType
from fusewright.core.hardware import WARP_GROUP, WARP_SIZE
from fusewright.kernel.ir import THREAD_AXES, Ref, Space, Stmt
from fusewright.kernel.waits import (
    HINTS_OF_COPIES,
    Arrive,
    BulkCopy,
    InitMbarriers,
    ProxyFence,
    Role,
    Roles,
    Wait,
    WaitForCopies,
)
from fusewright.sym import as_int, product, to_text

if TYPE_CHECKING:
    from fusewright.kernel.verify import Verifier

# The register counts that setmaxnreg accepts (PTX ISA).
_REGISTERS = range(24, 257, 8)


def _init_mbarriers(v: Verifier, stmt: InitMbarriers) -> None:
    v.collective()
    v.buffer(stmt.buffer, Space.SHARED)
    if stmt.buffer.dtype is not DataType.Int:
        v.fail(f"mbarriers are Int, {stmt.buffer.name} is {stmt.buffer.dtype.name}")
    if v.role is not None or v.loops:
        v.fail("mbarriers begin once, before loops and roles")
    if v.varies(stmt.arrivals):
        v.fail(f"the arrivals {to_text(stmt.arrivals)} differ between threads")
    v.mbarriers.add(stmt.buffer)


def _mbarrier(v: Verifier, ref: Ref) -> None:
    if ref.buffer not in v.mbarriers:
        v.fail(f"nothing has begun the mbarriers {ref.buffer.name}")
    if v.divergent is None and v.varies(ref.index):
        v.fail(f"{ref.buffer.name}[{to_text(ref.index)}] differs between threads")


def _bulk_copy(v: Verifier, stmt: BulkCopy) -> None:
    given, wanted = stmt.src.buffer.dtype, stmt.dst.buffer.dtype
    if given is not wanted:
        v.fail(f"{stmt.src.buffer.name} is {given.name}, its destination {wanted.name}")
    v.buffer(stmt.dst.buffer, Space.SHARED)
    v.buffer(stmt.src.buffer, Space.GLOBAL)
    v.predicate(stmt.pred)
    if stmt.cache not in HINTS_OF_COPIES:
        v.fail(f"a bulk copy with the hint {stmt.cache.name}")
    _mbarrier(v, stmt.mbarrier)


def _arrive(v: Verifier, stmt: Arrive) -> None:
    if stmt.by_warp:
        v.collective()
    _mbarrier(v, stmt.mbarrier)


def _proxy_fence(v: Verifier, stmt: ProxyFence) -> None:
    """No rules: each thread orders its own accesses."""


def _wait_for_copies(v: Verifier, stmt: WaitForCopies) -> None:
    """No rules: each thread waits for its own copies."""


def _wait(v: Verifier, stmt: Wait) -> None:
    _mbarrier(v, stmt.mbarrier)
    if v.divergent is None and v.varies(stmt.phase):
        v.fail(f"the phase {to_text(stmt.phase)} differs between threads")


def _roles(v: Verifier, stmt: Roles) -> None:
    v.collective()
    if v.loops or v.depth > 1 or v.has_roles:
        v.fail("a kernel has roles once, outside of loops and conditions")
    v.has_roles = True
    axis, end = stmt.body[0].axis, 0
    place = THREAD_AXES.index(axis)
    inner = as_int(product(v.kernel.block[:place]))
    if inner is None or any(as_int(extent) != 1 for extent in v.kernel.block[place + 1 :]):
        v.fail(f"roles along {axis.ir_name} need constant extents before it and none after it")
    for role in stmt.body:
        if role.axis is not axis or role.first != end or role.count < 1:
            v.fail(f"role {role.name} does not follow the one before it")
        end = role.first + role.count
        threads = inner * role.count
        if threads % WARP_SIZE:
            v.fail(f"role {role.name} has {threads} threads, no whole warps")
        if role.registers and (role.registers not in _REGISTERS or threads % WARP_GROUP):
            v.fail(f"role {role.name} of {threads} threads cannot have {role.registers} registers a thread")
        v.stmt = role
        with v.scope():
            v.role = role
            v.body(role.body)
            v.role = None
    if as_int(v.kernel.block[place]) != end:
        v.fail(f"the roles cover {end} of {to_text(v.kernel.block[place])} threads along {axis.ir_name}")


def _role(v: Verifier, stmt: Role) -> None:
    v.fail("a role that is none of a block's roles")


RULES: dict[type[Stmt], Callable[[Verifier, Any], None]] = {
    InitMbarriers: _init_mbarriers,
    BulkCopy: _bulk_copy,
    Arrive: _arrive,
    ProxyFence: _proxy_fence,
    Wait: _wait,
    WaitForCopies: _wait_for_copies,
    Roles: _roles,
    Role: _role,
}
