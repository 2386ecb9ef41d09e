"""The lanes that execute: the launch's shape, and the lanes for which a guard holds."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from fusewright.core.once import cached_property
from fusewright.sim.index import Lanes, as_mask

# How many guards to remember: more than the nested and repeated guards of a loop body, few enough that their
# masks take no memory to speak of.
KEPT_GUARDS = 16


@dataclass(frozen=True)
class Activity:
    """The active lanes among `blocks` x `threads`. At least one lane is active: a guard that leaves none
    makes no Activity.

    Attributes:
        mask: None if all are active, else a bool tensor that broadcasts to (blocks, threads).
        team: the threads that collectives wait for, those of a role, bool (threads,); None: the whole block.
    """

    blocks: int
    threads: int
    mask: Tensor | None = None
    team: Tensor | None = None
    # The last few results of `narrow`, with the conditions kept alive: a guard that is met again costs
    # nothing, and gives the same mask object, by which registers see that they were written under it.
    _narrowed: dict[int, tuple[Tensor, Activity | None]] = field(default_factory=dict, repr=False)

    def narrow(self, condition: Lanes) -> Activity | None:
        """The active lanes for which `condition` also holds; None if there are none."""
        if not isinstance(condition, Tensor):
            return self if condition else None
        known = self._narrowed.get(id(condition))
        if known is not None:
            return known[1]
        mask = as_mask(condition)
        assert isinstance(mask, Tensor)
        if self.mask is not None:
            mask = self.mask & mask
        result = None
        holding = int(mask.count_nonzero())  # takes less time than one of `all` and `any`
        if holding == mask.numel():
            result = self
        elif holding:
            result = Activity(self.blocks, self.threads, mask, self.team)
        if len(self._narrowed) >= KEPT_GUARDS:
            self._narrowed.pop(next(iter(self._narrowed)))
        self._narrowed[id(condition)] = (condition, result)
        return result

    @property
    def is_all(self) -> bool:
        return self.mask is None

    @cached_property
    def lanes(self) -> Tensor:
        """Linear numbers block * threads + thread of the active lanes, ascending."""
        if self.mask is None:
            return torch.arange(self.blocks * self.threads)
        return self.mask.expand(self.blocks, self.threads).reshape(-1).nonzero().flatten()

    @cached_property
    def count(self) -> int:
        """How many lanes are active."""
        return self.blocks * self.threads if self.mask is None else self.lanes.numel()

    def compress(self, values: Tensor) -> Tensor:
        """The values of the active lanes in one dimension; `values` broadcast to (blocks, threads)."""
        every = values.expand(self.blocks, self.threads).reshape(-1)
        return every if self.mask is None else every[self.lanes]

    def first(self, where: Lanes) -> int | None:
        """The first active lane for which the condition holds, None if there is none."""
        narrowed = self.narrow(where)
        return None if narrowed is None else int(narrowed.lanes[0])

    @cached_property
    def whole_blocks(self) -> Tensor | None:
        """The active blocks, bool (blocks,); None if only a part of a block, or of its team, is active."""
        if self.mask is None:
            return torch.ones(self.blocks, dtype=torch.bool)
        every = self.mask.expand(self.blocks, self.threads)
        if self.team is not None:
            every = every[:, self.team]
        some = every.any(dim=1)
        return some if bool((every.all(dim=1) == some).all()) else None

    @property
    def team_size(self) -> int:
        """The number of threads of a block that a collective waits for."""
        return self.threads if self.team is None else int(self.team.sum())
