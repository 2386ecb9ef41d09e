"""The context of the rules that lower nodes: loops, buffers, dimensions and parameters of one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fusewright.core.dtype import DataType
from fusewright.core.enums import MemoryType, ParallelType
from fusewright.core.hardware import WARP_SIZE
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node
from fusewright.ir.value import Scalar, TensorView, Val
from fusewright.kernel import ir as k
from fusewright.kernel.exchange import exchange_room, grid_exchange_room, threads_a_value
from fusewright.lower.buffers import Buffers
from fusewright.lower.domains import Domains
from fusewright.lower.guards import necessary
from fusewright.lower.indexing import NodeIndices, loop_index_table
from fusewright.lower.last_block import LastBlock
from fusewright.lower.loops import Loop, LoopMap, cluster_size, position
from fusewright.sym import (
    ONE,
    ZERO,
    Expr,
    Symbol,
    as_int,
    const,
    divides,
    eq,
    floordiv,
    lt,
    maximum,
    product,
    symbol,
)


@dataclass(eq=False)
class Context:
    """The state of one lowering."""

    fusion: Fusion
    nodes: Sequence[Node]
    domains: Domains
    loops: LoopMap
    buffers: Buffers
    dims: dict[ParallelType, Expr]
    scalars: dict[Val, k.ScalarParam] = field(default_factory=dict)
    workspaces: dict[object, tuple[k.Buffer, ...]] = field(default_factory=dict)
    exchanges: list[k.Buffer] = field(default_factory=list)
    #: guards that loops keep by ending early
    implied: frozenset[Expr] = frozenset()
    #: registers that no tensor has: what scans carry, what is on its way to an operation
    registers: list[k.Buffer] = field(default_factory=list)
    #: symbols of how far addresses lie beyond multiples of a vector
    misalignments: dict[tuple[k.Buffer, int], Symbol] = field(default_factory=dict)
    #: which block holds the results of grid reductions
    last_block: LastBlock = field(init=False)
    #: nodes that only threads within the extents of broadcast axes, too, compute
    guarded: frozenset[Node] = field(init=False)
    #: axes of blocks that not all outputs lie along: one block is launched for the others
    partly_used: frozenset[ParallelType] = field(init=False)

    def __post_init__(self) -> None:
        self.last_block = LastBlock(self.nodes, self.loops)
        self.guarded = _guarded_along_broadcasts(self.nodes)
        self.partly_used = frozenset(p for p in k.BLOCK_AXES if p in self.dims and not self._all_lie_along(p))

    def _all_lie_along(self, parallel: ParallelType) -> bool:
        """Whether all outputs that the kernel writes lie along an axis of blocks."""
        outputs = (tensor for tensor in self.fusion.output_tensors() if tensor.definition is not None)
        return all(any(axis.parallel is parallel for axis in tensor.loop) for tensor in outputs)

    # ---- indices

    def indices(self, node: Node, loops: Sequence[Loop] | None = None) -> NodeIndices:
        table = loop_index_table(node.output, loops if loops is not None else self.loops.of(node))
        return NodeIndices(node, table, self.domains)

    def position(self, parallel: ParallelType) -> Expr:
        return position(parallel, self.dims)

    # ---- operands

    def operand(self, node: Node, position: int, indices: NodeIndices) -> k.Operand:
        """The operand of `node` at `position` of its inputs, at these `indices`."""
        value = node.inputs[position]
        if isinstance(value, TensorView) and not value.is_cpu:
            return k.Ref(self.buffers.of(value), self.buffers.read(value, position, indices))
        return self.scalar(value)

    def scalar(self, value: Val) -> k.Operand:
        """A host scalar: a constant in the text, a size that the kernel knows anyway, or a parameter."""
        if isinstance(value, Scalar):
            if value.value is not None:
                return k.Imm(value.value, value.dtype)
            if value.extent is not None and value.definition is None and not self.fusion.is_input(value):
                return k.IndexValue(self.domains.known(value.extent), value.dtype)
        if value not in self.scalars:
            name = value.name.lower() if isinstance(value, TensorView) else value.name
            self.scalars[value] = k.ScalarParam(f"{name}_value", value.dtype)
        return k.ScalarRef(self.scalars[value])

    def result(self, tensor: TensorView, indices: NodeIndices) -> k.Ref:
        return k.Ref(self.buffers.of(tensor), self.buffers.written(tensor, indices))

    # ---- guards

    def block_guards(self, node: Node) -> list[Expr]:
        """That the block holds the grid reductions that `node` reads: the same in all its threads."""
        return [flag.symbol for flag in self.last_block.needed_by(node)]

    def thread_guards(self, node: Node, indices: NodeIndices) -> list[Expr]:
        """That an element of `node` is the thread's to compute."""
        found = self.element_guards(node, indices)
        if any(t.memory is not MemoryType.local for t in node.outputs if isinstance(t, TensorView)):
            found += self._write_once(node, indices)
        return necessary(found)

    def element_guards(self, node: Node, indices: NodeIndices) -> list[Expr]:
        """The conditions under which `node` has an element at the position of the loops."""
        guarded = node in self.guarded
        # Shared memory has room for all points of the loops, and readers go over those of a broadcast.
        fills = node.output.memory is MemoryType.shared
        beyond = self._axes_with_room(node, indices)
        found = [
            guard
            for axis, guard in indices.guards
            if ((guarded and not fills) or not axis.is_broadcast) and axis not in beyond
        ]
        for axis, loop in zip(node.output.loop, self.loops.of(node)):
            if not guarded and axis.is_broadcast:
                continue
            if not loop.is_parallel or loop.extent is ONE:
                continue
            if loop.extent is not self.dims[loop.parallel]:
                found.append(lt(loop.index, loop.extent))
            elif loop.parallel in k.THREAD_AXES or loop.parallel in self.partly_used:
                found.append(lt(0, loop.extent))  # where there is none, one is launched all the same
        part = node.output.part
        if part is not None:
            found.append(lt(indices.of(node.output.loop[part.position]), part.steps))
        return necessary([guard for guard in found if guard not in self.implied])

    def _axes_with_room(self, node: Node, indices: NodeIndices) -> frozenset[IterDomain]:
        """Axes beyond whose extents shared memory has room, where `node` copies registers to it.

        Readers are guarded, so that what stands there need be no value. Registers hold a fill where there was
        nothing to load, and storing that takes no guard.
        """
        tensor = node.output
        if tensor.memory is not MemoryType.shared or tensor.storage is None or not node.traits.move:
            return frozenset()
        if node.tensor_inputs[0].memory is not MemoryType.local:
            return frozenset()
        return indices.above(tensor.storage.axes)

    def nonempty_guards(self, node: Node) -> list[Expr]:
        """That the tensors in global memory that `node` reads have elements.

        No loop runs over a dimension that shows copies of one element where a consumer has removed it, and
        one of no copies has no element: its tensor's pointer may be null.
        """
        expanded = dict.fromkeys(
            axis.expanded
            for value in node.tensor_inputs
            if value.memory is MemoryType.global_
            for axis in value.shape
            if axis.expanded is not None
        )
        return necessary(lt(0, self.domains.known(extent)) for extent in expanded)

    def _write_once(self, node: Node, indices: NodeIndices) -> list[Expr]:
        """Of the threads that would store the same element, one does."""
        tensor = node.output
        in_global = tensor.memory is MemoryType.global_
        spread = {
            axis.parallel
            for axis in tensor.loop
            if not axis.is_reduction and self.domains.extent(tensor, axis) is not ONE
        }
        # In the block that holds a grid reduction's result, the reduced block axes need no choice.
        decided = {p for flag in self.last_block.needed_by(node) for p in flag.axes}
        kinds = (*k.THREAD_AXES, *k.BLOCK_AXES, ParallelType.cluster_x) if in_global else k.THREAD_AXES
        guards = [
            eq(self.position(p), 0)
            for p in kinds
            if p in self.dims and p not in spread and p not in decided and as_int(self.dims[p]) != 1
        ]
        # A shared buffer has room for the promoted extent of a broadcast axis, global memory for one element.
        shape = tensor.iterated
        for axis in shape if in_global else ():
            if axis.is_broadcast:
                guards.append(eq(indices.of(axis), 0))
            if axis.expanded is not None:  # to no points, perhaps
                guards.append(lt(0, self.domains.known(axis.expanded)))
        return guards

    # ---- scratch memory

    def workspace(
        self, dtypes: Sequence[DataType], axes: Sequence[ParallelType], width: int, scans: bool = False
    ) -> tuple[k.Buffer, ...]:
        """Shared memory for a reduction or scan across the threads of a block; those of the same size share
        it.

        None if the threads are a power of two within a warp, for which shuffles suffice. A scan stores the
        values of all threads there; a reduction may store fewer.
        """
        extents = [maximum(self.dims.get(p, ONE), ONE) for p in k.THREAD_AXES]  # launched: at least one
        if tuple(axes) == (ParallelType.block_x,) and WARP_SIZE % (as_int(extents[0]) or 2 * WARP_SIZE) == 0:
            return ()
        shared_by = 1 if scans else threads_a_value(extents, axes)
        size = floordiv(product(extents) * width, const(shared_by))
        key = (tuple(dtypes), size)
        if key not in self.workspaces:
            count = len(self.workspaces)
            self.workspaces[key] = tuple(
                k.Buffer(f"work{count}_{i}", dtype, k.Space.SHARED, size, 16)
                for i, dtype in enumerate(dtypes)
            )
        return self.workspaces[key]

    def exchange(
        self, dtypes: Sequence[DataType], axes: Sequence[ParallelType], width: int
    ) -> tuple[k.Buffer, ...]:
        """Shared memory for the exchange of results between the blocks of a cluster; those of the same kind
        share it.
        """
        key = ("exchange", tuple(dtypes), tuple(axes), width)
        if key not in self.workspaces:
            extents = [maximum(self.dims.get(p, ONE), ONE) for p in k.THREAD_AXES]
            values, count = width * cluster_size(self.dims), len(self.workspaces)
            sizes = [exchange_room(extents, axes, values, dtype) for dtype in dtypes]
            self.workspaces[key] = tuple(
                k.Buffer(f"exchange{count}_{i}", dtype, k.Space.SHARED, size, 16)
                for i, (dtype, size) in enumerate(zip(dtypes, sizes))
            )
        return self.workspaces[key]

    def reduces_whole_warps(self, axes: Sequence[ParallelType]) -> bool:
        """Whether the threads that reduce along `axes` are known to be whole warps, side by side."""
        return tuple(axes) == (ParallelType.block_x,) and divides(WARP_SIZE, self.dims[ParallelType.block_x])

    def register(self, name: str, dtype: DataType, size: int) -> k.Buffer:
        """Registers that no tensor has."""
        self.registers.append(k.Buffer(name, dtype, k.Space.LOCAL, const(size)))
        return self.registers[-1]

    def register_of(self, name: str, dtype: DataType, size: int) -> k.Buffer:
        """Registers that no tensor has, called by `name` and a number."""
        return self.register(f"{name}{len(self.registers)}", dtype, size)

    def misalignment(self, buffer: k.Buffer, width: int) -> Expr:
        """The distance of a buffer's address from a multiple of `width` elements; zero if other accesses to
        it are such vectors.
        """
        if buffer.align >= width * buffer.dtype.size:
            return ZERO
        found = self.misalignments.get((buffer, width))
        if found is None:
            found = symbol(f"{buffer.name}_beyond{width}", lo=0, hi=width - 1)
            self.misalignments[buffer, width] = found
        return found

    def grid_exchange(
        self, dtypes: Sequence[DataType], axes: Sequence[ParallelType], width: int, turns: int
    ) -> k.Buffer:
        """Global memory for the exchange of results between the blocks of a grid: one set per block for each
        thread that is not along `axes`, for the given number of consecutive rounds in a launch.
        """
        blocks, kept = (
            product(maximum(self.dims.get(p, ONE), ONE) for p in all_axes if p not in axes)
            for all_axes in (k.BLOCK_AXES, k.THREAD_AXES)
        )
        room = grid_exchange_room(blocks, kept * width, dtypes, turns)
        self.exchanges.append(k.Buffer(f"exchange{len(self.exchanges)}", DataType.Int, k.Space.GLOBAL, room))
        return self.exchanges[-1]


