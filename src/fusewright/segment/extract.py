"""The small fusion of a group of nodes: a copy whose border values are inputs and outputs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fusewright.core.enums import MemoryType
from fusewright.core.tracing import SILENT, Tracer
from fusewright.ir import Copy, Fusion, Node, Scalar, TensorView, Update, Val
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import copy_value
from fusewright.rewrite import canonicalize

#: The fusion of a group, and the map from the whole fusion's values to its own.
Extraction = tuple[Fusion, dict[Val, Val]]


class Extractor:
    """Extracts groups of one fusion; holds what every extraction looks up."""

    def __init__(self, whole: Fusion, tracer: Tracer = SILENT) -> None:
        self.whole = whole
        self._tracer = tracer
        self._input_position = {value: i for i, value in enumerate(whole.inputs)}
        self._alive = frozenset(whole.ordered_nodes())
        self._outputs: dict[TensorView, TensorView | None] = {}
        for output in whole.outputs:
            self._outputs[output.tensor] = output.alias or self._outputs.get(output.tensor)
            node = output.tensor.definition
            if isinstance(node, Update) and node.base is not None:  # what it changes is written there first
                self._outputs[node.base] = self._outputs[output.tensor]

    def inputs_of(self, nodes: Sequence[Node]) -> tuple[Val, ...]:
        """What the group reads from outside: the fusion's own inputs as passed, then by first use.

        Constants and sizes are no inputs: a kernel knows them otherwise.
        """
        made = {out for node in nodes for out in node.outputs}
        read = dict.fromkeys(v for node in _in_kernel(nodes) for v in node.inputs if v not in made)
        last = len(self._input_position)
        position = self._input_position
        return tuple(sorted((v for v in read if not self._is_known(v)), key=lambda v: position.get(v, last)))

    def _is_known(self, value: Val) -> bool:
        """Whether a kernel knows it without being told: a constant, or a size that comes with the tensors."""
        if not isinstance(value, Scalar) or value.is_constant:
            return isinstance(value, Scalar)
        return value.extent is not None and value.definition is None and value not in self._input_position

    def outputs_of(
        self, nodes: Sequence[Node], read_elsewhere: Collection[TensorView] | None = None
    ) -> tuple[TensorView, ...]:
        """What the group hands on: outputs of the fusion, and tensors that are read outside it.

        These are the tensors of `read_elsewhere`, or those with users that are not in the group.
        """
        group = set(nodes)

        def leaves(tensor: TensorView) -> bool:
            if read_elsewhere is not None:
                return tensor in read_elsewhere
            return any(user not in group and user in self._alive for user in tensor.uses)

        made = (value for node in nodes for value in node.outputs if isinstance(value, TensorView))
        return tuple(value for value in made if value in self._outputs or leaves(value))

    def extract(
        self, nodes: Sequence[Node], read_elsewhere: Collection[TensorView] | None = None
    ) -> Extraction:
        """The fusion of `nodes` (producers first) and the map from the whole fusion's values to its own.

        A tensor that comes from outside lies in memory as whoever makes it states (`allocation` and
        `contiguity`), without the axes that were reduced away. Numbers and symbols are those of the whole
        fusion. A `Copy(segment=True)` has done its work and becomes a plain copy. The fusion is rewritten to
        the form that schedulers expect (`canonicalize`), so only border values are sure to be in the map. An
        update of what others write is one of memory that holds it already.
        """
        values: dict[Val, Val] = {}
        axes: dict[IterDomain, IterDomain] = {}
        new = self.whole.empty_like()
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
                    own.memory = MemoryType.local  # until it is an output of this group, too
            twin = node.copy(values)
            if isinstance(twin, Copy):
                twin.segment = False
            new.add_node(twin)
        for value in inputs:
            new.add_input(values[value])
        for tensor in self.outputs_of(nodes, read_elsewhere):
            alias = self._outputs.get(tensor)
            own = values[tensor]
            assert isinstance(own, TensorView)
            new.add_output(own, values.get(alias) if alias is not None else None)  # type: ignore[arg-type]
        new.scalar_of = {s: values.get(v, v) for s, v in self.whole.scalar_of.items()}  # type: ignore[misc]
        canonicalize(new, self._tracer)
        return new, values

    def _border_input(self, value: Val, axes: dict[IterDomain, IterDomain]) -> Val:
        if isinstance(value, Scalar) or value in self._input_position:
            return copy_value(value, axes)
        own = {axis: _copy_axis(axis) for axis in value.shape}
        return TensorView(
            value.number,
            value.dtype,
            list(own.values()),
            memory=MemoryType.global_,
            allocation=[own[axis] for axis in value.allocation if axis in own],
            contiguity=value.contiguity,
        )


def _in_kernel(nodes: Sequence[Node]) -> list[Node]:
    """The nodes as the kernel of their group has them: updates without the bases that others write."""
    made = {out for node in nodes for out in node.outputs}
    return [n.without_base() if isinstance(n, Update) and n.base not in made else n for n in nodes]


def extract(whole: Fusion, nodes: Sequence[Node]) -> Extraction:
    """See `Extractor.extract`."""
    return Extractor(whole).extract(nodes)


def _copy_axis(axis: IterDomain) -> IterDomain:
    return IterDomain(axis.number, axis.extent, axis.kind, axis.expanded)
