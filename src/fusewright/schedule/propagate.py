"""Propagation: making other tensors loop as a reference does, and run on the same threads.

Both walk from the reference over producers, consumers and siblings, always crossing next the edge that
carries most of the reference's axes (a maximum spanning tree), and replay one tensor's loops on its
neighbour.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence

from fusewright.analyze.axis_map import LoopKeys, producer_map, sibling_keys
from fusewright.core.enums import ParallelType
from fusewright.core.errors import ScheduleError
from fusewright.ir.axis import IterDomain, Merge, Swizzle, Transform, transforms_between
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.schedule.transforms import check_binding

AxisMap = dict[IterDomain, IterDomain]


def _neighbours(tensor: TensorView, known: Collection[TensorView]) -> Iterator[tuple[TensorView, AxisMap]]:
    """Tensors one node away but those that are `known`, each with the map from `tensor`'s leaf axes."""
    for producer in tensor.producers:
        if producer not in known and not producer.is_cpu:
            yield producer, {c: p for p, c in producer_map(producer, tensor).items()}
    for consumer in tensor.consumers:
        if consumer not in known:
            yield consumer, producer_map(tensor, consumer)
    if tensor.definition is not None:
        for out in tensor.definition.outputs:
            if out not in known and isinstance(out, TensorView):
                yield out, dict(zip(tensor.maybe_root, out.maybe_root))


def _carried(leaves: set[IterDomain], mapping: AxisMap, target: TensorView) -> set[IterDomain]:
    """The leaf axes of `target`, root and logical, that carry information of the reference."""
    carried = {mapping[a] for a in leaves if a in mapping}
    if target.root is None:
        return carried
    for transform in transforms_between(target.maybe_root, target.logical):
        if any(a in carried for a in transform.inputs):
            carried.update(transform.outputs)
    for transform in reversed(transforms_between(target.maybe_root, target.logical)):
        if any(a in carried for a in transform.outputs):
            carried.update(transform.inputs)
    return carried


def spanning_walk(reference: TensorView) -> Iterator[tuple[TensorView, TensorView, AxisMap]]:
    """(from, to, leaf map) for every tensor that the reference reaches, best-informed edge first.

    Axes of one point count least. Of edges that carry as much, those that leave an input come last, and after
    all others those between an input and what relabels it, which each reader does for itself: they may read
    it along different dimensions.
    """
    info = {reference: {*reference.maybe_root, *reference.logical}}
    heap: list[tuple[tuple[bool, int, bool, int, int], TensorView, TensorView, AxisMap, set[IterDomain]]] = []
    count = 0

    def push(source: TensorView) -> None:
        nonlocal count
        for target, mapping in _neighbours(source, info):
            crosses = _is_own_load(source, target) or _is_own_load(target, source)
            carried = _carried(info[source], mapping, target)
            concrete = sum(not axis.is_broadcast for axis in carried)
            rank = (crosses, -concrete, source.definition is None, -len(carried), count)
            heapq.heappush(heap, (rank, source, target, mapping, carried))
            count += 1

    push(reference)
    while heap:
        _, source, target, mapping, carried = heapq.heappop(heap)
        if target in info:
            continue
        info[target] = carried
        yield source, target, mapping
        push(target)


def _is_own_load(source: TensorView, target: TensorView) -> bool:
    """Whether `target` is an input, `source`, relabeled or read by index."""
    node = target.definition
    return (
        node is not None and source.definition is None and node.traits.own_load and node.inputs[0] is source
    )


def transform_like(fusion: Fusion, reference: TensorView, selected: Collection[TensorView] = ()) -> None:
    """Replays the loop transforms of `reference` on all tensors, or on the selected ones only.

    Inputs are never computed, but the way to other tensors may lead over them, so they are transformed as
    well.
    """
    chosen = set(selected)
    before: dict[TensorView, list[IterDomain]] = {reference: reference.loop}
    try:
        for source, target, mapping in spanning_walk(reference):
            if (not chosen or target in chosen) and source in before:
                before[target] = target.loop
                _check_not_inlined(target)
                replay_loops(fusion, source, target, mapping)
    except ScheduleError:
        for tensor, loop in before.items():
            tensor.loop = loop
        raise


def _check_not_inlined(tensor: TensorView) -> None:
    if any(t.inline_at for t in (tensor, *tensor.producers)):
        raise ScheduleError(
            f"transform_like: loops of {tensor.name} are inlined already",
            given=str(tensor),
            hint="transform before inlining",
        )


def _forwarded(transform: Transform, ins: Sequence[IterDomain | None]) -> tuple[IterDomain | None, ...]:
    """What a transform makes where some of its inputs are lacking."""
    if isinstance(transform, Swizzle):
        return tuple(ins)
    left = next((a for a in ins if a is not None), None) if isinstance(transform, Merge) else None
    return tuple(left for _ in transform.outputs)


