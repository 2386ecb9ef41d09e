"""What a kernel costs: the bytes that it moves through memory, and an estimate of its seconds.

A kernel of a fused computation waits for memory, so the estimate is a roofline of the bytes, lowered by what
a schedule keeps of the memory's speed. It is there to compare partitions of one graph for one call; figures
from a GPU are the tuner's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import prod

from fusewright.core.hardware import HardwareInfo
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Indexed
from fusewright.ir.value import TensorView
from fusewright.schedulers.base import Cost, Facts
from fusewright.sym import Expr

# What a kernel takes besides its bytes: its launch, until the memory is busy, and the last blocks' tail. The
# share of the nominal bandwidth that a copy reaches. Both fitted to copies of 1 to 2,000 MB on an H200.
KERNEL_SECONDS = 4.4e-6
COPY_SHARE = 0.895


class Traffic:
    """The memory that one kernel of `fusion` reads and writes at least: each input and output once.

    An input that is read by index counts as what is read of it, if that is less. A dimension that is a
    broadcast or expanded has one element in memory.
    """

    def __init__(self, fusion: Fusion) -> None:
        self._reads = [
            _Read(v) for v in fusion.inputs if isinstance(v, TensorView) and v.uses and not v.is_cpu
        ]
        self._writes = [
            (t.dtype.size, _extents(t)) for t in fusion.output_tensors() if t.definition is not None
        ]

    def read(self, facts: Facts) -> int:
        """Bytes."""
        return sum(each.bytes(facts) for each in self._reads)

    def written(self, facts: Facts) -> int:
        """Bytes."""
        return sum(size * _count(extents, facts) for size, extents in self._writes)


class _Read:
    """What is read of one input."""

    def __init__(self, tensor: TensorView) -> None:
        self._element = tensor.dtype.size
        self._extents = _extents(tensor)
        # None: some use reads all of it.
        parts = [_extents(u.output) for u in tensor.uses if isinstance(u, Indexed) and u.inputs[0] is tensor]
        self._parts = parts if len(parts) == len(tensor.uses) else None

    def bytes(self, facts: Facts) -> int:
        count = _count(self._extents, facts)
        if self._parts is not None:
            count = min(count, sum(_count(part, facts) for part in self._parts))
        return count * self._element


def _extents(tensor: TensorView) -> tuple[Expr, ...]:
    return tuple(a.extent for a in tensor.iterated if not a.is_broadcast and not a.is_reduction)


def _count(extents: Sequence[Expr], facts: Facts) -> int:
    return prod(facts.value(extent) for extent in extents)


@dataclass(frozen=True)
class CostModel:
    """What kernels of one fusion cost."""

    fusion: Fusion

    @cached_property
    def _traffic(self) -> Traffic:
        return Traffic(self.fusion)

    def estimate(
        self, facts: Facts, hardware: HardwareInfo, reads: float = 1.0, speed: float = 1.0
    ) -> Callable[[], Cost]:
        """The cost of a kernel that reads its inputs `reads` times, at the share `speed` of a copy's
        speed.
        """
        return partial(self._cost, facts, hardware, reads, speed)

    def _cost(self, facts: Facts, hardware: HardwareInfo, reads: float, speed: float) -> Cost:
        read, written = self._traffic.read(facts), self._traffic.written(facts)
        least = read + written
        moved = int(read * reads) + written
        bandwidth = hardware.memory_bandwidth_gbs * 1e9 * COPY_SHARE
        return Cost(moved, KERNEL_SECONDS + moved / (bandwidth * speed), KERNEL_SECONDS + least / bandwidth)


def busy_share(blocks: float, hardware: HardwareInfo) -> float:
    """The share of the memory's speed that so many blocks reach, each of which an SM is kept busy by.

    Half of the SMs are taken to be enough for all of it: an assumption, which only few blocks put to use.
    """
    return min(1.0, max(1.0, blocks) / (0.5 * hardware.sm_count))
