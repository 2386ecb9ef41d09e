"""Results of a graph that are views of a tensor in memory: that tensor is computed, and the view is returned.

A backward pass receives views of the forward pass's operands and results: rows as a matrix, heads of one
projection.
"""

from __future__ import annotations

import operator
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from fusewright.torch_compile.recording import meta_of, restrided, result_tensors, stride_order
from fusewright.torch_compile.rows import Overload


@dataclass(frozen=True, eq=False)
class ResultView:
    """A result that is a view of `base`, with the arguments of torch.as_strided."""

    node: fx.Node
    base: fx.Node
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def of(self, base: torch.Tensor) -> torch.Tensor:
        """The view, of the value of its base."""
        found = restrided(base, self.base)
        return found.as_strided(self.shape, self.strides, found.storage_offset() + self.offset)


def base_of(node: fx.Node) -> fx.Node:
    """The node whose memory holds the value of `node`, if operators are views where torch says so."""
    while isinstance(node.target, Overload) or node.target is operator.getitem:
        source = node.args[0]
        if not isinstance(source, fx.Node):
            return node
        maker = source if node.target is operator.getitem else node
        if not isinstance(maker.target, Overload) or not _is_view(maker):
            return node
        node = source
    return node


#: Views whose elements are other values than those in memory.
_OTHER_VALUES = frozenset({torch.ops.aten._conj.default, torch.ops.aten._neg_view.default})


def _is_view(node: fx.Node) -> bool:
    target = node.target
    assert isinstance(target, Overload)
    if target is torch.ops.aten._unsafe_view.default:
        return True
    if target in _OTHER_VALUES:
        return False
    results = target._schema.returns
    return bool(results) and results[0].alias_info is not None and not target._schema.is_mutable


def result_views(
    results: Collection[fx.Node],
    made: Collection[fx.Node],
    library: Collection[fx.Node],
    arguments: Collection[fx.Node] = (),
) -> list[ResultView]:
    """The results that may be views of nodes whose values are in memory anyway.

    Args:
        results: nodes that are returned.
        made: the nodes of the definition that returns them.
        library: those that torch computes, and their parts: these, and their operands, are in memory.
        arguments: arguments of the graph that nothing writes into.
    """
    held = {base_of(source) for node in library for source in node.all_input_nodes}
    held.update(library)
    held |= {node for node in results if base_of(node) is node}
    held.update(arguments)
    found = []
    for node in results:
        base = base_of(node)
        if base is node or base not in held or (base not in made and base not in arguments):
            continue
        tensor, (source, *_) = meta_of(node), result_tensors(base)
        numbers = (*tensor.shape, *tensor.stride(), *source.shape, *source.stride())
        is_alone = isinstance(meta_of(base), torch.Tensor) and tensor.dtype == source.dtype
        if not (is_alone and all(isinstance(n, int) for n in numbers) and _is_dense(source)):
            continue
        offset = _offset(node, base, tensor.stride())
        if offset is not None:
            found.append(ResultView(node, base, tuple(tensor.shape), tensor.stride(), offset))
    return found


def _offset(node: fx.Node, base: fx.Node, strides: tuple[int, ...]) -> int | None:
    """Where in the memory of `base` the view begins; None if it has other strides, or follows from sizes.

    The operators say so. The traced values do not: those of make_fx, which traces real tensors unless told
    otherwise, all begin at 0.
    """
    steps = [node]
    while steps[-1].args[0] is not base:
        steps.append(steps[-1].args[0])  # type: ignore[arg-type]
    if any(len(step.all_input_nodes) > 1 for step in steps):
        return None
    (source,) = result_tensors(base)
    value: Any = torch.empty_strided(source.shape, source.stride(), dtype=source.dtype, device="meta")
    for step in reversed(steps):
        value = step.target(value, *step.args[1:], **step.kwargs)  # type: ignore[operator]
    return value.storage_offset() if value.stride() == strides else None


def _is_dense(tensor: torch.Tensor) -> bool:
    outermost_first = sorted(range(tensor.ndim), key=lambda dim: -stride_order(tensor)[dim])
    return tensor.permute(outermost_first).is_contiguous()
