"""The cost of a kernel: the bytes that it moves through memory, and an estimate of its seconds.

A kernel takes the time of its launch plus the longer of the times of its memory traffic and of its
arithmetic. A schedule may reach only a part of the memory's speed, and may add steps. Constants are fitted to
the segments of the corpus, each timed alone on an H200 (`./dev bench cost`).

The estimate serves to compare partitions of one graph for one call; the tuner uses measured times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import trunc

from fusewright.analyze.inputs import following_inputs
from fusewright.analyze.stores import stored_extents
from fusewright.core.dtype import Category
from fusewright.core.hardware import HardwareInfo
from fusewright.core.once import cached_property
from fusewright.core.recorded import exp
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Choose, Indexed, Node, Pointwise, Reduction, Scan, Stored
from fusewright.ir.value import TensorView
from fusewright.schedulers.base import Cost, Facts
from fusewright.schedulers.sectors import Sectors
from fusewright.schedulers.slots import LONG_SLOTS, RoundedSlots, slots_of
from fusewright.sym import Expr, Product

# ---- memory ----

# Seconds of a kernel besides its traffic: its launch, the ramp until the memory is busy, and the last blocks'
# tail.
KERNEL_SECONDS = 4.7e-6
# Seconds from the start of one block to that of the next, over the whole GPU. They count where blocks start
# more slowly than memory moves.
#   H200: 102400 blocks take 65.6 us, 51200 34.6, 129287 84.1. Casts of 67 million floats, whose blocks start
#   in 0.89 of the memory's time, run at a copy's speed.
BLOCK_SECONDS = 0.64e-9
# Share of the nominal bandwidth that a copy of 2,000 MB reaches.
COPY_SHARE = 0.895
# Bytes that the L1 cache of an SM loads in a cycle (CUDA's best practices guide: 32 banks of 4 bytes).
CACHED_BYTES_A_CYCLE = 128
# Share of the L2 cache with data of the previous kernel that is not yet written to memory when a kernel
# starts, and that must make room for the kernel's reads.
UNWRITTEN_SHARE = 0.4
# Seconds from the issue of a block's loads until the first of them is there.
LATENCY_SECONDS = 1e-6
# Seconds of a grid reduction: partial results go to memory, and the last block of each row or column sums
# them. Up to MAX_GRID_REDUCES that do not need each other are made together and counted as one.
#   H200, cross-entropy of 512000 points of 5 classes, which has four: 14.0 us, estimated as 16.7. In wider
#   vectors, where all blocks wait for one reduction after the other, 21.6, estimated as 26.
GRID_REDUCTION_SECONDS = 2.6e-6

# ---- hints for the L2 cache ----

# Bytes of all inputs, as multiples of the L2 cache, between which inputs of a kernel that stores little are
# marked to leave the cache first, so that they take no room from what the previous kernel has left to be
# written. Beyond the second, that unwritten data matters less than the cost of such loads.
#   H200, whose cache has 60 MiB, of the time without the mark: sums of 17 MB 0.86 to 0.95, of 21 MB 0.91, of
#   25 MB 0.81 and 0.87; of rows and columns at once, of 14 to 16 MB, 0.92 to 0.97; rows of 67 to 134 MB that
#   are held for their variance, their logsumexp or a divergence 0.86 to 0.96 (11 functions). Sums of bf16
#   with the mark and without, us: 4194304x64 147 and 134, 2048x65536 71 and 73.
MIN_STREAMED_CACHES = 0.2  # caches
MAX_STREAMED_CACHES = 8  # caches
# Bytes of all inputs, as a multiple of the L2 cache, from which on inputs of a kernel that stores much are
# marked to leave the cache last.
#   H200, cubes and normalizations of 45 to 268 MB, of the time without the mark, behind the kernel that wrote
#   their input and otherwise: 1.00 to 1.03 and 0.96 to 0.99. Of 45 to 90 MB: 1.03 to 1.08 and 0.96 to 1.03.
MIN_KEPT_CACHES = 2
# Bytes stored, as a share of those read, of a kernel that stores much: those that gained from the mark stored
# a third or more.
MIN_STORED_SHARE = 0.3

# ---- arithmetic ----

# Operations that a multiplication with an addition counts as in a GPU's nominal speed.
OPERATIONS_A_SLOT = 2
# Cycles of a thread for a slot (`core.op.Spelling`), with no other warp on its scheduler.
CYCLES_A_SLOT = 2.3
# Factor of a thread's cycles if other warps compute, too.
BESIDE_OTHERS = 1.6
# Registers that a thread needs besides the vectors that it loads and stores.
REGISTERS_TO_ADDRESS = 8


class Traffic:
    """The least memory traffic of one kernel of `fusion`: it reads each input and writes each output once.

    An input that is read by index counts as the elements that are read, if these are fewer. A broadcast or
    expanded dimension has one element in memory.
    """

    def __init__(self, fusion: Fusion) -> None:
        self._reads = {
            position: _Read(value)
            for position, value in enumerate(fusion.inputs)
            if isinstance(value, TensorView) and value.uses and not value.is_cpu
        }
        self._writes = [
            (t.dtype.size, _written(t)) for t in fusion.output_tensors() if t.definition is not None
        ]

    def read(self, facts: Facts) -> int:
        """Returns the bytes that are read."""
        return sum([each.bytes(facts) for each in self._reads.values()])

    def read_once(self, facts: Facts) -> int:
        """Returns those of them that no later kernel reads."""
        reads = self._reads.items()
        return sum([each.bytes(facts) for position, each in reads if position not in facts.read_later])

    def written(self, facts: Facts) -> int:
        """Returns the bytes that are written."""
        return sum([size * points.value(facts.sizes) for size, points in self._writes])


class _Read:
    """The elements that are read of one input."""

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


def _written(tensor: TensorView) -> Product:
    """The elements of an output that its definition stores."""
    node = tensor.definition
    if isinstance(node, Stored):
        extents = zip(tensor.maybe_root, stored_extents(node))
        return Product(extent for axis, extent in extents if not axis.is_broadcast)
    return _points(tensor)


def _points(tensor: TensorView) -> Product:
    return Product(a.extent for a in tensor.iterated if not a.is_broadcast and not a.is_reduction)


class Arithmetic:
    """The least arithmetic of one kernel of `fusion`: each value once for each point of its dimensions.

    A reduction's operand is computed at each reduced point, whether it varies along all of its dimensions or
    not. Values that depend only on positions are index arithmetic, which lowering simplifies.
    """

    def __init__(self, fusion: Fusion) -> None:
        of_points: dict[tuple[Expr, ...], int] = {}
        reduced, repeated = _reduced_points(fusion), _repeated(fusion)
        rounded = RoundedSlots(fusion) if repeated else None
        positions = index_arithmetic(fusion)
        for node in fusion.nodes:
            slots = rounded.of(node) if rounded is not None and node in repeated else slots_of(node)
            if slots:
                points = _extents(node.output.maybe_root)
                if node not in positions:
                    points = reduced.get(node, points)
                of_points[points] = of_points.get(points, 0) + slots
        self._slots = [(slots, Product(points)) for points, slots in of_points.items()]

    def slots(self, facts: Facts) -> int:
        """Returns the arithmetic of all threads, in multiples of an addition in one thread."""
        return sum([each * points.value(facts.sizes) for each, points in self._slots])


def index_arithmetic(fusion: Fusion) -> set[Node]:
    """Returns the nodes that compute integers and bools from positions alone, which lowering simplifies.

    Floats of positions (frequencies, say) are computed like others.
    """
    loaded = following_inputs(fusion)
    return {
        node
        for node in fusion.nodes
        if node not in loaded
        and not node.is_scalar
        and node.output.dtype.category in (Category.BOOL, Category.INT)
    }


def _extents(axes: Iterable[IterDomain]) -> tuple[Expr, ...]:
    return tuple(axis.extent for axis in axes if not axis.is_broadcast)


def _reduced_points(fusion: Fusion) -> dict[Node, tuple[Expr, ...]]:
    """Returns the points at which nodes are computed again, by node, if these are more than the node's own.

    They are the points of a reduction's operand for nodes that the reduction follows from and that differ
    along reduced dimensions; and for costly nodes that are computed beside such an operand.
    """
    found: dict[Node, tuple[Expr, ...]] = {}
    sources: list[tuple[TensorView, tuple[int, ...]]] = []
    for node in fusion.nodes:
        if not isinstance(node, Reduction) or any(v.definition is None for v in node.tensor_inputs):
            continue
        source = node.tensor_inputs[0]
        sources.append((source, node.reduced_dims))
        stack = [value.definition for value in node.tensor_inputs]
        while stack:
            above = stack.pop()
            if above is None or above in found or above.is_scalar:
                continue
            if isinstance(above, (Pointwise, Choose)) and _differs(above, source, node.reduced_dims):
                found[above] = _extents(source.shape)
                stack += [value.definition for value in above.tensor_inputs]
    for node in _repeated(fusion) if sources else ():
        for source, dims in sources:
            inner = [dim for dim, axis in enumerate(source.shape) if not axis.is_broadcast][-1:]
            if _differs(node, source, dims) and _differs(node, source, inner):
                found.setdefault(node, _extents(source.shape))
    return found


def _differs(node: Node, source: TensorView, dims: Sequence[int]) -> bool:
    """Whether the values of a node differ along some of these dimensions of a tensor."""
    shape = node.output.shape
    return len(shape) == source.ndim and any(not shape[dim].is_broadcast for dim in dims)


def _repeated(fusion: Fusion) -> list[Node]:
    """Returns the costly nodes that follow from no reduction and are read at more points than they have."""
    following: set[Node] = set()
    found = []
    for node in fusion.ordered_nodes():
        if isinstance(node, (Reduction, Scan)) or any(v.definition in following for v in node.tensor_inputs):
            following.add(node)
        elif slots_of(node) >= LONG_SLOTS and any(axis.is_broadcast for axis in node.output.shape):
            found.append(node)
    return found


@dataclass(frozen=True)
class CostModel:
    """The cost of kernels of one fusion.

    Attributes:
        sectors: how threads access memory. None: along each tensor's contiguous dimension.
    """

    fusion: Fusion
    sectors: Sectors | None = None

    @cached_property
    def _traffic(self) -> Traffic:
        return Traffic(self.fusion)

    @cached_property
    def _arithmetic(self) -> Arithmetic:
        return Arithmetic(self.fusion)

    def estimate(
        self,
        facts: Facts,
        hardware: HardwareInfo,
        reads: float = 1.0,
        speed: float = 1.0,
        steps: float = 0.0,
        accessing: float = 0.0,
        slots: float | None = None,
    ) -> Callable[[], Cost]:
        """Returns the cost of a kernel.

        Args:
            reads: how often it reads its inputs.
            speed: the share of a copy's speed that it reaches.
            steps: seconds in which it uses neither memory nor arithmetic.
            accessing: seconds of instructions for its accesses, in addition to its arithmetic; another kernel
                might not need them.
            slots: the kernel's total arithmetic, including repeated work. None: each value is computed once
                for each of its points.
        """
        return partial(self._cost, facts, hardware, reads, speed, steps, accessing, slots)

    def slots(self, facts: Facts) -> int:
        """Returns the arithmetic of all threads, if each value is computed once for each of its points."""
        return self._arithmetic.slots(facts)

    def computing_seconds(self, facts: Facts, hardware: HardwareInfo) -> float:
        """Returns the seconds of the arithmetic at the GPU's nominal speed, if each value is computed once
        for each of its points.
        """
        return slot_seconds(self._arithmetic.slots(facts), hardware)

    def streams(self, facts: Facts, hardware: HardwareInfo) -> bool:
        """Whether inputs that are read once, by a kernel that stores little, are to leave the caches first.

        H200: sums of 134 MB take 0.9 times as long. A kernel that stores as much as it reads would take 1.03
        times as long.
        """
        caches = self._traffic.read(facts) / hardware.l2_bytes
        return MIN_STREAMED_CACHES < caches <= MAX_STREAMED_CACHES and not self.is_read_later(facts)

    def is_read_later(self, facts: Facts) -> bool:
        """Whether later kernels read most of what this one reads, and may find a part of it in the caches.

        H200, of the time with inputs that leave the caches first: three moments of 2048x511x31 in two passes
        0.92, skewness of 4097x1023 0.85, gradients of a batch norm of 128x40x53x83 0.92.
        """
        return 2 * self._traffic.read_once(facts) < self._traffic.read(facts)

    def keeps(self, facts: Facts, hardware: HardwareInfo) -> bool:
        """Whether inputs that are read once are to leave the L2 cache last, as the kernel stores much, too.

        What it stores then leaves the cache early and at an even rate. Of inputs that fill the cache some
        times little is found there again; of smaller ones a part, where the kernel before wrote them.
        """
        read = self._traffic.read(facts)
        return read > MIN_KEPT_CACHES * hardware.l2_bytes and not self.stores_little(facts)

    def stores_little(self, facts: Facts) -> bool:
        """Whether the kernel stores so little that what it reads decides which hint its inputs have."""
        return self._traffic.written(facts) <= MIN_STORED_SHARE * self._traffic.read(facts)

    def moving_seconds(self, facts: Facts, hardware: HardwareInfo) -> float:
        """Returns the seconds of all of the traffic at a copy's speed."""
        return copy_seconds(self._traffic.read(facts) + self._traffic.written(facts), hardware)

    def started_share(self, facts: Facts, hardware: HardwareInfo, blocks: float) -> float:
        """Returns the share of a copy's speed at which so many blocks start."""
        memory = self.moving_seconds(facts, hardware)
        return min(1.0, memory / starting_seconds(blocks)) if memory and blocks else 1.0

    def seconds_an_sm(self, facts: Facts, hardware: HardwareInfo) -> float:
        """Returns the seconds of all of the traffic by one SM, at its share of a copy's speed."""
        return self.moving_seconds(facts, hardware) * hardware.sm_count

    def _cost(
        self,
        facts: Facts,
        hardware: HardwareInfo,
        reads: float,
        speed: float,
        steps: float,
        accessing: float,
        slots: float | None,
    ) -> Cost:
        read, written = self._traffic.read(facts), self._traffic.written(facts)
        in_vain = self.sectors.in_vain(facts) if self.sectors is not None else 0
        moved = trunc(read * reads) + written + in_vain
        bandwidth = _copy_speed(hardware)
        once = self.computing_seconds(facts, hardware)
        computing = once if slots is None else slot_seconds(slots, hardware)
        unwritten = _unwritten(read, written, hardware)
        seconds = max((moved + unwritten) / (bandwidth * speed), computing + accessing) + steps
        least = max((read + written + unwritten) / bandwidth, min(once, computing))
        return Cost(moved, KERNEL_SECONDS + seconds, KERNEL_SECONDS + least + steps)


