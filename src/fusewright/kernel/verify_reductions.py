"""The rules of `verify` for reductions, scans and barriers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fusewright.core.dtype import DataType
from fusewright.core.enums import ParallelType
from fusewright.core.hardware import MAX_GRID_REDUCES
from fusewright.core.op import ReductionOp
from fusewright.kernel import ir as k
from fusewright.kernel.access import read_buffers
from fusewright.sym import as_int

if TYPE_CHECKING:
    from fusewright.kernel.verify import Verifier


def _init(v: Verifier, stmt: k.Init) -> None:
    _accumulators(v, stmt.op, stmt.dst, stmt.width)


def _combine(v: Verifier, stmt: k.Combine) -> None:
    dtype = _accumulators(v, stmt.op, stmt.dst)
    _contributions(v, stmt.op, stmt.src)
    v.predicate(stmt.pred)
    if stmt.in_order and (stmt.width > 1 or not stmt.op.combining(dtype).in_order):
        v.fail(f"{stmt.op.name} of a width of {stmt.width} combines nothing in order")
    if stmt.width == 1:
        return
    v.width(stmt.width)
    run = stmt.src[0]
    if len(stmt.src) > 1 or not isinstance(run, k.Ref) or run.buffer.space is not k.Space.LOCAL:
        v.fail("a run is of the elements of one local buffer")
    given = run.buffer.dtype
    if given is not dtype and not (given in k.PACKED_OPERANDS and dtype is DataType.Float):
        v.fail(f"a run of {given.name} where {stmt.op.name} reduces {dtype.name}")
    if not stmt.op.run_of(given):
        v.fail(f"{stmt.op.name} combines no runs")


def _collective(
    v: Verifier, stmt: k.BlockReduce | k.ClusterReduce | k.GridReduce, axes: Sequence[ParallelType]
) -> None:
    """The common rules of reductions across threads.

    Args:
        axes: the axes of the block along which they reduce.
    """
    v.collective()
    _numbered_from_zero(v)
    _accumulators(v, stmt.op, stmt.dst, stmt.width)
    _contributions(v, stmt.op, stmt.src)
    if len(set(axes)) != len(axes) or not set(axes) <= set(k.THREAD_AXES):
        v.fail(f"not axes of the block: {', '.join(axis.ir_name for axis in axes)}")
    _workspaces(v, stmt)


def _block_reduce(v: Verifier, stmt: k.BlockReduce) -> None:
    if not stmt.axes:
        v.fail("a reduction over no axis")
    _collective(v, stmt, stmt.axes)


def _cluster_reduce(v: Verifier, stmt: k.ClusterReduce) -> None:
    if v.kernel.cluster == 1:
        v.fail("the kernel has no clusters")
    if v.role is not None:
        v.fail("a cluster reduction of one role")
    _collective(v, stmt, stmt.axes)
    _scratch(v, stmt, stmt.exchange, k.Space.SHARED, "exchanges")
    if not stmt.exchange:
        v.fail("blocks reduce together through nothing")
    # A block that is ahead sends to memory that the others have read. With another shape they might still
    # read it.
    shape = stmt.axes, stmt.width
    for buffer in stmt.exchange:
        if v.exchanges.setdefault(buffer, shape) != shape:
            v.fail(f"{buffer.name} serves a cluster reduction along other axes, or of another width, too")


def _block_scan(v: Verifier, stmt: k.BlockScan) -> None:
    _scan(v, stmt, stmt.axis)


def _scan(v: Verifier, stmt: k.BlockScan | k.GridScan, axis: ParallelType) -> None:
    """The common rules of scans along `axis` of the block."""
    v.collective()
    _numbered_from_zero(v)
    types = {_accumulators(v, stmt.op, refs, stmt.width) for refs in (stmt.dst, stmt.src, stmt.carry)}
    if len(types) > 1:
        v.fail(f"a scan over states of {' and '.join(sorted(dtype.name for dtype in types))}")
    if axis not in k.THREAD_AXES:
        v.fail(f"not an axis of the block: {axis.ir_name}")
    _workspaces(v, stmt)


def _grid_scan(v: Verifier, stmt: k.GridScan) -> None:
    _across_grid(v, (stmt.grid_axis,), stmt.exchange)
    _scan(v, stmt, stmt.thread_axis)


def _across_grid(v: Verifier, axes: Sequence[ParallelType], exchange: k.Buffer) -> None:
    """The common rules of collectives of the grid."""
    if v.role is not None:
        v.fail("a collective of the grid in one role")
    if not axes or not set(axes) <= set(k.BLOCK_AXES):
        v.fail(f"not axes of the grid: {', '.join(axis.ir_name for axis in axes)}")
    if v.kernel.cluster > 1:
        v.fail("a collective of the grid counts blocks, of which clusters have several")
    v.buffer(exchange, k.Space.GLOBAL)
    if exchange.dtype is not DataType.Int:
        v.fail(f"blocks exchange through {exchange.dtype.name}, not Int")


def _grid_reduce(v: Verifier, stmt: k.GridReduce) -> None:
    _across_grid(v, stmt.grid_axes, stmt.exchange)
    _collective(v, stmt, stmt.thread_axes)
    if stmt.is_last is None:
        return
    for loop in v.loops:
        # Blocks that are ahead would overwrite results that the last block has not read yet.
        if as_int(loop.extent) != 1:
            v.fail(f"a grid reduction inside the loop over {loop.symbol.name}")
    v.define(stmt.is_last, varies=False)


def _grid_reduces(v: Verifier, stmt: k.GridReduces) -> None:
    exchanges: set[k.Buffer] = set()
    results: set[k.Buffer] = set()
    if not 2 <= len(stmt.body) <= MAX_GRID_REDUCES:
        v.fail(f"{len(stmt.body)} grid reductions together, not 2 to {MAX_GRID_REDUCES}")
    for each in stmt.body:
        if not isinstance(each, k.GridReduce) or each.is_last is None:
            v.fail("only grid reductions whose results the last block holds are made together")
        if each.exchange in exchanges:
            v.fail("grid reductions together need an exchange each")
        if not results.isdisjoint(read_buffers(each)):
            v.fail("a grid reduction that needs the result of another comes after it")
        exchanges.add(each.exchange)
        results.update(ref.buffer for ref in each.dst)
    v.body(stmt.body)


def _grid_barrier(v: Verifier, stmt: k.GridBarrier) -> None:
    v.collective()
    if v.role is not None:
        v.fail("a barrier of the grid in one role")
    _semaphore(v, stmt.semaphore)


def _barrier(v: Verifier, stmt: k.Barrier) -> None:
    v.collective()


# ---- common rules -------------------------------------------------------------------------------


def _numbered_from_zero(v: Verifier) -> None:
    """Fails in a role that does not begin at thread 0: collectives use positions of threads in the block."""
    if v.role is not None and (v.role.first or any(as_int(extent) is None for extent in v.kernel.block)):
        v.fail(f"role {v.role.name} cannot reduce: it is not the first, or of no constant size")


def _states(v: Verifier, what: str, op: ReductionOp, dtypes: Sequence[DataType]) -> DataType:
    """The input type of `op`, from the types of its states."""
    if len(dtypes) != len(op.states):
        v.fail(f"{op.name} has {len(op.states)} states, but {len(dtypes)} {what}")
    dtype = k.reduced_dtype(op, dtypes)
    if dtype is None:
        v.fail(f"{op.name} has no states of types {', '.join(d.name for d in dtypes)}")
    return dtype


def _accumulators(v: Verifier, op: ReductionOp, dst: Sequence[k.Ref], width: int = 1) -> DataType:
    if width < 1:  # any positive width is allowed: it is a loop, not a vector access
        v.fail(f"{width} elements side by side")
    for ref in dst:
        if ref.buffer.space is not k.Space.LOCAL:
            v.fail(f"the accumulator {ref.buffer.name} is not local")
    return _states(v, "accumulators", op, [ref.buffer.dtype for ref in dst])


def _contributions(v: Verifier, op: ReductionOp, src: Sequence[k.Operand]) -> None:
    if len(src) not in (1, len(op.states)):
        v.fail(f"{op.name} takes one value or {len(op.states)} states, not {len(src)} operands")


def _scratch(
    v: Verifier,
    stmt: k.BlockReduce | k.ClusterReduce | k.BlockScan | k.GridReduce | k.GridScan,
    buffers: Sequence[k.Buffer | None],
    space: k.Space,
    what: str,
) -> None:
    """Checks that there is one buffer of the right type per state.

    A workspace may be None if shuffles suffice.
    """
    given = [buffer for buffer in buffers if buffer is not None]
    if not given and space is k.Space.SHARED:
        return
    if len(given) != len(stmt.dst):
        v.fail(f"{len(given)} {what} for {len(stmt.dst)} states")
    for buffer, ref in zip(given, stmt.dst):
        v.buffer(buffer, space)
        if buffer.dtype is not ref.buffer.dtype:
            v.fail(f"{buffer.name} holds {buffer.dtype.name}, its state is {ref.buffer.dtype.name}")


def _workspaces(
    v: Verifier, stmt: k.BlockReduce | k.ClusterReduce | k.BlockScan | k.GridReduce | k.GridScan
) -> None:
    _scratch(v, stmt, stmt.workspace, k.Space.SHARED, "workspaces")
    v.workspaces.update(filter(None, stmt.workspace))


def _semaphore(v: Verifier, buffer: k.Buffer) -> None:
    v.buffer(buffer, k.Space.GLOBAL)
    if buffer.dtype is not DataType.Int32:
        v.fail(f"the semaphore is {buffer.dtype.name}, not Int32")


RULES: dict[type[k.Stmt], Callable[[Verifier, Any], None]] = {
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
}
