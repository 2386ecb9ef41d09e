"""The cost of a kernel: the bytes that it moves through memory, and an estimate of its seconds.

A kernel takes the time of its launch plus the longer of the times of its memory traffic and of its
arithmetic. A schedule may reach only a part of the memory's speed, and may add steps. Constants are fitted to
the segments of the corpus, each timed alone on an H200 (`./dev bench cost`).

The estimate serves to compare partitions of one graph for one call; the tuner uses measured times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from math import trunc

from fusewright.analyze.inputs import following_inputs
from fusewright.core.hardware import HardwareInfo
from fusewright.core.once import cached_property
from fusewright.core.recorded import exp
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Choose, Indexed, Node, Pointwise, Reduction, Scan
from fusewright.ir.value import TensorView
from fusewright.schedulers.base import Cost, Facts
from fusewright.schedulers.sectors import Sectors
from fusewright.sym import Expr, Product

# The time of a kernel besides its traffic: its launch, the ramp until the memory is busy, and the last
# blocks' tail.
KERNEL_SECONDS = 4.7e-6
# The share of the nominal bandwidth that a copy of 2,000 MB reaches.
COPY_SHARE = 0.895
# The fraction of the L2 cache with data of the previous kernel that is not yet written to memory when a
# kernel starts, and that must make room for the kernel's reads.
UNWRITTEN_SHARE = 0.4
# Inputs of more than this fraction of the L2 cache are marked to leave it first, unless they are more than so
# many times as large: the unwritten data then matters less than the cost of such loads (an H200: 4194304 x 64
# bfloat16 is summed in 134 us without, 147 with them; 2048 x 65536 in 73 and 71). Of 60 MiB, sums of 17 MB
# take 0.86 to 0.95 of the time so, of 21 MB 0.91, of 25 MB 0.81 and 0.87; of rows and columns at once, of 14
# to 16 MB, 0.92 to 0.97.
STREAMED_SHARE, MOST_STREAMED = 0.2, 8
# Kernels that gained from inputs that leave the L2 cache last stored a third or more of what they read.
LEAST_STORED = 0.3
# Inputs that leave the L2 cache last are larger than so many of them. On an H200 kernels behind the one that
# wrote their input then take 1.00 to 1.03 of the time and others 0.96 to 0.99; with inputs of 45 to 90 MB,
# 1.03 to 1.08 and 0.96 to 1.03 (cubes and normalizations of 45 to 268 MB, 2026-11-23).
KEPT_CACHES = 2
# A grid reduction: partial results go to memory, and the last block of each row or column sums them.
GRID_REDUCTION_SECONDS = 2.6e-6
# Cycles of a thread for a slot (`core.op.Spelling`), with no other warp on its scheduler; and the factor if
# other warps compute, too.
CYCLES_A_SLOT, BESIDE_OTHERS = 2.3, 1.6
# From the issue of a block's loads until the first of them is there.
LATENCY_SECONDS = 1e-6
# Registers that a thread needs besides the vectors that it loads and stores.
REGISTERS_TO_ADDRESS = 8
# The number of operations that a multiplication with an addition counts as in a GPU's nominal speed.
OPERATIONS_A_SLOT = 2
# Slots (`core.op.Spelling`) of an index expression or a choice by position, for each element.
INDEX_SLOTS = 2


class Traffic:
    """The least memory traffic of one kernel of `fusion`: it reads each input and writes each output once.

    An input that is read by index counts as the elements that are read, if these are fewer. A broadcast or
    expanded dimension has one element in memory.
    """

    def __init__(self, fusion: Fusion) -> None:
        self._reads = [
            _Read(v) for v in fusion.inputs if isinstance(v, TensorView) and v.uses and not v.is_cpu
        ]
        self._writes = [
            (t.dtype.size, _points(t)) for t in fusion.output_tensors() if t.definition is not None
        ]

    def read(self, facts: Facts) -> int:
        """Bytes."""
        return sum([each.bytes(facts) for each in self._reads])

    def written(self, facts: Facts) -> int:
        """Bytes."""
        return sum([size * points.value(facts.sizes) for size, points in self._writes])


class _Read:
    """What is read of one input."""

    def __init__(self, tensor: TensorView) -> None:
        self._element = tensor.dtype.size
        self._points = _points(tensor)
        # None: some use reads all of it.
        parts = [_points(u.output) for u in tensor.uses if isinstance(u, Indexed) and u.inputs[0] is tensor]
        self._parts = parts if len(parts) == len(tensor.uses) else None

    def bytes(self, facts: Facts) -> int:
        count = self._points.value(facts.sizes)
        if self._parts is not None:
            count = min(count, sum([part.value(facts.sizes) for part in self._parts]))
        return count * self._element


def _points(tensor: TensorView) -> Product:
    return Product(a.extent for a in tensor.iterated if not a.is_broadcast and not a.is_reduction)


class Arithmetic:
    """The least arithmetic of one kernel of `fusion`: each value once for each point of its dimensions.

    A reduction's operand is computed at each reduced point, whether it varies along all of its dimensions or
    not. Values that depend only on positions are index arithmetic, which lowering simplifies.

    Attributes:
        space: the points at which all other values are computed, if no loop covers only a part of them.
            Values of one point are excluded, since a thread computes them once.
    """

    def __init__(self, fusion: Fusion, space: tuple[IterDomain, ...] | None = None) -> None:
        of_points: dict[tuple[Expr, ...], int] = {}
        reduced = _reduced_points(fusion)
        loaded = following_inputs(fusion)
        for node in fusion.nodes:
            slots = slots_of(node)
            if slots:
                points = _extents(node.output.maybe_root)
                if node in loaded:
                    own = _extents(space) if space is not None and points else points
                    points = reduced.get(node, own)
                of_points[points] = of_points.get(points, 0) + slots
        self._slots = [(slots, Product(points)) for points, slots in of_points.items()]

    def slots(self, facts: Facts) -> int:
        """In all: multiples of an addition in one thread."""
        return sum([each * points.value(facts.sizes) for each, points in self._slots])


def _extents(axes: Iterable[IterDomain]) -> tuple[Expr, ...]:
    return tuple(axis.extent for axis in axes if not axis.is_broadcast)


def _reduced_points(fusion: Fusion) -> dict[Node, tuple[Expr, ...]]:
    """For nodes that reductions follow from, which differ along what is reduced: the points that are."""
    found: dict[Node, tuple[Expr, ...]] = {}
    for node in fusion.nodes:
        if not isinstance(node, Reduction) or any(v.definition is None for v in node.tensor_inputs):
            continue
        source = node.tensor_inputs[0]
        stack = [value.definition for value in node.tensor_inputs]
        while stack:
            above = stack.pop()
            if above is None or above in found or not isinstance(above, Pointwise) or above.is_scalar:
                continue
            shape = above.output.shape
            if len(shape) == source.ndim and any(not shape[dim].is_broadcast for dim in node.reduced_dims):
                found[above] = _extents(source.shape)
                stack += [value.definition for value in above.tensor_inputs]
    return found


def slots_of(node: Node) -> int:
    """Of one point. A step of a reduction computes each of its states from all of them."""
    if node.is_scalar:
        return 0
    if isinstance(node, Pointwise):
        inputs = [value.dtype for value in node.inputs if isinstance(value, TensorView)]
        dtype = node.op.compute_dtype(inputs or [node.output.dtype], node.output.dtype)
        return node.op.spelling(dtype).slots
    if isinstance(node, (Reduction, Scan)):
        return len(node.outputs) ** 2 * node.op.slots
    return INDEX_SLOTS if isinstance(node, (Indexed, Choose)) else 0


@dataclass(frozen=True)
class CostModel:
    """The cost of kernels of one fusion.

    Attributes:
        sectors: how threads access memory. None: along each tensor's contiguous dimension.
        space: the points at which all values are computed, if no loop covers only a part of them.
    """

    fusion: Fusion
    sectors: Sectors | None = None
    space: tuple[IterDomain, ...] | None = None

    @cached_property
    def _traffic(self) -> Traffic:
        return Traffic(self.fusion)

    @cached_property
    def _arithmetic(self) -> Arithmetic:
        return Arithmetic(self.fusion, self.space)

    def estimate(
        self,
        facts: Facts,
        hardware: HardwareInfo,
        reads: float = 1.0,
        speed: float = 1.0,
        steps: float = 0.0,
        accessing: float = 0.0,
    ) -> Callable[[], Cost]:
        """The cost of a kernel that reads its inputs `reads` times, at the fraction `speed` of a copy's
        speed, and takes `steps` seconds in which it uses neither memory nor arithmetic.

        Args:
            accessing: seconds of instructions for its accesses, in addition to its arithmetic; another kernel
                might not need them.
        """
        return partial(self._cost, facts, hardware, reads, speed, steps, accessing)

    def computing_seconds(self, facts: Facts, hardware: HardwareInfo) -> float:
        """What the arithmetic takes at the GPU's nominal speed."""
        return slot_seconds(self._arithmetic.slots(facts), hardware)

    def streams(self, facts: Facts, hardware: HardwareInfo) -> bool:
        """Whether inputs that are read once, by a kernel that stores little, are to leave the caches first.

        They then take no room from what the kernel before has left to be written: sums of 134 MB take 0.9
        times as long (an H200). A kernel that stores as much as it reads is slower by it (1.03 times).
        """
        return STREAMED_SHARE < self._traffic.read(facts) / hardware.l2_bytes <= MOST_STREAMED

    def keeps(self, facts: Facts, hardware: HardwareInfo) -> bool:
        """Whether inputs that are read once are to leave the L2 cache last, as the kernel stores much, too.

        What it stores then leaves the cache early and at an even rate. Of inputs that fill the cache some
        times little is found there again; of smaller ones a part, where the kernel before wrote them.
        """
        read, written = self._traffic.read(facts), self._traffic.written(facts)
        return read > KEPT_CACHES * hardware.l2_bytes and written > LEAST_STORED * read

    def seconds_an_sm(self, facts: Facts, hardware: HardwareInfo) -> float:
        """What one SM would take for all of the traffic, at its share of a copy's speed."""
        moved = self._traffic.read(facts) + self._traffic.written(facts)
        return moved * hardware.sm_count / _copy_speed(hardware)

    def thread_seconds(self, facts: Facts, hardware: HardwareInfo, threads: float) -> float:
        """The compute time of one of so many threads: nothing overlaps with the last ones."""
        return self._arithmetic.slots(facts) / threads * CYCLES_A_SLOT / (hardware.clock_mhz * 1e6)

    def _cost(
        self,
        facts: Facts,
        hardware: HardwareInfo,
        reads: float,
        speed: float,
        steps: float,
        accessing: float,
    ) -> Cost:
        read, written = self._traffic.read(facts), self._traffic.written(facts)
        in_vain = self.sectors.in_vain(facts) if self.sectors is not None else 0
        moved = trunc(read * reads) + written + in_vain
        bandwidth = _copy_speed(hardware)
        computing = self.computing_seconds(facts, hardware)
        unwritten = _unwritten(read, written, hardware)
        seconds = max((moved + unwritten) / (bandwidth * speed), computing + accessing) + steps
        least = max((read + written + unwritten) / bandwidth, computing)
        return Cost(moved, KERNEL_SECONDS + seconds, KERNEL_SECONDS + least + steps)


