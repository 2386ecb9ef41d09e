"""The mbarriers of a chunk of blocks: their phases, arrivals, and the knowledge that they pass on to waiting
roles.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fusewright.core.errors import SimulationError
from fusewright.sim.clocks import Clocks
from fusewright.sim.faults import Fault


@dataclass(frozen=True)
class Members:
    """Some of the mbarriers of a buffer, each once: in `blocks`, linear in the chunk, those at `elements`.

    Attributes:
        lanes: for each, the first lane that names it.
        counts: for each, the number of lanes that name it.
    """

    blocks: Tensor
    elements: Tensor
    lanes: Tensor
    counts: Tensor


class Mbarriers:
    """The mbarriers of one buffer, of `size` elements per block.

    Attributes:
        ended: the number of phases that have ended, (blocks, size).
    """

    def __init__(self, name: str, size: int, arrivals: Tensor, clocks: Clocks) -> None:
        blocks = arrivals.numel()
        self.name, self.size = name, size
        self.number = clocks.add_mbarriers(name, size)
        self.ended = torch.zeros((blocks, size), dtype=torch.int64)
        self._clocks, self._arrivals = clocks, arrivals
        self._missing = arrivals[:, None].repeat(1, size)
        # By mbarrier, the knowledge of those that arrived in its current phase, and in the previous one: (2,
        # agents, blocks).
        self._gathered: dict[int, Tensor] = {}
        self._handed_on: dict[int, Tensor] = {}

    def members(self, lanes: Tensor, threads: int, index: Tensor) -> Members:
        """The mbarriers that `lanes` name by `index`; a Fault if one does not exist."""
        outside = (index < 0) | (index >= self.size)
        if bool(outside.any()):
            number = int(outside.nonzero()[0])
            problem = f"`{self.name}` has {self.size} mbarriers, none at {int(index[number])}"
            raise Fault(SimulationError, problem, int(lanes[number]))
        keys, which, counts = torch.unique(
            lanes // threads * self.size + index, return_inverse=True, return_counts=True
        )
        first = torch.full_like(keys, torch.iinfo(torch.int64).max)
        first = first.scatter_reduce(0, which, lanes, "amin")
        return Members(keys // self.size, keys % self.size, first, counts)

    def arrive(self, members: Members, known: Tensor) -> None:
        """`counts` arrivals at each, with the given knowledge."""
        blocks, elements = members.blocks, members.elements
        missing = self._missing[blocks, elements] - members.counts
        if bool((missing < 0).any()):
            number = int((missing < 0).nonzero()[0])
            wanted = int(self._arrivals[blocks[number]])
            problem = f"more than {wanted} arrivals in phase {self._phase(members, number)}"
            raise Fault(SimulationError, problem, int(members.lanes[number]))
        self._missing[blocks, elements] = missing
        for element in elements.unique().tolist():
            here = blocks[elements == element]
            self._gather(element, known, here)
            ends = here[self._missing[here, element] == 0]
            if ends.numel():
                self._end(element, ends)

    def _phase(self, members: Members, number: int) -> str:
        block, element = int(members.blocks[number]), int(members.elements[number])
        return f"{int(self.ended[block, element])} of `{self.name}[{element}]`"

    def _gather(self, element: int, known: Tensor, blocks: Tensor) -> None:
        gathered = self._gathered.get(element)
        if gathered is None:
            gathered = torch.full_like(known, -1)
        gathered = gathered.clone()
        gathered[..., blocks] = torch.maximum(gathered[..., blocks], known[..., blocks])
        self._gathered[element] = gathered

    def _end(self, element: int, blocks: Tensor) -> None:
        gathered = self._gathered[element].clone()
        handed_on = self._handed_on.get(element, torch.full_like(gathered, -1)).clone()
        handed_on[..., blocks] = gathered[..., blocks]
        # The copies that announced themselves to this phase have arrived.
        agent = self._clocks.count + self.number + element
        handed_on[:, agent, blocks] = self.ended[blocks, element]
        gathered[..., blocks] = -1
        self._gathered[element], self._handed_on[element] = gathered, handed_on
        self.ended[blocks, element] += 1
        self._missing[blocks, element] = self._arrivals[blocks]

    def unready(self, members: Members, phase: Tensor) -> int | None:
        """The number of the first member whose phase of this parity has not ended, None if all have.

        A Fault if the parity is that of another phase than the intended one.
        """
        ended = self.ended[members.blocks, members.elements]
        waiting = (ended - 1 - phase) % 2 != 0
        wrong = ~waiting & (ended - 1 != phase)
        if bool(wrong.any()):
            number = int(wrong.nonzero()[0])
            problem = (
                f"phase {int(phase[number])} is waited for, but phase {self._phase(members, number)} is the "
                "present one, and only the one before it can be told from that"
            )
            raise Fault(SimulationError, problem, int(members.lanes[number]))
        return int(waiting.nonzero()[0]) if bool(waiting.any()) else None

    def state(self, members: Members, number: int) -> str:
        """What is known of a phase that has not ended."""
        block, element = int(members.blocks[number]), int(members.elements[number])
        wanted = int(self._arrivals[block])
        came = wanted - int(self._missing[block, element])
        return f"phase {self._phase(members, number)} has {came} of {wanted} arrivals"

    def handed_on(self, members: Members, blocks: int) -> Tensor:
        """The knowledge that waiting for these gives, (2, agents, blocks)."""
        result = torch.full((2, self._clocks.known.shape[2], blocks), -1, dtype=torch.int64)
        for element in members.elements.unique().tolist():
            known = self._handed_on.get(element)
            if known is not None:
                here = members.blocks[members.elements == element]
                agents = known.shape[1]
                result[:, :agents, here] = torch.maximum(result[:, :agents, here], known[..., here])
        return result
