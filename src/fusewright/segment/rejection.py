"""Finds exclusions that avoid a segment for which no kernel can be made, although its scheduler accepted it.

Either its planner rejects the sizes of a call, or its proposal failed. Each result excludes nodes, or pairs
of nodes, that were not excluded before. So repeated partitioning terminates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from math import prod

from fusewright.core.errors import NoSchedulerError
from fusewright.ir import Node, TensorView
from fusewright.schedulers.base import type_name
from fusewright.segment.draft import Draft
from fusewright.segment.exclusions import Exclusions
from fusewright.segment.partition import merged_groups
from fusewright.segment.segmented import Segment
from fusewright.sym import Symbol, evaluate

# The number of cuts of a group, the cheapest first, whose parts schedulers and planners are asked about.
CUTS_TRIED = 6
# The most cuts in one partition. The whole graph is partitioned again after each cut, so after this many a
# rejected group is split into single nodes.
MAX_CUTS = 32


def without_fault(draft: Draft, segment: Segment, excluded: Exclusions) -> Exclusions | None:
    """Extends the exclusions so that a segment that failed is not made again.

    The scheduler is excluded from all its nodes, or from any two of them together if no other scheduler
    accepts the nodes. No smaller part is tried, since only compilation shows a failure. If the segment has
    nodes that a rewrite made, rewrites are excluded instead.

    Returns:
        None if there is no partition with the further exclusions.
    """
    if any(node not in draft.position for node in segment.nodes):
        return excluded.without_redefinition()
    return _first_partitioned(draft, [_without_nodes(segment, excluded), *_taken_apart(segment, excluded)])


def without_rejected(
    draft: Draft,
    segment: Segment,
    excluded: Exclusions,
    sizes: Mapping[Symbol, int],
    is_accepted: Callable[[Sequence[Node]], bool],
) -> Exclusions | None:
    """Extends the exclusions so that a segment that its planner rejects is not made again.

    The scheduler is excluded from all nodes of the segment. If no other scheduler accepts these, the segment
    is cut in two, and the scheduler is excluded from nodes of both parts together.

    Args:
        sizes: the values of the size symbols of the segment's fusion.
        is_accepted: whether some scheduler and its planner accept nodes as one kernel.

    Returns:
        None if there is no partition with the further exclusions.
    """
    name = type_name(segment.scheduler.type)
    options = [_without_nodes(segment, excluded)]
    if sum(len(parts) == 2 for _, parts in excluded.apart) < MAX_CUTS:
        cuts = list(islice(_cuts(segment, sizes), CUTS_TRIED))
        # Cuts whose parts are both accepted come first. The sort is stable, so the others keep their order.
        cuts.sort(key=lambda parts: not all(map(is_accepted, parts)))
        options += [excluded.without_merges(name, *parts) for parts in cuts]
    return _first_partitioned(draft, [*options, *_taken_apart(segment, excluded)])


def _without_nodes(segment: Segment, excluded: Exclusions) -> Exclusions:
    return excluded.without_nodes(type_name(segment.scheduler.type), segment.nodes)


def _taken_apart(segment: Segment, excluded: Exclusions) -> list[Exclusions]:
    if len(segment.nodes) < 2:
        return []
    return [excluded.without_merges(type_name(segment.scheduler.type), *[[node] for node in segment.nodes])]


def _first_partitioned(draft: Draft, options: Sequence[Exclusions]) -> Exclusions | None:
    """The first of the exclusions with which the whole graph has a partition."""
    for option in options:
        try:
            draft.segments(merged_groups(draft, draft.nodes, option), option)
        except NoSchedulerError:
            continue
        return option
    return None


def _cuts(segment: Segment, sizes: Mapping[Symbol, int]) -> list[tuple[Sequence[Node], Sequence[Node]]]:
    """All ways to cut the segment's nodes, producers first, in two parts.

    They are sorted by the bytes that the two parts move in addition, then by how even the cut is.
    """
    nodes = segment.nodes
    known = {theirs: sizes[own] for own, theirs in segment.sizes if own in sizes}

    def cost(parts: tuple[Sequence[Node], Sequence[Node]]) -> tuple[int, int]:
        first, second = parts
        made = {out for node in first for out in node.outputs}
        shared = {*made, *(value for node in first for value in node.inputs)}
        read = {v for node in second for v in node.tensor_inputs if v in shared}
        # A tensor that crosses the cut is written and read; a tensor that both parts read is read once more.
        return sum(_bytes(v, known) * (1 + (v in made)) for v in read), abs(len(first) - len(second))

    return sorted([(nodes[:i], nodes[i:]) for i in range(1, len(nodes))], key=cost)


def _bytes(tensor: TensorView, sizes: Mapping[Symbol, int]) -> int:
    return tensor.dtype.size * prod([evaluate(extent, sizes) for extent in tensor.extents])
