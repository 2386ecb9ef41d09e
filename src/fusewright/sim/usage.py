"""What a kernel does to its buffers, found once before it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fusewright.kernel.ir import (
    Alloc,
    Barrier,
    BlockReduce,
    Buffer,
    Combine,
    Compute,
    Copy,
    For,
    GridReduce,
    If,
    Init,
    Kernel,
    Let,
    Operand,
    Ref,
    Space,
    Stmt,
    walk,
)

Accessed = tuple[Iterable[Operand], Iterable[Operand]]


@dataclass(frozen=True)
class Usage:
    """Buffers that some statement reads or writes by element, and whether blocks must run all together.

    `shared_granule` is the bytes of the smallest element in shared memory.
    """

    read: frozenset[Buffer]
    written: frozenset[Buffer]
    needs_whole_grid: bool
    shared_granule: int


# (read, written) of each statement; a collective's scratch buffers are its own affair.
ACCESSED: dict[type[Stmt], Callable[..., Accessed]] = {
    Alloc: lambda stmt: ((), ()),
    Let: lambda stmt: ((), ()),
    For: lambda stmt: ((), ()),
    If: lambda stmt: ((), ()),
    Barrier: lambda stmt: ((), ()),
    Copy: lambda stmt: ((stmt.src,), (stmt.dst,)),
    Compute: lambda stmt: (stmt.args, (stmt.dst,)),
    Init: lambda stmt: ((), stmt.dst),
    Combine: lambda stmt: ((*stmt.src, *stmt.dst), stmt.dst),
    BlockReduce: lambda stmt: ((*stmt.src, *stmt.dst), stmt.dst),
    GridReduce: lambda stmt: ((*stmt.src, *stmt.dst), stmt.dst),
}


def usage_of(kernel: Kernel) -> Usage:
    """Walk the kernel once."""
    read: set[Buffer] = set()
    written: set[Buffer] = set()
    needs_whole_grid = False
    shared_granule = 16
    for stmt in walk(kernel.body):
        sources, targets = ACCESSED[type(stmt)](stmt)
        read.update(operand.buffer for operand in sources if isinstance(operand, Ref))
        written.update(operand.buffer for operand in targets if isinstance(operand, Ref))
        needs_whole_grid |= isinstance(stmt, GridReduce)
        if isinstance(stmt, Alloc) and stmt.buffer.space is Space.SHARED:
            shared_granule = min(shared_granule, stmt.buffer.dtype.torch.itemsize)
    return Usage(frozenset(read), frozenset(written), needs_whole_grid, shared_granule)