def slot_seconds(slots: float, hardware: HardwareInfo) -> float:
    """Returns the seconds of so many slots (`core.op.Spelling`) of all threads at the GPU's nominal speed."""
    return slots / (hardware.float_tflops * 1e12 / OPERATIONS_A_SLOT)


def thread_seconds(slots: float, hardware: HardwareInfo) -> float:
    """Returns the seconds of one thread for so many slots: nothing hides the time of the last threads."""
    return slots * CYCLES_A_SLOT / (hardware.clock_mhz * 1e6)


def starting_seconds(blocks: float) -> float:
    """Returns the seconds that it takes to start so many blocks."""
    return blocks * BLOCK_SECONDS


def copy_seconds(moved: float, hardware: HardwareInfo) -> float:
    """Returns the seconds of so many bytes, read or written, at a copy's speed."""
    return moved / _copy_speed(hardware)


def cached_seconds(loaded: float, hardware: HardwareInfo) -> float:
    """Returns the seconds of loads of so many bytes by all threads, if all are in the L1 caches."""
    return loaded / (hardware.sm_count * CACHED_BYTES_A_CYCLE * hardware.clock_mhz * 1e6)


def _copy_speed(hardware: HardwareInfo) -> float:
    """Returns the bytes per second of a copy, read and written."""
    return hardware.memory_bandwidth_gbs * 1e9 * COPY_SHARE


def _unwritten(read: int, written: int, hardware: HardwareInfo) -> float:
    """Returns the bytes that are written to memory to make room in the L2 cache for what a kernel reads.

    Lines are replaced at random, so after as many bytes as the cache holds a share of 1 - 1/e is replaced.
    What a kernel writes leaves as much to be written after it.
    """
    if not read:
        return 0.0
    moved = read + written
    replaced = hardware.l2_bytes * (1 - exp(-moved / hardware.l2_bytes))
    return UNWRITTEN_SHARE * replaced * read / moved


def busy_share(blocks: float, hardware: HardwareInfo) -> float:
    """Returns the share of the memory's speed that so many blocks reach, each of which keeps an SM busy.

    Half of the SMs are taken to be enough for all of it: an assumption, which only few blocks put to use.
    """
    return min(1.0, max(1.0, blocks) / (0.5 * hardware.sm_count))


def overlap(resident: float, moving: float, idle: float) -> float:
    """Returns the share of the memory's speed that blocks keep.

    Args:
        resident: blocks on an SM.
        moving: seconds for which each block moves bytes, at the SM's share of that speed.
        idle: seconds for which it has none in flight.
    """
    return min(1.0, resident * moving / (moving + idle)) if moving else 1.0
