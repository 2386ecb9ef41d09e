"""What a pointwise kernel computes, of which a thread shares a part among its rows, or along a vector."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from fusewright.core.hardware import HardwareInfo
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.schedulers.base import Facts
from fusewright.schedulers.cost import index_arithmetic, slot_seconds
from fusewright.schedulers.pointwise.space import PointwiseSpace
from fusewright.schedulers.slots import LONG_SLOTS, RoundedSlots
from fusewright.sym import Expr, Product

# Rows of a thread at most that share what is repeated.
MAX_ROWS = 8
# Share of the rows that may be beyond the last.
MAX_BEYOND = 0.05
# Share of the memory's time beyond which arithmetic makes a thread have several rows.
MUCH_COMPUTING = 0.8


class PointwiseArithmetic:
    """The arithmetic of a kernel that goes over a space.

    The kernel has no loops over a part of its dimensions. So a value that lacks some of them is computed
    again for each point along these, except that a thread with several of the points computes it once. A
    value that has one point in all is not counted.

    Attributes:
        repeated: slots (`core.op.Spelling`) of all values that lack dimensions.
    """

    def __init__(self, fusion: Fusion, space: PointwiseSpace) -> None:
        self._positions: list[tuple[int, Product]] = []
        # By the dimensions of the space that a value has.
        of_dimensions: dict[tuple[bool, ...], int] = {}
        self._sizes = [Product(_extents([axis])) for axis in space.axes]
        positions = index_arithmetic(fusion)
        rounded = RoundedSlots(fusion)
        for node in fusion.nodes:
            slots = rounded.of(node)
            if not slots:
                continue
            if node in positions:
                self._positions.append((slots, Product(_extents(node.output.maybe_root))))
                continue
            own = space.maps[node.output]
            present = tuple(not own[axis].is_broadcast for axis in space.axes if not axis.is_broadcast)
            of_dimensions[present] = of_dimensions.get(present, 0) + slots
        self._concrete = [not axis.is_broadcast for axis in space.axes]
        self._of_dimensions = of_dimensions
        lacking = [slots for present, slots in of_dimensions.items() if any(present) and not all(present)]
        self.repeated = sum(lacking)

    def slots(self, facts: Facts, break_point: int, rows: int, width: int) -> float:
        """Returns the slots of all threads, if each has `rows` accesses of `width` elements.

        break_point: the number of dimensions that are rows.
        """
        total = prod([size.value(facts.sizes) for size in self._sizes])
        cut = sum(self._concrete[:break_point])
        computed: float = sum([slots * points.value(facts.sizes) for slots, points in self._positions])
        for present, slots in self._of_dimensions.items():
            if present and not any(present):
                continue
            of_columns, of_rows = any(present[cut:]), any(present[:cut])
            shared = (1 if of_rows or not cut else rows) * (1 if of_columns else width)
            computed += slots * total / shared
        return computed

    def repeats_long(
        self, facts: Facts, hardware: HardwareInfo, memory: float, break_point: int, width: int
    ) -> bool:
        """Whether threads of one row compute for long, as they repeat much.

        memory: seconds of the memory's traffic.
        """
        if self.repeated < LONG_SLOTS:
            return False
        return slot_seconds(self.slots(facts, break_point, 1, width), hardware) > MUCH_COMPUTING * memory

    def sharing_rows(
        self, facts: Facts, hardware: HardwareInfo, memory: float, break_point: int, rows: int, width: int
    ) -> int:
        """Returns how many rows a thread has, at least `rows`, to compute for no longer than the memory
        takes.
        """
        if not self.repeats_long(facts, hardware, memory, break_point, width):
            return rows
        sizes = [size.value(facts.sizes) for size in self._sizes]
        count, total = prod(sizes[:break_point]), prod(sizes)
        wave = hardware.sm_count * hardware.max_threads_per_sm * width
        computing = slot_seconds(self.slots(facts, break_point, rows, width), hardware)
        while computing > MUCH_COMPUTING * memory and 2 * rows <= MAX_ROWS:
            beyond = -count % (2 * rows)
            fewer = slot_seconds(self.slots(facts, break_point, 2 * rows, width), hardware)
            if total < wave * 2 * rows or beyond > MAX_BEYOND * count or fewer > MUCH_COMPUTING * computing:
                break
            rows, computing = 2 * rows, fewer
        return rows


def _extents(axes: Sequence[IterDomain]) -> list[Expr]:
    return [axis.extent for axis in axes if not axis.is_broadcast]
