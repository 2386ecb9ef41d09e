"""Primitives that add copies of tensors and choose their memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fusewright.core.enums import CacheOp, LoadStoreOpType, MemoryType
from fusewright.core.errors import ScheduleError
from fusewright.ir.axis import IterDomain, Swizzle, axes_text, transforms_between
from fusewright.ir.copies import copy_axes
from fusewright.ir.fusion import Fusion, Output
from fusewright.ir.node import Copy, Indexed, Node, Reduction
from fusewright.ir.value import Storage, TensorView
from fusewright.schedule.transforms import MAX_FACTOR, wrap


def shape_twin(fusion: Fusion, tensor: TensorView) -> TensorView:
    """A local tensor of the same shape, with the same loops except for reductions."""
    twins: dict[IterDomain, IterDomain] = {}
    if not any(axis.is_reduction for axis in tensor.logical) and tensor.root is None:
        for axis in tensor.logical:
            twins[axis] = fusion.copy_axis(axis)
            twins[axis].parallel, twins[axis].padded = axis.parallel, axis.padded
        copy_axes(tensor, twins)
        _renumber(fusion, tensor, twins)
        new = fusion.new_tensor([twins[a] for a in tensor.logical], tensor.dtype)
        new.loop = [twins[a] for a in tensor.loop]
        return new
    return fusion.new_like(tensor)


def _check_plain(primitive: str, op_type: LoadStoreOpType) -> None:
    if op_type is not LoadStoreOpType.set:
        raise ScheduleError(
            f"{primitive}: copies by {op_type.name} are not available yet",
            expected=f"op_type {LoadStoreOpType.set.name}",
            given=op_type.name,
        )


def _renumber(fusion: Fusion, tensor: TensorView, twins: dict[IterDomain, IterDomain]) -> None:
    for old, new in twins.items():
        if old not in tensor.logical:
            new.number = fusion.new_axis(new.extent).number


def cache_after(
    fusion: Fusion,
    tensor: TensorView,
    op_type: LoadStoreOpType = LoadStoreOpType.set,
    cache_op: CacheOp = CacheOp.unspecified,
    cached_uses: Collection[TensorView] = (),
) -> TensorView:
    """tensor -> uses  becomes  tensor -> copy -> uses (those of `cached_uses`, if given)."""
    _check_plain("cache_after", op_type)
    if cache_op is not CacheOp.unspecified and tensor.memory is not MemoryType.global_:
        raise ScheduleError(
            f"cache_after: {tensor.name} is not in global memory, so no cache serves a read of it",
            expected=f"cache_op {CacheOp.unspecified.name}",
            given=cache_op.name,
        )
    if not tensor.uses:
        raise ScheduleError(f"cache_after: {tensor.name} has no uses", hint="cache_before caches an output")
    if tensor.is_cpu:
        raise ScheduleError(
            f"cache_after: {tensor.name} is a scalar in host memory, which kernels take by value"
        )
    uses = [u for u in tensor.uses if not cached_uses or any(out in cached_uses for out in u.outputs)]
    if not uses:
        raise ScheduleError(f"cache_after: {tensor.name} is not used by any of the tensors given")
    new = shape_twin(fusion, tensor)
    for use in uses:
        fusion.replace_inputs(use, {tensor: new})
    fusion.add_node(Copy(tensor, new, op_type, cache_op))
    return new


def cache_before(
    fusion: Fusion, tensor: TensorView, op_type: LoadStoreOpType = LoadStoreOpType.set
) -> TensorView:
    """definition -> tensor  becomes  definition -> copy -> tensor; the copy takes the definition."""
    _check_plain("cache_before", op_type)
    node = tensor.definition
    if node is None:
        raise ScheduleError(f"cache_before: {tensor.name} is an input", hint="cache_after caches an input")
    new = fusion.new_tensor(tensor.logical, tensor.dtype, root=tensor.root)
    new.loop = tensor.loop
    new.everywhere, tensor.everywhere = tensor.everywhere, False
    twins: dict[IterDomain, IterDomain] = {axis: fusion.copy_axis(axis) for axis in tensor.shape}
    reduces = len(twins) != len(tensor.logical) or tensor.root is not None
    if not reduces:
        copy_axes(tensor, twins)
        _renumber(fusion, tensor, twins)
        if tensor.storage is not None:
            tensor.storage = Storage(tuple(twins[a] for a in tensor.storage.axes), tensor.storage.padding)
    tensor.allocation = tuple(twins[a] for a in tensor.allocation if a in twins)
    tensor.loop = [twins[a] for a in (tensor.shape if reduces else tensor.loop)]
    tensor.redefine([twins[a] for a in tensor.shape])
    fusion.remove_node(node)
    twin = node.copy({tensor: new})
    fusion.add_node(twin)
    fusion.add_node(Copy(new, tensor, op_type))
    return new


def recompute(
    fusion: Fusion, tensor: TensorView, recomputed_uses: Collection[TensorView] = ()
) -> list[TensorView]:
    """tensor -> a, b becomes tensor -> a, twin -> b: every use after the first computes the tensor anew.

    With `recomputed_uses` one twin serves those, and the tensor the others.

    This trades work for registers: nothing is kept between the uses. Returns the twins. They have the loops
    of the tensor, and their vectors may start at any element if its vectors may.
    """
    node = tensor.definition
    if node is None or tensor in fusion.output_tensors() or len(node.outputs) > 1 or tensor.is_reduction:
        raise ScheduleError(
            f"recompute: {tensor.name} must be computed in the fusion, and be no output and no reduction"
        )
    groups = [[use] for use in list(tensor.uses)[1:]]
    if recomputed_uses:
        groups = [[use for use in tensor.uses if any(out in recomputed_uses for out in use.outputs)]]
        if not groups[0]:
            raise ScheduleError(f"recompute: {tensor.name} is not used by any of the tensors given")
    twins: list[TensorView] = []
    for uses in groups:
        twin = shape_twin(fusion, tensor)
        for use in uses:
            fusion.replace_inputs(use, {tensor: twin})
        fusion.add_node(node.copy({tensor: twin}))
        twin.unaligned = tensor.unaligned
        twins.append(twin)
    return twins


def cache_fork(fusion: Fusion, tensor: TensorView) -> TensorView:
    """An output that is also used gets a copy that is the output instead. Returns the new output."""
    if tensor not in fusion.output_tensors() or not tensor.uses:
        raise ScheduleError(f"cache_fork: {tensor.name} must be an output that is also used")
    new = fusion.new_like(tensor)
    position = {axis: i for i, axis in enumerate(tensor.shape)}
    new.allocation = tuple(new.logical[position[a]] for a in tensor.allocation if a in position)
    new.contiguity = tensor.contiguity
    new.memory = MemoryType.global_
    fusion.outputs = [Output(new, o.alias, o.hidden) if o.tensor is tensor else o for o in fusion.outputs]
    fusion.add_node(Copy(tensor, new))
    tensor.memory = MemoryType.local
    return new


def set_memory_type(fusion: Fusion, tensor: TensorView, memory: MemoryType) -> None:
    """Where the tensor is stored; inputs and outputs stay in global memory."""
    if fusion.is_input(tensor) or tensor in fusion.output_tensors():
        if memory is not MemoryType.global_:
            raise ScheduleError(
                f"set_memory_type: {tensor.name} is an input or output and stays in global memory",
                given=memory.name,
                hint="cache_after or cache_before gives a copy to place",
            )
        return
    if memory not in (MemoryType.local, MemoryType.shared, MemoryType.global_):
        raise ScheduleError(
            f"set_memory_type: {tensor.name} can be in local, shared or global memory", given=memory.name
        )
    if memory is not MemoryType.shared and (tensor.circular is not None or tensor.part is not None):
        made = "circular_buffer or warp_specialize" if tensor.circular is not None else "hold_part"
        raise ScheduleError(
            f"set_memory_type: {tensor.name} is filled in shared memory since {made}",
            expected="shared",
            given=memory.name.rstrip("_"),
        )
    if memory is not MemoryType.local and tensor.unaligned:
        raise ScheduleError(
            f"set_memory_type: vectors of {tensor.name} may start at any element, so registers select them",
            expected="local",
            given=memory.name.rstrip("_"),
            hint="cache_after makes a copy to place",
        )
    tensor.memory = memory


def set_cache_op(tensor: TensorView, cache_op: CacheOp) -> None:
    """The cache hint of a load, also of one by index, or of a store."""
    node = tensor.definition
    in_global = _is_in_global(node) or tensor.memory is MemoryType.global_
    if not isinstance(node, (Copy, Indexed)) or not in_global:
        raise ScheduleError(
            f"set_cache_op: {tensor.name} is not copied from or to global memory",
            hint="cache_after and cache_before make such copies",
        )
    node.cache = cache_op


def allow_unaligned(tensor: TensorView) -> None:
    """Vectors of a load from global memory may start at any element."""
    node = tensor.definition
    is_load = node is not None and (node.traits.move or node.traits.indexed)
    if not is_load or tensor.memory is not MemoryType.local or not _is_in_global(node):
        raise ScheduleError(
            f"allow_unaligned: {tensor.name} is not loaded from global memory into registers",
            expected="a copy of an input, or what reads an input by index",
            given=str(tensor),
            hint="cache_after makes a copy",
        )
    tensor.unaligned = True


def _is_in_global(node: Node | None) -> bool:
    source = node.inputs[0] if node is not None else None
    return isinstance(source, TensorView) and source.memory is MemoryType.global_ and not source.is_cpu


def all_reduce(tensor: TensorView) -> None:
    """All blocks that a reduction is spread over get its result."""
    if not isinstance(tensor.definition, Reduction):
        raise ScheduleError(
            f"all_reduce: {tensor.name} is no result of a reduction",
            hint="the result of rfactor that is to be reduced across blocks is the tensor itself",
        )
    for sibling in tensor.definition.outputs:
        if isinstance(sibling, TensorView):
            sibling.everywhere = True


def store_along(fusion: Fusion, tensor: TensorView, dims: Sequence[int], padding: int) -> None:
    """The order of a tensor's elements: along these of its loop axes as they are now, outermost first.

    Loops of a shared tensor may be transformed further; the order stays. One that blocks pass to one another
    is stored along its dimensions. Others have one order only.
    """
    positions = [wrap(dim, len(tensor.loop)) for dim in dims]
    is_border = fusion.is_input(tensor) or tensor in fusion.output_tensors()
    if tensor.memory is MemoryType.global_ and not is_border:
        _store_between_blocks(tensor, [tensor.loop[position] for position in positions], padding)
        return
    if tensor.memory is not MemoryType.shared:
        loops = [i for i, axis in enumerate(tensor.loop) if not axis.is_reduction]
        if padding or [i for i in positions if i in loops] != loops:
            raise ScheduleError(
                f"store_along: {tensor.name} is not in shared memory, so it is stored along all its loops",
                expected=f"the axes {loops}, without padding",
                given=f"the axes {positions}, with padding {padding}",
                hint="set_memory_type places an intermediate tensor in shared memory",
            )
        _check_lies_along_loops("store_along", fusion, tensor)
        return
    if tensor.root is not None or len(tensor.shape) < len(tensor.logical):
        raise ScheduleError(
            f"store_along: {tensor.name} is reduced where it is computed", hint="cache_after makes a copy"
        )
    if not positions or len(set(positions)) < len(positions):
        raise ScheduleError("store_along: takes one axis or more, each once", given=str(list(dims)))
    if not 0 <= padding <= MAX_FACTOR:
        raise ScheduleError(
            "store_along: padding is a number of elements",
            expected=f"0 to {MAX_FACTOR}",
            given=str(padding),
        )
    tensor.storage = Storage(tuple(tensor.loop[position] for position in positions), padding)


def _store_between_blocks(tensor: TensorView, axes: Sequence[IterDomain], padding: int) -> None:
    """The order of the dimensions of a tensor in global memory that blocks pass to one another."""
    if padding or set(axes) != set(tensor.shape) or len(axes) > len(tensor.shape):
        raise ScheduleError(
            f"store_along: {tensor.name} is in global memory, where it is stored along its dimensions",
            expected=f"{axes_text(tensor.shape)} in some order, without padding",
            given=f"{axes_text(axes)}, with padding {padding}",
            hint="call it before loops are cut up",
        )
    tensor.allocation = (*axes, *(axis for axis in tensor.logical if axis.is_reduction))
    tensor.contiguity = tuple(None if axis.is_broadcast else True for axis in axes)


def prefetch(fusion: Fusion, tensor: TensorView) -> None:
    """The tensor is loaded one iteration ahead of the loop that it is inlined into."""
    node = tensor.definition
    loads = node is not None and (node.traits.move or node.traits.indexed)
    if node is None or not loads or not fusion.is_input(node.inputs[0]) or len(node.tensor_inputs) > 1:
        raise ScheduleError(
            f"prefetch: {tensor.name} is not copied from an input", hint="cache_after makes such a copy"
        )
    if tensor.memory is not MemoryType.local:
        raise ScheduleError(
            f"prefetch: {tensor.name} is in {tensor.memory.name} memory",
            expected=f"{MemoryType.local.name} memory",
            given=tensor.memory.name,
            hint="circular_buffer copies ahead into shared memory",
        )
    tensor.prefetched = True


def set_allocation_as_loop(fusion: Fusion, tensor: TensorView) -> None:
    """The order of a tensor's elements: along its loops. An output has to lie so already."""
    _check_lies_along_loops("set_allocation_as_loop", fusion, tensor)
    tensor.storage = None


