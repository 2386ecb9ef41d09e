"""Finds intermediate results that a kernel computes at many places, since it reads them through windows.

    blurred[i] = x[i - 1] + x[i] + x[i + 1],    edges[i] = blurred[i + 1] - blurred[i - 1]

A kernel has no loops over a part of its dimensions, so a read by index is moved up to the loads
(`rewrite.candidate.lift`). What is read at n places is computed n times for each element, and windows of
windows multiply: a window of 5x5 of one of 5x5 has 625 loads. If another kernel stores the intermediate
result, each of its elements is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from fusewright.core.hardware import HardwareInfo
from fusewright.ir import Copy, Node, Pointwise, TensorView
from fusewright.ops.elementwise import CAST
from fusewright.schedulers.cost import copy_seconds, slot_seconds
from fusewright.schedulers.slots import LONG_SLOTS, slots_of
from fusewright.sym import Symbol, evaluate

# The most operations that a kernel may repeat because it computes results at several places, and the most as
# a multiple of its operations. Beyond both, results are stored whatever the sizes: making the kernel would
# take many seconds, and it would spill registers.
#   A window of 3x3 of one of 3x3 repeats about 80 operations, one of 5x5 of one of 5x5 600.
MAX_REPEATED = 192
MAX_REPEATED_SHARE = 3
# The fewest places at which a result is read that is worth a store, and the least ratio of the elements of it
# that a kernel computes to those that it has.
LEAST_REPEATS = 2
# Places at which a result is read from which on the loads of all of them take registers that count.
#   H200, us, with results stored that are read so, and without: products of slopes at nine places 164 and
#   256; an image and its mirror image, two places, 86 and 76.
MANY_PLACES = 4
# The most steps from a result that is read through windows up to the operands that are stored in its place.
MAX_STEPS = 4
# The most alternatives for one kernel, those that save most.
MAX_ALTERNATIVES = 4


@dataclass(frozen=True, slots=True)
class WindowResults:
    """Results of a kernel that another kernel might store.

    Attributes:
        makers: the nodes that compute them.
        readers: the nodes of which none is to be in a kernel with a maker: those that read the results
            through windows, and what is computed between the results and the windows.
    """

    makers: tuple[Node, ...]
    readers: tuple[Node, ...]


def window_results(
    nodes: Sequence[Node],
    outputs: Collection[TensorView],
    sizes: Mapping[Symbol, int],
    hardware: HardwareInfo,
    seconds: float,
    least: float,
) -> list[WindowResults]:
    """The results that a kernel of these nodes could read instead, those that save most first.

    Results of one alternative are read through equally many windows.

    Args:
        nodes: the kernel's nodes, producers first.
        outputs: the tensors that the graph returns.
        sizes: the sizes of the graph. If one that the kernel uses is missing, nothing is returned.
        seconds: how long the kernel takes besides its start, for its arithmetic and what goes with that.
        least: the seconds of arithmetic that an alternative saves at least, besides the time of its traffic.
    """
    if not any(node.traits.indexed for node in nodes):
        return []
    region = _Region(nodes, outputs)
    tensors = {v for node in nodes for v in (*node.tensor_inputs, *node.tensor_outputs)}
    if not all(sizes.keys() >= axis.extent.free_symbols for tensor in tensors for axis in tensor.iterated):
        return []
    points = {tensor: _points(tensor, sizes) for tensor in tensors}
    computed, reads = region.evaluations(points.__getitem__), region.reads()
    total = sum(slots_of(node) * count for node, count in computed.items())
    # Many registers, or loads, make a kernel take longer than its arithmetic at the GPU's nominal speed.
    seconds_a_slot = max(slot_seconds(1, hardware), seconds / max(1, total))

    def gain(slots: int, stored: Sequence[TensorView]) -> float:
        """The seconds of so much arithmetic, less those of a store and a read. These count half where results
        are read at many places: a kernel that loads less for these also has registers for more threads.
        """
        moved = 2 * sum(points[tensor] * tensor.dtype.size for tensor in stored)
        counts = 0.5 if min([reads[tensor] for tensor in stored], default=0) >= MANY_PLACES else 1.0
        return slots * seconds_a_slot - counts * copy_seconds(moved, hardware)

    def gain_alone(node: Node) -> float:
        """What is saved if nothing else needs what the node is computed from."""
        out = node.output
        own = _Region(region.before(node, ()), [out])
        slots = sum(slots_of(above) * count for above, count in own.evaluations(points.__getitem__).items())
        return gain(slots * (computed[node] - points[out]) // max(1, points[out]), [out])

    levels: dict[int, list[TensorView]] = {}
    above: dict[TensorView, int] = {}
    for node in reversed(nodes):
        for out in node.tensor_outputs:
            level = max([above.get(v, 0) for use in out.uses for v in use.tensor_outputs], default=0)
            repeats = min(reads[out], computed[node] / max(1, points[out])) >= LEAST_REPEATS
            if repeats and region.is_read_through_windows(out) and gain_alone(node) > 0:
                levels.setdefault(level, []).insert(0, out)
                level += 1
            above[out] = level
    found: dict[WindowResults, float] = {}
    for read in levels.values():
        for stored in (read, region.narrowest(read, points)):
            after = region.evaluations(points.__getitem__, stored)
            saved = gain(sum(slots_of(node) * (computed[node] - after[node]) for node in nodes), stored)
            if saved > least:
                results = region.results(stored, read)
                found.update(dict.fromkeys([results, *region.with_all_before(results)], saved))
    return sorted(found, key=lambda results: -found[results])[:MAX_ALTERNATIVES]


def far_too_often_repeated(nodes: Sequence[Node], outputs: Collection[TensorView]) -> list[WindowResults]:
    """The results that are stored so that no kernel repeats more operations than MAX_REPEATED and
    MAX_REPEATED_SHARE allow.

    Args:
        nodes: those of a graph, producers first.
        outputs: the tensors that the graph returns.
    """
    whole = _Region(nodes, outputs)
    if whole.repeated() <= MAX_REPEATED:
        return []
    found: list[WindowResults] = []
    stored: set[TensorView] = set()
    for node in nodes:
        is_last = any(
            whole.is_stored(out) or whole.is_read_through_windows(out) for out in node.tensor_outputs
        )
        if not is_last or not _is_elementwise(node):
            continue
        region = _Region(whole.before(node, stored), node.tensor_outputs)
        while region.repeats_far_too_much(stored):
            read = region.last_read(stored)
            if read is None:
                break
            results = whole.results(whole.narrowest([read]), [read])
            stored.add(read)
            stored.update(out for maker in results.makers for out in maker.tensor_outputs)
            found.append(results)
            region = _Region(whole.before(node, stored), node.tensor_outputs)
    return found


class _Region:
    """Nodes of a graph, which might be computed by one kernel.

    Args:
        nodes: producers first.
        outputs: the tensors of the graph that have to be in memory.
    """

    def __init__(self, nodes: Sequence[Node], outputs: Collection[TensorView]) -> None:
        self.nodes = nodes
        self._position = {node: i for i, node in enumerate(nodes)}
        self._inside = self._position.keys()
        self._outputs = frozenset(outputs)
        # Those that follow from a tensor in memory.
        self._loading: set[Node] = set()
        for node in nodes:
            makers = [value.definition for value in node.tensor_inputs]
            if any(maker not in self._inside or maker in self._loading for maker in makers):
                self._loading.add(node)

    def evaluations(
        self, points: Callable[[TensorView], int], stored: Iterable[TensorView] = ()
    ) -> dict[Node, int]:
        """How many elements each node computes, if what is read by index is computed for each of its reads.

        A read of a read is one read: of reads only those count whose results are computed with.
        """
        return self._counts(points, frozenset(stored))[0]

    def repeated(self, stored: Iterable[TensorView] = ()) -> int:
        """How many operations more than the region's a kernel has that computes each read anew."""
        counts, _ = self._counts(lambda tensor: 1, frozenset(stored))
        return sum([count - 1 for node, count in counts.items() if count > 1 and _is_operation(node)])

    def repeats_far_too_much(self, stored: Iterable[TensorView]) -> bool:
        operations = sum(map(_is_operation, self.nodes))
        return self.repeated(stored) > max(MAX_REPEATED, MAX_REPEATED_SHARE * operations)

    def reads(self) -> dict[TensorView, int]:
        """At how many places each tensor is needed for one element of each result."""
        return self._counts(lambda tensor: 1, frozenset())[1]

    def last_read(self, stored: Collection[TensorView]) -> TensorView | None:
        """The result whose repeated computation adds the most nodes, of those that are read through a single
        window; None if none is repeated.
        """
        counts, of_reads = self._counts(lambda tensor: 1, frozenset(stored))
        windows: dict[TensorView, int] = {}  # on the way from a tensor to the results, at most
        most: tuple[int, TensorView] | None = None
        for node in reversed(self.nodes):
            for out in node.tensor_outputs:
                inside = [use for use in out.uses if use in self._inside]
                count = max([windows.get(v, 0) for use in inside for v in use.tensor_outputs], default=0)
                if of_reads.get(out, 0) > 1 and self.is_read_through_windows(out) and out not in stored:
                    count += 1
                    if count == 1:
                        again = _Region(self.before(node, stored), [out])
                        size = len(again.nodes) + again.repeated(stored)
                        most = max(most or (0, out), (size * counts[node], out), key=lambda pair: pair[0])
                windows[out] = count
        return None if most is None else most[1]

    def _counts(
        self, points: Callable[[TensorView], int], stored: frozenset[TensorView]
    ) -> tuple[dict[Node, int], dict[TensorView, int]]:
        """For each node the elements that it computes, and for each tensor those that its readers need."""
        at_own_place: dict[TensorView, int] = {}
        by_index: dict[TensorView, int] = {}
        counts: dict[Node, int] = {}
        needed: dict[TensorView, int] = {}
        for node in reversed(self.nodes):
            count = read = 0
            for out in node.tensor_outputs:
                own = at_own_place.get(out, 0)
                if out in stored:
                    own = needed[out] = points(out)
                else:
                    own = max(own, points(out)) if self.is_stored(out) else own
                    needed[out] = own + by_index.get(out, 0)
                count, read = max(count, needed[out]), max(read, own)
            counts[node] = read if node.traits.indexed else count
            for value in node.tensor_inputs:
                if not _is_elementwise(node):
                    at_own_place[value] = max(at_own_place.get(value, 0), points(value))
                elif node.traits.indexed and value is node.inputs[0]:
                    by_index[value] = by_index.get(value, 0) + count
                else:
                    # What is the same for further dimensions is no matter of windows.
                    share = count * points(value) // max(1, points(value), points(node.output))
                    at_own_place[value] = max(at_own_place.get(value, 0), share)
        return counts, needed

    def is_stored(self, tensor: TensorView) -> bool:
        """Whether the tensor has to be in memory."""
        if isinstance(tensor.definition, Copy) and tensor.definition.segment:
            return True
        return (
            tensor in self._outputs or not tensor.uses or any(use not in self._inside for use in tensor.uses)
        )

    def is_read_through_windows(self, tensor: TensorView) -> bool:
        """Whether the tensor is computed, not from positions alone, and read by index or through a view."""
        maker = tensor.definition
        if maker is None or maker not in self._loading or not maker.traits.pointwise or _is_view(maker):
            return False
        return any(map(_is_view, self._users(tensor)))

    def _users(self, tensor: TensorView) -> list[Node]:
        return [use for use in tensor.uses if use in self._inside]

    def before(self, node: Node, stored: Collection[TensorView]) -> list[Node]:
        """The elementwise nodes that a node depends on, up to results that are stored; and the node."""
        found: set[Node] = set()
        stack = [node]
        while stack:
            above = stack.pop()
            if above not in found and above in self._inside and _is_elementwise(above):
                found.add(above)
                stack += [v.definition for v in above.tensor_inputs if v.definition and v not in stored]
        return sorted(found, key=self._position.__getitem__)

    def narrowest(
        self, read: Sequence[TensorView], points: Mapping[TensorView, int] | None = None
    ) -> list[TensorView]:
        """The results, or what they are computed from by little arithmetic, if that has fewer bytes."""

        def moved(tensors: Iterable[TensorView]) -> int:
            return sum([t.dtype.size * (1 if points is None else points[t]) for t in tensors])

        best = current = list(read)
        for _ in range(MAX_STEPS):
            current = list(dict.fromkeys(v for tensor in current for v in self._computed_from(tensor)))
            best = current if moved(current) < moved(best) else best
        return best

    def _computed_from(self, tensor: TensorView) -> Sequence[TensorView]:
        """What a tensor is computed from by one operation; itself if that takes long or is not computed."""
        node = tensor.definition
        if node is None or not node.traits.pointwise or _is_view(node) or slots_of(node) >= LONG_SLOTS:
            return [tensor]
        made = all(v.definition in self._inside and not _is_view(v.definition) for v in node.tensor_inputs)
        return node.tensor_inputs if made and node.tensor_inputs else [tensor]

    def results(self, stored: Sequence[TensorView], read: Sequence[TensorView]) -> WindowResults:
        """Those that are stored so that the tensors `read`, which follow from them, are read through
        windows.
        """
        between = set(read).difference(stored)
        stack = list(between)
        while stack:
            tensor = stack.pop()
            for value in tensor.definition.tensor_inputs if tensor.definition is not None else ():
                if value not in stored and value not in between:
                    between.add(value)
                    stack.append(value)
        readers = {tensor.definition for tensor in between}
        readers.update(use for tensor in stored for use in self._users(tensor) if _is_view(use))
        makers = {tensor.definition for tensor in stored}
        return WindowResults(
            tuple([node for node in self.nodes if node in makers]),
            tuple([node for node in self.nodes if node in readers and node not in makers]),
        )

    def with_all_before(self, results: WindowResults) -> list[WindowResults]:
        """The same with everything on one side or the other, if the readers need more of what is computed
        before: other kernels then store that, too. Cheap work on tensors in memory is on neither side.
        """
        after = set(results.readers)
        costly: set[Node] = set()
        for node in self.nodes:
            operands = {value.definition for value in node.tensor_inputs}
            if not after.isdisjoint(operands):
                after.add(node)
            elif node in self._loading:
                is_long = node.traits.indexed or slots_of(node) >= LONG_SLOTS
                if is_long or not _is_elementwise(node) or not costly.isdisjoint(operands):
                    costly.add(node)
        needed = {value.definition for node in after for value in node.tensor_inputs}
        if needed.isdisjoint(costly.difference(results.makers)):
            return []
        before = costly.union(results.makers) - after
        makers = tuple([node for node in self.nodes if node in before])
        return [WindowResults(makers, tuple([node for node in self.nodes if node in after]))]


def _is_operation(node: Node) -> bool:
    return isinstance(node, Pointwise) and node.op is not CAST


def _is_view(node: Node) -> bool:
    return node.traits.view or node.traits.indexed


def _is_elementwise(node: Node) -> bool:
    return node.traits.pointwise or node.traits.indexed


def _points(tensor: TensorView, sizes: Mapping[Symbol, int]) -> int:
    return prod(evaluate(axis.extent, sizes) for axis in tensor.iterated if not axis.is_broadcast)
