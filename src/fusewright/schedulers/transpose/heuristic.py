"""Chooses params of the transpose scheduler, with the tiles that `tile_choice` finds, and estimates the cost
of the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod

from fusewright.core.hardware import HardwareInfo
from fusewright.core.once import cached_property
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.schedulers.base import Cost, Facts, Proposal, Reject
from fusewright.schedulers.cost import CostModel, busy_share, slot_seconds
from fusewright.schedulers.params import LaunchParams, TransposeParams
from fusewright.schedulers.pointwise.blocks import THREADS
from fusewright.schedulers.pointwise.planes import Planes, find_planes
from fusewright.schedulers.reference_map import Access
from fusewright.schedulers.sectors import LINE_SLOTS, Sectors
from fusewright.schedulers.transpose.access_groups import AccessGroups
from fusewright.schedulers.transpose.merged_dimensions import assumable
from fusewright.schedulers.transpose.single_tiles import ACCESSES, ELEMENT
from fusewright.schedulers.transpose.tile_choice import Merged, TileChoice
from fusewright.schedulers.vector_limits import picked_width

# Bytes of an input's run of memory up to which tiles do not pay: what a warp reads by element is in few lines
# then.
#   H200, channels-last images, by element and in tiles, us: two channels of one byte 27 and 71, three 27 and
#   36, four 27 to 36 and 37, six 29 and 27; two of bf16 34 and 71, three 36 and 37.
SHORTEST_RUN = 4
# Share of a copy's speed that tiles reach: a barrier lies between their loads and stores.
TRANSPOSE_SPEED = 0.97


@dataclass(frozen=True, eq=False)
class TransposePlanner:
    """Derives params from the sizes of a call."""

    fusion: Fusion
    groups: AccessGroups
    _costs: dict[Merged, CostModel] = field(default_factory=dict)

    @cached_property
    def _tiles(self) -> TileChoice:
        return TileChoice(self.fusion, self.groups, self._accesses, self._staged)

    @cached_property
    def _accesses(self) -> list[Access]:
        return self.groups.space.accesses(self.fusion)

    @cached_property
    def _staged(self) -> frozenset[Access]:
        """The accesses of group 2."""
        second = {(a.tensor, a.access.node) for a in self.groups.second}
        return frozenset(a for a in self._accesses if (a.tensor, a.node) in second)

    @cached_property
    def _by_element(self) -> list[Access]:
        """The loads of group 1's threads that go along its dimension, and not as in memory."""
        loads = [a for a in self._accesses if self.fusion.is_input(a.tensor) and a not in self._staged]
        along = {(a.tensor, a.access.node) for a in self.groups.first}
        inner = self.groups.inner1
        return [a for a in loads if inner in a.concrete and (a.tensor, a.node) not in along]

    def __call__(self, facts: Facts, hardware: HardwareInfo) -> Proposal | Reject:
        sizes = [facts.value(axis.extent) for axis in self.groups.space.axes]
        if run := self._short_run(sizes):
            return Reject(f"runs of {run} bytes are read as fast by element")
        if self._threads_have_planes(sizes, facts):
            return Reject("threads of the pointwise scheduler read all planes of a join in vectors")
        tiling = self._tiles.best(sizes, facts, hardware)
        tile, merged, widths = tiling.tile, tiling.merged, tiling.widths
        params = TransposeParams(
            tile_size1=tile.along1,
            tile_size2=tile.along2,
            vectorize_factor1=widths[0],
            vectorize_factor2=widths[1],
            dims_merged_with_1=merged[0],
            dims_merged_with_2=merged[1],
            lparams=LaunchParams(bdimx=tile.threads),
            reason=f"{tiling.along1.size} x {tiling.along2.size} in tiles of {tile.along1} x {tile.along2}; "
            f"vectors of {widths[0]} and {widths[1]}",
        )
        estimate = partial(self._estimate, facts, hardware, merged, widths, tiling.blocks(sizes))
        return Proposal(self._with_constants(params, facts), estimate)

    def _short_run(self, sizes: Sequence[int]) -> int:
        """Returns the bytes of the runs of memory that group 2 is read in, if these are short; else 0."""
        side = self._tiles.sides[1]
        if any(member.is_store(self.fusion) for member in self.groups.second):
            return 0
        run = side.element_bytes * sizes[side.inner] * prod(sizes[p] for p in side.outer)
        return run if run <= SHORTEST_RUN else 0

    def _threads_have_planes(self, sizes: Sequence[int], facts: Facts) -> bool:
        """Whether group 2 reads blocks of memory that have all planes of a join, and columns fill threads."""
        planes, inner1 = self._planes, self.groups.inner1
        if planes is None or self.groups.space.axes[planes.at - 1] is not self.groups.inner2:
            return False
        widths = [picked_width(self.fusion, access, inner1, facts) for access in self._staged]
        return min(widths) > 1 and prod(sizes[planes.at :]) >= THREADS * max(widths)

    @cached_property
    def _planes(self) -> Planes | None:
        return find_planes(self.fusion, self.groups.space, [a for a in self._accesses if a.concrete])

    def _with_constants(self, params: TransposeParams, facts: Facts) -> TransposeParams:
        """Returns the params with sizes as constants, if these have not changed so far, and elements are
        accessed one by one.
        """
        if not facts.stable or min(params.vectorize_factor1, params.vectorize_factor2) > 1:
            return params
        symbols = [axis.extent for axis in assumable(self.groups, params)]
        sizes = tuple(facts.value(symbol) for symbol in symbols)
        if not facts.stable.issuperset(symbols) or not all(sizes):
            return params
        return replace(params, assumed_sizes=sizes, reason=f"{params.reason}; for these sizes only")

    # ---- cost ----

    def _cost(self, merged: Merged) -> CostModel:
        """The cost of group 2's accesses along its own side of the tiles, and all others' along the other."""
        if merged not in self._costs:
            along1, along2 = self._along(merged)
            others = [axis for axis in self.groups.space.axes if axis not in along1 and axis not in along2]
            sectors = self._sectors_along((*others, *along2, *along1), (*others, *along1, *along2))
            self._costs[merged] = CostModel(self.fusion, sectors)
        return self._costs[merged]

    def _along(self, merged: Merged) -> tuple[Sequence[IterDomain], Sequence[IterDomain]]:
        """Returns the dimensions of both sides of the tiles, the outermost first."""
        axes = self.groups.space.axes
        along1, along2 = (
            [*(axes[p] for p in reversed(positions)), inner]
            for positions, inner in zip(merged, (self.groups.inner1, self.groups.inner2))
        )
        return along1, along2

    def _estimate(
        self, facts: Facts, hardware: HardwareInfo, merged: Merged, widths: tuple[int, int], blocks: int
    ) -> Cost:
        points = prod(facts.value(axis.extent) for axis in self.groups.space.axes)
        cost = self._cost(merged)
        started = cost.started_share(facts, hardware, blocks)
        speed = min(TRANSPOSE_SPEED * busy_share(blocks, hardware), started)
        slots = self._accesses_a_point(*widths) * ELEMENT / ACCESSES
        slots += LINE_SLOTS * self._lines_a_point(merged, widths[0], facts)
        accessing = slot_seconds(points * slots, hardware)
        return cost.estimate(facts, hardware, speed=speed, accessing=accessing)()

    def _accesses_a_point(self, width1: int, width2: int) -> float:
        """Returns the instructions that access memory for a point, in vectors of such widths.

        What passes through a tile is written to it and read from it besides, on one side by element: a window
        of many loads takes far longer for that than its bytes take.
        """
        groups = self.groups
        staged = len(groups.second)
        direct = sum(a.full for a in groups.first)
        return staged * (1 + 2 / width2) + direct / width1 + len(self._by_element)

    def _lines_a_point(self, merged: Merged, width1: int, facts: Facts) -> float:
        """Returns the lines that a warp's access for a point looks up more than accesses of neighbours do.

        Threads that load by element in place of vectors are a vector apart.
        """
        sectors = self._cost(merged).sectors
        assert sectors is not None
        staged = sum(sectors.more_lines(each, facts) for each in self._staged)
        return staged + sum(sectors.more_lines(each, facts, width1) for each in self._by_element)

    def _sectors_along(self, *orders: Sequence[IterDomain]) -> Sectors:
        """Returns the sectors of threads that go along these dimensions, the fastest last: the first order is
        that of group 1, the second of group 2.
        """
        accesses = [(a, tuple(orders[a in self._staged])) for a in self._accesses]
        return Sectors(self.fusion, tuple(accesses))
