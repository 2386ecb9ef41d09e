"""Common subexpression elimination.

Two nodes are equal if they perform the same operation on the same operands. Operands of a commutative
operation may be swapped. A random draw equals only itself, and a kernel boundary that the user states stays.
If two outputs of the definition are equal, one becomes a copy of the other.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Copy, LibraryCall, Node, Pointwise, RandomState
from fusewright.ir.value import Scalar, TensorView, Val
from fusewright.rewrite.replacement import drop_reduced_axes, is_in_memory_of_its_own, read_instead

_SLOTS: dict[type[Node], tuple[str, ...]] = {}


def merge_equal_nodes(fusion: Fusion) -> Fusion:
    """Merges equal nodes; returns `fusion`."""
    _Merger(fusion).run()
    return fusion


class _Merger:
    """The nodes seen so far, by their kind and operands.

    Attributes:
        same: maps a scalar to the first one that has its value.
        written: outputs that are written into inputs.
    """

    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        self.outputs = set(fusion.output_tensors())
        self.written = {output.tensor for output in fusion.outputs if output.alias is not None}
        self.same: dict[Val, Val] = {}
        self._seen: dict[Hashable, list[Node]] = {}
        self._scalars: dict[Hashable, Scalar] = {}

    def run(self) -> None:
        for node in self.fusion.ordered_nodes():
            if isinstance(node, RandomState) or (isinstance(node, LibraryCall) and node.op.draws):
                continue
            operands = [self._number(value) for value in node.inputs]
            if isinstance(node, Pointwise) and node.op.commutes:
                operands.sort()
            alike = self._seen.setdefault((type(node), *operands), [])
            first = self._equal(node, alike) if alike else None
            if first is None:
                alike.append(node)
            elif node.is_scalar:
                self.same.update(zip(node.outputs, first.outputs))
            elif self.outputs.isdisjoint(node.outputs):
                self._merge(node, first)
            elif self.outputs.isdisjoint(first.outputs):
                self._merge(first, node)
                alike[alike.index(first)] = node
            elif len(node.outputs) == 1 and not isinstance(node, Copy):
                self.fusion.remove_node(node)
                drop_reduced_axes(node.output)
                self.fusion.add_node(Copy(first.output, node.output))

    def _merge(self, node: Node, kept: Node) -> None:
        for old, new in zip(node.outputs, kept.outputs):
            assert isinstance(old, TensorView) and isinstance(new, TensorView)
            if not read_instead(self.fusion, old, new):
                return
        self.fusion.remove_node(node)

    def _equal(self, node: Node, alike: list[Node]) -> Node | None:
        """One of the nodes with the same operands that is equal, or None."""
        for out in node.tensor_outputs:
            is_separate = is_in_memory_of_its_own(out, ()) and not _is_ordered_copy(node)
            if out in self.written or is_separate:
                return None
        key = _key(node)
        return next((known for known in alike if self._may_stand(known) and _key(known) == key), None)

    def _may_stand(self, node: Node) -> bool:
        """Whether a node is still in the graph and its results are not updated in memory."""
        uses = (use for out in node.tensor_outputs for use in out.uses)
        return node in self.fusion.nodes and not any(use.traits.updates for use in uses)

    def _number(self, value: Val) -> int:
        """A number that is the same for equal values."""
        if isinstance(value, Scalar) and value.definition is None and not self.fusion.is_input(value):
            key = value.dtype, type(value.value), repr(value.value), value.extent
            return id(self._scalars.setdefault(key, value))
        return id(self.same.get(value, value))


def _key(node: Node) -> Hashable:
    """The properties of a node except its operands."""
    return _parameters(node), tuple([_form(out) for out in node.outputs])


def _is_ordered_copy(node: Node) -> bool:
    return isinstance(node, Copy) and node.ordered and not node.segment


def _form(value: Val) -> Hashable:
    """The type, the dimensions and the memory layout of a result."""
    if isinstance(value, Scalar):
        return value.dtype
    order: tuple[int, ...] = ()
    if value.allocation != value.logical:
        place = {axis: i for i, axis in enumerate(value.shape)}
        found = [place[axis] for axis in value.allocation if axis in place]
        order = () if found == list(range(len(place))) else tuple(found)
    axes = [(axis.extent, axis.kind, axis.expanded) for axis in value.logical]
    return value.dtype, tuple(axes), order, value.contiguity


def _parameters(node: Node) -> Hashable:
    slots = _SLOTS.get(type(node))
    if slots is None:
        found = [slot for cls in type(node).__mro__ for slot in getattr(cls, "__slots__", ())]
        slots = _SLOTS[type(node)] = tuple(slot for slot in found if slot not in ("inputs", "outputs"))
    return tuple([_hashable(getattr(node, slot)) for slot in slots])


def _hashable(value: object) -> Hashable:
    """A parameter as a hashable value. True, 1 and 1.0 are different."""
    if isinstance(value, Mapping):
        return tuple([(key, _hashable(entry)) for key, entry in value.items()])
    if isinstance(value, (list, tuple)):
        return type(value).__name__, tuple([_hashable(entry) for entry in value])
    return type(value), repr(value) if isinstance(value, (bool, int, float, complex)) else value
