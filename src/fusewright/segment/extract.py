"""The small fusion of a group of nodes: a copy whose border values are inputs and outputs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fusewright.core.enums import MemoryType
from fusewright.core.tracing import SILENT, Tracer
from fusewright.ir import Copy, Fusion, Node, Scalar, TensorView, Update, Val
from fusewright.ir.axis import IterDomain
from fusewright.ir.canonical import Describer, Description, canonical_sizes
from fusewright.ir.copies import copy_value
from fusewright.rewrite import canonicalize, reshape_border
from fusewright.segment.canonical import CanonicalSegment, Extraction, canonical_segment


class Extractor:
    """Extracts groups of one fusion, and caches the data that every extraction needs."""

    def __init__(self, whole: Fusion, tracer: Tracer = SILENT) -> None:
        self.whole = whole
        self._tracer = tracer
        self._describer = Describer(whole.inputs)
        self._inputs = frozenset(whole.inputs)
        self._alive = frozenset(whole.ordered_nodes())
        self._readers: dict[TensorView, Sequence[Node]] = {}
        self._outputs: dict[TensorView, TensorView | None] = {}
        for output in whole.outputs:
            self._outputs[output.tensor] = output.alias or self._outputs.get(output.tensor)
            node = output.tensor.definition
            if isinstance(node, Update) and node.base is not None:  # its base is written to the same memory
                self._outputs[node.base] = self._outputs[output.tensor]

    def inputs_of(self, nodes: Sequence[Node]) -> tuple[Val, ...]:
        """The values that the group reads from outside, in order of first use.

        Constants and sizes of tensors are no inputs: the kernel has them anyway.
        """
        made = {out for node in nodes for out in node.outputs}
        read = dict.fromkeys([v for node in _in_kernel(nodes) for v in node.inputs if v not in made])
        return tuple([v for v in read if not self._is_known(v)])

    def _is_known(self, value: Val) -> bool:
        """Whether the kernel has the value without an input: a constant, or the size of a tensor."""
        if not isinstance(value, Scalar) or value.is_constant:
            return isinstance(value, Scalar)
        return value.extent is not None and value.definition is None and value not in self._inputs

    def outputs_of(
        self, nodes: Sequence[Node], read_elsewhere: Collection[TensorView] | None = None
    ) -> tuple[TensorView, ...]:
        """The outputs of the group: outputs of the fusion, and tensors that other groups read.

        Args:
            read_elsewhere: the tensors that other groups read; by default those with readers outside the
            group.
        """
        made = [value for node in nodes for value in node.outputs if isinstance(value, TensorView)]
        if read_elsewhere is not None:
            return tuple([t for t in made if t in self._outputs or t in read_elsewhere])
        group = set(nodes)
        return tuple([t for t in made if t in self._outputs or not group.issuperset(self._users(t))])

    def _users(self, tensor: TensorView) -> Sequence[Node]:
        """The nodes that read a tensor and that outputs of the fusion depend on."""
        users = self._readers.get(tensor)
        if users is None:
            users = self._readers[tensor] = [user for user in tensor.uses if user in self._alive]
        return users

    def extract(
        self, nodes: Sequence[Node], read_elsewhere: Collection[TensorView] | None = None
    ) -> Extraction:
        """The segment of `nodes` (producers first).

        Equal groups of any fusions share their canonical segment. A tensor from outside has the layout that
        its producer states (`allocation` and `contiguity`), without the reduced axes. A `Copy(segment=True)`
        becomes a plain copy. The fusion is rewritten to the form that schedulers expect (`canonicalize`),
        with the dimensions that suit its kernel (`reshape_border`). An update of a tensor that others write
        becomes an update of memory that already holds it.
        """
        outputs = self.outputs_of(nodes, read_elsewhere)
        found = self._describer.describe(
            _in_kernel(nodes), self.inputs_of(nodes), [(t, self._outputs.get(t)) for t in outputs]
        )

        def make() -> CanonicalSegment:
            return self._made(nodes, outputs, found)

        # To dump the rewrites the segment has to be made again, even if the process has it.
        segment = make() if self._tracer.wants("rewrite") else canonical_segment(found.text, make)
        return Extraction(segment, found.values, found.sizes, outputs)

    def _made(
        self, nodes: Sequence[Node], outputs: Sequence[TensorView], found: Description
    ) -> CanonicalSegment:
        values: dict[Val, Val] = {}
        axes: dict[IterDomain, IterDomain] = {}
        new = Fusion()
        inputs = self.inputs_of(nodes)
        for value in inputs:
            values[value] = self._border_input(value, axes)
        for node in _in_kernel(nodes):
            for value in (*node.inputs, *node.outputs):
                if value not in values:
                    values[value] = copy_value(value, axes)
            for value in node.outputs:
                own = values[value]
                if isinstance(own, TensorView):
                    own.memory = MemoryType.local  # add_output makes the outputs of this group global again
            twin = node.copy(values)
            if isinstance(twin, Copy):
                twin.segment = False
            new.add_node(twin)
        for value in inputs:
            new.add_input(values[value])
        for tensor in outputs:
            alias = self._outputs.get(tensor)
            own = values[tensor]
            assert isinstance(own, TensorView)
            new.add_output(own, values.get(alias) if alias is not None else None)  # type: ignore[arg-type]
        new.scalar_of = {
            s: values[v]  # type: ignore[misc]
            for s, v in self.whole.scalar_of.items()
            if v in values and s in found.sizes
        }
        sizes = canonical_sizes(found.sizes)
        new.renumber(sizes)
        of_axes = {symbol for axis in new.axes() for symbol in axis.extent.free_symbols}
        assert of_axes <= set(sizes.values()), "the text names all sizes, or two would have one name"
        if found.computes:
            new.name_computed_sizes()
        canonicalize(new, self._tracer)
        reshaped = reshape_border(new, self._tracer)
        new.freeze()
        return CanonicalSegment(
            found.text, new, tuple([values[v] for v in found.values]), tuple(sizes.values()), reshaped
        )

    def _border_input(self, value: Val, axes: dict[IterDomain, IterDomain]) -> Val:
        if isinstance(value, Scalar) or value in self._inputs:
            return copy_value(value, axes)
        own = {axis: IterDomain(axis.number, axis.extent, axis.kind, axis.expanded) for axis in value.shape}
        return TensorView(
            value.number,
            value.dtype,
            list(own.values()),
            memory=MemoryType.global_,
            allocation=[own[axis] for axis in value.allocation if axis in own],
            contiguity=value.contiguity,
        )


def _in_kernel(nodes: Sequence[Node]) -> list[Node]:
    """The nodes, but updates whose base another kernel writes have no base."""
    made = {out for node in nodes for out in node.outputs}
    return [n.without_base() if isinstance(n, Update) and n.base not in made else n for n in nodes]


def extract(whole: Fusion, nodes: Sequence[Node]) -> Extraction:
    """See `Extractor.extract`."""
    return Extractor(whole).extract(nodes)
