"""The happens-before order of accesses by roles of a block and by the copy engine.

Every role has a clock, its *epoch*. It advances when the role passes a barrier or arrives at an mbarrier. For
every agent, a role knows the epoch up to which the agent's accesses happen before the role's next access. It
also knows the epoch, possibly an earlier one, up to which they happen before a copy that the role starts next
(PTX ISA, memory consistency model: causality order between proxies takes a proxy fence). Agents are the roles
and, for each mbarrier, the copies that announced themselves to it, whose epoch is the mbarrier's phase. When
an mbarrier ends a phase, it passes on the combined knowledge of all who arrived in it (a vector clock:
Mattern 1988).
"""

from __future__ import annotations

import torch
from torch import Tensor

from fusewright.sim import races

# Threads have the numbers below this, then come the mbarriers, whose copies write by themselves.
_FIRST_MBARRIER = 1024
# Several threads of role r have the number _SEVERAL_OF_ROLE - r.
_SEVERAL_OF_ROLE = races.SEVERAL_THREADS - 1
# What a role knows to come before its own accesses, and before those of copies that it starts.
_BY_THREADS, _BY_COPIES = range(2)


class Clocks(races.Order):
    """The clocks of `blocks` blocks from `first_block` on, whose threads have the roles `roles`, (threads,).

    Attributes:
        epoch: of each role, (roles, blocks).
        known: [_BY_THREADS or _BY_COPIES, role, agent, block], never changed in place, so that earlier ones
            may be stored.
        of_copies: the order that applies to accesses of copies.
    """

    what = "barrier or wait"

    def __init__(self, first_block: int, blocks: int, roles: Tensor) -> None:
        self._first_block, self._roles = first_block, roles
        count = int(roles.max()) + 1
        self.count = count
        self.epoch = torch.zeros((count, blocks), dtype=torch.int64)
        self.known = torch.full((2, count, count, blocks), -1, dtype=torch.int64)
        self.of_copies = _OfCopies(self)
        self._agents = torch.zeros(races.SEVERAL_THREADS + 1, dtype=torch.int64)
        self._agents[: roles.numel()] = roles
        for role in range(count):
            self._agents[_SEVERAL_OF_ROLE - role] = role
        self._mbarriers: list[str] = []

    def add_mbarriers(self, name: str, size: int) -> int:
        """Agents for the copies that `size` mbarriers wait for; returns the number of the first."""
        first = len(self._mbarriers)
        self._mbarriers += [f"{name}[{i}]" for i in range(size)]
        agents, blocks = self.known.shape[2:]
        new = torch.full((2, self.count, size, blocks), -1, dtype=torch.int64)
        self.known = torch.cat([self.known, new], dim=2)
        numbers = torch.arange(size)
        self._agents[_FIRST_MBARRIER + first + numbers] = agents + numbers
        return first

    # ---- time

    def stamps(self, first_stamps: Tensor) -> Tensor:
        """The current stamps of all lanes, (blocks, threads), from those of epoch 0."""
        return first_stamps + (self.epoch.T[:, self._roles] << races.THREAD_BITS)

    def copy_stamps(self, block: Tensor, mbarrier: Tensor, phase: Tensor) -> Tensor:
        """The stamps of writes by copies that announced themselves to mbarriers, by linear block, number and
        phase.
        """
        numbers = torch.as_tensor(_FIRST_MBARRIER) + mbarrier
        return races.stamp_of(block, numbers) + (phase << races.THREAD_BITS)

    def pass_barrier(self, role: int | None, blocks: Tensor) -> None:
        """All threads of the role, or of the block, have met, in the blocks of a mask."""
        if role is not None:
            self.known = self.known.clone()
            own = self.known[_BY_THREADS, role, role]
            self.known[_BY_THREADS, role, role] = torch.where(blocks, self.epoch[role], own)
            self.epoch[role] += blocks.long()
            return
        highest = self.epoch.amax(0)
        together = self.known.amax(1)
        together[_BY_THREADS, : self.count] = highest
        self.known = torch.where(blocks, together[:, None], self.known)
        self.epoch = torch.where(blocks, highest + 1, self.epoch)

    def release(self, role: int | None, everything: bool, blocks: Tensor) -> Tensor:
        """What a role, or the block, hands on, (2, agents, blocks); with `everything` all it did, too."""
        known = self.known[:, self._members(role)].amax(1)
        if everything:
            members = range(self.count) if role is None else [role]
            for member in members:
                known[_BY_THREADS, member] = self.epoch[member]
                self.epoch[member] += blocks.long()
        return known

    def acquire(self, role: int | None, known: Tensor, blocks: Tensor) -> None:
        """Adds the passed-on knowledge to that of a role, or the block, in the blocks of a mask."""
        own = self._members(role)
        self.known = self.known.clone()
        before = self.known[:, own]
        self.known[:, own] = torch.where(blocks, torch.maximum(before, known[:, None]), before)

    def fence(self, role: int | None, blocks: Tensor) -> None:
        """What a role, or the block, did and knows comes before copies that start from now on."""
        own = self._members(role)
        self.known = self.known.clone()
        settled = torch.maximum(self.known[_BY_COPIES, own], self.known[_BY_THREADS, own])
        for place, member in enumerate(range(self.count)[own]):
            settled[place, member] = self.epoch[member]
            self.epoch[member] += blocks.long()
        self.known[_BY_COPIES, own] = torch.where(blocks, settled, self.known[_BY_COPIES, own])

    @staticmethod
    def _members(role: int | None) -> slice:
        return slice(None) if role is None else slice(role, role + 1)

    def forget(self, known: Tensor, role: int | None) -> None:
        """What some threads of a role alone have waited for, the others do not know."""
        own = self._members(role)
        assert self.known.shape == known.shape, "mbarriers begin where all threads are"
        self.known = self.known.clone()
        self.known[:, own] = known[:, own]

    # ---- order of accesses

    def conflicts(self, old: Tensor, own: Tensor, by: int = _BY_THREADS) -> Tensor:
        before, now = old & races.SEVERAL_THREADS, own & races.SEVERAL_THREADS
        block = own >> races.BLOCK_SHIFT
        local = block - self._first_block
        mine = self._agents[now]
        known = self.known[by, mine, self._agents[before], local]
        of_all = self.known[by, :, : self.count].amin(1)[mine, local]
        known = torch.where(before == races.SEVERAL_THREADS, of_all, known)
        epoch = (old >> races.THREAD_BITS) & races.MAX_EPOCH
        unordered = (before != now) & (epoch > known)
        return (old != races.NONE) & (((old >> races.BLOCK_SHIFT) != block) | unordered)

    def merge(self, one: Tensor, other: Tensor) -> Tensor:
        agent = self._agents[one & races.SEVERAL_THREADS]
        same = (agent == self._agents[other & races.SEVERAL_THREADS]) & (agent < self.count)
        several = torch.where(same, _SEVERAL_OF_ROLE - agent, races.SEVERAL_THREADS)
        return races.merged(one, other, several)

    def actor(self, thread: int) -> int | str | None:
        if thread >= _FIRST_MBARRIER + len(self._mbarriers):
            return None
        if thread >= _FIRST_MBARRIER:
            return f"a copy that `{self._mbarriers[thread - _FIRST_MBARRIER]}` waits for"
        return thread


class _OfCopies(races.Order):
    """The order of clocks that applies to copies that a role starts."""

    what = "proxy fence, barrier or wait"

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks

    def conflicts(self, old: Tensor, own: Tensor) -> Tensor:
        return self._clocks.conflicts(old, own, _BY_COPIES)

    def merge(self, one: Tensor, other: Tensor) -> Tensor:
        return self._clocks.merge(one, other)

    def actor(self, thread: int) -> int | str | None:
        return self._clocks.actor(thread)
