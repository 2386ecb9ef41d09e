"""Nodes that are views: they index their input in another way, and repeating them costs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusewright.ir.node import Node, Traits
from fusewright.ir.placement import Placement
from fusewright.ir.value import TensorView
from fusewright.sym import Symbol

_RELABEL = Traits(pointwise=True, move=True, view=True, relabel=True, carries_relabels=True, own_load=True)


class Broadcast(Node):
    """Inserts a size-1 axis where `flags` is True."""

    __slots__ = ("flags",)
    traits = _RELABEL
    attributes = ("flags",)

    def __init__(self, source: TensorView, output: TensorView, flags: Sequence[bool]) -> None:
        super().__init__((source,), (output,))
        self.flags = tuple(flags)

    def axis_map(self, operand: int) -> tuple[int | None, ...]:
        position = iter(range(len(self.flags)))
        return tuple(None if new else next(position) for new in self.flags)


class Squeeze(Node):
    """Removes the broadcast axes at positions `dims`."""

    __slots__ = ("dims",)
    traits = _RELABEL
    attributes = ("dims",)

    def __init__(self, source: TensorView, output: TensorView, dims: Sequence[int]) -> None:
        super().__init__((source,), (output,))
        self.dims = tuple(dims)

    def axis_map(self, operand: int) -> tuple[int | None, ...]:
        source = self.source
        return tuple(i for i in range(source.ndim) if i not in self.dims)


class Permute(Node):
    """Output dimension i is input dimension dims[i]."""

    __slots__ = ("dims",)
    traits = _RELABEL
    attributes = ("dims",)

    def __init__(self, source: TensorView, output: TensorView, dims: Sequence[int]) -> None:
        super().__init__((source,), (output,))
        self.dims = tuple(dims)

    def axis_map(self, operand: int) -> tuple[int | None, ...]:
        return self.dims


class Relabel(Node):
    """Several of the above in one: output axis i is input axis dims[i], or a new broadcast if dims[i] is
    None.

    Input axes that are not named are broadcasts and are removed. Rewrites make this node; users write its
    parts.
    """

    __slots__ = ("dims",)
    traits = _RELABEL
    attributes = ("dims",)

    def __init__(self, source: TensorView, output: TensorView, dims: Sequence[int | None]) -> None:
        super().__init__((source,), (output,))
        self.dims = tuple(dims)

    def axis_map(self, operand: int) -> tuple[int | None, ...]:
        return self.dims


class Expand(Node):
    """Gives size-1 axes a visible size; no data moves."""

    __slots__ = ()
    traits = Traits(pointwise=True, move=True, view=True, carries_relabels=True)

    def __init__(self, source: TensorView, output: TensorView) -> None:
        super().__init__((source,), (output,))

    def placement(
        self, source: Placement, shape: Sequence[int], sizes: Mapping[Symbol, int]
    ) -> Placement | None:
        return source.expanded(shape)
