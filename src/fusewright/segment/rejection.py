"""The exclusions after a group that a scheduler accepted turns out not to be a kernel.

Its planner rejects the sizes of a call, or its proposal proves wrong. Each answer excludes nodes, or pairs of
nodes, that no earlier answer excluded. So repeated partitioning terminates.
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

# Cuts of a group of which both parts are shown to schedulers and planners.
CUTS_TRIED = 6
# Cuts for one partition at most: then a rejected group is taken apart into its nodes, since a partition of
# the whole graph follows each cut.
MAX_CUTS = 32


def without_fault(draft: Draft, segment: Segment, excluded: Exclusions) -> Exclusions | None:
    """The exclusions after which a segment that failed is not made again; None if there is no partition then.

    Its scheduler is not asked about any of its nodes. If no other scheduler accepts these, it is not asked
    about any two of them, since only compilation shows failures. Nodes that a rewrite made are gone with the
    rewrite.
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
    """The exclusions after which a segment that its planner rejects is not made again; None if there is no
    partition then.

    Its scheduler is not asked about any of its nodes. If no other scheduler accepts these, the segment is cut
    in two, and the scheduler is not asked about nodes of both parts together.

    Args:
        sizes: of the segment's fusion.
        is_accepted: whether some scheduler and its planner accept nodes as one kernel.
    """
    name = type_name(segment.scheduler.type)
    options = [_without_nodes(segment, excluded)]
    if sum(len(parts) == 2 for _, parts in excluded.apart) < MAX_CUTS:
        cuts = list(islice(_cuts(segment, sizes), CUTS_TRIED))
        # Those of which both parts are kernels come first; sorting keeps the order of the others.
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
    """The first with which there is a partition of the whole."""
    for option in options:
        try:
            draft.segments(merged_groups(draft, draft.nodes, option), option)
        except NoSchedulerError:
            continue
        return option
    return None


def _cuts(segment: Segment, sizes: Mapping[Symbol, int]) -> list[tuple[Sequence[Node], Sequence[Node]]]:
    """The segment's nodes in two parts, of which the first reads nothing of the second: those first that move
    the fewest bytes more than the whole, of equal ones the most even.
    """
    nodes = segment.nodes
    known = {theirs: sizes[own] for own, theirs in segment.sizes if own in sizes}

    def cost(parts: tuple[Sequence[Node], Sequence[Node]]) -> tuple[int, int]:
        first, second = parts
        made = {out for node in first for out in node.outputs}
        shared = {*made, *(value for node in first for value in node.inputs)}
        read = {v for node in second for v in node.tensor_inputs if v in shared}
        # What crosses is written and read; what both read is read once more.
        return sum(_bytes(v, known) * (1 + (v in made)) for v in read), abs(len(first) - len(second))

    return sorted([(nodes[:i], nodes[i:]) for i in range(1, len(nodes))], key=cost)


def _bytes(tensor: TensorView, sizes: Mapping[Symbol, int]) -> int:
    return tensor.dtype.size * prod([evaluate(extent, sizes) for extent in tensor.extents])
