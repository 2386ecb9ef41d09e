"""The promoted extents of axes.

An inlined tensor is computed in its consumer's loops. So each of its broadcast axes that these loops are made
from takes the consumer's extent. All later steps (loops, indices, guards, buffers) use these promoted
extents, never `IterDomain.extent`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import lcm

from fusewright.analyze.axis_map import producer_map
from fusewright.analyze.vectorize import lane_axis
from fusewright.ir.axis import IterDomain, ancestors, transforms_between
from fusewright.ir.node import Node
from fusewright.ir.value import TensorView
from fusewright.sym import ONE, Expr, Symbol, const, substitute, symbol


class Domains:
    """The promoted extents of all axes of the tensors that `nodes` compute.

    Attributes:
        assumptions: pairs (symbol, size): the size in a call must be in the range of the symbol. The kernel
            need not contain the symbol: a guard that an assumption proves is omitted.
    """

    def __init__(self, nodes: Sequence[Node], refined: Mapping[Symbol, Symbol]) -> None:
        """Promotes the extents.

        Args:
            nodes: the nodes in program order.
            refined: size symbols, with the symbols that replace them and carry more facts. A symbol with only
                one possible value becomes a constant.
        """
        self._known: dict[Symbol, Expr] = {
            size: const(known.lo) if known.lo == known.hi else known for size, known in refined.items()
        }
        self.assumptions = tuple((known, size) for size, known in refined.items())
        self._sizes = dict(self.assumptions)
        self._extents: dict[TensorView, dict[IterDomain, Expr]] = {}
        for node in reversed(nodes):
            for tensor in node.outputs:
                assert isinstance(tensor, TensorView)
                self._extents[tensor] = self._promote(tensor)

    def known(self, extent: Expr) -> Expr:
        return substitute(extent, self._known) if self._known else extent

    def size_of(self, symbol: Symbol) -> Symbol:
        """The fusion's size for a symbol of the kernel: the inverse of `known`."""
        return self._sizes.get(symbol, symbol)

    def extent(self, tensor: TensorView, axis: IterDomain) -> Expr:
        table = self._extents.get(tensor)
        return self.known(axis.extent) if table is None else table[axis]

    def _promote(self, tensor: TensorView) -> dict[IterDomain, Expr]:
        table = {axis: self.known(axis.extent) for axis in tensor.maybe_root}
        shared = tensor.loop[: tensor.inline_at]
        if shared:
            sources: set[IterDomain] = set()
            for axis in shared:
                sources |= ancestors(axis, tensor.maybe_root)
            for consumer in tensor.consumers:
                if consumer not in self._extents:
                    continue  # no output depends on this consumer
                for ours, theirs in producer_map(tensor, consumer).items():
                    if ours in sources and ours.is_broadcast and ours in table:
                        extent = self._extents[consumer][theirs]
                        if extent is not ONE:
                            table[ours] = extent
        stored = tensor.storage.axes if tensor.storage is not None else ()
        for transform in transforms_between(tensor.maybe_root, (*tensor.logical, *tensor.loop, *stored)):
            table.update(zip(transform.outputs, transform.extents([table[a] for a in transform.inputs])))
        return table


def with_promoters(chosen: Sequence[Node], nodes: Sequence[Node]) -> list[Node]:
    """The `chosen` nodes, and those of `nodes` that their promoted extents depend on, in order."""
    found = set(chosen)
    stack = list(chosen)
    while stack:
        for tensor in stack.pop().outputs:
            assert isinstance(tensor, TensorView)
            if tensor.inline_at and any(axis.is_broadcast for axis in tensor.maybe_root):
                users = [user for user in tensor.uses if user not in found]
                found.update(users)
                stack += users
    return [node for node in nodes if node in found]


def vector_size(tensor: TensorView, domains: Domains, width: int) -> Expr | None:
    """The size that `width` must divide for vectors along the innermost loop axis to be contiguous."""
    axis = lane_axis(tensor, width)
    return domains.extent(tensor, axis) if axis is not None else None


def refine(
    sizes: Sequence[tuple[Expr, int]], ranges: Mapping[Symbol, tuple[int, int]], assumed: Mapping[Symbol, int]
) -> dict[Symbol, Symbol]:
    """Maps each size symbol with known facts (a divisor, a range) to the symbol that states them.

    Args:
        sizes: pairs (size, width): the size is a multiple of the width.
        ranges: the ranges of sizes.
        assumed: the divisors of sizes that the schedule assumes.
    """
    multiples = dict(assumed)
    for size, width in sizes:
        if isinstance(size, Symbol):
            multiples[size] = lcm(multiples.get(size, 1), width)
    known: dict[Symbol, Symbol] = {}
    for size in dict.fromkeys((*multiples, *ranges)):
        low, high = ranges.get(size, (size.lo, size.hi))
        multiple = lcm(size.multiple_of, multiples.get(size, 1))
        known[size] = symbol(size.name, lo=low, hi=high, multiple_of=multiple)
    return known
