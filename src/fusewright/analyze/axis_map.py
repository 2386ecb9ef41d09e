"""The correspondence of the axes of two neighbouring tensors.

Two axes are the same if their keys are equal. A key names a leaf axis, or a transform and the keys of its
inputs. `AxisKeys` hash-conses keys to small integers. Correspondence is decided one node at a time, never
globally, since a broadcast axis may stand for different axes in different consumers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fusewright.ir.axis import IterDomain, Merge
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node, Stored
from fusewright.ir.value import TensorView

Key = int

#: The key of an axis of one point. A merge with such an axis changes nothing.
ONE_POINT: Key = -1


def operand_map(node: Node, operand: int) -> dict[IterDomain, IterDomain]:
    """Maps the axes of the producer `node.inputs[operand]` to root axes of the node's first output."""
    producer = node.inputs[operand]
    assert isinstance(producer, TensorView)
    shape, root = producer.shape, node.output.maybe_root
    if type(node).axis_map is Node.axis_map:  # the same axes in the same order, as for most nodes
        return dict(zip(shape, root))
    return {
        shape[position]: axis for axis, position in zip(root, node.axis_map(operand)) if position is not None
    }


def producer_map(producer: TensorView, consumer: TensorView) -> dict[IterDomain, IterDomain]:
    """Maps the producer's logical axes to root axes of a consumer that is computed from it."""
    node = consumer.definition
    assert node is not None
    first = node.output
    table = operand_map(node, node.inputs.index(producer))
    if consumer is first:
        return table
    twin = dict(zip(first.maybe_root, consumer.maybe_root))
    return {p: twin[c] for p, c in table.items()}


class AxisKeys:
    """Structural keys of axes: equal keys mean the same points in the same order."""

    def __init__(self) -> None:
        self._ids: dict[object, Key] = {}

    def leaf(self, name: object) -> Key:
        """The key of a leaf that `name` (any hashable) identifies."""
        return self._ids.setdefault(("leaf", name), len(self._ids))

    def of_axes(
        self,
        axes: Iterable[IterDomain],
        leaves: Mapping[IterDomain, Key | None],
        *,
        forward_absent: bool = False,
    ) -> dict[IterDomain, Key | None]:
        """The keys of `axes` and of all axes between them and `leaves`.

        A leaf of key None is absent on the other side. Axes that are made from it have no key.

        Args:
            forward_absent: whether a merge with an absent axis has the key of its other input, as in
            propagation.
        """
        keys: dict[IterDomain, Key | None] = dict(leaves)
        for axis in axes:
            self._add(axis, keys, forward_absent)
        return keys

    def _add(self, axis: IterDomain, keys: dict[IterDomain, Key | None], forward_absent: bool) -> None:
        """Adds the keys of `axis` and of all axes that it is made from to `keys`."""
        if axis in keys:
            return
        transform = axis.definition
        if transform is None:
            keys[axis] = None
            return
        for i in (*transform.inputs, *transform.reads):
            self._add(i, keys, forward_absent)
        ins = tuple([keys[i] for i in (*transform.inputs, *transform.reads)])
        if isinstance(transform, Merge) and ONE_POINT in ins:
            keys[transform.outputs[0]] = ins[1] if ins[0] == ONE_POINT else ins[0]
        elif None in ins:
            present = [k for k in ins if k is not None]
            forwarded = present[0] if forward_absent and isinstance(transform, Merge) and present else None
            for out in transform.outputs:
                keys[out] = forwarded
        else:
            name = transform.key()
            for position, out in enumerate(transform.outputs):
                keys[out] = self._ids.setdefault((name, ins, position), len(self._ids))


def loop_keys(
    producer: TensorView, consumer: TensorView, *, forward_absent: bool = False
) -> tuple[list[Key | None], list[Key | None]]:
    """Keys of the loop axes of `producer` and of `consumer`, comparable with each other.

    An axis that has no counterpart on the other side has the key None or a unique key.
    """
    table = AxisKeys()
    mapped = producer_map(producer, consumer)
    matched = set(mapped.values())

    def absent(tensor: TensorView, axis: IterDomain) -> Key | None:
        """The key of an axis that the other side lacks."""
        if forward_absent:
            return None
        return ONE_POINT if stays_one_point(tensor, axis) else table.leaf(axis)

    consumer_leaves = {
        axis: table.leaf(axis) if axis in matched else absent(consumer, axis) for axis in consumer.maybe_root
    }
    producer_leaves = {
        axis: consumer_leaves[mapped[axis]] if axis in mapped else absent(producer, axis)
        for axis in producer.logical
    }
    p = table.of_axes(producer.loop, producer_leaves, forward_absent=forward_absent)
    c = table.of_axes(consumer.loop, consumer_leaves, forward_absent=forward_absent)
    return [p[a] for a in producer.loop], [c[a] for a in consumer.loop]


