"""A matrix product as the sum of products of parts of the dimension that is summed over (split-K)."""

from __future__ import annotations

from fusewright.core.dtype import DataType
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import LibraryCall, Node
from fusewright.ir.value import TensorView
from fusewright.ops.build_elementwise import apply_to_tensor, convert_tensor
from fusewright.ops.build_library import call_library
from fusewright.ops.build_reduction import reduce_states
from fusewright.ops.build_shape import broadcast
from fusewright.ops.library import LINEAR, MATMUL, MATMUL_PARTS
from fusewright.ops.reductions import SUM
from fusewright.sym import const


def is_plain_product(node: Node) -> bool:
    """Whether a node is a product of two matrices, plus a row of the result's length at most."""
    if not isinstance(node, LibraryCall) or node.op not in (MATMUL, LINEAR):
        return False
    a, b, *bias = (node.seen(i) for i in range(len(node.inputs)))
    return a.ndim == b.ndim == 2 and all(row.extents == node.output.extents[1:] for row in bias)


def split_k(fusion: Fusion, node: LibraryCall, parts: int) -> dict[TensorView, TensorView]:
    """a @ b  becomes  sum(parts of a @ parts of b), in kernels of their own.

    Reduced floats are summed in Float and rounded once, as a library does. Adds its nodes, beside those
    there are; returns what the product became.
    """
    old = node.output
    options = {"parts": parts, "transposed": node.op is LINEAR}
    dtype = DataType.Float if old.dtype in (DataType.Half, DataType.BFloat16) else old.dtype
    sizes = const(parts), *old.extents
    (partial,) = call_library(fusion, MATMUL_PARTS, node.inputs[:2], [(sizes, dtype)], options)
    call = partial.definition
    assert isinstance(call, LibraryCall)
    call.views = node.views[:2]
    (total,) = reduce_states(fusion, SUM, [partial], [0])
    for i in range(2, len(node.inputs)):
        wide = broadcast(fusion, convert_tensor(fusion, node.seen(i), dtype), [True, False])
        total = apply_to_tensor(fusion, "add", total, wide)
    return {old: convert_tensor(fusion, total, old.dtype)}
