"""What happens before what, where roles of a block and the copy engine act by themselves.

Every role has a clock, its *epoch*, which advances when it passes a barrier or arrives at an mbarrier, and
knows up to which epoch the accesses of every agent happen before what it does now. Agents are the roles and,
for each mbarrier, the copies that announced themselves to it, whose epoch is the mbarrier's phase. An
mbarrier that ends a phase hands on what all that arrived in it knew (a vector clock: Mattern 1988).
"""

from __future__ import annotations

import torch
from torch import Tensor

from fusewright.sim import races

# Threads have the numbers below this, then come the mbarriers, whose copies write by themselves.
_FIRST_MBARRIER = 1024
# Several threads of role r have the number _SEVERAL_OF_ROLE - r.
_SEVERAL_OF_ROLE = races.SEVERAL_THREADS - 1


class Clocks(races.Order):
    """The clocks of `blocks` blocks from `first_block` on, whose threads have the roles `roles`, (threads,).

    epoch: of each role, (roles, blocks).
    known: [role, agent, block], never changed in place, so that an earlier one may be kept.
    """

    what = "barrier or wait"

    def __init__(self, first_block: int, blocks: int, roles: Tensor) -> None:
        self._first_block, self._roles = first_block, roles
        count = int(roles.max()) + 1
        self.count = count
        self.epoch = torch.zeros((count, blocks), dtype=torch.int64)
        self.known = torch.full((count, count, blocks), -1, dtype=torch.int64)
        self._agents = torch.zeros(races.SEVERAL_THREADS + 1, dtype=torch.int64)
        self._agents[: roles.numel()] = roles
        for role in range(count):
            self._agents[_SEVERAL_OF_ROLE - role] = role
        self._mbarriers: list[str] = []

    def add_mbarriers(self, name: str, size: int) -> int:
        """Agents for the copies that `size` mbarriers wait for; returns the number of the first."""
        first = len(self._mbarriers)
        self._mbarriers += [f"{name}[{i}]" for i in range(size)]
        agents, blocks = self.known.shape[1:]
        new = torch.full((self.count, size, blocks), -1, dtype=torch.int64)
        self.known = torch.cat([self.known, new], dim=1)
        numbers = torch.arange(size)
        self._agents[_FIRST_MBARRIER + first + numbers] = agents + numbers
        return first

    # ---- time

    def stamps(self, first_stamps: Tensor) -> Tensor:
        """Those of all lanes now, (blocks, threads), from those of epoch 0."""
        return first_stamps + (self.epoch.T[:, self._roles] << races.THREAD_BITS)

    def copy_stamps(self, block: Tensor, mbarrier: Tensor, phase: Tensor) -> Tensor:
        """Of what copies write that announced themselves to mbarriers, by linear block, number and phase."""
        numbers = torch.as_tensor(_FIRST_MBARRIER) + mbarrier
        return races.stamp_of(block, numbers) + (phase << races.THREAD_BITS)

    def pass_barrier(self, role: int | None, blocks: Tensor) -> None:
        """All threads of the role, or of the block, have met, in the blocks of a mask."""
        if role is not None:
            self.known = self.known.clone()
            self.known[role, role] = torch.where(blocks, self.epoch[role], self.known[role, role])
            self.epoch[role] += blocks.long()
            return
        highest = self.epoch.amax(0)
        together = self.known.amax(0)
        together[: self.count] = highest
        self.known = torch.where(blocks, together, self.known)
        self.epoch = torch.where(blocks, highest + 1, self.epoch)

    def release(self, role: int | None, everything: bool, blocks: Tensor) -> Tensor:
        """What a role, or the block, hands on, (agents, blocks): with `everything` all that it did so far."""
        own = slice(None) if role is None else slice(role, role + 1)
        known = self.known[own].amax(0)
        if everything:
            members = range(self.count) if role is None else [role]
            for member in members:
                known[member] = self.epoch[member]
                self.epoch[member] += blocks.long()
        return known

    def acquire(self, role: int | None, known: Tensor, blocks: Tensor) -> None:
        """A role, or the block, knows from now on what was handed on, in the blocks of a mask."""
        own = slice(None) if role is None else slice(role, role + 1)
        self.known = self.known.clone()
        self.known[own] = torch.where(blocks, torch.maximum(self.known[own], known), self.known[own])

    def forget(self, known: Tensor, role: int | None) -> None:
        """What some threads of a role alone have waited for, the others do not know."""
        own = slice(None) if role is None else slice(role, role + 1)
        added = self.known.shape[1] - known.shape[1]
        assert not added, "mbarriers begin where all threads are"
        self.known = self.known.clone()
        self.known[own] = known[own]

    # ---- order of accesses

    def conflicts(self, old: Tensor, own: Tensor) -> Tensor:
        before, now = old & races.SEVERAL_THREADS, own & races.SEVERAL_THREADS
        block = own >> races.BLOCK_SHIFT
        local = block - self._first_block
        mine = self._agents[now]
        known = self.known[mine, self._agents[before], local]
        of_all = self.known[:, : self.count].amin(1)[mine, local]
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