def _check_lies_along_loops(primitive: str, fusion: Fusion, tensor: TensorView) -> None:
    """Raises ScheduleError unless the tensor is stored by the kernel, in an order that can be its loops'."""
    if fusion.is_input(tensor):
        raise ScheduleError(f"{primitive}: {tensor.name} is an input and lies as it is passed")
    if tensor.memory is MemoryType.global_ and not _lies_along_loops(tensor):
        raise ScheduleError(
            f"{primitive}: {tensor.name} is an output and lies in memory as its definition says",
            expected=f"loops made in the order of {axes_text(tensor.allocation)}",
            given=axes_text(tensor.loop),
            hint="add_output(tensor, stride_order) says how an output lies",
        )


def _lies_along_loops(tensor: TensorView) -> bool:
    """Whether going over the loops goes over memory in order."""
    order = list(tensor.allocation)
    for transform in transforms_between(tensor.maybe_root, tensor.loop):
        if isinstance(transform, Swizzle) or any(axis not in order for axis in transform.inputs):
            return False
        first, count = order.index(transform.inputs[0]), len(transform.inputs)
        if order[first : first + count] != list(transform.inputs):
            return False
        order[first : first + count] = transform.outputs
    wanted = [axis for axis in tensor.loop if not axis.is_reduction]
    return [axis for axis in order if not axis.is_reduction] == wanted and all(
        contiguous is not False for contiguous in tensor.contiguity
    )
