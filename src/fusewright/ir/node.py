"""What computes a value.

Every node says how the axes of its outputs map to those of its inputs (`axis_map`), which is all that
indexing, propagation and segmentation ask of it. A new kind of node is one class here, its builder in
ops/, and its lowering rule in lower/.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusewright.core.enums import CacheOp, LoadStoreOpType
from fusewright.core.op import ElementwiseOp, ReductionOp
from fusewright.ir.value import Scalar, TensorView, Val


class Node:
    """Computes `outputs` from `inputs`. Subclasses add attributes, listed in `attributes`."""

    __slots__ = ("inputs", "outputs")

    attributes: tuple[str, ...] = ()

    def __init__(self, inputs: Sequence[Val], outputs: Sequence[Val]) -> None:
        self.inputs: tuple[Val, ...] = tuple(inputs)
        self.outputs: tuple[Val, ...] = tuple(outputs)

    @property
    def output(self) -> TensorView:
        """The first output, of a node that computes tensors."""
        out = self.outputs[0]
        assert isinstance(out, TensorView)
        return out

    @property
    def tensor_inputs(self) -> list[TensorView]:
        return [v for v in self.inputs if isinstance(v, TensorView)]

    @property
    def is_scalar(self) -> bool:
        """Whether it computes scalars only, on the host."""
        return isinstance(self.outputs[0], Scalar)

    def axis_map(self, operand: int) -> tuple[int | None, ...]:
        """For each root axis of the outputs its position in `inputs[operand].shape`; None: it has none."""
        return tuple(range(len(self.output.maybe_root)))

    def copy(self, values: Mapping[Val, Val]) -> Node:
        """The same node over other values; those not in `values` stay."""
        new = object.__new__(type(self))
        new.inputs = tuple(values.get(v, v) for v in self.inputs)
        new.outputs = tuple(values.get(v, v) for v in self.outputs)
        for cls in type(self).__mro__:
            for slot in getattr(cls, "__slots__", ()):
                if slot not in ("inputs", "outputs"):
                    setattr(new, slot, getattr(self, slot))
        return new

    @property
    def label(self) -> str:
        """Its name in printed IR."""
        return type(self).__name__


class Pointwise(Node):
    """outputs[0] = op(inputs), element by element; inputs are tensors of the output's rank, or scalars."""

    __slots__ = ("op",)
    attributes = ("op",)

    def __init__(self, op: ElementwiseOp, inputs: Sequence[Val], output: Val) -> None:
        super().__init__(inputs, (output,))
        self.op = op

    @property
    def label(self) -> str:
        return self.op.name


class Reduction(Node):
    """Reduces the axes that are reductions in its outputs; one output a state of `op`.

    `inputs` is one tensor, lifted to the states, or one tensor a state (a reduction of partial results).
    """

    __slots__ = ("op",)
    attributes = ("op",)

    def __init__(self, op: ReductionOp, inputs: Sequence[TensorView], outputs: Sequence[TensorView]) -> None:
        super().__init__(inputs, outputs)
        self.op = op

    @property
    def label(self) -> str:
        return self.op.name


class Copy(Node):
    """A copy: a load, a store, a move between memories, or a kernel boundary if `segment`."""

    __slots__ = ("kind", "cache", "segment")
    attributes = ("kind", "cache", "segment")

    def __init__(
        self,
        source: TensorView,
        output: TensorView,
        kind: LoadStoreOpType = LoadStoreOpType.set,
        cache: CacheOp = CacheOp.unspecified,
        segment: bool = False,
    ) -> None:
        super().__init__((source,), (output,))
        self.kind = kind
        self.cache = cache
        self.segment = segment

    @property
    def label(self) -> str:
        return "SegmentSet" if self.segment else "Set"


class Broadcast(Node):
    """Inserts a size-1 axis where `flags` is True."""

    __slots__ = ("flags",)
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
    attributes = ("dims",)

    def __init__(self, source: TensorView, output: TensorView, dims: Sequence[int]) -> None:
        super().__init__((source,), (output,))
        self.dims = tuple(dims)

    def axis_map(self, operand: int) -> tuple[int | None, ...]:
        source = self.inputs[0]
        assert isinstance(source, TensorView)
        return tuple(i for i in range(source.ndim) if i not in self.dims)


class Permute(Node):
    """Output dimension i is input dimension dims[i]."""

    __slots__ = ("dims",)
    attributes = ("dims",)

    def __init__(self, source: TensorView, output: TensorView, dims: Sequence[int]) -> None:
        super().__init__((source,), (output,))
        self.dims = tuple(dims)

    def axis_map(self, operand: int) -> tuple[int | None, ...]:
        return self.dims


class Relabel(Node):
    """Several of the above in one: output axis i is input axis dims[i], or a new broadcast where None.

    Input axes that are not named are broadcasts and disappear. Rewrites make it; users write its parts.
    """

    __slots__ = ("dims",)
    attributes = ("dims",)

    def __init__(self, source: TensorView, output: TensorView, dims: Sequence[int | None]) -> None:
        super().__init__((source,), (output,))
        self.dims = tuple(dims)

    def axis_map(self, operand: int) -> tuple[int | None, ...]:
        return self.dims


#: Nodes that read a tensor in another order or rank; they commute with elementwise work.
RELABELS = (Broadcast, Squeeze, Permute, Relabel)


class Expand(Node):
    """Gives size-1 axes a visible size; no data moves."""

    __slots__ = ()

    def __init__(self, source: TensorView, output: TensorView) -> None:
        super().__init__((source,), (output,))


class Full(Node):
    """Every element is the scalar inputs[0]."""

    __slots__ = ()

    def __init__(self, fill: Scalar, output: TensorView) -> None:
        super().__init__((fill,), (output,))


class RandomState(Node):
    """The seed and offset of random numbers, from torch's generator: two Int scalars, others at each call."""

    __slots__ = ()

    def __init__(self, seed: Scalar, offset: Scalar) -> None:
        super().__init__((), (seed, offset))


class Random(Node):
    """Random numbers, each a function of its position, in row-major order, and of inputs: seed, offset."""

    __slots__ = ("op",)
    attributes = ("op",)

    def __init__(self, op: ElementwiseOp, seed: Scalar, offset: Scalar, output: TensorView) -> None:
        super().__init__((seed, offset), (output,))
        self.op = op

    @property
    def label(self) -> str:
        return self.op.name


class Iota(Node):
    """Element i along the only axis that is no broadcast is start + i * step (inputs: start, step)."""

    __slots__ = ()

    def __init__(self, start: Scalar, step: Scalar, output: TensorView) -> None:
        super().__init__((start, step), (output,))