def _guarded_along_broadcasts(nodes: Sequence[Node]) -> frozenset[Node]:
    """Nodes whose work stands under the guards of their broadcast axes as well.

    What is the same along a broadcast axis may be read by threads beyond the axis' extent, so registers hold
    it everywhere, unless all readers stand in the same loops under the same guards. Shared memory has room
    for no threads beyond; one thread stores to global memory anyway (`_write_once`).
    """
    guarded: set[Node] = set()
    computed = set(nodes)
    for node in reversed(nodes):
        outputs = [t for t in node.outputs if isinstance(t, TensorView)]
        readers = {c.definition for t in outputs for c in t.consumers if c.definition in computed}
        inside = all(t.inline_at == len(t.loop) for t in outputs) and all(
            reader in guarded or not any(axis.is_broadcast for axis in reader.output.loop)
            for reader in readers
            if reader is not None
        )
        if inside or any(t.memory is MemoryType.shared for t in outputs):
            guarded.add(node)
    return frozenset(guarded)


def launch_dimensions(loops: LoopMap) -> dict[ParallelType, Expr]:
    """The extent of every thread and block axis in use: the largest among the loops bound to it, padded.

    A launch has one thread and block at least; a loop of no points then has a guard.
    """
    dims: dict[ParallelType, Expr] = {}
    for loop in loops.all():
        if loop.is_parallel:
            extent = loop.extent
            if loop.padded > 1:
                extent = (extent + (loop.padded - 1)) // loop.padded * loop.padded
            if as_int(extent) == 0:
                extent = ONE
            known = dims.get(loop.parallel, ONE)
            if known is ONE:
                dims[loop.parallel] = extent
            elif extent is not ONE and extent is not known:
                dims[loop.parallel] = maximum(known, extent)
    return dims
