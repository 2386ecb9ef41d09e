"""Prints reductions and scans of blocks, and reductions of the grid.

Each is a call of a snippet, with arrays of the threads' states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from fusewright.core.code import conditional, member, primary, subscript
from fusewright.core.dtype import DataType
from fusewright.core.enums import ParallelType
from fusewright.cuda.states import StateStruct
from fusewright.cuda.waits import team_shape
from fusewright.kernel import ir as k

if TYPE_CHECKING:
    from fusewright.cuda.printer import KernelPrinter

#: What counts a kernel's reductions across the blocks of a cluster.
TURN = "fw_turn"
#: Prefixes for the name of the buffer through which blocks of the grid exchange: the counter of the rounds of
#: their reductions, and the last round of the previous launch.
_ROUND, _FIRST = "fw_round_", "fw_first_"
#: Before the axes that blocks reduce along: how many of them have started before this one.
_STARTED_BEFORE = "fw_started_before_"


def _reduce_collectively(
    printer: KernelPrinter,
    stmt: k.BlockReduce | k.ClusterReduce | k.GridReduce,
    struct: StateStruct,
    call: Callable[[str], str],
) -> None:
    """The states of `src` go into `partial`, `call` reduces them, and `dst` takes them up."""
    with printer.nested(""):
        _gather(printer, stmt, struct, "partial")
        printer.line(call("partial") + ";")
        _take_up(printer, stmt, struct, "partial")


def _gather(
    printer: KernelPrinter,
    stmt: k.BlockReduce | k.ClusterReduce | k.GridReduce,
    struct: StateStruct,
    array: str,
) -> None:
    """Declares an array of the states that a thread brings."""
    printer.line(f"{struct.name} {array}[{stmt.width}];")
    with printer.each(stmt.width) as w:
        states = ", ".join(printer.contributions(stmt.op, struct.dtype, stmt.src, w))
        value = primary(f"{struct.name}{{{states}}}")
        if stmt.pred is not k.TRUE:
            value = conditional(printer.expr(stmt.pred), value, primary(f"{struct.name}::identity()"))
        printer.line(f"{subscript(array, printer.expr(w))} = {value};")


def _take_up(
    printer: KernelPrinter,
    stmt: k.BlockReduce | k.ClusterReduce | k.GridReduce,
    struct: StateStruct,
    array: str,
) -> None:
    """Combines what was reduced into `dst`."""
    with printer.each(stmt.width) as w:
        into = [printer.element(ref, w) for ref in stmt.dst]
        state = subscript(array, printer.expr(w))
        values_of = [member(state, field) for field in struct.fields]
        printer.line(stmt.op.combining(struct.dtype).render(into, values_of, struct.dtype) + ";")


def _bits(axes: Sequence[ParallelType], of: Sequence[ParallelType]) -> int:
    return sum(1 << of.index(axis) for axis in axes)


def _shape(printer: KernelPrinter) -> str:
    if printer.role is not None:
        printer.required.add("role")
    return team_shape(printer.kernel, printer.role)


def _memory(printer: KernelPrinter, buffers: Sequence[k.Buffer | None]) -> str:
    """The initializer of a State::Memory over these buffers; none for what shuffles alone can do."""
    return "{" + ", ".join(printer.name(buffer.name) if buffer else "nullptr" for buffer in buffers) + "}"


def block_reduce(printer: KernelPrinter, stmt: k.BlockReduce) -> None:
    printer.required.add("block_reduce")
    struct = printer.state_struct(stmt.op, stmt.dst)
    ordered = ", 1" if stmt.ordered else ""
    template = f"{struct.name}, {_bits(stmt.axes, k.THREAD_AXES)}, {_shape(printer)}{ordered}"
    workspace = _memory(printer, stmt.workspace)
    _reduce_collectively(
        printer, stmt, struct, lambda partial: f"fw::block_reduce<{template}>({partial}, {workspace})"
    )


def cluster_reduce(printer: KernelPrinter, stmt: k.ClusterReduce) -> None:
    struct = printer.state_struct(stmt.op, stmt.dst, clustered=True)
    blocks = printer.kernel.cluster
    template = f"{struct.name}, {_bits(stmt.axes, k.THREAD_AXES)}, {_shape(printer)}, {blocks}"
    memories = f"{_memory(printer, stmt.workspace)}, {_memory(printer, stmt.exchange)}"
    _reduce_collectively(
        printer,
        stmt,
        struct,
        lambda partial: f"fw::cluster_reduce<{template}>({partial}, {memories}, {TURN})",
    )


def block_scan(printer: KernelPrinter, stmt: k.BlockScan) -> None:
    printer.required.add("block_scan")
    _scan(printer, stmt, "block_scan", str(_bits((stmt.axis,), k.THREAD_AXES)), [])


def grid_scan(printer: KernelPrinter, stmt: k.GridScan) -> None:
    printer.required.add("grid_reduce")
    axes = f"{_bits((stmt.grid_axis,), k.BLOCK_AXES)}, {_bits((stmt.thread_axis,), k.THREAD_AXES)}"
    exchange = printer.name(stmt.exchange.name)
    _scan(printer, stmt, "grid_scan", axes, [exchange, f"{_ROUND}{exchange}", f"{_FIRST}{exchange}"])


def _scan(
    printer: KernelPrinter, stmt: k.BlockScan | k.GridScan, snippet: str, axes: str, through: list[str]
) -> None:
    """`scanned` receives what is brought and returns what comes before it, onto `carried`."""
    struct = printer.state_struct(stmt.op, stmt.dst)
    template = f"{struct.name}, {axes}, {_shape(printer)}"
    arrays = {"scanned": (stmt.src, stmt.dst), "carried": (stmt.carry, stmt.carry)}
    with printer.nested(""):
        for name in arrays:
            printer.line(f"{struct.name} {name}[{stmt.width}];")
        with printer.each(stmt.width) as w:
            for name, (src, _) in arrays.items():
                states = ", ".join(printer.element(ref, w) for ref in src)
                printer.line(f"{subscript(name, printer.expr(w))} = {struct.name}{{{states}}};")
        workspace = _memory(printer, stmt.workspace)
        arguments = ", ".join([*arrays, workspace, *through])
        printer.line(f"fw::{snippet}<{template}>({arguments});")
        with printer.each(stmt.width) as w:
            for name, (_, dst) in arrays.items():
                state = subscript(name, printer.expr(w))
                for ref, field in zip(dst, struct.fields):
                    printer.line(f"{printer.element(ref, w)} = {member(state, field)};")


def grid_reduce(printer: KernelPrinter, stmt: k.GridReduce) -> None:
    printer.required.add("grid_reduce")
    struct = printer.state_struct(stmt.op, stmt.dst)
    template, arguments = _of_grid(printer, stmt, struct)
    if stmt.is_last is None:
        call = f"fw::grid_all_reduce<{template}>"
    else:
        last = printer.symbol_name(stmt.is_last)
        printer.line(f"{printer.type(DataType.Index)} {last};")
        call = f"{last} = fw::grid_reduce<{template}>"
    _reduce_collectively(printer, stmt, struct, lambda partial: f"{call}({partial}, {arguments})")


def begin(printer: KernelPrinter, collectives: Iterable[k.GridReduce | k.GridScan]) -> list[str]:
    """What a kernel with these collectives of the grid begins with.

    Blocks that reduce along the same axes are counted once: with a count for each reduction, blocks that
    start at the same time might each be last in some, and no block would have all results.
    """
    lines: list[str] = []
    counted: set[int] = set()
    for stmt in {stmt.exchange: stmt for stmt in collectives}.values():
        exchange = printer.name(stmt.exchange.name)
        lines.append(f"unsigned {_ROUND}{exchange} = fw::grid_round({exchange});")
        if isinstance(stmt, k.GridScan):
            lines.append(f"const unsigned {_FIRST}{exchange} = {_ROUND}{exchange};")
        elif stmt.is_last is not None and (axes := _bits(stmt.grid_axes, k.BLOCK_AXES)) not in counted:
            counted.add(axes)
            started = f"fw::grid_started_before<{axes}>({exchange})"
            lines.append(f"const unsigned {_STARTED_BEFORE}{axes} = {started};")
    return lines


def _of_grid(printer: KernelPrinter, stmt: k.GridReduce, struct: StateStruct) -> tuple[str, str]:
    """The template arguments of a grid reduction, and its arguments without what is reduced."""
    grid, threads = _bits(stmt.grid_axes, k.BLOCK_AXES), _bits(stmt.thread_axes, k.THREAD_AXES)
    exchange = printer.name(stmt.exchange.name)
    arguments = [_memory(printer, stmt.workspace), exchange, f"{_ROUND}{exchange}"]
    if stmt.is_last is not None:
        arguments.append(f"{_STARTED_BEFORE}{grid}")
    return f"{struct.name}, {grid}, {threads}, {_shape(printer)}", ", ".join(arguments)


def grid_reduces(printer: KernelPrinter, stmt: k.GridReduces) -> None:
    """The states of each go into an array, one call reduces them all, and each `dst` takes its own up."""
    printer.required.add("grid_reduce")
    structs = [printer.state_struct(each.op, each.dst) for each in stmt.body]
    arrays = [f"states{i}" for i in range(len(structs))]
    lasts = [printer.symbol_name(each.is_last) for each in stmt.body if each.is_last is not None]
    for last in lasts:
        printer.line(f"{printer.type(DataType.Index)} {last};")
    with printer.nested(""):
        parts = []
        for each, struct, array, last in zip(stmt.body, structs, arrays, lasts):
            _gather(printer, each, struct, array)
            template, arguments = _of_grid(printer, each, struct)
            parts.append(f"fw::grid_part<{template}>({array}, {arguments}, {last})")
        printer.line(f"fw::grid_reduce_together({', '.join(parts)});")
        for each, struct, array in zip(stmt.body, structs, arrays):
            _take_up(printer, each, struct, array)


def grid_barrier(printer: KernelPrinter, stmt: k.GridBarrier) -> None:
    printer.required.add("grid_barrier")
    printer.line(f"fw::grid_barrier({printer.name(stmt.semaphore.name)});")
