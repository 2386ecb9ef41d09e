"""The changes of a partition that are worth a trial, those of the slowest kernels first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fusewright.ir import Copy, Node, TensorView
from fusewright.schedulers.base import Cost, Rewrite, naming, type_name, wrong_answer
from fusewright.schedulers.cost import KERNEL_SECONDS, copy_seconds, slot_seconds
from fusewright.segment.draft import Draft
from fusewright.segment.gather_order import in_order_of_gathers
from fusewright.segment.input_order import (
    Orders,
    hands_on_wider,
    has_several_orders,
    in_order,
    orders_beside,
    out_of_order,
    read_by,
    results_out_of_order,
)
from fusewright.segment.joined_pieces import stored_in_pieces
from fusewright.segment.order import across_memory
from fusewright.segment.repeated_work import RepeatedWork, repeated_work
from fusewright.segment.segmented import Segment
from fusewright.segment.state import LEAST_GAIN_OF_MORE_KERNELS, Call, Idea, State, may_be_split
from fusewright.segment.window_results import WindowResults, window_results
from fusewright.sym import Symbol

# Orders of other tensors in which inputs are tried at once, beside that of dimensions: of the slowest
# kernels, those that change the fewest inputs.
MAX_ORDERS = 4


@dataclass(frozen=True)
class _Way:
    """Orders of dimensions in which copies of inputs are to lie, those of `of`.

    Attributes:
        results: the results that are computed in the order of their dimensions, and then copied.
    """

    of: str
    orders: Orders
    results: tuple[TensorView, ...] = ()

    @property
    def key(self) -> str:
        """What tells it from others; empty if it changes nothing."""
        inputs = [f"{base.name}{order}" for base, order in self.orders.items()]
        return " ".join([*inputs, *(result.name for result in self.results)])

    def concerns(self, nodes: Sequence[Node]) -> bool:
        """Whether nodes read one of the inputs or compute one of the results."""
        made = {result.definition for result in self.results}
        return not read_by(nodes).isdisjoint(self.orders) or not made.isdisjoint(nodes)


class Ideas:
    """Proposes changes for one call, each of them once."""

    def __init__(self, draft: Draft, call: Call) -> None:
        self._draft = draft
        self._call = call
        self._tried: set[tuple[str, tuple[Node, ...]]] = set()

    def of(self, state: State) -> Iterator[Idea]:
        """The changes that have not been tried, those of the slowest kernels first: they can save most."""
        equal: dict[tuple[str, str], list[tuple[Segment, Cost]]] = {}
        for segment, cost in zip(state.segments, state.costs):
            equal.setdefault((type_name(segment.scheduler.type), segment.text), []).append((segment, cost))
        for known in sorted(equal.values(), key=lambda known: -known[0][1].seconds):
            may_rewrite = state.excluded.redefinition
            segments = self.untried("redefinition", [segment for segment, _ in known if may_rewrite])
            rewrites = [rewrite for segment in segments if (rewrite := self._rewrite(segment)) is not None]
            if len(rewrites) == len(segments) > 0:
                yield _rewritten(segments, rewrites)
            slow = [segment for segment, cost in known if may_be_split(cost)]
            segments = self.untried("gathers", slow if may_rewrite else [])
            rewrites = [r for each in segments if (r := in_order_of_gathers(each.nodes)) is not None]
            if len(rewrites) == len(segments) > 0:
                yield _rewritten(segments, rewrites, alone=True)
            for i in self._repeated(*known[0]):
                segments = self.untried(f"once {i}", [segment for segment, _ in known])
                if segments:
                    yield Idea(segments, f" reading its repeated part {i}", once=i)
            segments = self.untried("windows", [segment for segment, _ in known])
            stores = self._stores({segment: cost for segment, cost in known if segment in segments})
            if stores:
                yield replace(stores[0], others=tuple(stores[1:]))
            segments = self.untried("pieces", [segment for segment, _ in known if may_rewrite])
            rewrites = [r for each in segments if (r := self._in_pieces(each)) is not None]
            if len(rewrites) == len(segments) > 0:
                yield _rewritten(segments, rewrites)
            slow = [segment for segment in slow if len(segment.nodes) > 1]
            # In the memory order of a reduction, or of another, such a part stores one element per sector.
            for i in range(len(across_memory(slow[0].nodes)) if slow else 0):
                segments = self.untried(f"across {i}", slow)
                if segments:
                    yield Idea(segments, f" without its part {i} across memory", across=i)
            segments = self.untried("split", slow)
            if segments:
                yield without_scheduler(segments)
        if state.excluded.redefinition:
            yield from self._inputs_in_order(state)

    def _inputs_in_order(self, state: State) -> Iterator[Idea]:
        """Copies of inputs in another memory order than others, for all kernels that read these: in the order
        of their dimensions, or in that of another tensor that a kernel computes or reads. With the first,
        results may be computed in that order, too, and then be copied into their own.

        Tried where a kernel is slow, reads several orders (no kernel holds rows of several orders, so these
        are reduced by several kernels), or hands on more bytes than such copies have.
        """
        found: list[Idea] = []
        slow = [
            (cost.seconds, each)
            for each, cost in zip(state.segments, state.costs)
            if may_be_split(cost) or has_several_orders(each.nodes) or hands_on_wider(each.nodes)
        ]
        if not slow:
            return
        every = [node for each in state.segments for node in each.nodes]
        outputs = set(self._draft.graph.output_tensors())
        own = {output.tensor for output in self._draft.graph.outputs if output.alias is None}
        of_dimensions = {base: list(range(base.ndim)) for base in out_of_order(every)}
        results = results_out_of_order([node for _, each in slow for node in each.nodes], own)
        ways = [_Way("dimensions", of_dimensions)]
        for _, segment in sorted(slow, key=lambda pair: -pair[0]):
            if len(ways) > MAX_ORDERS:
                break
            known = [way.orders for way in ways]
            beside = orders_beside(segment.nodes, outputs)
            ways += [_Way(of, orders) for of, orders in beside if orders not in known]
        ways = ways[: 1 + MAX_ORDERS]
        if results:
            ways.append(_Way("dimensions", of_dimensions, tuple(results)))
        for way in ways:
            concerned = tuple([each for each in state.segments if way.concerns(each.nodes)])
            nodes = tuple(dict.fromkeys(node for segment in concerned for node in segment.nodes))
            is_known = (way.key, nodes) in self._tried
            if way.key and not is_known and not all(isinstance(node, Copy) for node in nodes):
                self._tried.add((way.key, nodes))
                rewrites = [in_order(way.orders, way.of, way.results)]
                found.append(replace(_rewritten(concerned, rewrites), together=True))
        if found:
            yield replace(found[0], others=tuple(found[1:]))

    def _repeated(self, segment: Segment, cost: Cost) -> list[int]:
        """The parts of a segment whose repetition takes so long that a separate kernel might pay."""
        hardware, least = self._call.hardware, LEAST_GAIN_OF_MORE_KERNELS * cost.seconds
        if cost.seconds - KERNEL_SECONDS - copy_seconds(cost.bytes, hardware) <= least:
            return []
        parts = self.repeated_work(segment)
        return [i for i, part in enumerate(parts) if slot_seconds(part.slots, hardware) > least]

    def repeated_work(self, segment: Segment) -> list[RepeatedWork]:
        """The parts of a segment that its kernel computes several times, at the sizes of the call."""
        return repeated_work(segment.nodes, self._sizes(segment))

    def _stores(self, costs: Mapping[Segment, Cost]) -> list[Idea]:
        """The ways to store results that the segments' kernels compute at several places: of each segment, at
        its own sizes, that which saves most first.
        """
        found = {segment: self._window_results(segment, cost) for segment, cost in costs.items()}
        ideas = []
        for i in range(max(map(len, found.values()), default=0)):
            segments = tuple([segment for segment, results in found.items() if i < len(results)])
            stored = tuple([found[segment][i] for segment in segments])
            ideas.append(Idea(segments, f" reading its results {i} through windows", stored=stored))
        return ideas

    def _window_results(self, segment: Segment, cost: Cost) -> list[WindowResults]:
        """The results that a segment's kernel computes at several places, so that another might store them.

        Nothing where the kernel takes about as long as its traffic.
        """
        hardware, least = self._call.hardware, LEAST_GAIN_OF_MORE_KERNELS * cost.seconds
        seconds = cost.seconds - KERNEL_SECONDS
        if seconds - copy_seconds(cost.bytes, hardware) <= least:
            return []
        outputs, sizes = self._draft.graph.output_tensors(), self._sizes(segment)
        return window_results(segment.nodes, outputs, sizes, hardware, seconds, least)

    def _sizes(self, segment: Segment) -> dict[Symbol, int]:
        """The sizes of the graph that a segment uses, at the call."""
        own = self._call.facts(segment).sizes
        return {theirs: own[ours] for ours, theirs in segment.sizes if ours in own}

    def _in_pieces(self, segment: Segment) -> Rewrite | None:
        """What stores the pieces of a segment's joins by themselves.

        Outputs that are written into inputs stay as they are: kernels that read these come first.
        """
        aliased = {output.tensor for output in self._draft.graph.outputs if output.alias is not None}
        made = [out for node in segment.nodes for out in node.tensor_outputs if out not in aliased]
        stored = [out for out, name in zip(made, self._draft.named(made)) if name in segment.outputs]
        return stored_in_pieces(segment.nodes, stored)

    def untried(self, kind: str, segments: Sequence[Segment]) -> tuple[Segment, ...]:
        """The segments for which no change of this kind was proposed yet; from now on one was."""
        new = tuple(segment for segment in segments if (kind, segment.nodes) not in self._tried)
        self._tried.update((kind, segment.nodes) for segment in new)
        return new

    def _rewrite(self, segment: Segment) -> Rewrite | None:
        propose = getattr(segment.scheduler, "propose_redefinition", None)
        if propose is None:
            return None
        with naming(segment.scheduler, "propose_redefinition"):
            rewrite = propose(segment, self._call.facts(segment), self._call.hardware)
        if not isinstance(rewrite, (Rewrite, type(None))):
            raise wrong_answer(segment.scheduler, "propose_redefinition", "Rewrite or None", rewrite)
        if rewrite is None or any(rewrite.name in self._draft.made_by.get(n, ()) for n in segment.nodes):
            return None
        return rewrite


def _rewritten(segments: tuple[Segment, ...], rewrites: Sequence[Rewrite], alone: bool = False) -> Idea:
    change = f": {rewrites[0].name}, as {rewrites[0].reason}"
    return Idea(segments, change, tuple(rewrites), alone=alone)


def without_scheduler(segments: tuple[Segment, ...]) -> Idea:
    """The idea that other schedulers take these segments, or parts of them."""
    return Idea(segments, f" without {type_name(segments[0].scheduler.type)}")
