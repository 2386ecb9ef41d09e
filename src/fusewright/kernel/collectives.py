"""Statements that threads execute collectively: reductions and scans across them, and barriers."""

from __future__ import annotations

from dataclasses import dataclass

from fusewright.core.enums import ParallelType
from fusewright.core.op import ReductionOp
from fusewright.kernel.operands import Buffer, Operand, Ref
from fusewright.sym import Expr, Symbol


@dataclass(frozen=True, slots=True, eq=False)
class BlockReduce:
    """dst = combine(dst, reduction of src over all threads along `axes` of the block), in every thread.

    This is a collective: all threads of the block arrive, at the same iteration of every loop. A thread where
    `pred` is 0 contributes the identity. Elements index .. index+width-1 of each Ref are reduced
    independently.

    Attributes:
        workspace: shared memory, one buffer per state (None if a warp shuffle suffices), with room for width
            values for every `exchange.threads_a_value` threads. The reduction begins with a barrier, so a
            workspace may serve several reductions in turn (and nothing else), but it orders no other memory.
        ordered: whether it needs no barrier at the beginning, because all threads have passed one since the
            workspace was last used.
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
    """A reduction as BlockReduce over `axes`, which may be empty, and over the blocks of the cluster.

    All blocks of the cluster arrive, and every thread of the cluster gets the result.

    Attributes:
        exchange: shared memory, one buffer per state, with room for the partial results of all blocks
            (`exchange.exchange_room`). The other blocks store to it. It may serve several cluster reductions
            of the same axes and width in turn, and nothing else.
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

    This is a collective like BlockReduce: all threads of the block arrive. Threads combine in the order of
    `axis`, separately for each group that differs in the other axes. The carry, which is the same in all
    threads of a group, continues a scan of more elements than the threads hold. `dst`, `src` and `carry` have
    one Ref per state, whose elements index .. index+width-1 are scanned independently. `workspace` is as in
    BlockReduce.
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
    """A reduction as BlockReduce over `thread_axes` and, across blocks, over `grid_axes`.

    Each block publishes its partial result in `exchange`. With `is_last`, one block of the reduced group
    combines all partial results, in block order, and only this block has the result: `is_last` is set to 1 in
    that block's threads and 0 in the others, whose dst is undefined. Without it, the blocks of a group wait
    for each other and each combines the partial results: an all-reduce, whose launch is cooperative. It may
    be in a loop.

    `exchange` is a buffer of Int in global memory (`exchange.grid_exchange_room`). It is zero before the
    first launch of a grid of this shape, and only this reduction uses it in such launches.
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
    """dst = combine(carry, src of the blocks before along `grid_axis`); carry = combine(carry, src of all).

    This is a collective at which all blocks along the axis arrive, like an all-reduce of the grid. They wait
    for each other, so the launch is cooperative, and it may be in a loop. `src` and `carry` are the same in
    all threads of a block that differ only along `thread_axis`; then `dst` is, too. They have one Ref per
    state, whose elements index .. index+width-1 are scanned independently. `workspace` is as in BlockReduce
    with twice the width, and `exchange` as in GridReduce, with room for four rounds. Only a later GridScan
    may read the carry, since blocks may take up the others' results only then.
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
    """Independent grid reductions with `is_last`.

    Each block publishes its partial results for all of them before it waits for other blocks.
    """

    body: tuple[GridReduce, ...]


@dataclass(frozen=True, slots=True, eq=False)
class GridBarrier:
    """All threads of the grid arrive before any continues.

    It orders their accesses to global memory and to the shared memory of each block. The launch is
    cooperative: all blocks are resident at once. `semaphore` (global, one Int32) is zero before the first
    launch. Only grid barriers change it, and they leave it ready for the next one.
    """

    semaphore: Buffer


@dataclass(frozen=True, slots=True, eq=False)
class Barrier:
    """All threads of the block, or of the role that contains it, arrive before any continues.

    It orders their accesses to shared and global memory.
    """