def _check_kinds(transform: Transform, ins: Sequence[IterDomain], target: TensorView) -> None:
    # A merged broadcast adds nothing; one that a swizzle takes for its rows exchanges what is reduced.
    is_merge = isinstance(transform, Merge)
    kinds = {axis.is_reduction for axis in ins if not (is_merge and axis.is_broadcast)}
    if len(kinds) > 1:
        what = "merged" if is_merge else "swizzled"
        raise ScheduleError(
            f"{target.name} cannot loop alike: it reduces one of two axes that are {what}",
            given=" and ".join(map(str, ins)),
            hint="select the tensors to transform, without it",
        )


def replay_loops(fusion: Fusion, source: TensorView, target: TensorView, mapping: AxisMap) -> None:
    """Gives `target` the loops of `source`, over `mapping`: source's leaf axis -> target's.

    An axis that `target` lacks drops out, a merge or a swizzle with it leaves the other axis. Axes that
    `source` lacks stay innermost. Transforms that made target's logical axes (rfactor) are kept: a replayed
    transform that equals one of them is that one.

    Raises:
        ScheduleError: `target` reduces one of two axes that are merged or swizzled. Nothing is changed then.
    """
    fixed: dict[tuple[tuple[object, ...], tuple[IterDomain, ...]], Transform] = {}
    frozen: set[IterDomain] = set()
    for transform in transforms_between(target.maybe_root, target.logical):
        fixed[transform.key(), transform.inputs] = transform
        frozen.update(transform.inputs)
    leaves = set(mapping.values())
    outputs: dict[Transform, tuple[IterDomain | None, ...]] = {}
    consumed: set[IterDomain] = set()

    def build(axis: IterDomain) -> IterDomain | None:
        if axis in mapping:
            return mapping[axis]
        transform = axis.definition
        if transform is None:
            return None
        if transform not in outputs:
            ins = [build(a) for a in transform.inputs]
            present = [a for a in ins if a is not None]
            if len(present) < len(ins):
                outputs[transform] = _forwarded(transform, ins)
            else:
                twin = fixed.get((transform.key(), tuple(present)))
                if twin is None and frozen.isdisjoint(present):
                    _check_kinds(transform, present, target)
                    twin = transform.replay(present, fusion.plain_axis)
                if twin is None:  # would undo how target's logical axes were made
                    outputs[transform] = tuple(None for _ in transform.outputs)
                else:
                    consumed.update(present)
                    outputs[transform] = twin.outputs
        return outputs[transform][transform.outputs.index(axis)]

    loop = [built for built in map(build, source.loop) if built is not None]
    if target.is_placed:
        loop += [a for a in target.maybe_root if a not in leaves]
    elif target.root is not None:
        # What the replay did not reach of the logical axes stays as it was.
        made = set(loop)
        for transform in transforms_between(target.maybe_root, loop):
            made.update(transform.inputs)
        loop += [a for a in target.logical if a not in made]
        loop = [a for a in loop if a not in frozen]
    else:
        loop += [a for a in target.logical if a not in leaves]
    target.loop = loop


def parallelize_like(
    reference: TensorView,
    pos: int = -1,
    selected: Collection[TensorView] = (),
    types: Collection[ParallelType] = (),
    propagate_padding: bool = True,
) -> None:
    """Gives axes that match one of the reference's (left of `pos`; -1: all) its parallel type."""
    end = len(reference.loop) if pos < 0 else pos
    chosen, wanted = set(selected), set(types)
    keys = LoopKeys()
    bound: list[tuple[IterDomain, IterDomain]] = []
    source_of: dict[TensorView, list[IterDomain | None]] = {
        reference: [a if i < end else None for i, a in enumerate(reference.loop)]
    }
    for source, target, _ in spanning_walk(reference):
        if source in target.producers:
            ours, theirs = keys.between(source, target, forward_absent=True)
        elif target in source.producers:
            theirs, ours = keys.between(target, source, forward_absent=True)
        else:
            ours, theirs = sibling_keys(source, target)
        origin = {k: ref for k, ref in zip(ours, source_of[source]) if k is not None and ref is not None}
        source_of[target] = [origin.get(k) if k is not None else None for k in theirs]
        if (chosen and target not in chosen) or target.definition is None:
            continue
        for position, like in enumerate(source_of[target]):
            if like is None or (wanted and like.parallel not in wanted):
                continue
            check_binding("parallelize_like", target, position, like.parallel)
            bound.append((target.loop[position], like))
    for axis, like in bound:
        axis.parallel = like.parallel
        if propagate_padding:
            axis.padded = like.padded
