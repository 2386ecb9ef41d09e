"""Prints bulk copies, mbarriers, barriers and roles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fusewright.core.code import call
from fusewright.cuda.spelling import CACHE_SUFFIX
from fusewright.kernel import ir as k
from fusewright.sym import as_int, const, lt, mod, symbol

if TYPE_CHECKING:
    from fusewright.cuda.printer import KernelPrinter

# Of all threads of an SM (CUDA C++ Programming Guide, technical specifications).
_REGISTERS = 65536


def barrier(printer: KernelPrinter, stmt: k.Barrier) -> None:
    if printer.role is None:
        printer.line("__syncthreads();")
    else:
        printer.required.add("role")
        printer.line(f"fw::role_barrier<{team_shape(printer.kernel, printer.role)}>();")


def team_shape(kernel: k.Kernel, role: k.Role | None) -> str:
    """The type that states how many threads a collective has: the block's, or those of a role."""
    extents = [as_int(extent) or 0 for extent in kernel.block]
    if role is None:
        return f"fw::block_shape<{', '.join(map(str, extents))}>"
    extents[_place(role)] = role.count
    [number] = [i for s in kernel.body if isinstance(s, k.Roles) for i, r in enumerate(s.body) if r is role]
    return f"fw::role_shape<{', '.join(map(str, extents))}, {number + 1}>"


def _place(role: k.Role) -> int:
    return "xyz".index(k.index_name(role.axis)[-1])


def init_mbarriers(printer: KernelPrinter, stmt: k.InitMbarriers) -> None:
    printer.required.add("mbarrier")
    operands = printer.name(stmt.buffer.name), printer.expr(stmt.buffer.size), printer.expr(stmt.arrivals)
    printer.line(f"fw::init_mbarriers({', '.join(operands)});")


def bulk_copy(printer: KernelPrinter, stmt: k.BulkCopy) -> None:
    if stmt.pred is not k.TRUE:
        with printer.nested(f"if ({printer.expr(stmt.pred)})"):
            bulk_copy(printer, replace(stmt, pred=k.TRUE))
        return
    printer.required.add("mbarrier")
    operands = printer.address(stmt.dst), printer.address(stmt.src), printer.expr(stmt.count)
    name = f"fw::bulk_copy{CACHE_SUFFIX[stmt.cache]}"
    printer.line(call(name, *operands, printer.address(stmt.mbarrier)) + ";")


def arrive(printer: KernelPrinter, stmt: k.Arrive) -> None:
    printer.required.add("mbarrier")
    name = "fw::arrive_by_warp" if stmt.by_warp else "fw::arrive"
    printer.line(call(name, printer.address(stmt.mbarrier)) + ";")


def proxy_fence(printer: KernelPrinter, stmt: k.ProxyFence) -> None:
    printer.required.add("mbarrier")
    printer.line("fw::proxy_fence();")


def wait(printer: KernelPrinter, stmt: k.Wait) -> None:
    printer.required.add("mbarrier")
    parity = printer.expr(mod(stmt.phase, 2))
    printer.line(call("fw::wait", printer.address(stmt.mbarrier), parity) + ";")


def roles(printer: KernelPrinter, stmt: k.Roles) -> None:
    _roles(printer, stmt.body)


def _roles(printer: KernelPrinter, body: Sequence[k.Role]) -> None:
    """if (threadIdx.x < end of the first) { .. } else { the others }."""
    first, *others = body
    if not others:
        role(printer, first)
        return
    end = const(first.first + first.count)
    with printer.nested(f"if ({printer.expr(lt(symbol(k.index_name(first.axis), lo=0), end))})"):
        role(printer, first)
    with printer.nested("else"):
        _roles(printer, others)


def role(printer: KernelPrinter, stmt: k.Role) -> None:
    if stmt.registers:
        printer.required.add("role")
        share = _REGISTERS // max(1, printer.kernel.max_threads)
        verb = "take" if stmt.registers > share else "give"
        printer.line(f"fw::{verb}_registers<{stmt.registers}>();")
    printer.role = stmt
    printer.statements(stmt.body)
    printer.role = None


def wait_for_copies(printer: KernelPrinter, stmt: k.WaitForCopies) -> None:
    printer.required.add("copy_async")
    printer.line("fw::wait_for_copies();")
