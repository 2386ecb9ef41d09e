"""Data races: two threads, one address, at least one writing, and no barrier between them.

Every access leaves a stamp on the address: the block, the block's epoch (how many barriers it has passed)
and the thread. Threads of one block are ordered by a later epoch; threads of different blocks by nothing.
Writing the same value twice is a race all the same: which thread's value arrives is then an accident of the
values, and CUDA calls it undefined.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# A stamp is block | epoch | thread. 1024 threads a block (CUDA's limit), and one more for "several".
THREAD_BITS = 11
EPOCH_BITS = 27
BLOCK_BITS = 24
SEVERAL_THREADS = (1 << THREAD_BITS) - 1
SEVERAL_BLOCKS = (1 << BLOCK_BITS) - 1
MAX_BLOCKS = SEVERAL_BLOCKS
MAX_EPOCH = (1 << EPOCH_BITS) - 1

_BLOCK_SHIFT = THREAD_BITS + EPOCH_BITS
_NONE = -1


@dataclass(frozen=True, slots=True)
class Conflict:
    """The access at `position` of those given, against `verb` ('wrote' or 'read') by another thread.

    `block` and `thread` are linear; None where several blocks or several threads did.
    """

    position: int
    verb: str
    block: int | None
    thread: int | None


def stamp_of(block: Tensor, thread: Tensor) -> Tensor:
    """Stamps of epoch 0, for linear blocks and threads that broadcast."""
    return (block << _BLOCK_SHIFT) | thread


def at_epoch(epoch: int | Tensor) -> int | Tensor:
    """What to add to a stamp of epoch 0."""
    return epoch << THREAD_BITS


def _conflicts(old: Tensor, own: Tensor) -> Tensor:
    """Where `old` was left by another thread that nothing orders before `own`."""
    differing = old ^ own
    other_block = (differing >> _BLOCK_SHIFT) != 0
    same_epoch = (differing >> THREAD_BITS) == 0
    return (old != _NONE) & (other_block | (same_epoch & (differing != 0)))


def _conflict(old: Tensor, own: Tensor, verb: str) -> Conflict | None:
    """The first of `old` that conflicts with `own`. Memory that nobody touched, the usual case, is cheap."""
    if old.numel() == 0 or int(old.max()) == _NONE:
        return None
    return _report(_conflicts(old, own), old, verb)


def _report(found: Tensor, old: Tensor, verb: str) -> Conflict | None:
    if not bool(found.any()):
        return None
    position = int(found.nonzero()[0])
    stamp = int(old[position])
    block, thread = stamp >> _BLOCK_SHIFT, stamp & SEVERAL_THREADS
    return Conflict(
        position,
        verb,
        None if block == SEVERAL_BLOCKS else block,
        None if thread == SEVERAL_THREADS else thread,
    )


class AccessLog:
    """The last write to, and the reads since the last barrier of, each of `size` addresses.

    Reads are kept only with `reads`: a buffer that a kernel only writes has none.
    """

    def __init__(self, size: int, *, reads: bool) -> None:
        self._write = torch.full((size,), _NONE, dtype=torch.int64)
        self._read = torch.full((size,), _NONE, dtype=torch.int64) if reads else None

    def clear(self, addresses: Tensor) -> None:
        """Forget the accesses to `addresses`: a barrier of its own follows them."""
        self._write[addresses] = _NONE
        if self._read is not None:
            self._read[addresses] = _NONE

    def clear_all(self) -> None:
        """Forget all accesses."""
        self._write.fill_(_NONE)
        if self._read is not None:
            self._read.fill_(_NONE)

    def on_write(self, addresses: Tensor, stamps: Tensor) -> Conflict | None:
        """Log writes, all at one time; returns the first that races, if any does."""
        conflict = _conflict(self._write[addresses], stamps, "wrote")
        if conflict is None and self._read is not None:
            conflict = _conflict(self._read[addresses], stamps, "read")
        if conflict is None:
            self._write[addresses] = stamps
            kept = self._write[addresses]
            conflict = _report(kept != stamps, kept, "wrote")
        return conflict

    def on_read(self, addresses: Tensor, stamps: Tensor) -> Conflict | None:
        """Log reads, all at one time; returns the first that races with an earlier write, if any does."""
        conflict = _conflict(self._write[addresses], stamps, "wrote")
        if conflict is not None or self._read is None:
            return conflict
        earlier = self._read[addresses]
        merged = torch.where(_conflicts(earlier, stamps), _merge(earlier, stamps), stamps)
        self._read[addresses] = merged
        # Lanes that read one address together: one of them was kept, and what it lacks is merged into it.
        kept = self._read[addresses]
        lost = (kept != merged).nonzero().flatten()
        if lost.numel():
            # Stamps of several blocks are the greatest, so that they win over several threads.
            self._read.scatter_reduce_(0, addresses[lost], _merge(kept[lost], merged[lost]), "amax")
        return None


def _merge(one: Tensor, other: Tensor) -> Tensor:
    """The stamp of two different readers: several threads of the block, or several blocks."""
    other_block = ((one ^ other) >> _BLOCK_SHIFT) != 0
    several_threads = torch.maximum(one, other) | SEVERAL_THREADS
    several_blocks = several_threads | (SEVERAL_BLOCKS << _BLOCK_SHIFT)
    return torch.where(other_block, several_blocks, several_threads)
