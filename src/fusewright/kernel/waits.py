"""Statements for what goes on by itself: bulk copies, the mbarriers that say when they have arrived, roles.

An mbarrier counts phases, from 0. A phase ends when as many threads or warps have arrived as `InitMbarriers`
said and all bytes that copies announced for it are there; then the next begins. `Wait` orders what happened
before those arrivals, and the copied bytes, before what follows it. A buffer of mbarriers is in shared
memory, one Int each, and nothing but these statements touches it.
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
    """Begins phase 0 of all mbarriers of `buffer`, each of which takes `arrivals` a phase.

    A collective of the block: when it is done, all threads may use them.
    """

    buffer: Buffer
    arrivals: Expr


@dataclass(frozen=True, slots=True, eq=False)
class BulkCopy:
    """Starts dst[index + i] = src[index + i] for i < count, from global to shared memory, where `pred` is 1.

    Each thread that executes it starts a copy, which announces its bytes to the present phase of `mbarrier`.
    The thread has yet to arrive in that phase. Addresses are multiples of `hardware.BULK_BYTES`; what bytes
    there are beyond a multiple, the thread copies itself.
    `cache`: one of HINTS_OF_COPIES.
    """

    dst: Ref
    src: Ref
    count: Expr
    mbarrier: Ref
    pred: Expr = TRUE
    cache: CacheOp = CacheOp.unspecified


@dataclass(frozen=True, slots=True, eq=False)
class Arrive:
    """Each thread that executes it arrives; with `by_warp` each warp, once all its threads are here.

    With `by_warp`, all threads of the block, or of the role, execute it. It orders what they did before for
    what threads do that wait, but for what copies do only if a `ProxyFence` stands between; by thread it
    orders what came before the last barrier, and the thread's own copies.
    """

    mbarrier: Ref
    by_warp: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ProxyFence:
    """Orders what a thread did, and what it knows of others, before copies that start later.

    Bulk copies access memory past the path that loads and stores take ("async proxy", PTX ISA), so a load may
    still be under way when a thread has arrived after it.
    """


@dataclass(frozen=True, slots=True, eq=False)
class Wait:
    """Goes on when phase `phase` of the mbarrier has ended; at once for phase -1.

    The hardware compares parities alone, so the phase must be the present one or the one before.
    """

    mbarrier: Ref
    phase: Expr


@dataclass(frozen=True, slots=True, eq=False)
class WaitForCopies:
    """Goes on when all asynchronous copies (`Copy.asynchronous`) that this thread started have arrived."""


@dataclass(frozen=True, slots=True, eq=False)
class Ring:
    """A buffer in shared memory of which bulk copies fill stage after stage, ahead of its readers.

    Until the pass that fills rings has made waits, arrivals and roles of it, the kernel has the block start
    the copies of a stage where its loops stand.

    Attributes:
        buffer: room for `stages`. `full` and `empty`: an mbarrier a stage.
        ahead: how many stages are filled ahead of the one that is read.
        filled: the number of the stage that the copies fill, from 0, in terms of the loops around them.
        read: the numbers of the stages that statements read, each in terms of the loops around them.
        axis: along which warps of their own fill it; None: a thread of the block does.
        registers: of a thread that fills and one that computes; None: as launched.
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
    """`body` is what the threads at first .. first + count - 1 along `axis` of the block do, in a `Roles`.

    A barrier, and what collectives wait for, is one of these threads alone. `registers`: of a thread, a
    multiple of 8 in [24, 256], for roles of whole warp groups (128 threads); 0: as at the launch.
    """

    name: str
    axis: ParallelType
    first: int
    count: int
    body: tuple[Stmt, ...]
    registers: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Roles:
    """The threads of the block part: each runs the one of the roles, side by side, that it belongs to.

    The roles follow one another along one axis and cover the block; the axes after that have one thread.
    """

    body: tuple[Role, ...]
