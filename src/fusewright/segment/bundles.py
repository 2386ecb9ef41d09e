"""Bundles: small independent segments that share one launch.

A kernel costs some microseconds besides the time for its bytes, and an optimizer step over a model has
hundreds of kernels that take no longer than that. Segments with no path between them may share a launch
(`kernel.combine`). They do if that saves a large part of their time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from fusewright.ir import Fusion, TensorView
from fusewright.schedulers.base import Cost, launches_apart
from fusewright.schedulers.cost import KERNEL_SECONDS
from fusewright.segment.segmented import Segment

# A segment shares a launch only if the launch takes at least this share of the segment's time. A smaller gain
# is within the noise of measurements, and the combined kernel has the registers and shared memory of its
# largest part.
LEAST_SHARE = 0.02
# The most segments of one launch. More would save less than 1% of their launches, but the compile time per
# segment grows: NVRTC takes 0.4 s for 48 equal segments of eleven parameters, 0.8 s for 144 and 2.9 s for
# 360.
MAX_PARTS = 192


def launches(
    fusion: Fusion, segments: Sequence[Segment], costs: Sequence[Cost]
) -> tuple[tuple[int, ...], ...]:
    """The positions of the segments that are launched together, in launch order.

    A segment joins the first launch that comes after all its producers. If this gives fewer launches, it
    joins instead the last launch that comes before all its consumers. A segment that changes a tensor in
    memory, and one that makes that tensor, are launched by themselves. Those of a scheduler that
    `launches_apart` share launches with each other alone.
    """
    before = _predecessors(fusion, segments)
    small = [LEAST_SHARE * cost.seconds <= KERNEL_SECONDS for cost in costs]
    changed = {base for segment in segments for base in _updated(segment)}
    for i, segment in enumerate(segments):
        if segment.evaluated is not None or _updated(segment) or not changed.isdisjoint(segment.outputs):
            small[i] = False
    apart = [launches_apart(segment.scheduler) for segment in segments]
    early = _joined(range(len(segments)), before, small, apart)
    after: list[set[int]] = [set() for _ in segments]
    for i, earlier in enumerate(before):
        for j in earlier:
            after[j].add(i)
    late = _joined(range(len(segments) - 1, -1, -1), after, small, apart)
    late.reverse()
    chosen = early if len(early) <= len(late) else late
    return tuple([tuple(sorted(members)) for members in chosen])


def _joined(
    order: Sequence[int], needed: Sequence[set[int]], small: Sequence[bool], apart: Sequence[bool]
) -> list[list[int]]:
    """The launches if each segment, in this order, joins the first one after the launches that it needs.

    Args:
        order: the segments.
        needed: for each segment the segments whose launches come before.
        small: whether each segment may share a launch.
        apart: whether it shares one with such segments alone.
    """
    found: list[list[int]] = []
    place: dict[int, int] = {}
    open_places: tuple[list[int], list[int]] = [], []
    for i in order:
        latest = max((place[j] for j in needed[i]), default=-1)
        own = open_places[apart[i]]
        at = bisect_right(own, latest) if small[i] else len(own)
        if at < len(own):
            place[i] = own[at]
            found[place[i]].append(i)
            if len(found[place[i]]) == MAX_PARTS:
                del own[at]
            continue
        place[i] = len(found)
        found.append([i])
        if small[i]:
            own.append(place[i])
    return found


def _predecessors(fusion: Fusion, segments: Sequence[Segment]) -> list[set[int]]:
    """For each segment the segments that have to be launched before it.

    They make tensors that it reads or updates. If an output is written into an input, the segment that makes
    the output and the segments that read the input keep their order, since they use the same memory.
    """
    owner: dict[TensorView, int] = {}
    readers: dict[TensorView, list[int]] = {}
    for i, segment in enumerate(segments):
        owner.update(dict.fromkeys(segment.outputs, i))
        for value in segment.inputs:
            if isinstance(value, TensorView):
                readers.setdefault(value, []).append(i)
    found = [
        {owner[v] for v in (*segment.inputs, *_updated(segment)) if v in owner} - {i}
        for i, segment in enumerate(segments)
    ]
    for writer, home in _writers(fusion, owner):
        for reader in readers.get(home, ()):
            if reader != writer:
                found[max(reader, writer)].add(min(reader, writer))
    return found


def _updated(segment: Segment) -> list[TensorView]:
    """The tensors that a segment changes in memory. Those that it stores pieces of are none."""
    made = [(out.definition, base) for out, base in segment.bases.items()]
    return [base for node, base in made if node is not None and node.traits.updates]


def _writers(fusion: Fusion, owner: Mapping[TensorView, int]) -> list[tuple[int, TensorView]]:
    """Pairs (segment, input): the segment makes an output that is written into the input."""
    aliased = [(output.tensor, output.alias) for output in fusion.outputs if output.alias is not None]
    return [(owner[tensor], home) for tensor, home in aliased if tensor in owner]
