"""rfactor: a reduction in two steps, the first over some of its axes only."""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.analyze.axis_map import sibling_keys
from fusewright.core.errors import ScheduleError
from fusewright.ir.axis import IterDomain, IterKind, ancestors, transforms_between
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Reduction
from fusewright.ir.value import TensorView
from fusewright.schedule.transforms import wrap


def rfactor(fusion: Fusion, tensor: TensorView, positions: Sequence[int]) -> TensorView:
    """tensor[i, r0, r1] -> partial[i, r0 as iteration, r1 reduced], tensor[i, r0 reduced].

    `positions` are loop positions of reduction axes that the new producer reduces; at least one other
    must remain. All outputs of a multi-output reduction (Welford) are factored alike. Returns the producer
    of `tensor`.
    """
    node = tensor.definition
    moved = sorted({wrap(p, len(tensor.loop)) for p in positions})
    if not isinstance(node, Reduction) or any(not tensor.loop[p].is_reduction for p in moved) or not moved:
        raise ScheduleError("Cannot rfactor axes that are not reduction axes.")
    if all(p in moved for p, axis in enumerate(tensor.loop) if axis.is_reduction):
        raise ScheduleError("Must have at least one reduction axis not marked as rfactor.")
    outputs = node.tensor_outputs
    for other in outputs:
        ours, theirs = sibling_keys(tensor, other)
        if ours != theirs:
            raise ScheduleError(
                f"rfactor: {other.name} is computed together with {tensor.name} but transformed differently",
                hint=f"call transform_like({tensor.name}) first",
            )
    fusion.remove_node(node)
    partials = [_factor(fusion, out, moved) for out in outputs]
    fusion.add_node(Reduction(node.op, node.tensor_inputs, partials))
    fusion.add_node(Reduction(node.op, partials, outputs))
    return partials[outputs.index(tensor)]


def _factor(fusion: Fusion, tensor: TensorView, moved: Sequence[int]) -> TensorView:
    """Moves the loop axes at `moved` of a reduction output to a new partial result, and returns that."""
    twins = _twins(fusion, tensor)
    final: dict[IterDomain, IterDomain] = {}  # reduction loop axis that stays -> tensor's new logical axis
    for position, axis in enumerate(tensor.loop):
        if axis.is_reduction:
            twins[axis].rfactor = True
            if position not in moved:
                twins[axis].kind = IterKind.ITERATION
                final[axis] = fusion.copy_axis(axis)
                final[axis].parallel, final[axis].padded = axis.parallel, axis.padded
    # Logical axes: those of iteration as they are, each group of reductions as the loop axes made from it.
    made_from = {axis: ancestors(axis, tensor.logical) for axis in tensor.loop if axis.is_reduction}
    logical: list[IterDomain] = []
    remaining: list[IterDomain] = []
    placed: set[IterDomain] = set()
    for source in tensor.logical:
        derived = [a for a in made_from if source in made_from[a] and a not in placed]
        if not source.is_reduction:
            derived = [source]
        placed.update(derived)
        logical += [twins[a] for a in derived]
        remaining += [final.get(a, a) for a in derived if a in final or not a.is_reduction]
    partial = fusion.new_tensor(logical, tensor.dtype, root=[twins[a] for a in tensor.maybe_root])
    partial.loop = [twins[a] for a in tensor.loop]
    tensor.loop = [final.get(a, a) for i, a in enumerate(tensor.loop) if i not in moved]
    kept = tensor.memory_axes
    tensor.redefine(remaining)
    tensor.allocation = (*kept, *(a for a in remaining if a.is_reduction))
    for axis in tensor.logical:
        axis.definition = None  # of a tensor that was a partial result itself: the new one takes its root
    return partial


def _twins(fusion: Fusion, tensor: TensorView) -> dict[IterDomain, IterDomain]:
    """A copy of every axis of `tensor`, from its root to its loops, made by the same transforms."""
    twins: dict[IterDomain, IterDomain] = {axis: fusion.copy_axis(axis) for axis in tensor.maybe_root}
    for transform in transforms_between(tensor.maybe_root, (*tensor.logical, *tensor.loop)):
        reads = [twins[a] for a in transform.reads]
        twin = transform.replay([twins[a] for a in transform.inputs], fusion.plain_axis, reads)
        twins.update(zip(transform.outputs, twin.outputs))
    for axis, copy in twins.items():
        copy.kind, copy.rfactor = axis.kind, axis.rfactor
        copy.parallel, copy.padded = axis.parallel, axis.padded
    return twins
