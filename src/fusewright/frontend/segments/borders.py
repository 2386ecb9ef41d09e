"""The borders between segments: values that the user wrote, if that costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from fusewright.ir import Fusion, Node, TensorView, Val
from fusewright.segment import Segment


def borders_at_states(
    segments: Sequence[Segment], fusion: Fusion, is_state: Callable[[Val], bool]
) -> list[Segment]:
    """The segments, of which each passes on states of the definition where it can.

    A tensor inside a composite operation may pass between kernels: of a sum with keepdim the sum, which its
    readers see in another shape. If all of them see it in the same shape, and that is a state, the maker
    hands on the state: dimensions of one element cost nothing, wherever they come in.

    Of the segments that are returned, `nodes`, `inputs` and `outputs` are up to date, and nothing else.
    """
    result = list(segments)
    used_by: dict[Val, list[Node]] = {}
    for node in fusion.ordered_nodes():
        for value in dict.fromkeys(node.inputs):
            used_by.setdefault(value, []).append(node)
    outputs = {o for s in segments for o in s.outputs}
    final = set(fusion.output_tensors())
    for i, segment in enumerate(segments):
        if segment.evaluated is not None:
            continue  # which is all of a segment
        for tensor in segment.outputs:
            chain = [] if tensor in final else _chain_to_state(tensor, is_state, used_by, outputs)
            if chain and not any(node in segment.nodes for node in chain):
                _move(result, i, tensor, chain)
    return result


def _chain_to_state(
    tensor: TensorView,
    is_state: Callable[[Val], bool],
    used_by: Mapping[Val, Sequence[Node]],
    outputs: set[TensorView],
) -> list[Node]:
    """The relabels from `tensor` to a state, where these are all that reads it and what is between."""
    chain: list[Node] = []
    current: Val = tensor
    while not is_state(current):
        users = used_by.get(current, ())
        if len(users) != 1 or not _keeps_order(users[0]):
            return []
        chain.append(users[0])
        current = users[0].outputs[0]
        if current in outputs:
            return []
    return chain


def _keeps_order(node: Node) -> bool:
    """Whether it only inserts or removes dimensions: a kernel writes those as it writes its own."""
    if not node.traits.relabel:
        return False
    dims = [dim for dim in node.axis_map(0) if dim is not None]
    return dims == sorted(dims)


def _move(segments: list[Segment], maker: int, tensor: TensorView, chain: Sequence[Node]) -> None:
    """Moves the nodes of `chain` from the readers of `tensor` to its maker, which hands on their result."""
    result = chain[-1].output
    for i, segment in enumerate(segments):
        if i == maker:
            handed_on = tuple([result if o is tensor else o for o in segment.outputs])
            extraction = replace(segment.extraction, outputs=handed_on)
            segments[i] = replace(segment, nodes=(*segment.nodes, *chain), extraction=extraction)
        elif tensor in segment.inputs:
            nodes = tuple([node for node in segment.nodes if node not in chain])
            read = tuple([result if v is tensor else v for v in segment.inputs])
            segments[i] = replace(segment, nodes=nodes, inputs=read)
