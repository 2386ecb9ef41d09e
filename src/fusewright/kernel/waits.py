"""Statements for asynchronous work: bulk copies, the mbarriers that signal their arrival, and roles.

An mbarrier counts phases from 0. A phase ends when the number of threads or warps that `InitMbarriers` stated
have arrived and all bytes that copies announced for it have been copied. Then the next phase begins. `Wait`
orders the work before those arrivals, and the copied bytes, before everything after the wait. A buffer of
mbarriers is in shared memory, with one Int per mbarrier, and only these statements access it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fusewright.core.enums import CacheOp, ParallelType
from fusewright.sym import TRUE, Expr

if TYPE_CHECKING:
    from fusewright.kernel.ir import Stmt
    from fusewright.kernel.operands import Buffer, Ref


#: The cache hints of bulk copies, which name policies of the L2 cache (PTX ISA). Asynchronous copies of
#: threads may stand in place of loads with these hints, and leave them out (`Copy.started`).
HINTS_OF_COPIES = (CacheOp.unspecified, CacheOp.streaming, CacheOp.evict_last)


@dataclass(frozen=True, slots=True, eq=False)
class InitMbarriers:
    """Begins phase 0 of all mbarriers of `buffer`, each of which takes `arrivals` per phase.

    This is a collective of the block: afterwards, all threads may use them.
    """

    buffer: Buffer
    arrivals: Expr


@dataclass(frozen=True, slots=True, eq=False)
class BulkCopy:
    """Starts dst[index + i] = src[index + i] for i < count, from global to shared memory, if `pred` is 1.

    Each thread that executes it starts a copy, which announces its bytes to the current phase of `mbarrier`.
    The thread must not have arrived in that phase yet. Addresses are multiples of `hardware.BULK_BYTES`; the
    thread itself copies the bytes beyond a multiple.

    Attributes:
        cache: one of HINTS_OF_COPIES.
    """

    dst: Ref
    src: Ref
    count: Expr
    mbarrier: Ref
    pred: Expr = TRUE
    cache: CacheOp = CacheOp.unspecified


@dataclass(frozen=True, slots=True, eq=False)
class Arrive:
    """Each thread that executes it arrives.

    With `by_warp` each warp arrives when all its threads have reached it. With `by_warp`, all threads of the
    block, or of the role, execute it. It then orders their previous accesses before those of waiting threads;
    bulk copies are ordered only if a `ProxyFence` is in between. By thread, it orders the accesses before the
    last barrier, and the thread's own copies.
    """

    mbarrier: Ref
    by_warp: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ProxyFence:
    """Orders previous accesses before copies that start later.

    These are the thread's own accesses, and those of other threads that were ordered before them. Bulk copies
    access memory on another path than loads and stores ("async proxy", PTX ISA), so a load may still be in
    flight when a thread has arrived after it.
    """


@dataclass(frozen=True, slots=True, eq=False)
class Wait:
    """Continues when phase `phase` of the mbarrier has ended; immediately for phase -1.

    The hardware compares only parities, so the phase must be the current one or the one before.
    """

    mbarrier: Ref
    phase: Expr


@dataclass(frozen=True, slots=True, eq=False)
class WaitForCopies:
    """Continues when all asynchronous copies (`Copy.asynchronous`) that this thread started have arrived."""


@dataclass(frozen=True, slots=True, eq=False)
class Ring:
    """A buffer in shared memory whose stages bulk copies fill ahead of its readers.

    Until the pass that fills rings has replaced it by waits, arrivals and roles, the block starts the copies
    of a stage at the position of its loops.

    Attributes:
        buffer: has room for `stages`.
        full, empty: one mbarrier per stage.
        ahead: the number of stages that are filled ahead of the one that is read.
        filled: the number of the stage that the copies fill, from 0, as an expression over the loops around
            them.
        read: the numbers of the stages that statements read, each as an expression over the loops around
            them.
        axis: the axis along which separate warps fill it; None: a thread of the block does.
        registers: per thread that fills and per thread that computes; None: as launched.
    """

    buffer: Buffer
    full: Buffer
    empty: Buffer
    stages: int
    ahead: int
    filled: Expr
    read: tuple[Expr, ...]
    axis: ParallelType | None = None
    registers: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Role:
    """`body` is the program of the threads first ..

    first + count - 1 along `axis` of the block, in a `Roles`. A barrier, and a collective's synchronization,
    covers only the threads of the role.

    Attributes:
        registers: per thread, a multiple of 8 in [24, 256], for roles of whole warp groups (128 threads); 0:
            as at the launch.
    """

    name: str
    axis: ParallelType
    first: int
    count: int
    body: tuple[Stmt, ...]
    registers: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Roles:
    """Divides the threads of the block: each runs the role that it belongs to, in parallel.

    The roles follow one another along one axis and cover the block; the axes after that have one thread.
    """

    body: tuple[Role, ...]
