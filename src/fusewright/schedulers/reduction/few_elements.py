"""Reductions of a few elements, which may become elementwise work of other kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import prod

from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node, Reduction
from fusewright.ir.value import TensorView
from fusewright.rewrite.proposed.short_reductions import can_be_unrolled, unrolled_reduction
from fusewright.schedulers.base import Part, Rewrite
from fusewright.sym import Expr, as_int

# How often a kernel may compute a result again, as it reads it at so many points: as often as a dimension of
# a few elements has it.
#   H200, a group norm of channels last: 126 us if its kernel adds up the eight channels of a group at each of
#   33 million elements, 66 with a kernel for these sums.
MAX_READS_OF_A_RESULT = 8


def elementwise_reductions(
    part: Part, reads_few: bool = False, loads_for_long: bool = False
) -> Rewrite | None:
    """The elements of short reductions one by one, for kernels that reduce something else, or nothing.

    None where there is no other kernel, unless the part `reads_few` elements one by one, each for many
    results: its blocks wait rather than move bytes. Of two that move the same bytes estimates do not tell
    which is faster.
    H200, a kernel matrix of 4096x4096 pairs of points: 20 us, as a reduction 44; but of 8 dimensions, in
    vectors, 146 and 45.

    loads_for_long: whether loading all elements of a reduction at each of them takes longer than a kernel.
    """
    reductions = [node for node in part.nodes if isinstance(node, Reduction)]
    nodes = [node for node in reductions if _is_short(node, loads_for_long)]
    if not nodes or not (reads_few or _has_neighbours(part)):
        return None

    def replace_all(graph: Fusion) -> dict[TensorView, TensorView]:
        return {old: new for node in nodes for old, new in unrolled_reduction(graph, node).items()}

    # Named by what they are, since one that joins what others became may be tried, too.
    names = ", ".join(node.output.name for node in nodes)
    reason = "a few elements are reduced, which any kernel may read"
    return Rewrite(f"elements of {names} one by one", replace_all, reason)


def _is_short(node: Reduction, loads_for_long: bool) -> bool:
    if not can_be_unrolled(node):
        return False
    return _is_read_at_few_points(node.output) or _is_of_what_readers_read(node, loads_for_long)


def _is_read_at_few_points(result: TensorView) -> bool:
    """Whether no tensor that follows from a result, up to the next reduction, has many more elements."""
    sizes = _sizes(result)
    return all(_has_few_more(_sizes(tensor), sizes) for tensor in _following(result))


def _following(result: TensorView) -> dict[TensorView, None]:
    """The tensors that follow from a result, up to the next reduction."""
    seen: dict[TensorView, None] = {}
    left = [result]
    while left:
        for use in left.pop().uses:
            if not isinstance(use, Reduction):
                new = [out for out in use.tensor_outputs if out not in seen]
                seen.update(dict.fromkeys(new))
                left += new
    return seen


def _is_of_what_readers_read(node: Reduction, loads_for_long: bool) -> bool:
    """Whether what has many more elements than a result, and follows from it, is computed with all that the
    result follows from, too: all pairs of boxes with their corners, and the areas.

    What varies along the reduced dimensions reads one of these elements at each point, not all of them. That
    is the same only where the loads of the others take little time.
    """
    following, sizes = _following(node.output), _sizes(node.output)
    many = [tensor for tensor in following if not _has_few_more(_sizes(tensor), sizes)]
    if loads_for_long and not _varying_along(node).isdisjoint(many):
        return False
    made = {node.output, *following}
    others = [
        v for t in many if t.definition is not None for v in t.definition.tensor_inputs if v not in made
    ]
    return _read_for(node.tensor_inputs) <= _read_for(others)


def _varying_along(node: Reduction) -> set[TensorView]:
    """Returns the tensors that have an element for each one that is reduced: those that elementwise work
    connects with the operand.
    """
    source = node.tensor_inputs[0]
    found, left = {source}, [source]
    while left:
        tensor = left.pop()
        for other in (*tensor.uses, tensor.definition):
            if other is None or not other.traits.pointwise:
                continue
            for value in (*other.tensor_inputs, *other.tensor_outputs):
                is_alike = value.ndim == source.ndim and value not in found
                if is_alike and any(not value.shape[dim].is_broadcast for dim in node.reduced_dims):
                    found.add(value)
                    left.append(value)
    return found


def _read_for(tensors: Iterable[TensorView]) -> set[TensorView]:
    """Returns the tensors from which these are computed by elementwise work and short reductions."""
    read: set[TensorView] = set()
    seen: set[TensorView] = set()
    left = list(tensors)
    while left:
        tensor = left.pop()
        if tensor in seen:
            continue
        seen.add(tensor)
        node = tensor.definition
        if node is not None and _is_computed_where_it_is_read(node):
            left += node.tensor_inputs
        else:
            read.add(tensor)
    return read


def _is_computed_where_it_is_read(node: Node) -> bool:
    if node.traits.pointwise or node.traits.indexed:
        return True
    return can_be_unrolled(node) and _is_read_at_few_points(node.output)


def _sizes(tensor: TensorView) -> Counter[Expr]:
    return Counter(axis.extent for axis in tensor.shape if not axis.is_broadcast)


def _has_few_more(sizes: Counter[Expr], known: Counter[Expr]) -> bool:
    """Whether a tensor has up to so many times the elements of another; no, where only a call knows."""
    more = [as_int(extent) for extent in (sizes - known).elements()]
    less = [as_int(extent) or 1 for extent in (known - sizes).elements()]
    return None not in more and prod(filter(None, more)) <= MAX_READS_OF_A_RESULT * prod(less)


def _has_neighbours(part: Part) -> bool:
    """Whether the part reads what others compute, or others read what it computes."""
    inside = set(part.nodes)
    for node in part.nodes:
        if any(v.definition is not None and v.definition not in inside for v in node.tensor_inputs):
            return True
        if any(use not in inside for out in node.tensor_outputs for use in out.uses):
            return True
    return False
