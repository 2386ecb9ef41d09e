"""Lets library calls read the tensors behind views.

A library accepts strides, so a permuted weight, or heads that are slices of one product, need no kernel that
copies them.
"""

from __future__ import annotations

from collections.abc import Collection

from fusewright.core.dtype import DataType
from fusewright.ir import Fusion, Indexed, LibraryCall, Node, Placement, TensorView, Val
from fusewright.ir.index_map import position_of, positions
from fusewright.ops.build_indexed import is_reshape, regrouped
from fusewright.sym import TRUE, as_int, product

# Strides in place of unknown ones. None is a multiple of another, so that no dimensions appear contiguous.
_PRIMES = (104729, 49999, 24989, 12497, 6247, 3121, 1559, 773, 389, 193, 97, 47, 23, 11, 5, 2)


def view_operands(fusion: Fusion) -> Fusion:
    """Makes library calls read the tensors behind the views that are their operands; returns `fusion`."""
    calls = [node for node in fusion.nodes if isinstance(node, LibraryCall)]
    found = {call: [_chain(fusion, value, call.op.strided_rank) for value in call.inputs] for call in calls}
    # A tensor that a call reads without views is in memory, so operands of other calls may be views of it.
    whole = {v for call, views in found.items() for v, chain in zip(call.inputs, views) if not chain}
    for call, views in found.items():
        for i, value in enumerate(call.inputs):
            if not views[i]:
                views[i] = _chain(fusion, value, call.op.strided_rank, whole)
        if any(views):
            sources = [chain[0].inputs[0] if chain else value for chain, value in zip(views, call.inputs)]
            fusion.remove_node(call)
            call.inputs, call.views = tuple(sources), tuple(views)
            fusion.add_node(call)
    return fusion


def _chain(
    fusion: Fusion, operand: Val, strided_rank: int, whole: Collection[Val] | None = None
) -> tuple[Node, ...]:
    """The nodes from a tensor in memory to an operand that is a view of it; empty if there is no such tensor.

    Args:
        whole: if given, the tensor must be one of these, which are in memory. Otherwise it is the farthest
            one from which strides lead to the operand.
    """
    if not isinstance(operand, TensorView):
        return ()
    nodes: list[Node] = []
    count = 0
    source = operand
    while not fusion.is_input(source):
        node = source.definition
        if node is None or not (node.traits.view or node.traits.indexed) or len(node.inputs) > 1:
            break
        nodes.append(node)
        source = node.source
        if whole is None or source in whole:
            count = len(nodes)
    del nodes[count:]
    nodes.reverse()
    if operand.ndim > strided_rank:
        return ()
    while nodes:
        source = nodes[0].tensor_inputs[0]
        shows_all = product(source.extents) is product(operand.extents)
        is_there = shows_all or whole is not None or _is_in_memory(fusion, source)
        if is_there and not source.is_cpu and source.dtype not in _PAIRED and _are_strided(source, nodes):
            return tuple(nodes)
        if whole is not None:
            break
        del nodes[0]
    return ()


# Types whose elements are smaller than a byte, so that they have no strides.
_PAIRED = frozenset({DataType.Float4_e2m1fn, DataType.Float4_e2m1fn_x2})


def _is_in_memory(fusion: Fusion, tensor: TensorView) -> bool:
    """Whether a tensor is in memory in any case: an input, an output, or the result of a library call."""
    return (
        fusion.is_input(tensor)
        or isinstance(tensor.definition, LibraryCall)
        or any(output.tensor is tensor for output in fusion.outputs)
    )


def _are_strided(source: TensorView, nodes: list[Node]) -> bool:
    """Whether the views have strides in all calls."""
    if not any(node.traits.indexed for node in nodes):
        return True
    tensors = [source, *(node.output for node in nodes)]
    shapes = [tuple(as_int(extent) for extent in tensor.extents) for tensor in tensors]
    known = [tuple(size for size in shape if size is not None) for shape in shapes]
    if any(len(sizes) < len(shape) for sizes, shape in zip(known, shapes)):
        return _are_strided_at_any_sizes(source, nodes)
    if any(0 in sizes for sizes in known):
        return False
    place: Placement | None = Placement(known[0], _strides(source, known[0]))
    for node, shape in zip(nodes, known[1:]):
        place = node.placement(place, shape, {}) if place is not None else None
    return place is not None


def _are_strided_at_any_sizes(source: TensorView, nodes: list[Node]) -> bool:
    """Whether views have strides whatever the sizes: reshapes of memory without gaps in the order of their
    dimensions, reshapes that only divide dimensions, slices, and views that move dimensions.
    """
    has_gaps = False in source.contiguity
    rank = {dim: i for i, dim in enumerate(source.memory_dims)}
    # For each dimension its place in memory, outermost first; None for a new one, of one element.
    places: list[tuple[int, ...] | None] = [(rank[dim],) for dim in range(source.ndim)]
    for node in nodes:
        if not isinstance(node, Indexed):
            has_gaps = has_gaps or not node.traits.relabel
            places = [None if dim is None else places[dim] for dim in node.axis_map(0)]
        elif is_reshape(node):
            groups = regrouped(node.source.extents, node.output.extents)
            known = [place for place in places if place is not None]
            merges = any(len(ours) > 1 for ours, _ in groups)
            is_told = all(ours for ours, _ in groups)
            if not is_told or (merges and (has_gaps or known != sorted(known))):
                return False
            divided = {dim: (places[ours[0]], i) for ours, theirs in groups for i, dim in enumerate(theirs)}
            places = [
                None if (found := divided.get(dim)) is None or found[0] is None else (*found[0], found[1])
                for dim in range(node.output.ndim)
            ]
        elif (dims := _sliced_dims(node)) is not None:
            has_gaps = True
            places = [None if dim is None else places[dim] for dim in dims]
        else:
            return False
    return True


def _sliced_dims(node: Indexed) -> list[int | None] | None:
    """For each dimension of a slice the dimension of its source, None for one of one element.

    None for a read that is no slice.
    """
    if node.indices or node.filled or node.map.pred is not TRUE:
        return None
    dims: list[int | None] = [None] * node.output.ndim
    own = positions(node.output.extents)
    for dim, index in enumerate(node.map.indices):
        found = {place for symbol in index.free_symbols if (place := position_of(symbol)) is not None}
        if len(found) > 1:
            return None
        for place in found:
            start = index - own[place]
            if dims[place] is not None or any(position_of(each) is not None for each in start.free_symbols):
                return None
            dims[place] = dim
    return dims


def _strides(tensor: TensorView, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a tensor if it is dense, else arbitrary ones (`_PRIMES`)."""
    position = {axis: i for i, axis in enumerate(tensor.shape)}
    order = [position[axis] for axis in tensor.allocation if axis in position]
    is_dense = all(flag or shape[dim] == 1 for dim, flag in zip(order, tensor.contiguity, strict=True))
    if not is_dense:
        return _PRIMES[: len(shape)]
    strides = [0] * len(shape)
    step = 1
    for dim in reversed(order):
        strides[dim] = step
        step *= shape[dim]
    return tuple(strides)
