"""Stores a tensor between kernels before a widening cast instead of after it.

    t = float(x)  |  readers of t      becomes      c = x  |  t = float(c), readers of t

The bar is the end of a kernel that transposes; without this rewrite, its result would be written and read in
the wider type.
"""

from __future__ import annotations

from fusewright.core.op import Rule
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Copy, Pointwise
from fusewright.ir.value import TensorView
from fusewright.schedulers.base import Part, Rewrite


def narrow_borders(part: Part) -> Rewrite | None:
    """The casts of a part whose results it hands on move to the kernels that read them."""
    wide = _widened(part)
    if not wide:
        return None

    def replace_all(graph: Fusion) -> dict[TensorView, TensorView]:
        return {tensor: _handed_on_narrow(graph, tensor) for tensor in wide}

    return Rewrite(
        "narrow borders", replace_all, "fewer bytes pass between kernels before a cast than after it"
    )


def _widened(part: Part) -> list[TensorView]:
    """The tensors that a part hands on, and no more than that, each the cast of a narrower one."""
    inside, outputs = set(part.nodes), set(part.graph.output_tensors())
    found = []
    for node in part.nodes:
        tensor = node.output
        if not isinstance(node, Pointwise) or node.op.rule is not Rule.CAST or tensor in outputs:
            continue
        if node.inputs[0].dtype.size < tensor.dtype.size and inside.isdisjoint(tensor.uses):
            found.append(tensor)
    return found


def _handed_on_narrow(graph: Fusion, tensor: TensorView) -> TensorView:
    cast = tensor.definition
    assert cast is not None
    source = cast.tensor_inputs[0]
    handed_on, read, wide = (
        graph.new_like(tensor, dtype) for dtype in (source.dtype, source.dtype, tensor.dtype)
    )
    graph.add_node(Copy(source, handed_on))
    graph.add_node(Copy(handed_on, read, segment=True))
    graph.add_node(cast.copy({source: read, tensor: wide}))
    return wide
