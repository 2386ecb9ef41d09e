"""Computes sums and running sums of bools and integers of few bits in 32 bits, if they fit.

    sum(cast(mask, Int), [0])     becomes     cast(sum(cast(mask, Int32), [0]), Int)

torch counts in 64 bits, which the GPU adds, and exchanges between threads, in two steps.
"""

from __future__ import annotations

from math import prod

from fusewright.core.dtype import DataType
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node, Pointwise, Reduction, Scan
from fusewright.ir.value import TensorView
from fusewright.ops.build_elementwise import convert_tensor
from fusewright.ops.build_reduction import reduce_states
from fusewright.ops.elementwise import CAST
from fusewright.ops.reductions import SUM
from fusewright.rewrite.replacement import remove_dead, return_instead
from fusewright.sym import as_int


def narrow_sums(fusion: Fusion) -> Fusion:
    """Computes sums in 32 bits if they fit; returns `fusion`."""
    outputs = set(fusion.output_tensors())
    for node in fusion.ordered_nodes():
        if not isinstance(node, (Reduction, Scan)):
            continue
        few = _summed(node)
        if few is None:
            continue
        narrow = convert_tensor(fusion, few, DataType.Int32)
        if isinstance(node, Scan):
            total = fusion.new_like(node.output, DataType.Int32)
            fusion.add_node(Scan(SUM, narrow, total, node.dim))
        else:
            (total,) = reduce_states(fusion, SUM, (narrow,), node.reduced_dims)
        return_instead(fusion, node.output, convert_tensor(fusion, total, DataType.Int), outputs)
        fusion.remove_node(node)
        wide = node.tensor_inputs[0].definition
        assert wide is not None
        remove_dead(fusion, wide, outputs)
    return fusion


def _summed(node: Reduction | Scan) -> TensorView | None:
    """The tensor, before its cast to 64 bits, whose sums fit in 32 bits; None if they may not fit."""
    if node.op is not SUM or node.output.dtype is not DataType.Int or len(node.inputs) > 1:
        return None
    few = _before_cast(node.tensor_inputs[0].definition)
    count = _count(node)
    if few is None or few.is_cpu or count is None:
        return None
    if few.dtype is not DataType.Bool and not few.dtype.is_short_integer:
        return None
    most = max(abs(int(few.dtype.lowest)), abs(int(few.dtype.highest)))
    return few if most * count <= int(DataType.Int32.highest) else None


def _count(node: Reduction | Scan) -> int | None:
    """The number of elements of one sum; None if it is known only at the call."""
    dims = (node.dim,) if isinstance(node, Scan) else node.reduced_dims
    sizes = [as_int(node.tensor_inputs[0].shape[dim].visible_extent) for dim in dims]
    return None if None in sizes else prod(filter(None, sizes))


def _before_cast(node: Node | None) -> TensorView | None:
    if not isinstance(node, Pointwise) or node.op is not CAST or not node.tensor_inputs:
        return None
    return node.tensor_inputs[0]