def slot_seconds(slots: float, hardware: HardwareInfo) -> float:
    """The time of so many slots (`core.op.Spelling`) of all threads at the GPU's nominal speed."""
    return slots / (hardware.float_tflops * 1e12 / OPERATIONS_A_SLOT)


def _copy_speed(hardware: HardwareInfo) -> float:
    """Bytes a second."""
    return hardware.memory_bandwidth_gbs * 1e9 * COPY_SHARE


def _unwritten(read: int, written: int, hardware: HardwareInfo) -> float:
    """The bytes that are written to memory to make room in the L2 cache for what a kernel reads.

    Lines are replaced at random, so after as many bytes as the cache holds a share of 1 - 1/e is replaced.
    What a kernel writes leaves as much to be written after it.
    """
    if not read:
        return 0.0
    moved = read + written
    replaced = hardware.l2_bytes * (1 - exp(-moved / hardware.l2_bytes))
    return UNWRITTEN_SHARE * replaced * read / moved


def busy_share(blocks: float, hardware: HardwareInfo) -> float:
    """The share of the memory's speed that so many blocks reach, each of which an SM is kept busy by.

    Half of the SMs are taken to be enough for all of it: an assumption, which only few blocks put to use.
    """
    return min(1.0, max(1.0, blocks) / (0.5 * hardware.sm_count))


def overlap(resident: float, moving: float, idle: float) -> float:
    """The share of the memory's speed that blocks keep, `resident` on an SM, which move bytes for `moving`
    seconds at the SM's share of that speed, and have none in flight for `idle` seconds.
    """
    return min(1.0, resident * moving / (moving + idle)) if moving else 1.0
