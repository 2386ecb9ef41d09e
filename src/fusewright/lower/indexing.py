"""Indices and guards: one walk over the transforms of axes, for every tensor, memory and inlining.

The loops of a node give the indices of its output's loop axes. A backward walk over the transforms gives the
indices of the root axes, and a guard for every split that may overrun. Each producer's logical axes take the
indices of the root axes that they map to. An axis of the producer's buffer takes the index of the axis with
the same key, if there is one. Otherwise its index is computed forward from the producer's logical axes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from fusewright.analyze.axis_map import ONE_POINT, AxisKeys, Key, operand_map
from fusewright.core.errors import ScheduleError
from fusewright.core.once import cached_property
from fusewright.ir.axis import IterDomain, Transform, transforms_between
from fusewright.ir.index_map import IndexMap, position_of, value_extent, value_of
from fusewright.ir.node import Indexed, Node, Stored
from fusewright.ir.value import TensorView
from fusewright.lower.domains import Domains
from fusewright.lower.loops import Loop
from fusewright.sym import ONE, ZERO, Expr, Symbol, le, lt, symbol


class NodeIndices:
    """The indices of all axes of a node's lead output, given the indices of its loops.

    Args:
        skip_reductions: whether reduction axes have no loops, as in an initialisation. They then have no
            index.

    Attributes:
        guards: the conditions of loops that may overrun, with the axis whose extent each respects.
    """

    def __init__(
        self,
        node: Node,
        loop_indices: Mapping[IterDomain, Expr],
        domains: Domains,
        *,
        skip_reductions: bool = False,
    ) -> None:
        self.node = node
        self.tensor = node.output
        self._domains = domains
        self._index: dict[IterDomain, Expr] = dict(loop_indices)
        self.guards: list[tuple[IterDomain, Expr]] = []
        self._walk_back(skip_reductions)
        self._keys = AxisKeys()
        self._operands: dict[int, tuple[dict[IterDomain, Key | None], dict[IterDomain, Expr]]] = {}

    @cached_property
    def _leaf_keys(self) -> dict[IterDomain, Key | None]:
        return {axis: self._leaf_key(self.tensor, axis) for axis in self.tensor.maybe_root}

    @cached_property
    def _by_key(self) -> dict[Key, Expr]:
        """The indices of axes between the root and the loops."""
        found: dict[Key, Expr] = {}
        for axis, key in self._keys.of_axes(self.tensor.loop, self._leaf_keys).items():
            if key is not None and key != ONE_POINT and axis in self._index:
                found.setdefault(key, self._index[axis])
        return found

    def _leaf_key(self, tensor: TensorView, axis: IterDomain) -> Key:
        one_point = axis.is_broadcast and self._domains.extent(tensor, axis) is ONE
        return ONE_POINT if one_point else self._keys.leaf(axis)

    def _extent(self, axis: IterDomain) -> Expr:
        return self._domains.extent(self.tensor, axis)

    def _walk_back(self, skip_reductions: bool) -> None:
        # The walk covers all transforms from root over logical to loop axes, so every split has its guard.
        waiting = deque(reversed(transforms_between(self.tensor.maybe_root, self.tensor.loop)))
        postponed = 0  # how many transforms in a row were postponed
        while waiting and postponed <= len(waiting):
            transform = waiting.popleft()
            missing = [out for out in transform.outputs if out not in self._index]
            needs_later = any(axis in missing for later in waiting for axis in later.inputs)
            if missing and not needs_later:
                assert skip_reductions, f"{transform} leads to no loop of {self.tensor}"
                postponed = 0
                continue
            if needs_later or any(axis not in self._index for axis in transform.reads):
                waiting.append(transform)
                postponed += 1
                continue
            self._step_back(transform)
            postponed = 0
        # Without the loops of a reduction, a transform that reads their position cannot be walked.
        if waiting and not skip_reductions:
            shifted = " and ".join(str(transform.inputs[0]) for transform in waiting)
            raise ScheduleError(
                f"{self.tensor.name}: {shifted} are each shifted by the place along the other",
                hint="shift one of them",
            )

    def _step_back(self, transform: Transform) -> None:
        ins = [self._extent(a) for a in transform.inputs]
        reads = [self._index[a] for a in transform.reads]
        indices = transform.backward([self._index[a] for a in transform.outputs], ins, reads)
        for axis, index in zip(transform.inputs, indices):
            self._index.setdefault(axis, self._domains.known(index) if reads else index)
        if transform.may_overrun(ins):
            self.guards += [(a, lt(self._index[a], e)) for a, e in zip(transform.inputs, ins)]
        if transform.may_underrun():
            self.guards += [(a, le(ZERO, self._index[a])) for a in transform.inputs]

    def of(self, axis: IterDomain) -> Expr:
        """The index of an axis of the lead output."""
        if axis not in self._index and isinstance(self.node, Stored):
            place = self.node.map.indices[self.tensor.logical.index(axis)]
            self._index[axis] = self.expression(place)
        return self._index[axis]

    def stored_at(self, axes: Sequence[IterDomain]) -> list[Expr]:
        """The indices of the axes that the lead output is stored along."""
        keys = self._keys.of_axes(axes, self._leaf_keys)
        known = dict(self._index)
        return [self._computed(axis, self.tensor, keys, known) for axis in axes]

    def above(self, axes: Sequence[IterDomain]) -> frozenset[IterDomain]:
        """The guarded axes of the lead output that `axes` are derived from and that they bound anyway.

        Beyond the extent of such an axis the loops stay within the extents of `axes`: no index of `axes` is
        computed forward from it.
        """
        keys = self._keys.of_axes((*self.tensor.loop, *axes), self._leaf_keys)
        transforms = transforms_between(self.tensor.maybe_root, axes)
        made_from = {keys[axis] for transform in transforms for axis in transform.inputs}
        waiting = [axis for axis in axes if keys[axis] not in self._by_key]
        while waiting:
            made = waiting.pop().definition
            for axis in made.inputs if made is not None else ():
                made_from.discard(keys[axis])
                if keys[axis] not in self._by_key:
                    waiting.append(axis)
        return frozenset(axis for axis, _ in self.guards if keys[axis] in made_from)

    def logical_of(self, operand: int) -> dict[IterDomain, Expr]:
        """The indices of the dimensions of the producer `node.inputs[operand]`.

        A broadcast dimension is read at its one point even if this node's loops run over more points.
        """
        producer = self.node.inputs[operand]
        assert isinstance(producer, TensorView)
        if isinstance(self.node, Indexed) and not operand:
            return {
                axis: ZERO if axis.is_broadcast else self.expression(e)
                for axis, e in zip(producer.shape, self.node.map.indices)
            }
        mapped = self._mapped(operand)

        def index(axis: IterDomain) -> Expr:
            if axis not in mapped or (axis.is_broadcast and self._domains.extent(producer, axis) is ONE):
                return ZERO
            return self._index[mapped[axis]]

        return {axis: index(axis) for axis in producer.shape}

    def expression(self, e: Expr) -> Expr:
        """An index expression of the node at the position of the loops; `value` names its loaded values."""

        def replace(s: Symbol) -> Expr | None:
            dim, number = position_of(s), value_of(s)
            if dim is not None:
                return self._index[self.tensor.maybe_root[dim]]
            return self.value(number, s) if number is not None else None

        try:
            known = self._domains.known(e)
        except ZeroDivisionError:  # a size is 0, so there is nothing to index
            return ZERO
        return IndexMap((), known).rewritten(replace).pred

    def value(self, number: int, of: Symbol) -> Symbol:
        """The symbol of a loaded index value in the kernel."""
        extent = self._domains.known(value_extent(of))
        return symbol(f"{self.tensor.name.lower()}_index{number}", lo=-1, hi=extent - 1)

    def _mapped(self, operand: int) -> dict[IterDomain, IterDomain]:
        """Maps the producer's axes to this node's, except axes that have one point in the producer only.

        A broadcast is computed once, unless it is inlined into loops over the larger extent.
        """
        producer = self.node.inputs[operand]
        assert isinstance(producer, TensorView)
        return {
            ours: theirs
            for ours, theirs in operand_map(self.node, operand).items()
            if self._domains.extent(producer, ours) is not ONE or self._extent(theirs) is ONE
        }

    def loops_of(self, operand: int, wanted: Sequence[IterDomain]) -> list[Expr]:
        """The indices of the producer's loop axes `wanted` at the position that this node reads."""
        if not wanted:
            return []
        producer = self.node.inputs[operand]
        assert isinstance(producer, TensorView)
        leaves, known = self._known_of(operand, producer)
        keys = self._keys.of_axes(wanted, leaves)
        return [self._computed(axis, producer, keys, known) for axis in wanted]

    def _computed(
        self,
        axis: IterDomain,
        producer: TensorView,
        keys: Mapping[IterDomain, Key | None],
        known: dict[IterDomain, Expr],
    ) -> Expr:
        """The index of a producer's axis: from `known`, from an axis with equal key, or computed forward."""
        if axis in known:
            return known[axis]
        key = keys.get(axis)
        if key == ONE_POINT:
            known[axis] = ZERO
        elif key is not None and key in self._by_key:
            known[axis] = self._by_key[key]
        elif axis.definition is None:
            known[axis] = ZERO  # the producer reduces this axis: its result does not have it
        else:
            transform = axis.definition
            ins = [self._domains.extent(producer, a) for a in transform.inputs]
            indices = [self._computed(a, producer, keys, known) for a in transform.inputs]
            reads = [self._computed(a, producer, keys, known) for a in transform.reads]
            outs = transform.forward(indices, ins, reads)
            known.update(zip(transform.outputs, map(self._domains.known, outs) if reads else outs))
        return known[axis]

    def _known_of(
        self, operand: int, producer: TensorView
    ) -> tuple[dict[IterDomain, Key | None], dict[IterDomain, Expr]]:
        """The keys of the producer's logical axes, and the indices of its axes that are computed so far."""
        if operand not in self._operands:
            mapped = self._mapped(operand)
            leaves = {
                axis: self._leaf_keys[mapped[axis]] if axis in mapped else self._leaf_key(producer, axis)
                for axis in producer.logical
            }
            self._operands[operand] = leaves, self.logical_of(operand)
        return self._operands[operand]


def loop_index_table(tensor: TensorView, loops: Sequence[Loop]) -> dict[IterDomain, Expr]:
    return {axis: loop.index for axis, loop in zip(tensor.loop, loops)}
