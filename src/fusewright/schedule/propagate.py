"""Propagation: gives other tensors the loops of a reference and binds them to the same threads.

Both primitives walk from the reference over producers, consumers and siblings. The next edge is always the
one that preserves most of the reference's axes (a maximum spanning tree), and one tensor's loops are replayed
on its neighbour.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

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


def spanning_walk(
    reference: TensorView, within: Collection[TensorView] | None = None
) -> Iterator[tuple[TensorView, TensorView, AxisMap]]:
    """(from, to, leaf map) for every tensor that the reference reaches, best-informed edge first.

    Axes of one point count least. Among edges that preserve the same number of axes, those that leave an
    input come last. After all others come edges between an input and a node that relabels it. Each reader has
    such an edge for itself, since readers may read the input along different dimensions.

    Args:
        within: the only tensors to walk over, if given.
    """
    info = {reference: {*reference.maybe_root, *reference.logical}}
    heap: list[tuple[tuple[bool, int, bool, int, int], TensorView, TensorView, AxisMap, set[IterDomain]]] = []
    count = 0

    def push(source: TensorView) -> None:
        nonlocal count
        for target, mapping in _neighbours(source, info):
            if within is not None and target not in within:
                continue
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
                _check_not_inlined("transform_like", target)
                replay_loops(fusion, source, target, mapping)
    except ScheduleError:
        for tensor, loop in before.items():
            tensor.loop = loop
        raise


def _path(reference: TensorView, to: Collection[TensorView]) -> set[TensorView]:
    """The tensors between `to` and `reference` and those ends, with what is computed together with them."""
    above = _closure([reference], lambda tensor: tensor.producers)
    path = {reference, *above.intersection(_closure(to, lambda tensor: tensor.consumers))}
    for tensor in list(path):
        path.update(tensor.siblings)
    return path


def _closure(
    tensors: Collection[TensorView], following: Callable[[TensorView], Iterable[TensorView]]
) -> set[TensorView]:
    found = set(tensors)
    stack = list(tensors)
    while stack:
        new = [tensor for tensor in following(stack.pop()) if tensor not in found]
        found.update(new)
        stack += new
    return found


def bounded_transform_backward(
    fusion: Fusion, reference: TensorView, pos: int, to: Collection[TensorView], propagate_parallel_type: bool
) -> None:
    """Replays the loops of `reference` left of `pos` (-1: all) on its producers up to those in `to`."""
    rank = len(reference.loop)
    if not -1 <= pos <= rank:
        raise ScheduleError(
            f"bounded_transform_backward: {reference.name} has no position {pos}",
            expected=f"-1 for all loops, or 0 to {rank}",
            given=pos,
        )
    path = _path(reference, to)
    missing = [tensor.name for tensor in to if tensor is reference or tensor not in path]
    if missing or not to:
        raise ScheduleError(
            f"bounded_transform_backward: `to` lists tensors that {reference.name} is computed from",
            given=", ".join(missing) or "none",
        )
    before = {tensor: tensor.loop for tensor in path}
    ends: dict[TensorView, int | None] = {reference: None if pos == -1 else pos}
    try:
        for source, target, mapping in spanning_walk(reference, path):
            _check_not_inlined("bounded_transform_backward", target)
            ends[target] = replay_loops(fusion, source, target, mapping, ends[source])
        if propagate_parallel_type:
            _bind_alike("bounded_transform_backward", reference, pos, path, path)
    except ScheduleError:
        for tensor, loop in before.items():
            tensor.loop = loop
        raise


def _check_not_inlined(primitive: str, tensor: TensorView) -> None:
    if any(t.inline_at for t in (tensor, *tensor.producers)):
        raise ScheduleError(
            f"{primitive}: loops of {tensor.name} are inlined already",
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


def replay_loops(
    fusion: Fusion, source: TensorView, target: TensorView, mapping: AxisMap, end: int | None = None
) -> int | None:
    """Gives `target` the loops of `source`, over `mapping`: source's leaf axis -> target's.

    With `end`, it replays only those left of it; the parts of target's axes that these leave stay to the
    right of them. Returns the number of target's loops that they are; None without `end`.

    An axis that `target` lacks is dropped; a merge or a swizzle with it leaves the other axis. Axes that
    `source` lacks stay innermost. Transforms that made target's logical axes (rfactor) are kept: a replayed
    transform that equals one of them is that one.

    Raises:
        ScheduleError: `target` reduces one of two axes that are merged or swizzled. Nothing is changed then.
    """
    fixed: dict[tuple[tuple[object, ...], tuple[IterDomain, ...]], Transform] = {}
    frozen: set[IterDomain] = set()
    for transform in transforms_between(target.maybe_root, target.logical):
        fixed[transform.key(), (*transform.inputs, *transform.reads)] = transform
        frozen.update(transform.inputs)
    outputs: dict[Transform, tuple[IterDomain | None, ...]] = {}

    def build(axis: IterDomain) -> IterDomain | None:
        if axis in mapping:
            return mapping[axis]
        transform = axis.definition
        if transform is None:
            return None
        if transform not in outputs:
            ins = [build(a) for a in transform.inputs]
            present = [a for a in ins if a is not None]
            reads = [read for a in transform.reads if (read := build(a)) is not None]
            if len(present) < len(ins) or len(reads) < len(transform.reads):
                outputs[transform] = _forwarded(transform, ins)
            else:
                twin = fixed.get((transform.key(), (*present, *reads)))
                if twin is None and frozen.isdisjoint(present):
                    _check_kinds(transform, present, target)
                    twin = transform.replay(present, fusion.plain_axis, reads)
                if twin is None:  # would undo how target's logical axes were made
                    outputs[transform] = tuple(None for _ in transform.outputs)
                else:
                    outputs[transform] = twin.outputs
        return outputs[transform][transform.outputs.index(axis)]

    loop = [built for built in map(build, source.loop[:end]) if built is not None]
    if target.is_placed or target.root is None:
        target.loop = loop + _remaining(target.maybe_root, loop)
    else:
        loop = [a for a in loop if a not in frozen]
        target.loop = loop + _remaining(target.logical, loop)
    return None if end is None else len(loop)


def _remaining(axes: Sequence[IterDomain], loop: Sequence[IterDomain]) -> list[IterDomain]:
    """What is made of `axes` where `loop` is, and is not in it."""
    order = list(axes)
    for transform in transforms_between(axes, loop):
        at = [order.index(axis) for axis in transform.inputs if axis in order]
        if at:
            order[at[0] : at[0] + 1] = transform.outputs
            order = [axis for axis in order if axis not in transform.inputs]
    return [axis for axis in order if axis not in loop]


def parallelize_like(
    reference: TensorView,
    pos: int = -1,
    selected: Collection[TensorView] = (),
    types: Collection[ParallelType] = (),
    propagate_padding: bool = True,
) -> None:
    """Gives axes that match one of the reference's (left of `pos`; -1: all) its parallel type."""
    if pos > len(reference.loop):
        raise ScheduleError(
            f"parallelize_like: {reference.name} has no position {pos}",
            expected=f"-1 for all loops, or 0 to {len(reference.loop)}",
            given=str(pos),
        )
    _bind_alike("parallelize_like", reference, pos, selected, None, types, propagate_padding)


def _bind_alike(
    primitive: str,
    reference: TensorView,
    pos: int,
    selected: Collection[TensorView],
    within: Collection[TensorView] | None,
    types: Collection[ParallelType] = (),
    propagate_padding: bool = True,
) -> None:
    """`parallelize_like` over the tensors `within`, if given; `primitive` is what the user called."""
    end = len(reference.loop) if pos < 0 else pos
    chosen, wanted = set(selected), set(types)
    keys = LoopKeys()
    bound: list[tuple[IterDomain, IterDomain]] = []
    source_of: dict[TensorView, list[IterDomain | None]] = {
        reference: [a if i < end else None for i, a in enumerate(reference.loop)]
    }
    for source, target, _ in spanning_walk(reference, within):
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
            check_binding(primitive, target, position, like.parallel)
            bound.append((target.loop[position], like))
    for axis, like in bound:
        axis.parallel = like.parallel
        if propagate_padding:
            axis.padded = like.padded
