"""The printed form of a kernel, which a dump shows after each lowering pass.

    kernel pointwise
      param T0: global BFloat16[n0] align 16
      param out T2: global BFloat16[n0] align 16
      param size n0: Index
      grid (ceilDiv(n0, 1024), 1, 1)  block (128, 1, 1)  shared 0 bytes  index Int32
      require T0 aligned to 16
      i = 1024*blockIdx.x + 8*threadIdx.x
      if i < n0:
        a: local BFloat16[8]
        a[0:+8] = T0[i:+8]
        for k in 8 unrolled:
          total[0] = add.Float(a[k], b[k])

`x[i:+8]` is the vector of 8 elements from i; `y = x[i] if p else 0.0:Float` reads x only where p holds.
Statements nest by indentation. The text depends only on the kernel, so that two dumps can be compared line by
line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from fusewright.core.enums import CacheOp, ParallelType
from fusewright.kernel import ir as k
from fusewright.kernel.waits import (
    Arrive,
    BulkCopy,
    InitMbarriers,
    ProxyFence,
    Role,
    Roles,
    Wait,
    WaitForCopies,
)
from fusewright.sym import Expr, to_text

_INDENT = "  "


def kernel_text(kernel: k.Kernel) -> str:
    """The whole kernel, ending in a newline."""
    lines = [f"kernel {kernel.name}"]
    lines += [f"{_INDENT}param {PARAMS[type(param)](param)}" for param in kernel.params]
    launch = [
        f"grid {_extents(kernel.grid)}",
        f"block {_extents(kernel.block)}",
        f"shared {to_text(kernel.shared_bytes)} bytes",
        f"index {kernel.index_dtype.name}",
    ]
    launch += [f"max_threads {kernel.max_threads}"] if kernel.max_threads else []
    launch += [f"clusters of {kernel.cluster}"] if kernel.cluster > 1 else []
    launch += [f"max_registers {kernel.max_registers}"] if kernel.max_registers else []
    lines.append(_INDENT + "  ".join(launch))
    lines += [f"{_INDENT}require {a.buffer.name} aligned to {a.bytes}" for a in kernel.alignments]
    lines += _body(kernel.body, 1)
    return "\n".join(lines) + "\n"


def statement_text(stmt: k.Stmt) -> str:
    """One line: the statement without nested statements."""
    return STATEMENTS[type(stmt)](stmt)


def operand_text(operand: k.Operand, width: int = 1) -> str:
    """An operand; of `width` neighbouring elements if it is a Ref."""
    return OPERANDS[type(operand)](operand, width)


def _body(body: Sequence[k.Stmt], depth: int) -> Iterator[str]:
    for stmt in body:
        yield _INDENT * depth + statement_text(stmt)
        yield from _body(k.children(stmt), depth + 1)


def _extents(extents: Sequence[Expr]) -> str:
    return f"({', '.join(map(to_text, extents))})"


# ---- parameters and operands --------------------------------------------------------------------


def _buffer(buffer: k.Buffer) -> str:
    align = f" align {buffer.align}" if buffer.align else ""
    offset = f" at {to_text(buffer.offset)}" if buffer.offset is not None else ""
    kind = f"{buffer.space.value} {buffer.dtype.name}[{to_text(buffer.size)}]"
    return f"{buffer.name}: {kind}{align}{offset}"


def _tensor_param(param: k.TensorParam) -> str:
    kinds = {"out ": param.is_output, "updated ": param.is_updated, "home ": param.is_home}
    return next((kind for kind, is_so in kinds.items() if is_so), "") + _buffer(param.buffer)


def _scalar_param(param: k.ScalarParam) -> str:
    size = "size " if param.symbol is not None else ""
    of = f" for quotients by {to_text(param.divisor)}" if param.divisor is not None else ""
    return f"{size}{param.name}: {param.dtype.name}{of}"


def _workspace_param(param: k.WorkspaceParam) -> str:
    return ("zeroed " if param.zeroed else "work ") + _buffer(param.buffer)


PARAMS: dict[type[k.Param], Callable[[Any], str]] = {
    k.TensorParam: _tensor_param,
    k.ScalarParam: _scalar_param,
    k.WorkspaceParam: _workspace_param,
}


def _ref(ref: k.Ref, width: int) -> str:
    vector = f":+{width}" if width > 1 else ""
    return f"{ref.buffer.name}[{to_text(ref.index)}{vector}]"


def _imm(imm: k.Imm, width: int) -> str:
    return f"{imm.value!r}:{imm.dtype.name}"


def _scalar_ref(ref: k.ScalarRef, width: int) -> str:
    return ref.param.name


def _index_value(value: k.IndexValue, width: int) -> str:
    return f"({to_text(value.expr)}):{value.dtype.name}"


OPERANDS: dict[type[k.Operand], Callable[[Any, int], str]] = {
    k.Ref: _ref,
    k.Imm: _imm,
    k.ScalarRef: _scalar_ref,
    k.IndexValue: _index_value,
}


# ---- statements ---------------------------------------------------------------------------------


def _under(pred: Expr) -> str:
    return "" if pred is k.TRUE else f" if {to_text(pred)}"


def _via(workspace: Sequence[k.Buffer]) -> str:
    return f" via {', '.join(buffer.name for buffer in workspace)}" if workspace else ""


def _alloc(stmt: k.Alloc) -> str:
    return _buffer(stmt.buffer)


def _let(stmt: k.Let) -> str:
    return f"{stmt.symbol.name} = {to_text(stmt.value)}"


def _let_value(stmt: k.LetValue) -> str:
    strict = " strictly" if stmt.strict else ""
    value = operand_text(stmt.value)
    otherwise = "" if stmt.symbol.lo == 0 else " else -1"
    return f"{stmt.symbol.name} = {value}{strict} below {to_text(stmt.extent)}{_under(stmt.pred)}{otherwise}"


def _let_misalignment(stmt: k.LetMisalignment) -> str:
    return f"{stmt.symbol.name} = misalignment of {stmt.buffer.name} in vectors of {stmt.width}"


def _for(stmt: k.For) -> str:
    return f"for {stmt.symbol.name} in {to_text(stmt.extent)}{' unrolled' if stmt.unroll else ''}:"


def _if(stmt: k.If) -> str:
    return f"if {to_text(stmt.cond)}:"


def _bind(stmt: k.Bind) -> str:
    starts = ", ".join(map(to_text, stmt.starts))
    choices = "; ".join(map(_param_names, stmt.choices))
    return f"bind {_param_names(stmt.names)} by {to_text(stmt.position)} from {starts} to {choices}:"


def _param_names(params: Iterable[k.Param]) -> str:
    return ", ".join(map(k.param_name, params))


def _copy(stmt: k.Copy) -> str:
    cache = "" if stmt.cache is CacheOp.unspecified else f"  cache {stmt.cache.name}"
    pad = "pad " if stmt.fill_is_value else ""
    around = "around " if stmt.covering is not None else ""
    fill = "" if stmt.fill is None else f" else {pad}{operand_text(stmt.fill)}"
    dst, src = operand_text(stmt.dst, stmt.width), operand_text(stmt.src, stmt.width)
    around = ("async " if stmt.asynchronous else "") + around
    return f"{dst} = {around}{src}{_under(stmt.pred)}{fill}{cache}"


def _window(stmt: k.Window) -> str:
    dst, src = operand_text(stmt.dst, stmt.width), operand_text(stmt.src, 2 * stmt.width)
    return f"{dst} = {src} from {to_text(stmt.offset)} on"


def _convert(stmt: k.Convert) -> str:
    dst, src = operand_text(stmt.dst, stmt.width), operand_text(stmt.src, stmt.width)
    return f"{dst} = {stmt.dst.buffer.dtype.name}({src})"


def _scatter(stmt: k.Scatter) -> str:
    dst, src = operand_text(stmt.dst, stmt.width), operand_text(stmt.src, stmt.width)
    value = f"any of {src}" if stmt.op is None else f"{stmt.op.name}({dst}; atomic {src})"
    return f"{dst} = {value}{_under(stmt.pred)}"


def _compute(stmt: k.Compute) -> str:
    args = ", ".join(map(operand_text, stmt.args))
    precise = ".precise" if stmt.precise else ""
    return f"{operand_text(stmt.dst)} = {stmt.op.name}.{stmt.dtype.name}{precise}({args})"


def _list(operands: Iterable[k.Operand], width: int = 1) -> str:
    return ", ".join(operand_text(operand, width) for operand in operands)


def _init(stmt: k.Init) -> str:
    return f"{_list(stmt.dst, stmt.width)} = {stmt.op.name}.identity"


def _combine(stmt: k.Combine) -> str:
    dst, src = _list(stmt.dst), _list(stmt.src, stmt.width)
    order = " in order" if stmt.in_order else ""
    return f"{dst} = {stmt.op.name}({dst}; {src}){order}{_under(stmt.pred)}"


def _reduction(
    stmt: k.BlockReduce | k.ClusterReduce | k.GridReduce, how: str, axes: Sequence[ParallelType]
) -> str:
    along = ", ".join(axis.ir_name for axis in axes)
    pred = "" if stmt.pred is k.TRUE else f" where {to_text(stmt.pred)}"
    dst, src = _list(stmt.dst, stmt.width), _list(stmt.src, stmt.width)
    return f"{dst} = {stmt.op.name}({dst}; {how} {src} over {along}{pred}){_via(stmt.workspace)}"


def _block_reduce(stmt: k.BlockReduce) -> str:
    return _reduction(stmt, "block", stmt.axes) + (" ordered" if stmt.ordered else "")


def _cluster_reduce(stmt: k.ClusterReduce) -> str:
    exchange = ", ".join(buffer.name for buffer in stmt.exchange)
    return f"{_reduction(stmt, 'cluster', (ParallelType.cluster_x, *stmt.axes))} exchange {exchange}"


def _block_scan(stmt: k.BlockScan) -> str:
    dst, src, carry = (_list(refs, stmt.width) for refs in (stmt.dst, stmt.src, stmt.carry))
    return f"{dst} = {stmt.op.name}({carry}; scan {src} along {stmt.axis.ir_name}){_via(stmt.workspace)}"


def _grid_reduce(stmt: k.GridReduce) -> str:
    reduced = _reduction(stmt, "grid", (*stmt.grid_axes, *stmt.thread_axes))
    holders = "in all blocks" if stmt.is_last is None else f"last {stmt.is_last.name}"
    return f"{reduced} exchange {stmt.exchange.name} {holders}"


def _grid_scan(stmt: k.GridScan) -> str:
    dst, src, carry = (_list(refs, stmt.width) for refs in (stmt.dst, stmt.src, stmt.carry))
    along = f"{stmt.grid_axis.ir_name} with {stmt.thread_axis.ir_name}"
    via = f"{_via(stmt.workspace)} exchange {stmt.exchange.name}"
    return f"{dst} = {stmt.op.name}({carry}; grid scan {src} along {along}){via}"


def _grid_reduces(stmt: k.GridReduces) -> str:
    return "grid reductions together:"


def _grid_barrier(stmt: k.GridBarrier) -> str:
    return f"grid barrier semaphore {stmt.semaphore.name}"


def _barrier(stmt: k.Barrier) -> str:
    return "barrier"


def _hold(stmt: k.Hold) -> str:
    return f"hold {stmt.buffer.name}"


def _issue_loads(stmt: k.IssueLoads) -> str:
    return "issue loads"


def _init_mbarriers(stmt: InitMbarriers) -> str:
    return f"begin mbarriers {stmt.buffer.name} of {to_text(stmt.arrivals)} arrivals"


def _bulk_copy(stmt: BulkCopy) -> str:
    count = to_text(stmt.count)
    dst, src = (f"{ref.buffer.name}[{to_text(ref.index)}:+{count}]" for ref in (stmt.dst, stmt.src))
    cache = "" if stmt.cache is CacheOp.unspecified else f"  cache {stmt.cache.name}"
    return f"start {dst} = {src}{_under(stmt.pred)} for {operand_text(stmt.mbarrier)}{cache}"


def _arrive(stmt: Arrive) -> str:
    return f"arrive {'by warp ' if stmt.by_warp else ''}at {operand_text(stmt.mbarrier)}"


def _proxy_fence(stmt: ProxyFence) -> str:
    return "fence for copies"


def _wait_for_copies(stmt: WaitForCopies) -> str:
    return "wait for copies"


def _wait(stmt: Wait) -> str:
    return f"wait for phase {to_text(stmt.phase)} of {operand_text(stmt.mbarrier)}"


def _roles(stmt: Roles) -> str:
    return "roles:"


def _role(stmt: Role) -> str:
    registers = f" with {stmt.registers} registers" if stmt.registers else ""
    end = stmt.first + stmt.count - 1
    return f"role {stmt.name} of {stmt.axis.ir_name} {stmt.first} to {end}{registers}:"


STATEMENTS: dict[type[k.Stmt], Callable[[Any], str]] = {
    k.Alloc: _alloc,
    k.Let: _let,
    k.LetValue: _let_value,
    k.LetMisalignment: _let_misalignment,
    k.For: _for,
    k.If: _if,
    k.Bind: _bind,
    k.Copy: _copy,
    k.Window: _window,
    k.Convert: _convert,
    k.Scatter: _scatter,
    k.Compute: _compute,
    k.Init: _init,
    k.Combine: _combine,
    k.BlockReduce: _block_reduce,
    k.ClusterReduce: _cluster_reduce,
    k.BlockScan: _block_scan,
    k.GridReduce: _grid_reduce,
    k.GridScan: _grid_scan,
    k.GridReduces: _grid_reduces,
    k.GridBarrier: _grid_barrier,
    k.Barrier: _barrier,
    k.Hold: _hold,
    k.IssueLoads: _issue_loads,
    InitMbarriers: _init_mbarriers,
    BulkCopy: _bulk_copy,
    Arrive: _arrive,
    ProxyFence: _proxy_fence,
    Wait: _wait,
    WaitForCopies: _wait_for_copies,
    Roles: _roles,
    Role: _role,
}
