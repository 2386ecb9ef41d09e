"""Circular buffers, which are filled ahead of their readers: their stages and the copies that fill them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fusewright.core.dtype import DataType
from fusewright.core.errors import ScheduleError
from fusewright.core.hardware import BULK_BYTES, WARP_SIZE
from fusewright.ir.axis import IterDomain, Split
from fusewright.ir.node import Node
from fusewright.ir.value import CircularBuffer, TensorView
from fusewright.kernel import ir as k
from fusewright.lower.domains import Domains
from fusewright.lower.loops import Loop, LoopMap
from fusewright.sym import ZERO, Expr, Le, bounds, ceildiv, const, lt, minimum, product

_THREADS = frozenset(map(k.index_name, k.THREAD_AXES))


def ring_nodes(nodes: Iterable[Node]) -> list[Node]:
    """The nodes that fill circular buffers."""
    return [node for node in nodes if node.output.circular is not None]


def counting_axes(tensor: TensorView) -> list[IterDomain]:
    """The loop axes of a circular buffer that count its stages, outermost first."""
    ring = _ring(tensor)
    return [axis for axis in tensor.loop[: ring.position] if not axis.parallel.is_thread]


def stage_axes(tensor: TensorView) -> list[IterDomain]:
    """The loop axes along which a stage of a circular buffer has room."""
    return [axis for axis in tensor.loop[_ring(tensor).position :] if not axis.parallel.is_thread]


def _ring(tensor: TensorView) -> CircularBuffer:
    assert tensor.circular is not None, f"{tensor.name} is no circular buffer"
    return tensor.circular


@dataclass
class Stages:
    """The stages of one circular buffer.

    Attributes:
        tensor, buffer: the tensor and its buffer.
        full, empty: the buffers of the mbarriers.
        size: the number of elements of a stage.
        filled: the number of the stage that copies fill, once it is known.
        read: the numbers of the stages that nodes read, in order.
    """

    tensor: TensorView
    buffer: k.Buffer
    full: k.Buffer
    empty: k.Buffer
    size: Expr
    filled: Expr | None = None
    read: dict[Expr, None] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return _ring(self.tensor).stages

    def slot(self, number: Expr) -> Expr:
        """The position in the buffer of the stage with this number."""
        return number % self.count

    def as_ring(self) -> k.Ring:
        ring = _ring(self.tensor)
        assert self.filled is not None, f"nothing fills {self.tensor.name}"
        return k.Ring(
            self.buffer,
            self.full,
            self.empty,
            ring.stages,
            ring.prefetch,
            self.filled,
            tuple(self.read),
            ring.parallel,
            ring.registers,
        )


def stages_of(tensor: TensorView, domains: Domains) -> Stages:
    """The stages of a circular buffer.

    Raises:
        ScheduleError: readers need more stages at a time than there are.
    """
    ring = _ring(tensor)
    held = product(
        domains.extent(tensor, axis)
        for axis in counting_axes(tensor)
        if axis not in tensor.loop[: tensor.inline_at]
    )
    at_once = ring.prefetch + (ring.parallel is not None)
    _, most = bounds(held)
    if most is None or most > at_once:
        raise ScheduleError(
            f"{tensor.name} is read in {held} stages before any is read no more, "
            f"but only {at_once} are filled by then, and nothing would go on",
            expected="at most that many",
            hint="circular_buffer with more stages, or inline the tensor further",
        )
    size = product(domains.extent(tensor, axis) for axis in stage_axes(tensor))
    buffer = k.Buffer(tensor.name, tensor.dtype, k.Space.SHARED, size * ring.stages, 128, private=True)
    full, empty = (
        k.Buffer(f"{tensor.name}_{what}", DataType.Int, k.Space.SHARED, const(ring.stages), 16)
        for what in ("full", "empty")
    )
    return Stages(tensor, buffer, full, empty, size)


def number(extents: Sequence[Expr], indices: Sequence[Expr]) -> Expr:
    """The number of a stage, given the extents and indices of the axes that count stages."""
    result: Expr = ZERO
    for extent, index in zip(extents, indices):
        result = result * extent + index
    return result


def check_uniform(tensor: TensorView, reader: TensorView, stage: Expr) -> None:
    """Raises ScheduleError if threads of a block read different stages at the same time."""
    if any(symbol.name in _THREADS for symbol in stage.free_symbols):
        raise ScheduleError(
            f"{reader.name} reads several stages of {tensor.name} at once: {stage}",
            hint=f"split the loops of {reader.name} as those of {tensor.name} that count its stages",
        )


def begin(stages: Iterable[Stages], threads: Sequence[Expr]) -> list[k.Stmt]:
    """Declares the mbarriers. A stage is full once it is copied, and empty once each warp has read it."""
    found: list[k.Stmt] = []
    for each in stages:
        found += [k.Alloc(each.full), k.Alloc(each.empty)]
        found.append(k.InitMbarriers(each.full, const(1)))
        found.append(k.InitMbarriers(each.empty, ceildiv(product(threads), WARP_SIZE)))
    return found


def elements_of_unit(tensor: TensorView) -> int:
    """The number of elements that must divide the addresses and sizes of bulk copies."""
    return BULK_BYTES // tensor.dtype.size


# ---- loops that count stages -------------------------------------------------------------------------------


def end_with_grid(nodes: Sequence[Node], loops: LoopMap, domains: Domains) -> frozenset[Expr]:
    """Ends loops that count stages where the rows of a block end, since a guard must not skip a stage.

    If an axis is split by blocks, [n] -> [o, blocks], block b has the iterations o = 0 .. (n-1-b) / blocks.

    Returns:
        The guards that are then unnecessary.
    """
    implied: set[Expr] = set()
    for node in ring_nodes(nodes):
        out, counting = node.output, counting_axes(node.output)
        outermost = next(
            ((a, loop) for a, loop in zip(out.loop, loops.of(node)) if a in counting and loop.is_real), None
        )
        if outermost is None or not isinstance(split := outermost[0].definition, Split):
            continue
        axis, loop = outermost
        if split.outer is not axis or split.inner not in out.loop or not split.inner.parallel.is_grid:
            continue
        block = loops.of(node)[out.loop.index(split.inner)]
        extent, blocks = domains.extent(out, split.inputs[0]), domains.extent(out, split.inner)
        loop.trips = ceildiv(extent - block.index, blocks)
        implied.add(lt(loop.index * blocks + block.index, extent))
    return frozenset(implied)


# ---- the copies --------------------------------------------------------------------------------------------


def run_length(run: Loop, lane: Expr, guards: Iterable[Expr]) -> Expr:
    """The number of elements of a run for which the guards hold.

    The guards have the form `base + lane < end` or `base + lane <= last`.
    """
    length = run.extent
    for guard in guards:
        low, high = guard.args
        length = minimum(length, high - (low - lane) + isinstance(guard, Le))
    return length


def whole_units(count: Expr, unit: int, first: k.Ref) -> Expr:
    """`count` rounded up to whole units, but not beyond the end of the tensor.

    So the last unit of a row also has elements of the next row.
    """
    return minimum(ceildiv(count, unit) * unit, first.buffer.size - first.index)
