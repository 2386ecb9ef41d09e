"""Replaces tensors of one value by scalars.

    avg, m2, n = welford(x);  m2 / float(n)     becomes    m2 / float(the count, computed from sizes)
    y + full([2, 3], 1.0)                       becomes    y + 1.0

This is exact, since the scalar has the tensor's type. Values that then have no use are not computed. So a
definition gives the same kernels whether it uses a tensor of one value or a scalar.
"""

from __future__ import annotations

from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Full, Node, Pointwise, Reduction
from fusewright.ir.value import Scalar, TensorView, Val
from fusewright.ir.view import Expand
from fusewright.ops.build_elementwise import convert
from fusewright.ops.elementwise import CAST
from fusewright.ops.reductions import WELFORD
from fusewright.rewrite.replacement import remove_dead
from fusewright.sym import product


def read_scalars(fusion: Fusion) -> Fusion:
    """Makes elementwise operations read scalars instead of tensors of one value; returns `fusion`."""
    outputs = set(fusion.output_tensors())
    uniform: dict[Val, Scalar] = {}
    unused: list[Node] = []
    for node in fusion.ordered_nodes():
        if node.is_scalar:
            continue
        known = _uniform_output(fusion, node, uniform)
        if known is not None:
            tensor, value = known
            uniform[tensor] = value
            unused.append(node)
        elif isinstance(node, Pointwise):
            _read_scalars(fusion, node, uniform)
    for node in reversed(unused):
        remove_dead(fusion, node, outputs)
    return fusion


def _uniform_output(
    fusion: Fusion, node: Node, uniform: dict[Val, Scalar]
) -> tuple[TensorView, Scalar] | None:
    """An output with the same value everywhere, and the value in the output's type; else None."""
    if isinstance(node, Full):
        (fill,) = node.inputs
        return (node.output, fill) if isinstance(fill, Scalar) and fill.dtype is node.output.dtype else None
    if isinstance(node, Reduction) and node.op is WELFORD and len(node.inputs) == 1:
        count = node.outputs[2]
        if not count.uses:
            return None
        assert isinstance(count, TensorView)
        size = product(axis.extent for axis in count.logical if axis.is_reduction)
        value = convert(fusion, fusion.size_scalar(size), count.dtype)
        assert isinstance(value, Scalar)
        return count, value
    source = node.inputs[0] if node.inputs else None
    if source not in uniform or node.output.is_cpu:
        return None
    if node.traits.relabel or isinstance(node, Expand):
        return node.output, uniform[source]
    if isinstance(node, Pointwise) and node.op is CAST:
        value = convert(fusion, uniform[source], node.output.dtype)
        assert isinstance(value, Scalar)
        return node.output, value
    return None


def _read_scalars(fusion: Fusion, node: Pointwise, uniform: dict[Val, Scalar]) -> None:
    """Makes a node read scalars, if its other tensor operands have all dimensions of its result."""
    found: dict[Val, Val] = {v: uniform[v] for v in node.inputs if v in uniform}
    if not found:
        return
    others = [v for v in node.tensor_inputs if v not in found]
    for dim, axis in enumerate(node.output.shape):
        if not axis.is_broadcast and all(v.shape[dim].is_broadcast for v in others):
            return
    if others:
        fusion.replace_inputs(node, found)
