"""Moves widening casts of inputs in another memory order behind reshapes, which then move fewer bytes.

    x: bf16, column by column -> float -> reshape      becomes      x -> reshape -> float

Within one kernel that is the same work. Where the reshape ends a kernel, since it goes across memory, half as
many bytes are stored and read again.
"""

from __future__ import annotations

from fusewright.core.dtype import represents
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Copy, Indexed, Node, Pointwise
from fusewright.ir.value import TensorView
from fusewright.ir.view import Permute, Relabel, Squeeze
from fusewright.ops.elementwise import CAST


def cast_late(fusion: Fusion) -> Fusion:
    """Moves casts to wider types behind the reshapes of their results; returns `fusion`."""
    outputs = set(fusion.output_tensors())
    for node in fusion.ordered_nodes():
        if _widens(node) and fusion.is_input(node.inputs[0]) and not node.tensor_inputs[0].is_row_major:
            moves = _moves(node.output, outputs)
            if any(isinstance(move, Indexed) for move in moves):
                for move in moves:
                    node = _behind(fusion, node, move)
    return fusion


def _widens(node: Node) -> bool:
    """Whether a node casts to a wider type that has all values of the former one."""
    if not isinstance(node, Pointwise) or node.op is not CAST:
        return False
    source = node.inputs[0]
    if not isinstance(source, TensorView) or source.is_cpu:
        return False
    wide = node.output.dtype
    return source.dtype.size < wide.size and represents(wide, source.dtype)


def _moves(tensor: TensorView, outputs: set[TensorView]) -> list[Node]:
    """The nodes that move a tensor's elements one after the other, each the only one to read the last."""
    found: list[Node] = []
    while tensor not in outputs and len(tensor.uses) == 1 and _only_moves(tensor.uses[0], tensor):
        found.append(tensor.uses[0])
        tensor = found[-1].output
    return found if tensor not in outputs else found[:-1]


def _only_moves(node: Node, moved: TensorView) -> bool:
    """Whether a node moves elements of this tensor, at most as many, and has no other part in a kernel."""
    if isinstance(node, Copy):
        return not node.segment and len(node.inputs) == 1
    if isinstance(node, Indexed):
        return not node.filled and node.source is moved and node.inputs.count(moved) == 1
    return isinstance(node, (Permute, Relabel, Squeeze))


def _behind(fusion: Fusion, cast: Node, move: Node) -> Node:
    """Moves a cast behind the only node that reads its result; returns the cast there."""
    (source,), wide, moved = cast.tensor_inputs, cast.output, move.output
    narrow = fusion.new_like(moved, source.dtype)
    narrow.lie_as(moved)
    fusion.remove_node(move)
    fusion.remove_node(cast)
    fusion.add_node(move.copy({wide: source, moved: narrow}))
    return fusion.add_node(cast.copy({source: narrow, wide: moved}))