class LoopKeys:
    """Computes `loop_keys` for many pairs of tensors, whose loops must not change in between."""

    def __init__(self) -> None:
        self._table = AxisKeys()
        self._known: dict[TensorView, list[Key | None]] = {}

    def between(
        self, producer: TensorView, consumer: TensorView, *, forward_absent: bool = False
    ) -> tuple[list[Key | None], list[Key | None]]:
        """See `loop_keys`."""
        if _has_same_dimensions(producer, consumer):
            return self._by_position(producer), self._by_position(consumer)
        return loop_keys(producer, consumer, forward_absent=forward_absent)

    def _by_position(self, tensor: TensorView) -> list[Key | None]:
        """The keys of a tensor's loop axes if the names of its dimensions are their positions."""
        known = self._known.get(tensor)
        if known is None:
            leaves = {axis: self._table.leaf(position) for position, axis in enumerate(tensor.logical)}
            keys = self._table.of_axes(tensor.loop, leaves)
            known = self._known[tensor] = [keys[axis] for axis in tensor.loop]
        return known


def _has_same_dimensions(producer: TensorView, consumer: TensorView) -> bool:
    """Whether the dimensions of both correspond by position, and no transform made them."""
    node = consumer.definition
    return (
        node is not None
        and type(node).axis_map is Node.axis_map
        and producer.root is None
        and consumer.root is None
        and len(producer.shape) == len(producer.logical) == len(consumer.logical)
    )


def stays_one_point(tensor: TensorView, axis: IterDomain) -> bool:
    """Whether a dimension has one point in `tensor` and in all tensors computed from it along the dimension.

    Any other broadcast takes the extent of a consumer that it is inlined into.
    """
    stack = [(tensor, axis)]
    while stack:
        tensor, axis = stack.pop()
        if not axis.is_broadcast:
            return False
        if isinstance(tensor.definition, Stored):
            continue  # it has the space of the stored tensor, and no consumer extends it
        if axis not in tensor.logical:
            return False
        for consumer in tensor.consumers:
            theirs = producer_map(tensor, consumer).get(axis)
            if theirs is not None:
                stack.append((consumer, theirs))
    return True


def sibling_keys(a: TensorView, b: TensorView) -> tuple[list[Key | None], list[Key | None]]:
    """Keys of the loop axes of two outputs of one node, comparable with each other."""
    table = AxisKeys()
    ka = table.of_axes(a.loop, {x: table.leaf(i) for i, x in enumerate(a.maybe_root)})
    kb = table.of_axes(b.loop, {x: table.leaf(i) for i, x in enumerate(b.maybe_root)})
    return [ka[x] for x in a.loop], [kb[x] for x in b.loop]


def sizes_differ(covered: Mapping[IterDomain, IterDomain]) -> bool:
    """Whether a tensor's size differs from the reference's along a dimension that is not broadcast.

    Two sizes that only meet through a broadcast correspond without being equal: `a[i].sum() + b[j]` and `a[i]
    + 1`.

    Args:
        covered: maps the reference's axes to the tensor's.
    """
    return any(not ours.is_broadcast and ours.extent is not axis.extent for axis, ours in covered.items())


def is_own_load(fusion: Fusion, node: Node) -> bool:
    """Whether a node has a separate load of the fusion input whose dimensions it changes."""
    return node.traits.own_load and fusion.is_input(node.inputs[0])


def contradiction(fusion: Fusion, maps: Mapping[TensorView, Mapping[IterDomain, IterDomain]]) -> str | None:
    """Why the tensors cannot all follow one reference, or None.

    If a tensor is read along different axes, as in `s + permute(s)`, no assignment of its axes serves both
    readers. An input that is relabeled has a separate load for this reader, so it may be read along any axis.

    Args:
        maps: for each tensor, the map from the reference's axes to the tensor's.
    """
    for node in fusion.ordered_nodes():
        if node.is_scalar or node.output not in maps:
            continue
        own = is_own_load(fusion, node)
        reader = maps[node.output]
        for position, producer in enumerate(node.inputs):
            if not isinstance(producer, TensorView) or producer not in maps or (own and not position):
                continue
            to_reader = operand_map(node, position)
            for axis, ours in maps[producer].items():
                theirs = to_reader.get(ours)
                if theirs is not None and axis in reader and reader[axis] is not theirs:
                    return f"{node.output.name} reads {producer.name} along another of its dimensions"
    return None
