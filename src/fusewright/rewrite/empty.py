"""Tensors without elements: nothing computes them, and a reduction of one is its identity.

sum(exp(x))  of x [64, 0]      becomes    full([64], 0)
a scan of softmax(x)[:0]       becomes    a tensor of no elements
"""

from __future__ import annotations

from fusewright.core.dtype import PyScalar
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Choose, Full, Indexed, Node, Reduction
from fusewright.ir.value import Scalar, TensorView
from fusewright.rewrite.replacement import drop_reduced_axes, is_in_memory_of_its_own, read_instead, shape_of
from fusewright.sym import ZERO, as_int


def drop_empty_tensors(fusion: Fusion) -> Fusion:
    """`fusion` itself, where no tensor without elements is computed, nor read for what follows from none.

    Views of them stay, which cost nothing.
    """
    outputs = set(fusion.output_tensors())
    for node in fusion.ordered_nodes():
        if node.is_scalar or node.traits.view or isinstance(node, Full):
            continue
        if isinstance(node, Choose) and as_int(node.pred) is not None:
            _take(fusion, node, outputs)
        elif not any(use.traits.updates for out in node.outputs for use in out.uses):
            values = _values(node)
            if values is not None:
                _fill(fusion, node, values)
    return fusion


def is_empty(tensor: TensorView) -> bool:
    """Whether the tensor has no elements in any call."""
    for axis in tensor.logical:
        if (axis.extent is ZERO or axis.expanded is ZERO) and not axis.is_reduction:
            return True
    return False


def _values(node: Node) -> list[PyScalar | Scalar] | None:
    """The value that all elements of each output have; None if there are elements to compute."""
    if is_empty(node.output):
        outs = node.tensor_outputs
        return [out.dtype.zero for out in outs] if all(is_empty(out) for out in outs) else None
    source = node.inputs[0] if node.inputs else None
    if not isinstance(source, TensorView) or source.is_cpu or not is_empty(source):
        return None
    if isinstance(node, Reduction):
        return list(node.op.identity(source.dtype))
    if isinstance(node, Indexed):
        return [node.output.dtype.zero if node.fill is None else node.fill]
    return None


def _fill(fusion: Fusion, node: Node, values: list[PyScalar | Scalar]) -> None:
    fusion.remove_node(node)
    for out, value in zip(node.outputs, values, strict=True):
        assert isinstance(out, TensorView)
        fill = value if isinstance(value, Scalar) else fusion.new_scalar(out.dtype, value)
        drop_reduced_axes(out)
        fusion.add_node(Full(fill, out))


def _take(fusion: Fusion, node: Choose, outputs: set[TensorView]) -> None:
    """Lets all that reads a choice that is always the same read what it takes."""
    taken = node.inputs[0 if as_int(node.pred) else 1]
    if not isinstance(taken, TensorView) or taken.is_cpu or shape_of(taken) != shape_of(node.output):
        return
    if not is_in_memory_of_its_own(node.output, outputs):
        read_instead(fusion, node.output, taken)
