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
    """The state of one lowering.

    Attributes:
        fusion: the scheduled fusion.
        nodes: its nodes that compute tensors, in program order.
        domains, loops, buffers: the extents of axes, the loops of nodes, and the buffers of tensors.
        dims: the extents of the thread and block axes of the launch.
        scalars: the parameters for scalars that the host computes.
        workspaces: shared memory for collectives, by its use.
        exchanges: global memory for collectives across the grid.
        implied: guards that always hold, since the loops end early.
        registers: registers that belong to no tensor, such as the carries of scans.
        misalignments: for a buffer and a vector width, the symbol of the distance between the buffer's
            address and a multiple of the width.
        last_block: the flags of the blocks that hold results of grid reductions.
        guarded: nodes that are also guarded along broadcast axes.
        partly_used: block axes along which some outputs do not lie. One block along them is launched for
            these.
    """

    fusion: Fusion
    nodes: Sequence[Node]
    domains: Domains
    loops: LoopMap
    buffers: Buffers
    dims: dict[ParallelType, Expr]
    scalars: dict[Val, k.ScalarParam] = field(default_factory=dict)
    workspaces: dict[object, tuple[k.Buffer, ...]] = field(default_factory=dict)
    exchanges: list[k.Buffer] = field(default_factory=list)
    implied: frozenset[Expr] = frozenset()
    registers: list[k.Buffer] = field(default_factory=list)
    misalignments: dict[tuple[k.Buffer, int], Symbol] = field(default_factory=dict)
    last_block: LastBlock = field(init=False)
    guarded: frozenset[Node] = field(init=False)
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
        """The operand `node.inputs[position]` at these indices."""
        value = node.inputs[position]
        if isinstance(value, TensorView) and not value.is_cpu:
            return k.Ref(self.buffers.of(value), self.buffers.read(value, position, indices))
        return self.scalar(value)

    def scalar(self, value: Val) -> k.Operand:
        """A host scalar as an operand: a constant, a size that the kernel has anyway, or a parameter."""
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
        """The conditions that the block holds the grid reductions that `node` reads.

        They have the same value in all threads of a block.
        """
        return [flag.symbol for flag in self.last_block.needed_by(node)]

    def thread_guards(self, node: Node, indices: NodeIndices) -> list[Expr]:
        """The conditions under which the thread computes an element of `node`."""
        found = self.element_guards(node, indices)
        if any(t.memory is not MemoryType.local for t in node.outputs if isinstance(t, TensorView)):
            found += self._write_once(node, indices)
        return necessary(found)

    def element_guards(self, node: Node, indices: NodeIndices) -> list[Expr]:
        """The conditions under which `node` has an element at the position of the loops."""
        guarded = node in self.guarded
        # Shared memory has room for all points of the loops, and readers read all points of a broadcast axis.
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
                found.append(lt(0, loop.extent))  # a launch has one thread or block even if the extent is 0
        part = node.output.part
        if part is not None:
            found.append(lt(indices.of(node.output.loop[part.position]), part.steps))
        return necessary([guard for guard in found if guard not in self.implied])

    def _axes_with_room(self, node: Node, indices: NodeIndices) -> frozenset[IterDomain]:
        """The axes that need no guard because `node` copies registers to shared memory with room beyond them.

        Registers hold a fill where there was nothing to load. It may be stored, since readers are guarded.
        """
        tensor = node.output
        if tensor.memory is not MemoryType.shared or tensor.storage is None or not node.traits.move:
            return frozenset()
        if node.tensor_inputs[0].memory is not MemoryType.local:
            return frozenset()
        return indices.above(tensor.storage.axes)

    def nonempty_guards(self, node: Node) -> list[Expr]:
        """The conditions that the tensors in global memory that `node` reads have elements.

        If a consumer has removed an expanded dimension, no loop runs over it. A dimension that is expanded to
        size 0 has no element, and the tensor's pointer may be null.
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
        """The conditions under which only one thread stores each element."""
        tensor = node.output
        in_global = tensor.memory is MemoryType.global_
        spread = {
            axis.parallel
            for axis in tensor.loop
            if not axis.is_reduction and self.domains.extent(tensor, axis) is not ONE
        }
        # Only one block along the reduced axes holds the result of a grid reduction, so these axes need no
        # condition.
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
            if axis.expanded is not None:  # it may be expanded to size 0
                guards.append(lt(0, self.domains.known(axis.expanded)))
        return guards

    # ---- scratch memory

    def workspace(
        self, dtypes: Sequence[DataType], axes: Sequence[ParallelType], width: int, scans: bool = False
    ) -> tuple[k.Buffer, ...]:
        """Shared memory for a reduction or scan across the threads of a block.

        Collectives of the same types and size share it. It is empty if the threads are a power of two within
        a warp, since then shuffles suffice. A scan stores the values of all threads; a reduction may store
        fewer.
        """
        extents = [maximum(self.dims.get(p, ONE), ONE) for p in k.THREAD_AXES]  # a launch has at least one
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
        """Shared memory for the exchange of results between the blocks of a cluster.

        Reductions of the same types, axes and width share it.
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
        """Whether the threads that reduce along `axes` are known to form whole warps."""
        return tuple(axes) == (ParallelType.block_x,) and divides(WARP_SIZE, self.dims[ParallelType.block_x])

    def register(self, name: str, dtype: DataType, size: int) -> k.Buffer:
        """Adds registers that belong to no tensor."""
        self.registers.append(k.Buffer(name, dtype, k.Space.LOCAL, const(size)))
        return self.registers[-1]

    def numbered_register(self, name: str, dtype: DataType, size: int = 1) -> k.Buffer:
        """Adds registers that belong to no tensor; their name is `name` and a number."""
        return self.register(f"{name}{len(self.registers)}", dtype, size)

    def misalignment(self, buffer: k.Buffer, width: int) -> Expr:
        """The number of elements by which a buffer's address exceeds a multiple of `width` elements.

        It is zero if the buffer has to be aligned anyway.
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
        """Global memory for the exchange of results between the blocks of a grid.

        It has room for one set of values per block and per thread that is not along `axes`, for `turns`
        consecutive rounds in a launch.
        """
        blocks, kept = (
            product(maximum(self.dims.get(p, ONE), ONE) for p in all_axes if p not in axes)
            for all_axes in (k.BLOCK_AXES, k.THREAD_AXES)
        )
        room = grid_exchange_room(blocks, kept * width, dtypes, turns)
        self.exchanges.append(k.Buffer(f"exchange{len(self.exchanges)}", DataType.Int, k.Space.GLOBAL, room))
        return self.exchanges[-1]


def _guarded_along_broadcasts(nodes: Sequence[Node]) -> frozenset[Node]:
    """The nodes that are also guarded along their broadcast axes.

    Threads beyond the extent of a broadcast axis may read the value, so it is computed in all threads, unless
    all readers are in the same loops under the same guards. Shared memory has no room for threads beyond the
    extent. Only one thread stores to global memory anyway (`_write_once`).
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

    A launch has at least one thread and one block. A loop whose extent may be 0 has a guard.
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
