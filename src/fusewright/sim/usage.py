"""What a kernel does to its buffers, found once before it runs."""

from __future__ import annotations

from dataclasses import dataclass

from fusewright.kernel.access import read_buffers, written_buffers
from fusewright.kernel.ir import Alloc, Buffer, GridReduce, Kernel, Space, walk

# The largest element (std::complex<double>).
_MAX_ELEMENT_BYTES = 16


@dataclass(frozen=True)
class Usage:
    """The buffers that some statement reads or writes, and whether all blocks must run together.

    A collective's scratch buffers are its own affair and not among them. `shared_granule` is the bytes of
    the smallest element in shared memory.
    """

    read: frozenset[Buffer]
    written: frozenset[Buffer]
    needs_whole_grid: bool
    shared_granule: int


def usage_of(kernel: Kernel) -> Usage:
    """Walk the kernel once."""
    read: set[Buffer] = set()
    written: set[Buffer] = set()
    needs_whole_grid = False
    shared_granule = _MAX_ELEMENT_BYTES
    for stmt in walk(kernel.body):
        read.update(read_buffers(stmt))
        written.update(written_buffers(stmt))
        needs_whole_grid |= isinstance(stmt, GridReduce)
        if isinstance(stmt, Alloc) and stmt.buffer.space is Space.SHARED:
            shared_granule = min(shared_granule, stmt.buffer.dtype.torch.itemsize)
    return Usage(frozenset(read), frozenset(written), needs_whole_grid, shared_granule)
