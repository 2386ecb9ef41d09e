"""The storage of tensors: their buffers, and the offset of an element for given indices of its axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusewright.analyze.axis_map import AxisKeys, Key
from fusewright.core.enums import MemoryType, ParallelType
from fusewright.core.errors import ScheduleError
from fusewright.ir.axis import IterDomain, ancestors, transforms_between
from fusewright.ir.value import Storage, TensorView
from fusewright.kernel.ir import Buffer, Space
from fusewright.lower.domains import Domains
from fusewright.lower.indexing import NodeIndices
from fusewright.lower.interface import StrideArgument
from fusewright.lower.loops import position_names
from fusewright.lower.rings import Stages, check_uniform, counting_axes, number, stage_axes, stages_of
from fusewright.sym import ONE, ZERO, Expr, FloorDiv, Lt, Symbol, as_int, const, is_nonneg, product, symbol

# The most elements of a tensor in registers. A thread has at most 255 registers of 4 bytes; a larger tensor
# would be in slow local memory.
MAX_LOCAL_ELEMENTS = 1024


class Buffers:
    """The buffers of all tensors of a kernel.

    A buffer is made on first use, when all requirements on it are known.

    Attributes:
        stages: the stages of tensors that are filled ahead of their readers.
        alignment: for tensors with vector accesses, the number of bytes that divides their address.
        stride_symbols: the strides that a call has to pass, by their symbols.
    """

    def __init__(self, domains: Domains) -> None:
        self._domains = domains
        self._buffers: dict[TensorView, Buffer] = {}
        self._strides: dict[TensorView, list[Expr]] = {}
        self._private: set[TensorView] = set()
        self._stride_multiple: dict[TensorView, int] = {}
        self.stages: dict[TensorView, Stages] = {}
        self.alignment: dict[TensorView, int] = {}
        self.stride_symbols: dict[Symbol, StrideArgument] = {}

    def need_vectors(self, tensor: TensorView, width: int, *, of_strides: bool = True) -> None:
        """Records accesses to aligned vectors of `width` elements.

        Args:
            of_strides: whether the strides that a call passes have to be multiples of `width`, too.
        """
        assert not self._is_made(tensor), f"{tensor.name} was addressed before all its accesses were known"
        self.alignment[tensor] = max(self.alignment.get(tensor, 0), width * tensor.dtype.size)
        if of_strides:
            self._stride_multiple[tensor] = max(self._stride_multiple.get(tensor, 1), width)

    def _is_made(self, tensor: TensorView) -> bool:
        return tensor in self._buffers or tensor in self._strides

    def of(self, tensor: TensorView) -> Buffer:
        if tensor not in self._buffers:
            self._buffers[tensor] = self._make(tensor)
        return self._buffers[tensor]

    def _make(self, tensor: TensorView) -> Buffer:
        if tensor.circular is not None:
            self.stages[tensor] = stages_of(tensor, self._domains)
            return self.stages[tensor].buffer
        align = self.alignment.get(tensor, 0)
        if tensor.memory is MemoryType.global_:
            kind = tensor.dtype.in_memory
            is_private = tensor in self._private
            return Buffer(tensor.name, kind, Space.GLOBAL, self._span(tensor), align, private=is_private)
        size = product(self._room_along(tensor, axis) for axis in self.stored_axes(tensor))
        storage = self._storage(tensor)
        if storage is not None:
            self._check_storage(tensor, storage)
            size = size + self._domains.extent(tensor, storage.axes[0]) * storage.padding
        if tensor.memory is MemoryType.shared:
            return Buffer(
                tensor.name, tensor.dtype, Space.SHARED, size, align, private=tensor in self._private
            )
        count = as_int(size)
        if count is None:
            raise ScheduleError(
                f"{tensor.name} is in registers, but its size is not constant: {size} elements a thread",
                expected="constant extents of the axes that it is stored along",
                given=self._variable_axes(tensor),
                hint="inline it into the loops of its consumers (inline_most), bind those axes to threads or "
                "blocks (parallelize), or set its memory type to shared",
            )
        if count > MAX_LOCAL_ELEMENTS:
            raise ScheduleError(
                f"{tensor.name} has {count} elements in the registers of each thread",
                expected=f"at most {MAX_LOCAL_ELEMENTS}",
                hint="inline it further, or set its memory type to shared",
            )
        return Buffer(tensor.name, tensor.dtype, Space.LOCAL, size, align)

    def _room_along(self, tensor: TensorView, axis: IterDomain) -> Expr:
        part = tensor.part
        if part is not None and axis is tensor.loop[part.position]:
            return const(part.steps)
        extent = self._domains.extent(tensor, axis)
        # C++ has no empty arrays. The element is never accessed.
        return ONE if extent is ZERO else extent

    # ---- registers and shared memory

    def _variable_axes(self, tensor: TensorView) -> str:
        """The stored axes of a tensor whose extents are not constant, as text for a message."""
        axes = [a for a in self.stored_axes(tensor) if as_int(self._domains.extent(tensor, a)) is None]
        return ", ".join(f"axis {tensor.loop.index(axis)}, {axis}" for axis in axes)

    def stored_axes(self, tensor: TensorView) -> list[IterDomain]:
        """The axes along which a local or shared buffer has room, outermost first.

        Registers have room along the loop axes inside the inlined loops that are bound to no threads or
        blocks. Shared memory also has room along all axes of threads, or has room along the axes that
        `store_along` named.
        """
        storage = self._storage(tensor)
        if storage is not None:
            return list(storage.axes)
        return self._looped_axes(tensor)

    def _looped_axes(self, tensor: TensorView) -> list[IterDomain]:
        """The loop axes that distinguish the elements that a thread or block holds at a time."""
        is_shared, inlined = tensor.memory is MemoryType.shared, _inlined_at(tensor)

        def is_stored(position: int, axis: IterDomain) -> bool:
            if axis.is_reduction or axis.parallel.is_grid:
                return False
            return is_shared if axis.parallel.is_block else position >= inlined

        return [axis for position, axis in enumerate(tensor.loop) if is_stored(position, axis)]

    def _local_offset(self, tensor: TensorView, indices: Sequence[Expr]) -> Expr:
        offset: Expr = ZERO
        for axis, index in zip(self.stored_axes(tensor), indices):
            extent = self._room_along(tensor, axis)
            offset = offset * extent + (ZERO if extent is ONE else index)
        storage = self._storage(tensor)
        if storage is not None and storage.padding:
            offset = offset + indices[0] * storage.padding
        return offset

    def _staged(self, tensor: TensorView, indices: Sequence[Expr]) -> tuple[Expr, Expr]:
        """The number of the stage, and the offset of the element, in a circular buffer.

        Args:
            indices: the indices of the axes that count stages, and then of the axes inside a stage.
        """
        counting, inside = counting_axes(tensor), stage_axes(tensor)
        extents = [self._domains.extent(tensor, axis) for axis in counting]
        stage, stages = number(extents, indices[: len(counting)]), self.stages[tensor]
        sizes = [self._domains.extent(tensor, axis) for axis in inside]
        return stage, stages.slot(stage) * stages.size + number(sizes, indices[len(counting) :])

    def _storage(self, tensor: TensorView) -> Storage | None:
        return tensor.storage if tensor.memory is MemoryType.shared else None

    def _check_storage(self, tensor: TensorView, storage: Storage) -> None:
        """Raises ScheduleError unless all elements that a block holds at a time have different places."""
        keys = AxisKeys()
        leaves: dict[IterDomain, Key | None] = {axis: keys.leaf(axis) for axis in tensor.maybe_root}
        key_of = keys.of_axes((*tensor.loop, *storage.axes), leaves)
        told = {key_of[axis] for axis in storage.axes}
        for transform in reversed(transforms_between(tensor.maybe_root, storage.axes)):
            if all(key_of[a] in told or self._domains.extent(tensor, a) is ONE for a in transform.outputs):
                told.update(key_of[a] for a in transform.inputs)

        def has_place(axis: IterDomain) -> bool:
            if key_of[axis] in told or self._domains.extent(tensor, axis) is ONE:
                return True
            return axis.definition is not None and all(map(has_place, axis.definition.inputs))

        for axis in self._looped_axes(tensor):
            if not has_place(axis):
                raise ScheduleError(
                    f"{tensor.name} is stored along axes that do not tell apart what loop {axis} computes",
                    expected="all axes from which loops of threads, and those not inlined, are made",
                    given=", ".join(map(str, storage.axes)),
                    hint="name them all in store_along, or bind the others to blocks",
                )

    # ---- global memory

    def strides(self, tensor: TensorView) -> list[Expr]:
        """Element strides of `tensor.shape`, 0 for broadcast dimensions."""
        if tensor not in self._strides:
            self._strides[tensor] = self._make_strides(tensor)
        return self._strides[tensor]

    def _make_strides(self, tensor: TensorView) -> list[Expr]:
        by_axis: dict[IterDomain, Expr] = {}
        inner: Expr = ONE
        for axis, contiguous in reversed(list(zip(tensor.memory_axes, tensor.contiguity))):
            if axis.is_broadcast:
                by_axis[axis] = ZERO
                continue
            if contiguous:
                by_axis[axis] = inner
            else:
                dim = tensor.shape.index(axis)
                multiple = self._stride_multiple.get(tensor, 1)
                stride = symbol(f"{tensor.name}_stride{dim}", lo=0, multiple_of=multiple)
                self.stride_symbols[stride] = StrideArgument(tensor, dim)
                by_axis[axis] = stride
            inner = by_axis[axis] * self._domains.known(axis.extent)
        return [by_axis[axis] for axis in tensor.shape]

    def _span(self, tensor: TensorView) -> Expr:
        """The number of elements from the first to the last one of a tensor in global memory."""
        last: Expr = ZERO
        for axis, stride in zip(tensor.shape, self.strides(tensor)):
            if not axis.is_broadcast:
                last = last + (self._domains.known(axis.extent) - 1) * stride
        return last + 1

    def _global_offset(self, tensor: TensorView, index: Mapping[IterDomain, Expr]) -> Expr:
        offset: Expr = ZERO
        for axis, stride in zip(tensor.shape, self.strides(tensor)):
            if not axis.is_broadcast:
                offset = offset + index[axis] * stride
        return offset

    # ---- offsets of one access

    def written(self, tensor: TensorView, indices: NodeIndices) -> Expr:
        """The offset at which a node writes its output `tensor`, which may be any of its outputs."""
        lead = indices.tensor
        if tensor.memory is MemoryType.global_:
            return self._global_offset(tensor, {a: indices.of(a) for a in lead.shape})
        if tensor.circular is not None:
            self.of(tensor)
            axes = (*counting_axes(tensor), *stage_axes(tensor))
            self.stages[tensor].filled, offset = self._staged(tensor, [indices.of(a) for a in axes])
            return offset
        if self._storage(tensor) is not None:
            return self._local_offset(tensor, indices.stored_at(self.stored_axes(tensor)))
        # The outputs of a node have the same loops, but may be inlined at different positions and therefore
        # be stored along different axes.
        counterpart = dict(zip(tensor.loop, lead.loop))
        return self._local_offset(tensor, [indices.of(counterpart[a]) for a in self.stored_axes(tensor)])

    def read(self, tensor: TensorView, operand: int, indices: NodeIndices) -> Expr:
        """The offset at which a node reads its operand `tensor`."""
        if tensor.memory is MemoryType.global_:
            return self._global_offset(tensor, indices.logical_of(operand))
        if tensor.circular is not None:
            self.of(tensor)
            axes = (*counting_axes(tensor), *stage_axes(tensor))
            stage, offset = self._staged(tensor, indices.loops_of(operand, axes))
            check_uniform(tensor, indices.tensor, stage)
            self.stages[tensor].read[stage] = None
            return offset
        self._check_reachable(tensor, operand, indices)
        return self._local_offset(tensor, indices.loops_of(operand, self.stored_axes(tensor)))

    def _check_reachable(self, tensor: TensorView, operand: int, indices: NodeIndices) -> None:
        """Raises ScheduleError if another thread reads a register, or another block reads shared memory."""
        stray = self._read_elsewhere(tensor, operand, indices)
        if stray is None:
            return
        axis, index = stray
        if tensor.memory is MemoryType.local:
            raise ScheduleError(
                f"{tensor.name} is in registers of the threads along {axis.parallel.name}, "
                f"but {indices.tensor.name} reads element {index} along that axis from another thread",
                hint="bind the axes of both alike (parallelize_like), or set its memory type to shared",
            )
        if axis.parallel.is_grid:
            raise ScheduleError(
                f"{tensor.name} is in shared memory of the blocks along {axis.parallel.name}, "
                f"but {indices.tensor.name} reads element {index} along that axis from another block",
                hint="bind the axes of both alike (parallelize_like), or leave the producer's serial",
            )

    def _read_elsewhere(
        self, tensor: TensorView, operand: int, indices: NodeIndices
    ) -> tuple[IterDomain, Expr] | None:
        """A thread or block axis along which a node reads another position than its own, and that position.

        Block axes are checked first. In registers, broadcast axes do not matter: all threads hold the value.
        """
        # The reader shares the loops outside the inlining position.
        separate = tensor.loop[tensor.inline_at :]
        axes = [a for a in separate if a.parallel.is_thread and not a.is_reduction]
        if tensor.memory is MemoryType.local:
            axes = [a for a in axes if not a.is_broadcast]
        axes.sort(key=lambda a: not a.parallel.is_grid)
        for axis, index in zip(axes, indices.loops_of(operand, axes)):
            has_several = as_int(self._domains.extent(tensor, axis)) not in (0, 1)
            if has_several and not _is_position(index, axis.parallel, [guard for _, guard in indices.guards]):
                return axis, index
        return None

    def check_readers(
        self,
        tensor: TensorView,
        reads: Sequence[tuple[int, NodeIndices]],
        used: set[ParallelType],
        is_output: bool,
    ) -> None:
        """Records whether each thread reads only what it wrote of a tensor in memory.

        Args:
            reads: the operand position and indices of every node that reads the tensor.
            used: the axes of the kernel whose threads share the tensor's memory. If the tensor has no such
                axis, one thread along it writes for all.
            is_output: whether the tensor is an output of the kernel.

        Raises:
            ScheduleError: other threads read an output. No barrier would order these accesses.
        """
        assert not self._is_made(tensor), f"{tensor.name} was addressed before its readers were known"
        own = {a.parallel for a in tensor.loop if not a.is_reduction and self._has_elements(tensor, a)}
        if used <= own and all(self._read_elsewhere(tensor, position, i) is None for position, i in reads):
            self._private.add(tensor)
        elif is_output:
            raise ScheduleError(
                f"{tensor.name} is an output, in global memory, that other threads than those that write it "
                "read in the same kernel",
                expected="what follows on the same threads and blocks, or from a copy in registers",
                given=str(tensor),
                hint="parallelize_like binds both alike; cache_fork or cache_before makes the copy",
            )

    def _has_elements(self, tensor: TensorView, axis: IterDomain) -> bool:
        """Whether different points of a loop axis write different elements.

        If a dimension is broadcast in its consumers' loops, only one point of it writes to global memory.
        """
        if self._domains.extent(tensor, axis) is ONE:
            return False
        dims = ancestors(axis, tensor.maybe_root) if tensor.memory is MemoryType.global_ else ()
        return not any(dim.is_broadcast and self._domains.extent(tensor, dim) is not ONE for dim in dims)


def _inlined_at(tensor: TensorView) -> int:
    """The number of outer loops that a tensor shares with its readers.

    A tensor that nothing reads has the largest number among the outputs of its node.
    """
    if tensor.uses or tensor.definition is None:
        return tensor.inline_at
    return max(out.inline_at for out in tensor.siblings)


def _is_position(index: Expr, parallel: ParallelType, guards: Sequence[Expr] = ()) -> bool:
    """Whether an index is the position of a thread or block along an axis wherever the guards hold."""
    for core, _ in index.terms:
        if isinstance(core, FloorDiv):
            dividend, divisor = core.args
            if _is_below(dividend, divisor, guards):
                index = index - core
    return isinstance(index, Symbol) and index.name in position_names(parallel)


def _is_below(e: Expr, limit: Expr, guards: Sequence[Expr]) -> bool:
    """Whether 0 <= e < limit wherever the guards hold."""
    bounds = [guard.args for guard in guards if isinstance(guard, Lt)]
    return is_nonneg(e) and any(is_nonneg(limit - e - (high - low)) for low, high in bounds)
