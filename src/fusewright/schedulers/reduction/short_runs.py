"""Reductions in two steps, of which the first reads whole lines of memory.

Of rows whose contiguous runs in memory are shorter than a memory access, columns are reduced first. Where
inputs are contiguous along different reduced dimensions, one of these is reduced last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusewright.analyze.vectorize import unit_stride_axis
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Reduction
from fusewright.ir.value import TensorView
from fusewright.rewrite.proposed.columns_first import (
    can_be_cut,
    dims_across,
    reduced_in_steps,
)
from fusewright.schedulers.base import Facts, Part, Rewrite
from fusewright.schedulers.reduction.space import ReductionSpace
from fusewright.schedulers.reference_map import Access
from fusewright.schedulers.sectors import SECTOR_BYTES

# Elements of a row at least. Of shorter rows a block has several, which lie side by side: together they use
# whole sectors.
#   H200, bf16, us, as rows and by columns: windows of 8x8 of 64x256x56x56 35 and 74, groups of 4096x8 111 and
#   64.
MIN_LENGTH = 1024


# Elements of a dimension from which on tiles along it have one for each thread of a warp.
MIN_CROSSED = 32


def columns_first(part: Part, space: ReductionSpace, facts: Facts) -> Rewrite | None:
    """Returns a rewrite of all reductions in two steps, if they are of short runs and none depends on
    another; else None.
    """
    if not space.is_inner or space.reduced_inside(facts) * space.element_bytes >= SECTOR_BYTES:
        return None  # shorter runs are read with what lies beside them
    if space.reduction_size(facts) < MIN_LENGTH:
        return None
    reason = "memory has rows in runs that are shorter than what it is read in"
    return _in_steps("columns first", part, space, dims_across, reason)


def crossed_first(part: Part, space: ReductionSpace, facts: Facts) -> Rewrite | None:
    """Returns a rewrite of all reductions in two steps, if inputs are contiguous along several reduced
    dimensions and none depends on another; else None. A kernel that keeps one of these reads tiles.
    """
    dims = space.reference.logical
    crossed = list(dict.fromkeys(filter(None, map(_contiguous_dimension, space.full_loads))))
    crossed = [a for a in crossed if a in space.reduction and facts.value(a.extent) >= MIN_CROSSED]
    if len(crossed) < 2:
        return None
    last = dims.index(crossed[1])

    def all_but_last(x: TensorView, reduced: Sequence[int]) -> list[int]:
        return [dim for dim in reduced if dim != last] if x.ndim == len(dims) else []

    reason = "inputs are contiguous along different dimensions"
    return _in_steps("all but a crossed dimension first", part, space, all_but_last, reason)


def _contiguous_dimension(access: Access) -> IterDomain | None:
    """Returns the reference's dimension along which an access goes through contiguous memory, if any."""
    unit = unit_stride_axis(access.tensor)
    return next((ours for ours, theirs in access.axes.items() if theirs is unit), None)


def _in_steps(
    name: str,
    part: Part,
    space: ReductionSpace,
    dims: Callable[[TensorView, Sequence[int]], list[int]],
    reason: str,
) -> Rewrite | None:
    """Returns a rewrite that reduces what `dims` returns first, if all reductions allow that."""
    made = [tensor.definition for tensor in space.reductions]
    if any(node is None or not space.after.isdisjoint(node.inputs) for node in made):
        return None
    nodes = [node for node in part.nodes if isinstance(node, Reduction)]
    first = [dims(node.tensor_inputs[0], node.reduced_dims) for node in nodes]
    if not all(can_be_cut(part.graph, node, each) for node, each in zip(nodes, first)):
        return None

    def replace(graph: Fusion) -> dict[TensorView, TensorView]:
        steps = (reduced_in_steps(graph, node, each) for node, each in zip(nodes, first))
        return {old: new for made in steps for old, new in made.items()}

    return Rewrite(name, replace, reason)
