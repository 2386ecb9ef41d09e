"""Statements that threads arrive at together: reductions and scans across them, and barriers."""

from __future__ import annotations

from dataclasses import dataclass

from fusewright.core.enums import ParallelType
from fusewright.core.op import ReductionOp
from fusewright.kernel.operands import Buffer, Operand, Ref
from fusewright.sym import Expr, Symbol


@dataclass(frozen=True, slots=True, eq=False)
class BlockReduce:
    """dst = combine(dst, reduction of src over all threads along `axes` of the block), in every thread.

    A collective: all threads of the block arrive, at the same iteration of every loop; a thread where
    `pred` is 0 contributes the identity. Elements index .. index+width-1 of each Ref are reduced
    side by side. `workspace` (shared, one buffer a state, None where a warp shuffle suffices) has room for
    width values for every `exchange.threads_a_value` threads. It begins with a barrier, so that a workspace
    may serve several in turn (and nothing else), but orders no other memory. `ordered`: it
    needs no barrier to begin with, as all threads have passed one since the workspace was last used.
    """

    op: ReductionOp
    dst: tuple[Ref, ...]
    src: tuple[Operand, ...]
    axes: tuple[ParallelType, ...]
    pred: Expr
    workspace: tuple[Buffer, ...]
    width: int = 1
    ordered: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ClusterReduce:
    """As BlockReduce over `axes`, which may be none, and the blocks of the cluster; in every thread of all.

    All blocks of the cluster arrive. `exchange` (shared, one buffer a state) has room for what all blocks
    find (`exchange.exchange_room`). The other blocks store to it. It may serve several cluster reductions of
    the same axes and width in turn, and nothing else.
    """

    op: ReductionOp
    dst: tuple[Ref, ...]
    src: tuple[Operand, ...]
    axes: tuple[ParallelType, ...]
    pred: Expr
    workspace: tuple[Buffer, ...]
    exchange: tuple[Buffer, ...]
    width: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class BlockScan:
    """dst = combine(carry, src of the threads before along `axis`); then carry = combine(carry, src of all).

    A collective, as BlockReduce: all threads of the block arrive. Threads combine in the order of `axis`,
    each group that differs in the other axes by itself. The carry, the same in all threads of a group,
    continues a scan of more elements than the threads hold. `dst`, `src` and `carry` have one Ref a state, of
    which the elements index .. index+width-1 are scanned side by side. `workspace` is as of BlockReduce.
    """

    op: ReductionOp
    dst: tuple[Ref, ...]
    src: tuple[Ref, ...]
    carry: tuple[Ref, ...]
    axis: ParallelType
    workspace: tuple[Buffer, ...]
    width: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class GridReduce:
    """As BlockReduce over `thread_axes` and, across blocks, over `grid_axes`.

    Each block says in `exchange` what it has found. With `is_last`, one block of the reduced group combines
    what all of them say, in block order, and the result is valid there only: `is_last` is set to 1 in that
    block's threads and 0 in the others, whose dst is undefined. Without it, the blocks of a group wait for
    each other and each combines them: an all-reduce, for which the launch is cooperative. It may stand in a
    loop.

    `exchange` is a buffer of Int in global memory (`exchange.grid_exchange_room`), which is zero before the
    first launch of a grid of this shape and belongs to this reduction in such launches alone.
    """

    op: ReductionOp
    dst: tuple[Ref, ...]
    src: tuple[Operand, ...]
    grid_axes: tuple[ParallelType, ...]
    thread_axes: tuple[ParallelType, ...]
    pred: Expr
    workspace: tuple[Buffer, ...]
    exchange: Buffer
    is_last: Symbol | None
    width: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class GridScan:
    """dst = combine(carry, src of the blocks before along `grid_axis`); then carry = combine(carry, src of
    all).

    A collective that all blocks along the axis arrive at, as an all-reduce of the grid: they wait for each
    other, so the launch is cooperative, and it may stand in a loop. `src` and `carry` are the same in all
    threads of a block that differ along `thread_axis` alone; `dst` is so then, too. They have one Ref a
    state, of which the elements index .. index+width-1 are scanned side by side. `workspace` is as of
    BlockReduce with twice the width, and `exchange` as of GridReduce, with room for four rounds. The carry
    may be read by a later GridScan alone, as blocks may take up what others found only then.
    """

    op: ReductionOp
    dst: tuple[Ref, ...]
    src: tuple[Ref, ...]
    carry: tuple[Ref, ...]
    grid_axis: ParallelType
    thread_axis: ParallelType
    workspace: tuple[Buffer, ...]
    exchange: Buffer
    width: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class GridReduces:
    """Grid reductions with `is_last` of which none needs what another finds: each block says what it has
    found for all of them before it waits for others.
    """

    body: tuple[GridReduce, ...]


@dataclass(frozen=True, slots=True, eq=False)
class GridBarrier:
    """All threads of the grid arrive before any goes on; orders global memory among them, and the shared
    memory of each block.

    The launch is cooperative: all blocks are resident at once. `semaphore` (global, one Int32) is zero before
    the first launch and changed by grid barriers alone, which leave it ready for the next one.
    """

    semaphore: Buffer


@dataclass(frozen=True, slots=True, eq=False)
class Barrier:
    """All threads of the block, or of the role that it stands in, arrive before any goes on.

    It orders shared and global memory among them.
    """
