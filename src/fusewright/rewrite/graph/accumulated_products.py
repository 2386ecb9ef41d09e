"""Adds matrix products to a tensor that nothing else needs any more, in its memory.

    p = matmul(a, b)  |  s = c + p             becomes      s = addmm(a, b, c)
    p = linear(a, w, bias)  |  s = c + p       becomes      e = c + bias  |  s = addmm(a, w, e)

The bar marks the end of a kernel. A library adds its product to a tensor while it stores the product, in
about the time that the product alone takes. So p is neither stored nor read again, and no kernel stores s.

c is the input of a residual branch: a product of matrices itself, or the result of elementwise work, that is
read only for what the product follows from. So it needs no copy. Then one rounding is left out, that of p.

A kernel that has c can store the sum of it and a bias, whatever else needs c. A bias may cancel most of the
product, which is summed with it before it is rounded. So this is done only in types in which products are
summed: there, e is as exact as p is.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from fusewright.analyze.inputs import nodes_before
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Indexed, LibraryCall, Node, Pointwise
from fusewright.ir.value import TensorView
from fusewright.ir.view import Broadcast, Squeeze
from fusewright.ops.build_elementwise import apply_to_tensor
from fusewright.ops.build_indexed import is_reshape
from fusewright.ops.build_library import call_library
from fusewright.ops.build_shape import broadcast
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.ops.library import ADDMM, LINEAR, MATMUL
from fusewright.rewrite.replacement import is_cast, remove_dead, return_instead, shape_of

#: The position of each node in topological order.
Order = dict[Node, int]


def accumulate_products(fusion: Fusion) -> Fusion:
    """Replaces sums of a product and other tensors by a call that adds the product; returns `fusion`."""
    outputs = set(fusion.output_tensors())
    ordered = fusion.ordered_nodes()
    order: Order = {node: i for i, node in enumerate(ordered)}
    has_changed = False
    for product in ordered:
        if not isinstance(product, LibraryCall) or not _is_of_a_matrix(product):
            continue
        found = _accumulation(_sum_of(product.output, outputs), product, outputs, order)
        if found is not None:
            _accumulate(fusion, product, found, outputs, order)
            has_changed = True
    if has_changed:
        fusion.move_producers_forward()
    return fusion


def _is_of_a_matrix(call: LibraryCall) -> bool:
    """Whether a call multiplies rows by one matrix. Rows of several dimensions are in memory as one."""
    if call.op not in (MATMUL, LINEAR):
        return False
    rows, matrix = call.tensor_inputs[:2]
    made = rows.definition
    is_viewed = made is not None and (made.traits.view or made.traits.indexed)
    return matrix.ndim == 2 and (rows.ndim == 2 or (rows.ndim > 2 and not is_viewed))


# ---- sums of a product -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sum:
    """What a product is added to.

    Attributes:
        total: the sum, in the product's type.
        added: the node that adds the product; a cast to that type may follow.
        addend: the other operand, in the sum's shape and type.
        biases: what is to be added to it, each the same along some dimension.
    """

    total: TensorView
    added: Node
    addend: TensorView
    biases: tuple[TensorView, ...] = ()


def _sum_of(product: TensorView, outputs: Collection[TensorView]) -> _Sum | None:
    """The sum that nothing but it reads a product for; None if there is none in the product's type."""
    tensor, use = product, _only_use(product, outputs)
    while use is not None and _keeps_elements(use):
        tensor, use = use.output, _only_use(use.output, outputs)
    shape = shape_of(tensor)
    if len(shape) < 2:
        return None
    is_reduced = product.dtype.is_reduced_float
    if is_reduced and use is not None and is_cast(use):
        tensor, use = use.output, _only_use(use.output, outputs)
    addend = _added_to(tensor, use)
    if use is None or addend is None:
        return None
    total, before = use.output, addend.definition
    if is_reduced:
        cast = _only_use(total, outputs)
        if before is None or cast is None or not (is_cast(before) and is_cast(cast)):
            return None
        total, addend = cast.output, before.tensor_inputs[0]
    is_of_type = total.dtype is addend.dtype is product.dtype
    is_of_shape = shape_of(total) == shape_of(addend) == shape and shape[-1][0] is product.extents[-1]
    return _Sum(total, use, addend) if is_of_type and is_of_shape and not addend.is_expanded else None


def _only_use(tensor: TensorView, outputs: Collection[TensorView]) -> Node | None:
    """The only reader of a tensor, which reads it once; None if there are others, or it is a result."""
    return tensor.uses[0] if len(tensor.uses) == 1 and tensor not in outputs else None


def _added_to(tensor: TensorView, node: Node | None) -> TensorView | None:
    """The tensor that a node adds this one to."""
    if not isinstance(node, Pointwise) or node.op is not ELEMENTWISE["add"]:
        return None
    others = [value for value in node.tensor_inputs if value is not tensor]
    return others[0] if others else None


def _keeps_elements(node: Node) -> bool:
    """Whether a node shows all elements of its operand in order, in other dimensions."""
    return isinstance(node, (Squeeze, Broadcast)) or (isinstance(node, Indexed) and is_reshape(node))


