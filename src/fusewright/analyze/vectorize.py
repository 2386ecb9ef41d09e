"""The axis along which a vector access runs, and its largest width."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fusewright.analyze.axis_map import operand_map, producer_map
from fusewright.analyze.runs import Run, indexed_run, merged_indexed_run, stored_run, straight_pieces
from fusewright.core.enums import MemoryType, ParallelType
from fusewright.core.hardware import MAX_VECTOR_BYTES
from fusewright.core.recorded import gcd
from fusewright.ir.axis import IterDomain, Merge, ShiftedSplit, Split, ancestors
from fusewright.ir.node import Indexed, Node, Stored
from fusewright.ir.value import TensorView
from fusewright.sym import Expr, as_int, divides


def lane_axis(tensor: TensorView, width: int) -> IterDomain | None:
    """The root axis along which neighbouring points of the innermost loop axis are neighbours, or None.

    The innermost axis must be the inner result of a split. From there the path to the root axis may go
    through the inner sides of merges and of splits by multiples of `width`.
    """
    lanes = lane_axes(tensor, width)
    return lanes[-1] if lanes else None


def lane_axes(tensor: TensorView, width: int) -> list[IterDomain]:
    """`lane_axis` and the root axes that are merged with it, outermost first; empty if there is none.

    Neighbours along the innermost loop axis are neighbours in all of these together.
    """
    split = tensor.loop[-1].definition if tensor.loop else None
    if not isinstance(split, Split) or split.inner is not tensor.loop[-1]:
        return []
    lanes: list[IterDomain] = []
    outer = [split.inputs[0]]
    while outer:
        root, merged = _innermost_root(tensor, outer.pop(), width)
        if root is None:
            break
        lanes.append(root)
        outer += merged
    return lanes[::-1]


def _innermost_root(
    tensor: TensorView, axis: IterDomain, width: int
) -> tuple[IterDomain | None, list[IterDomain]]:
    """The innermost root axis that an axis is made from, and the axes that are merged outside of it.

    The root axis is None if another transform is in between.
    """
    outer: list[IterDomain] = []
    while axis not in tensor.maybe_root:
        transform = axis.definition
        if isinstance(transform, Merge):
            # A trailing axis of size 1 is not between neighbours, unless consumers iterate over it.
            if transform.inner.is_broadcast and not _is_spread(tensor, transform.inner):
                axis = transform.outer
            else:
                outer.append(transform.outer)
                axis = transform.inner
        elif isinstance(transform, Split) and axis is transform.inner and divides(width, transform.factor):
            axis = transform.inputs[0]
        else:
            return None, outer
    return axis, outer


def unrolled_axes(tensor: TensorView) -> frozenset[IterDomain]:
    """The root axes along which each thread has all places, in an unrolled loop."""
    found = set()
    for axis in tensor.loop:
        split, places = axis.definition, as_int(axis.extent)
        if (
            axis.parallel is ParallelType.unroll
            and isinstance(split, Split)
            and split.inner is axis
            and places
        ):
            root, _ = _innermost_root(tensor, split.inputs[0], places)
            if root is not None and root.extent is axis.extent:
                found.add(root)
    return frozenset(found)


def is_shifted(tensor: TensorView) -> bool:
    """Whether the vectors of a tensor start where vectors of aligned rows do, so that some are partial."""
    return bool(tensor.loop) and isinstance(tensor.loop[-1].definition, ShiftedSplit)


def is_one_run(tensor: TensorView) -> bool:
    """Whether shifted vectors (`is_shifted`) run along one run, so that only the last one may be partial."""
    split = tensor.loop[-1].definition if tensor.loop else None
    return isinstance(split, ShiftedSplit) and not split.rows


def is_shifted_run(tensor: TensorView) -> bool:
    """Whether the innermost loop merges the axes of shifted vectors, as for a bulk copy."""
    axis = tensor.loop[-1]
    while isinstance(axis.definition, Merge):
        axis = axis.definition.inputs[-1]
    return isinstance(axis.definition, ShiftedSplit)


def are_one_run(tensor: TensorView, axes: Sequence[IterDomain]) -> bool:
    """Whether these dimensions, in this order, are the innermost ones in memory, without gaps."""
    memory = [
        (axis, contiguous)
        for axis, contiguous in zip(tensor.memory_axes, tensor.contiguity)
        if not axis.is_broadcast
    ]
    inner = memory[len(memory) - len(axes) :] if len(axes) <= len(memory) else []
    return bool(axes) and [a for a, _ in inner] == list(axes) and all(contiguous for _, contiguous in inner)


def merged_run(node: Node, width: int, count: int) -> bool:
    """Whether the innermost `count` of `lane_axes` are one contiguous run for a copy between memories."""
    lanes = lane_axes(node.output, width)[-count:]
    if len(lanes) < count or isinstance(node, Stored):
        return False
    source, out = node.tensor_inputs[0], node.output
    if isinstance(node, Indexed):
        dims = [out.maybe_root.index(axis) for axis in lanes]
        run = merged_indexed_run(node, dims, unit_stride_axis(source))
        is_whole = run is not None and run.moves and all(divides(width, size) for size in run.sizes)
        return is_whole and out.memory is not MemoryType.global_
    to_source = {theirs: ours for ours, theirs in operand_map(node, 0).items()}
    ours = [to_source.get(axis) for axis in lanes]
    present = [axis for axis in ours if axis is not None]
    return (
        len(present) == count
        # Registers and shared memory are laid out along loops.
        and (source.memory is not MemoryType.global_ or are_one_run(source, present))
        and (out.memory is not MemoryType.global_ or are_one_run(out, lanes))
    )


def _is_spread(tensor: TensorView, broadcast: IterDomain) -> bool:
    """Whether a tensor computed from `tensor` has a larger axis in place of `broadcast`.

    If `tensor` is inlined there, its loops also run over that axis (lower.domains).
    """
    stack = [(tensor, axis) for axis in ancestors(broadcast, tensor.maybe_root)]
    seen = set(stack)
    while stack:
        producer, axis = stack.pop()
        for consumer in producer.consumers:
            above = producer_map(producer, consumer).get(axis)
            if above is not None and not above.is_broadcast:
                return True
            if above is not None and (consumer, above) not in seen:
                seen.add((consumer, above))
                stack.append((consumer, above))
    return False


def unit_stride_axis(tensor: TensorView) -> IterDomain | None:
    """The innermost dimension in memory that is not broadcast, if its stride is 1; else None."""
    for axis, contiguous in reversed(list(zip(tensor.memory_axes, tensor.contiguity))):
        if not axis.is_broadcast:
            return axis if contiguous else None
    return None


def loads_along_lane(node: Node, width: int, unaligned: bool = False) -> bool:
    """Whether a copy from global memory can load vectors along the source's unit-stride axis.

    Args:
        unaligned: whether vectors may start at any element.
    """
    source = node.tensor_inputs[0]
    unit = unit_stride_axis(source)
    lane = lane_axis(node.output, width)
    if unit is None or lane is None:
        return False
    if isinstance(node, Indexed):
        if unaligned:
            return straight_pieces(node, node.output.maybe_root.index(lane), unit) is not None
        return _is_vector_run(node, lane, width)
    return operand_map(node, 0).get(unit) is lane


def lane_run(node: Node, lane: IterDomain) -> Run | None:
    """How an indexed read traverses its source, or a store its output, along a root axis."""
    dim = node.output.maybe_root.index(lane)
    if isinstance(node, Indexed):
        return indexed_run(node, dim, unit_stride_axis(node.source))
    assert isinstance(node, Stored)
    return stored_run(node, dim, unit_stride_axis(node.output))


def _is_vector_run(node: Node, lane: IterDomain, width: int) -> bool:
    run = lane_run(node, lane)
    return run is not None and run.moves and divides_numbers(width, run.sizes)


def divides_numbers(width: int, sizes: Iterable[Expr]) -> bool:
    """Whether a width divides those of the sizes that are numbers."""
    return not any(number % width for number in map(as_int, sizes) if number is not None)


def stores_along_lane(tensor: TensorView, width: int) -> bool:
    """Whether an output can be stored in vectors."""
    unit = unit_stride_axis(tensor)
    lane = lane_axis(tensor, width)
    if isinstance(tensor.definition, Stored):
        return unit is not None and lane is not None and _is_vector_run(tensor.definition, lane, width)
    return unit is not None and lane is unit


def power_of_two_divisor(value: int, limit: int) -> int:
    """The largest power of two that divides `value` and is at most `limit`, itself a power of two.

    All powers of two divide 0.
    """
    return gcd(value, limit)


def widest_aligned(element_bytes: int, alignment: int) -> int:
    """The most elements of an access to addresses that are multiples of `alignment` bytes, a power of two."""
    return max(1, gcd(alignment, MAX_VECTOR_BYTES) // element_bytes)
