"""Data races: two threads access one address, at least one writes, and no barrier separates the accesses.

Every access leaves a stamp on the address: the block, the block's epoch (the number of barriers that it has
passed) and the thread. A later epoch orders threads of one block; nothing orders threads of different blocks.
Writing the same value twice is a race as well: CUDA calls it undefined, and the values are equal only by
chance.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# A stamp is block | epoch | thread. 1024 threads a block (CUDA's limit), one more for "several", and others
# that clocks.py uses.
THREAD_BITS = 11
EPOCH_BITS = 27
BLOCK_BITS = 24
SEVERAL_THREADS = (1 << THREAD_BITS) - 1
SEVERAL_BLOCKS = (1 << BLOCK_BITS) - 1
MAX_BLOCKS = SEVERAL_BLOCKS
MAX_EPOCH = (1 << EPOCH_BITS) - 1

BLOCK_SHIFT = THREAD_BITS + EPOCH_BITS
NONE = -1


@dataclass(frozen=True, slots=True)
class Conflict:
    """The access at `position` of the given ones that conflicts with a `verb` ('wrote' or 'read') by another
    thread.

    `block` and `thread` are linear. They are None if several blocks or threads did it; `thread` is a text if
    it was not a thread.
    """

    position: int
    verb: str
    block: int | None
    thread: int | str | None


def stamp_of(block: Tensor, thread: Tensor) -> Tensor:
    """Stamps of epoch 0, for linear blocks and threads that broadcast."""
    return (block << BLOCK_SHIFT) | thread


def at_epoch(epoch: int | Tensor) -> int | Tensor:
    """What to add to a stamp of epoch 0."""
    return epoch << THREAD_BITS


class Order:
    """Which accesses happen before which: here, by barriers of whole blocks."""

    #: what is lacking between accesses that race
    what = "barrier"

    def conflicts(self, old: Tensor, own: Tensor) -> Tensor:
        """Where `old` was left by another thread that nothing orders before `own`."""
        differing = old ^ own
        other_block = (differing >> BLOCK_SHIFT) != 0
        same_epoch = (differing >> THREAD_BITS) == 0
        return (old != NONE) & (other_block | (same_epoch & (differing != 0)))

    def merge(self, one: Tensor, other: Tensor) -> Tensor:
        """The stamp of two different readers: several threads of the block, or several blocks."""
        return merged(one, other, SEVERAL_THREADS)

    def actor(self, thread: int) -> int | str | None:
        """The origin of a stamp with this thread number: a thread, something else, or None for several."""
        return None if thread == SEVERAL_THREADS else thread


BARRIERS = Order()


def merged(one: Tensor, other: Tensor, several: int | Tensor) -> Tensor:
    """The stamp of two readers, which is of `several` threads if they are in one block."""
    other_block = ((one ^ other) >> BLOCK_SHIFT) != 0
    several_threads = torch.maximum(one, other) | SEVERAL_THREADS
    several_blocks = several_threads | (SEVERAL_BLOCKS << BLOCK_SHIFT)
    return torch.where(other_block, several_blocks, several_threads - SEVERAL_THREADS + several)


@dataclass(frozen=True)
class Actors:
    """The origins of accesses to addresses, one entry for each element or vector.

    Attributes:
        lanes: linear numbers block * threads + thread.
        threads: of a block.
        stamps: the current stamps of these lanes.
        order: the order by which their accesses are compared.
        left: the stamps that a write leaves, if the lane is not the writer.
    """

    lanes: Tensor
    threads: int
    stamps: Tensor
    order: Order = BARRIERS
    left: Tensor | None = None

    def spread(self, span: int) -> Actors:
        """As many entries for each element of it."""
        if span == 1:
            return self
        left = None if self.left is None else self.left.repeat_interleave(span)
        return Actors(self.lanes, self.threads, self.stamps.repeat_interleave(span), self.order, left)


def _conflict(old: Tensor, actors: Actors, verb: str) -> Conflict | None:
    """The first of `old` that conflicts with the stamps of `actors`. Memory that nobody touched, the usual
    case, is cheap.
    """
    if old.numel() == 0 or int(old.max()) == NONE:
        return None
    return _report(actors.order.conflicts(old, actors.stamps), old, actors.order, verb)


def _report(found: Tensor, old: Tensor, order: Order, verb: str) -> Conflict | None:
    if not bool(found.any()):
        return None
    position = int(found.nonzero()[0])
    stamp = int(old[position])
    block = stamp >> BLOCK_SHIFT
    actor = order.actor(stamp & SEVERAL_THREADS)
    return Conflict(position, verb, None if block == SEVERAL_BLOCKS else block, actor)


class AccessLog:
    """For each of `size` addresses, the last write and the reads since the last barrier.

    Reads are logged only with `reads`: a buffer that a kernel only writes has none.
    """

    def __init__(self, size: int, *, reads: bool) -> None:
        self._write = torch.full((size,), NONE, dtype=torch.int64)
        self._read = torch.full((size,), NONE, dtype=torch.int64) if reads else None

    def clear(self, addresses: Tensor) -> None:
        """Forgets the accesses to `addresses`: a separate barrier follows them."""
        self._write[addresses] = NONE
        if self._read is not None:
            self._read[addresses] = NONE

    def clear_all(self) -> None:
        """Forget all accesses."""
        self._write.fill_(NONE)
        if self._read is not None:
            self._read.fill_(NONE)

    def on_write(self, addresses: Tensor, actors: Actors) -> Conflict | None:
        """Log writes, all at one time; returns the first that races, if any does."""
        conflict = _conflict(self._write[addresses], actors, "wrote")
        if conflict is None and self._read is not None:
            conflict = _conflict(self._read[addresses], actors, "read")
        if conflict is None:
            stamps = actors.stamps if actors.left is None else actors.left
            self._write[addresses] = stamps
            kept = self._write[addresses]
            conflict = _report(kept != stamps, kept, actors.order, "wrote")
        return conflict

    def on_read(self, addresses: Tensor, actors: Actors) -> Conflict | None:
        """Log reads, all at one time; returns the first that races with an earlier write, if any does."""
        conflict = _conflict(self._write[addresses], actors, "wrote")
        if conflict is not None or self._read is None:
            return conflict
        order, stamps = actors.order, actors.stamps
        earlier = self._read[addresses]
        left = torch.where(order.conflicts(earlier, stamps), order.merge(earlier, stamps), stamps)
        self._read[addresses] = left
        # Lanes that read one address together: one of them was kept, and what it lacks is merged into it.
        kept = self._read[addresses]
        lost = (kept != left).nonzero().flatten()
        if lost.numel():
            # Stamps of several blocks are the greatest, so that they win over several threads.
            self._read.scatter_reduce_(0, addresses[lost], order.merge(kept[lost], left[lost]), "amax")
        return None
