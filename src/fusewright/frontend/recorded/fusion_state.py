"""`FusionState`: maps state indices to the values of a complete definition, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusewright.frontend.recorded.states import StateValue
from fusewright.ir import Fusion, Scalar, TensorView, Val
from fusewright.ops import ScalarVector
from fusewright.sym import Expr, as_int


class FusionState:
    """The value of the fusion for each state index of a definition. It never changes.

    States that records make are numbered from 0 in the order of the records. No record makes the sizes of
    inputs, so their indices count down from -1: one for each dimension of each tensor input, in order,
    including broadcast and expanded dimensions.

    Attributes:
        values: the value of each state from 0 on. None: a size that was written inline, or a result that a
            call omits.
        inputs: the states of the inputs, as passed.
        outputs: the states of the outputs, as added.
        extents: -1, -2, ...
        sizes: for extent -1, -2, ...: a symbol, or a number that the definition states.
        index: maps values to their state indices: the first, if a value has several states. A scalar, or an
            entry of a vector, that is the size of an input's dimension has that dimension's index. Symbols
            have the index of the first dimension of that size.
    """

    def __init__(
        self, fusion: Fusion, values: Sequence[StateValue], inputs: Sequence[int], outputs: Sequence[int]
    ) -> None:
        self.values = tuple(values)
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        axes = [axis for v in fusion.inputs if isinstance(v, TensorView) for axis in v.shape]
        self.sizes: tuple[Expr, ...] = tuple([axis.visible_extent for axis in axes])
        self.extents = tuple(range(-1, -1 - len(axes), -1))
        index: dict[Val | ScalarVector | Expr, int] = {}
        for i, value in enumerate(self.values):
            if value is not None:
                index.setdefault(value, i)
        by_size: dict[Val | ScalarVector | Expr, int] = {}
        for i, size in zip(self.extents, self.sizes):
            if as_int(size) is None:  # a number is the size of many dimensions
                by_size.setdefault(size, i)
        index.update(by_size)
        for value in self._scalars():
            if value.definition is None and value.extent in by_size:
                index[value] = by_size[value.extent]
        by_axis = dict(zip(axes, self.extents))
        for scalar, axis in fusion.size_axes.items():
            if axis in by_axis:
                index[scalar] = by_axis[axis]
        self.index: Mapping[Val | ScalarVector | Expr, int] = index

    def _scalars(self) -> list[Scalar]:
        """The scalars among the states, and the entries of vectors."""
        found: list[Scalar] = []
        for value in self.values:
            if isinstance(value, ScalarVector):
                found += value
            elif isinstance(value, Scalar):
                found.append(value)
        return found

    def value(self, index: int) -> StateValue | Expr:
        """The value of a state index. IndexError if the definition does not have it."""
        if index >= 0:
            return self.values[index]
        return self.sizes[-1 - index]

    def __str__(self) -> str:
        lines = [f"inputs: {list(self.inputs)}", f"outputs: {list(self.outputs)}"]
        lines += [f"extent {i}: {size}" for i, size in zip(self.extents, self.sizes)]
        lines += [
            f"state {i}: {v.name if isinstance(v, TensorView) else v}" for i, v in enumerate(self.values)
        ]
        return "\n".join(lines)