def _with_biases(call: LibraryCall, found: _Sum, outputs: Collection[TensorView]) -> _Sum | None:
    """The sum with the bias of the product, and with what is added to the sum next, if nothing else reads it.

    None if there is no bias, or if the type is not that in which products are summed.
    """
    biases = list(call.tensor_inputs[2:])
    if found.total.dtype.is_reduced_float or any(b.extents[0] is not found.total.extents[-1] for b in biases):
        return None
    while (use := _only_use(found.total, outputs)) is not None:
        bias, total = _added_to(found.total, use), use.output
        is_alike = total.dtype is found.total.dtype and shape_of(total) == shape_of(found.total)
        if bias is None or not is_alike or not _is_repeated(bias, total):
            break
        biases.append(bias)
        found = replace(found, total=total)
    return replace(found, biases=tuple(biases)) if biases else None


def _is_repeated(tensor: TensorView, whole: TensorView) -> bool:
    """Whether a tensor is the same along a dimension of another."""
    return any(a.is_broadcast and not b.is_broadcast for a, b in zip(tensor.shape, whole.shape))


# ---- whether the addend can take the product ---------------------------------------------------------------


def _accumulation(
    found: _Sum | None, product: LibraryCall, outputs: Collection[TensorView], order: Order
) -> _Sum | None:
    """The sum to which the product is added in memory; None if that saves nothing.

    If there are biases, a kernel that has the addend before the product stores the addend's sum with them.
    Otherwise the addend itself must be free.
    """
    if found is None or not found.total.is_row_major:
        return None
    memory = found.addend
    while memory not in outputs and (made := memory.definition) is not None and _keeps_elements(made):
        (memory,) = made.tensor_inputs
    before = _between(memory.definition, product, order)
    biased = _with_biases(product, found, outputs)
    if biased is not None:
        readers = before & _readers(found.addend, found.added, outputs)
        is_of_kernel = memory.definition is not None and not isinstance(memory.definition, LibraryCall)
        is_there = any(is_of_kernel or not isinstance(reader, LibraryCall) for reader in readers)
        return biased if is_there else None
    is_whole = len(product.inputs) == 2
    return found if is_whole and _is_free_after(memory, found.added, before, outputs) else None


def _is_free_after(
    tensor: TensorView, added: Node, before: Collection[Node], outputs: Collection[TensorView]
) -> bool:
    """Whether a tensor is in memory that nothing but a sum needs once a product's operands are computed.

    That is so of products of matrices, and of what kernels compute or gather, if all others that read it come
    before the product. Of the latter there must be some: they would store it, or read as much again.

    Args:
        added: the node that computes the sum.
        before: the nodes that the product follows from.
    """
    made = tensor.definition
    if made is None or tensor in outputs or tensor.is_cpu or not tensor.is_row_major:
        return False
    readers = _readers(tensor, added, outputs)
    if isinstance(made, LibraryCall):
        return made.op in (MATMUL, LINEAR, ADDMM) and readers.issubset(before)
    is_computed = isinstance(made, Pointwise) or (isinstance(made, Indexed) and made.indices > 0)
    return is_computed and bool(readers) and readers.issubset(before)


def _readers(tensor: TensorView, added: Node, outputs: Collection[TensorView]) -> set[Node]:
    """The nodes but `added` for which a tensor is read.

    Kernels repeat elementwise work and views that are not in memory. So the readers of these results count.
    """
    found: set[Node] = set()
    seen = {added}
    stack = [tensor]
    while stack:
        for use in set(stack.pop().uses) - seen:
            seen.add(use)
            is_repeated = use.traits.pointwise or use.traits.view or use.traits.indexed
            if is_repeated and not _is_in_memory(use.output, outputs):
                stack.append(use.output)
            else:
                found.add(use)
    return found


def _is_in_memory(tensor: TensorView, outputs: Collection[TensorView]) -> bool:
    """Whether a tensor is in memory however the graph is divided: a result, or an operand of a library."""
    return tensor in outputs or any(isinstance(use, LibraryCall) for use in tensor.uses)


def _between(first: Node | None, last: LibraryCall, order: Order) -> set[Node]:
    """The nodes that `last` follows from, those behind `first` in the order and those that are not in it."""
    start = -1 if first is None else order[first]
    return nodes_before(last.tensor_inputs, lambda node: order.get(node, start + 1) > start)


# ---- the call ----------------------------------------------------------------------------------------------


def _accumulate(
    fusion: Fusion, product: LibraryCall, found: _Sum, outputs: set[TensorView], order: Order
) -> None:
    """Replaces the sum by a call that adds the product to the addend and the biases."""
    total, addend = found.total, found.addend
    assert total.definition is not None
    for bias in found.biases:
        missing = addend.ndim - bias.ndim
        shown = broadcast(fusion, bias, [True] * missing + [False] * bias.ndim) if missing else bias
        addend = apply_to_tensor(fusion, "add", addend, shown)
    options = {"transposed": product.op is LINEAR}
    results = [(total.extents, total.dtype)]
    (made,) = call_library(fusion, ADDMM, (*product.tensor_inputs[:2], addend), results, options)
    assert made.definition is not None
    order[made.definition] = order[total.definition]
    return_instead(fusion, total, made, outputs)
    outputs.discard(total)
    remove_dead(fusion, total.definition, outputs)
