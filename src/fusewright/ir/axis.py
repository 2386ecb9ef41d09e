"""Axes of tensors and the transforms that relate them.

An axis is a node of a graph: a transform consumes axes and produces axes. Everything that walks the
graph (extents, indexing, predicates, replay, printing) goes through the methods of `Transform`, so a
new transform is one class here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

from fusewright.core.enums import KeyEnum, ParallelType
from fusewright.sym import ONE, ZERO, Expr, as_int, bitxor, ceildiv, divides, floordiv, mod


class IterKind(KeyEnum):
    """What an axis of a tensor is: iterated over, reduced away, or a size-1 dimension to be broadcast."""

    ITERATION = "i"
    REDUCTION = "r"
    BROADCAST = "b"


class IterDomain:
    """One axis: `extent` points, numbered `number` in its fusion.

    `expanded` is the visible size of an expanded broadcast (its extent is 1), else None. `rfactor` marks
    an axis that a transform made part of a logical domain. `padded` rounds the thread dimension that the axis
    is bound to up to a multiple of it (warp padding). Identity is equality.
    """

    __slots__ = ("number", "extent", "kind", "parallel", "expanded", "rfactor", "padded", "definition")

    def __init__(
        self,
        number: int,
        extent: Expr,
        kind: IterKind = IterKind.ITERATION,
        expanded: Expr | None = None,
        parallel: ParallelType = ParallelType.serial,
        rfactor: bool = False,
        padded: int = 1,
    ) -> None:
        self.number = number
        self.extent = extent
        self.kind = kind
        self.expanded = expanded
        self.parallel = parallel
        self.rfactor = rfactor
        self.padded = padded
        self.definition: Transform | None = None

    @property
    def is_reduction(self) -> bool:
        return self.kind is IterKind.REDUCTION

    @property
    def is_broadcast(self) -> bool:
        return self.kind is IterKind.BROADCAST

    @property
    def visible_extent(self) -> Expr:
        """The size that a user sees: the expanded one of an expanded broadcast."""
        return self.extent if self.expanded is None else self.expanded

    def bare_copy(self) -> IterDomain:
        """The same axis, number included, not made by a transform: for a copy of the whole fusion."""
        return IterDomain(
            self.number, self.extent, self.kind, self.expanded, self.parallel, self.rfactor, self.padded
        )

    def __str__(self) -> str:
        # as nvFuser prints it: <kind><parallel><n>{extent}[rf]
        expanded = f" ex {_extent_text(self.expanded)}" if self.expanded is not None else ""
        rf = "rf" if self.rfactor else ""
        extent = _extent_text(self.extent)
        return f"{self.kind.value}{self.parallel.ir_name}{self.number}{{{extent}{expanded}}}{rf}"

    __repr__ = __str__


def _extent_text(extent: Expr) -> str:
    """A name or number as it is, what is computed in spaced parentheses."""
    return f"( {extent} )" if extent.args else str(extent)


def axes_text(axes: Iterable[IterDomain]) -> str:
    """Axes as they are listed in printed IR."""
    return ", ".join(map(str, axes))


NewAxis = Callable[[Expr, IterKind], IterDomain]


class Transform(ABC):
    """Relates `inputs` to `outputs`; index and extent rules take and return one Expr an axis, in order.

    `__slots__` of a transform are its parameters.
    """

    __slots__ = ("inputs", "outputs")

    inputs: tuple[IterDomain, ...]
    outputs: tuple[IterDomain, ...]

    @property
    def reads(self) -> tuple[IterDomain, ...]:
        """Axes on whose indices the rules depend, and that are left as they are."""
        return ()

    @abstractmethod
    def extents(self, ins: Sequence[Expr]) -> tuple[Expr, ...]:
        """Extents of the outputs, given those of the inputs."""

    @abstractmethod
    def backward(
        self, outs: Sequence[Expr], ins: Sequence[Expr], reads: Sequence[Expr] = ()
    ) -> tuple[Expr, ...]:
        """Input indices from output indices, input extents and the indices of `reads`."""

    @abstractmethod
    def forward(
        self, indices: Sequence[Expr], ins: Sequence[Expr], reads: Sequence[Expr] = ()
    ) -> tuple[Expr, ...]:
        """Output indices from input indices, input extents and the indices of `reads`."""

    def may_overrun(self, ins: Sequence[Expr]) -> bool:
        """Whether the outputs may cover points beyond the inputs, so that a guard is needed."""
        return False

    def may_underrun(self) -> bool:
        """Whether the outputs may cover points before the inputs, so that a guard is needed."""
        return False

    @abstractmethod
    def key(self) -> tuple[object, ...]:
        """What, besides the inputs, determines the transform; two with equal keys do the same."""

    def __str__(self) -> str:
        """One line of printed IR: `Merge: iS0{i0} and iS1{i1} -> iS2{( i0 * i1 )}`."""
        return f"{type(self).__name__}: {axes_text(self.inputs)} -> {axes_text(self.outputs)}"

    @abstractmethod
    def replay(
        self, inputs: Sequence[IterDomain], new_axis: NewAxis, reads: Sequence[IterDomain] = ()
    ) -> Transform:
        """The same transform applied to other axes."""

    def copy(
        self,
        inputs: tuple[IterDomain, ...],
        outputs: tuple[IterDomain, ...],
        reads: tuple[IterDomain, ...] = (),
    ) -> Transform:
        """The same transform between copies of its axes."""
        twin: Transform = object.__new__(type(self))
        for parameter in type(self).__slots__:
            setattr(twin, parameter, getattr(self, parameter))
        twin._link(inputs, outputs)
        return twin

    def _link(self, inputs: tuple[IterDomain, ...], outputs: tuple[IterDomain, ...]) -> None:
        self.inputs = inputs
        self.outputs = outputs
        for axis in outputs:
            axis.definition = self


class Split(Transform):
    """in -> outer, inner: `factor` is inner's extent (outer's if not `inner_split`), the other rounds up."""

    __slots__ = ("factor", "inner_split")

    def __init__(self, axis: IterDomain, factor: Expr, inner_split: bool, new_axis: NewAxis) -> None:
        self.factor = factor
        self.inner_split = inner_split
        outer, inner = self.extents((axis.extent,))
        self._link((axis,), (new_axis(outer, axis.kind), new_axis(inner, axis.kind)))

    @property
    def outer(self) -> IterDomain:
        return self.outputs[0]

    @property
    def inner(self) -> IterDomain:
        return self.outputs[1]

    def extents(self, ins: Sequence[Expr]) -> tuple[Expr, Expr]:
        other = ceildiv(ins[0], self.factor)
        return (other, self.factor) if self.inner_split else (self.factor, other)

    def _inner_extent(self, ins: Sequence[Expr]) -> Expr:
        return self.extents(ins)[1]

    def backward(self, outs: Sequence[Expr], ins: Sequence[Expr], reads: Sequence[Expr] = ()) -> tuple[Expr]:
        return (outs[0] * self._inner_extent(ins) + outs[1],)

    def forward(
        self, indices: Sequence[Expr], ins: Sequence[Expr], reads: Sequence[Expr] = ()
    ) -> tuple[Expr, Expr]:
        inner = self._inner_extent(ins)
        if inner is ZERO:  # an axis of no points, whatever their indices would be
            return indices[0], ZERO
        return floordiv(indices[0], inner), mod(indices[0], inner)

    def may_overrun(self, ins: Sequence[Expr]) -> bool:
        # Of no points there is one thread or block all the same, which has to know that it has none.
        return as_int(ins[0]) == 0 or not divides(self.factor, ins[0])

    def key(self) -> tuple[object, ...]:
        return ("split", self.factor, self.inner_split)

    def __str__(self) -> str:
        side = "" if self.inner_split else "outer "
        return f"Split: {self.inputs[0]} by {side}factor {self.factor} -> {axes_text(self.outputs)}"

    def replay(
        self, inputs: Sequence[IterDomain], new_axis: NewAxis, reads: Sequence[IterDomain] = ()
    ) -> Split:
        return Split(inputs[0], self.factor, self.inner_split, new_axis)


class ShiftedSplit(Split):
    """in -> outer, inner of `factor`: point i of a row is outer * factor + inner = i + shift(row).

    shift(row) = sum(rows[k] * strides[k]) mod factor: how far the row's first element lies beyond a multiple
    of `factor` in a tensor with these strides. So the vectors of each row begin at such multiples. The first
    and the last one of a row may have points outside of it.
    """

    __slots__ = ("rows", "strides")

    def __init__(
        self,
        axis: IterDomain,
        factor: Expr,
        rows: Sequence[IterDomain],
        strides: Sequence[Expr],
        new_axis: NewAxis,
    ) -> None:
        self.rows = tuple(rows)
        self.strides = tuple(strides)
        super().__init__(axis, factor, True, new_axis)

    @property
    def reads(self) -> tuple[IterDomain, ...]:
        return self.rows

    def extents(self, ins: Sequence[Expr]) -> tuple[Expr, Expr]:
        return ceildiv(ins[0] + self.factor - 1 if self.rows else ins[0], self.factor), self.factor

    def _shift(self, reads: Sequence[Expr]) -> Expr:
        start: Expr = ZERO
        for index, stride in zip(reads, self.strides):
            start = start + index * stride
        return mod(start, self.factor)

    def backward(self, outs: Sequence[Expr], ins: Sequence[Expr], reads: Sequence[Expr] = ()) -> tuple[Expr]:
        return (outs[0] * self.factor + outs[1] - self._shift(reads),)

    def forward(
        self, indices: Sequence[Expr], ins: Sequence[Expr], reads: Sequence[Expr] = ()
    ) -> tuple[Expr, Expr]:
        place = indices[0] + self._shift(reads)
        return floordiv(place, self.factor), mod(place, self.factor)

    def may_overrun(self, ins: Sequence[Expr]) -> bool:
        return True

    def may_underrun(self) -> bool:
        return bool(self.rows)

    def key(self) -> tuple[object, ...]:
        return ("shifted split", self.factor, self.strides)

    def __str__(self) -> str:
        rows = " + ".join(f"{axis} * {stride}" for axis, stride in zip(self.rows, self.strides))
        return f"{super().__str__()}, shifted by ( {rows or 0} ) % {self.factor}"

    def replay(
        self, inputs: Sequence[IterDomain], new_axis: NewAxis, reads: Sequence[IterDomain] = ()
    ) -> ShiftedSplit:
        return ShiftedSplit(inputs[0], self.factor, reads, self.strides, new_axis)

    def copy(
        self,
        inputs: tuple[IterDomain, ...],
        outputs: tuple[IterDomain, ...],
        reads: tuple[IterDomain, ...] = (),
    ) -> Transform:
        twin: ShiftedSplit = object.__new__(ShiftedSplit)
        twin.factor, twin.inner_split = self.factor, True
        twin.rows, twin.strides = reads, self.strides
        twin._link(inputs, outputs)
        return twin


class Merge(Transform):
    """outer, inner -> out of extent outer * inner."""

    __slots__ = ()

    def __init__(self, outer: IterDomain, inner: IterDomain, new_axis: NewAxis) -> None:
        kinds = {outer.kind, inner.kind} - {IterKind.BROADCAST}
        kind = kinds.pop() if kinds else IterKind.BROADCAST
        self._link((outer, inner), (new_axis(outer.extent * inner.extent, kind),))

    @property
    def outer(self) -> IterDomain:
        return self.inputs[0]

    @property
    def inner(self) -> IterDomain:
        return self.inputs[1]

    def extents(self, ins: Sequence[Expr]) -> tuple[Expr]:
        return (ins[0] * ins[1],)

    def backward(
        self, outs: Sequence[Expr], ins: Sequence[Expr], reads: Sequence[Expr] = ()
    ) -> tuple[Expr, Expr]:
        if ins[0] is ONE or ins[1] is ZERO:  # without points any indices do
            return ZERO, outs[0]
        return floordiv(outs[0], ins[1]), mod(outs[0], ins[1])

    def forward(
        self, indices: Sequence[Expr], ins: Sequence[Expr], reads: Sequence[Expr] = ()
    ) -> tuple[Expr]:
        return (indices[0] * ins[1] + indices[1],)

    def key(self) -> tuple[object, ...]:
        return ("merge",)

    def __str__(self) -> str:
        return f"Merge: {self.outer} and {self.inner} -> {self.outputs[0]}"

    def replay(
        self, inputs: Sequence[IterDomain], new_axis: NewAxis, reads: Sequence[IterDomain] = ()
    ) -> Merge:
        return Merge(inputs[0], inputs[1], new_axis)


class Swizzle(Transform):
    """x, y -> x, y ^ x: spreads the columns of a tile over shared-memory banks.

    Both extents are the same constant power of two, so the transform is its own inverse.
    """

    __slots__ = ()

    def __init__(self, x: IterDomain, y: IterDomain, new_axis: NewAxis) -> None:
        self._link((x, y), (new_axis(x.extent, x.kind), new_axis(y.extent, y.kind)))

    def extents(self, ins: Sequence[Expr]) -> tuple[Expr, Expr]:
        return ins[0], ins[1]

    def backward(
        self, outs: Sequence[Expr], ins: Sequence[Expr], reads: Sequence[Expr] = ()
    ) -> tuple[Expr, Expr]:
        return outs[0], bitxor(*outs)

    def forward(
        self, indices: Sequence[Expr], ins: Sequence[Expr], reads: Sequence[Expr] = ()
    ) -> tuple[Expr, Expr]:
        return indices[0], bitxor(*indices)

    def key(self) -> tuple[object, ...]:
        return ("swizzle",)

    def replay(
        self, inputs: Sequence[IterDomain], new_axis: NewAxis, reads: Sequence[IterDomain] = ()
    ) -> Swizzle:
        return Swizzle(inputs[0], inputs[1], new_axis)


class Reverse(Transform):
    """in -> out: the same points from the last to the first."""

    __slots__ = ()

    def __init__(self, axis: IterDomain, new_axis: NewAxis) -> None:
        self._link((axis,), (new_axis(axis.extent, axis.kind),))

    def extents(self, ins: Sequence[Expr]) -> tuple[Expr]:
        return (ins[0],)

    def backward(self, outs: Sequence[Expr], ins: Sequence[Expr], reads: Sequence[Expr] = ()) -> tuple[Expr]:
        return (ins[0] - 1 - outs[0],)

    def forward(
        self, indices: Sequence[Expr], ins: Sequence[Expr], reads: Sequence[Expr] = ()
    ) -> tuple[Expr]:
        return (ins[0] - 1 - indices[0],)

    def key(self) -> tuple[object, ...]:
        return ("reverse",)

    def replay(
        self, inputs: Sequence[IterDomain], new_axis: NewAxis, reads: Sequence[IterDomain] = ()
    ) -> Reverse:
        return Reverse(inputs[0], new_axis)


def transforms_between(sources: Iterable[IterDomain], targets: Iterable[IterDomain]) -> list[Transform]:
    """The transforms that lead from `sources` to `targets`, each after those that it depends on."""
    stop = set(sources)
    made = [axis for axis in targets if axis not in stop and axis.definition is not None]
    if not made:  # as for every tensor that is not scheduled
        return []
    order: dict[Transform, None] = {}
    for axis in made:
        _add_transforms(axis, stop, order)
    return list(order)


def _add_transforms(axis: IterDomain, stop: set[IterDomain], order: dict[Transform, None]) -> None:
    transform = axis.definition
    if axis not in stop and transform is not None and transform not in order:
        for parent in transform.inputs:
            _add_transforms(parent, stop, order)
        order[transform] = None


def ancestors(axis: IterDomain, stop: Iterable[IterDomain]) -> set[IterDomain]:
    """The axes of `stop` (or without a definition) that `axis` was made from."""
    stops = set(stop)
    found: set[IterDomain] = set()
    stack = [axis]
    while stack:
        current = stack.pop()
        if current in stops or current.definition is None:
            found.add(current)
        else:
            stack.extend(current.definition.inputs)
    return found
