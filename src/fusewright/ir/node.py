"""The nodes that compute values.

Every node defines how the axes of its outputs map to those of its inputs (`axis_map`); indexing and
propagation need nothing else. Its `traits` define its kind, by which rewrites, schedulers and segmentation
decide what they may do with it. A new kind of node is one class here, its builder in ops/, its meaning in
ops/evaluate.py and its lowering rule in lower/.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from fusewright.core.enums import CacheOp, LoadStoreOpType
from fusewright.core.op import ElementwiseOp, LibraryOp, ReductionOp
from fusewright.ir.index_map import IndexMap
from fusewright.ir.placement import Placement
from fusewright.ir.value import Scalar, TensorView, Val
from fusewright.sym import Expr, Symbol, as_int, product

#: What `Node.reduced` counts to; beyond, and where sizes decide, it is MANY_REDUCED.
FEW_REDUCED = 16
MANY_REDUCED = FEW_REDUCED + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """The properties that others may assume of a kind of node. A property that is not stated is absent.

    Attributes:
        pointwise: each element of the output is a function of its position and of the input elements that
            `axis_map` names. The function is cheap enough to recompute if that saves memory traffic.
        move: pointwise, and the function returns the element of its only input, a tensor.
        view: a move that only indexes its input in another way, so repeating it costs nothing.
        relabel: a view that `axis_map` describes completely: dimensions reordered, inserted, or removed at
            size 1.
        carries_relabels: a relabel of its output equals the same node applied to relabels of its inputs.
        indexed: each element of the output is an element of its first input, a tensor, that index expressions
            select, or a fill; `axis_map` maps only the axes that are the same.
        placed: a store: each element of its only input goes to the place in the output that index expressions
            name. The output is an output of the fusion and is iterated over like the input.
        updates: placed, in memory that already has values: it changes some elements of its base, whose memory
            becomes the output's. The base is written before its kernel starts, and the output is read after
            it ends.
        piece: placed, in memory where other nodes, maybe of other kernels, store the other elements.
        own_load: it needs a separate load of an input, because it reads along other dimensions than other
            uses.
        whole: the host computes it outside any kernel, from whole tensors; `axis_map` maps nothing.
    """

    pointwise: bool = False
    move: bool = False
    view: bool = False
    relabel: bool = False
    carries_relabels: bool = False
    indexed: bool = False
    own_load: bool = False
    placed: bool = False
    updates: bool = False
    piece: bool = False
    whole: bool = False


class Node:
    """Computes `outputs` from `inputs`.

    Subclasses state their `traits` and add slots.

    Attributes:
        attributes: the slots that printed IR shows.
        reduced: how many elements each element of the outputs is reduced from: the node is a reduction, or
            it computes on the results of one without adding dimensions; else 0. This is decided when the node
            is first added to a fusion, before scheduling and partitioning, and copies keep it. So a value
            that is computed once per row is computed precisely in every kernel.
    """

    __slots__ = ("inputs", "outputs", "reduced")

    traits: ClassVar[Traits] = Traits()
    attributes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, inputs: Sequence[Val], outputs: Sequence[Val]) -> None:
        self.inputs: tuple[Val, ...] = tuple(inputs)
        self.outputs: tuple[Val, ...] = tuple(outputs)
        self.reduced: int | None = None

    @property
    def source(self) -> TensorView:
        """The first operand, of a node that reads a tensor there."""
        source = self.inputs[0]
        assert isinstance(source, TensorView)
        return source

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
    def tensor_outputs(self) -> list[TensorView]:
        return [v for v in self.outputs if isinstance(v, TensorView)]

    @property
    def is_scalar(self) -> bool:
        """Whether it computes scalars only, on the host."""
        return isinstance(self.outputs[0], Scalar)

    def axis_map(self, operand: int) -> tuple[int | None, ...]:
        """For each root axis of the outputs its position in `inputs[operand].shape`; None if it has none.

        A tensor of one element on the CPU, which stands for a number, has none of them.
        """
        rank, value = len(self.output.maybe_root), self.inputs[operand]
        return (None,) * rank if isinstance(value, TensorView) and value.is_cpu else tuple(range(rank))

    def count_reduced(self) -> int:
        """What `reduced` is to be, from the definitions of the inputs."""
        operands = enumerate(self.inputs) if self.traits.pointwise else ()
        return max([self._reduced_at(i, v) for i, v in operands if isinstance(v, TensorView)], default=0)

    def _reduced_at(self, operand: int, source: TensorView) -> int:
        """The elements that an operand is reduced from if it has every dimension of the output; else 0."""
        positions, axes = self.axis_map(operand), source.shape
        # Copies that an expanded dimension showed, and that are one element now, were reduced, too.
        removed = self.traits.relabel and any(
            axis.expanded is not None for i, axis in enumerate(axes) if i not in positions
        )
        reduced = MANY_REDUCED if removed else source.reduced
        iterated = {i for i, axis in enumerate(axes) if not axis.is_broadcast}
        places = zip(self.output.maybe_root, positions)
        return reduced if all(axis.is_broadcast or place in iterated for axis, place in places) else 0

    def placement(
        self, source: Placement, shape: Sequence[int], sizes: Mapping[Symbol, int]
    ) -> Placement | None:
        """The position of its output, of this shape, in the memory of its input; None if it has separate
        memory.
        """
        return source.relabeled(self.axis_map(0), shape) if self.traits.relabel else None

    def copy(self, values: Mapping[Val, Val]) -> Node:
        """The same node over other values; values that are not in `values` stay."""
        new = object.__new__(type(self))
        new.inputs = tuple(values.get(v, v) for v in self.inputs)
        new.outputs = tuple(values.get(v, v) for v in self.outputs)
        for cls in type(self).__mro__:
            for slot in getattr(cls, "__slots__", ()):
                if slot not in ("inputs", "outputs"):
                    setattr(new, slot, getattr(self, slot))
        return new

    def with_sizes(self, rename: Callable[[Expr], Expr]) -> None:
        """Updates the node after `rename` has renamed sizes of its values' axes."""

    def index_expressions(self) -> tuple[Expr, ...]:
        """Expressions that it computes indices by, over sizes, positions and index values."""
        return ()

    @property
    def label(self) -> str:
        """Its name in printed IR."""
        return type(self).__name__

    def parameters(self) -> dict[str, object]:
        """Its parameters besides inputs and label, as printed IR names them."""
        return {name: getattr(self, name) for name in self.attributes}


class Pointwise(Node):
    """outputs[0] = op(inputs), element by element; inputs are tensors of the output's rank, or scalars."""

    __slots__ = ("op",)
    traits = Traits(pointwise=True, carries_relabels=True)

    def __init__(self, op: ElementwiseOp, inputs: Sequence[Val], output: Val) -> None:
        super().__init__(inputs, (output,))
        self.op = op

    @property
    def label(self) -> str:
        return self.op.name


class Reduction(Node):
    """Reduces the axes that are reductions in its outputs. It has one output for each state of `op`.

    `inputs` is one tensor, which is lifted to the states, or one tensor per state (a reduction of partial
    results).
    """

    __slots__ = ("op",)
    traits = Traits()

    def __init__(self, op: ReductionOp, inputs: Sequence[TensorView], outputs: Sequence[TensorView]) -> None:
        super().__init__(inputs, outputs)
        self.op = op

    @property
    def label(self) -> str:
        return self.op.name

    @property
    def reduced_dims(self) -> tuple[int, ...]:
        """The positions of the input's dimensions that are reduced, in order."""
        return tuple([i for i, axis in enumerate(self.output.logical) if axis.is_reduction])

    def count_reduced(self) -> int:
        elements = as_int(product(self.output.logical[dim].visible_extent for dim in self.reduced_dims))
        count = MANY_REDUCED if elements is None else max(1, elements) * max(1, self.source.reduced)
        return min(count, MANY_REDUCED)


class Scan(Node):
    """Element i along dimension `dim` is the reduction by `op` of the elements up to and including i.

    `op` has one state, the element itself. If the dimension is expanded, the output has an element for each
    visible point.

    Attributes:
        inputs: a tensor, and optionally the scalar of its type from which the scan starts, if not the
            identity.
    """

    __slots__ = ("op", "dim")
    traits = Traits()

    def __init__(
        self, op: ReductionOp, source: TensorView, output: TensorView, dim: int, init: Scalar | None = None
    ) -> None:
        super().__init__((source,) if init is None else (source, init), (output,))
        self.op = op
        self.dim = dim

    def parameters(self) -> dict[str, object]:
        return {"op": self.op.name, "dim": self.dim}


class Copy(Node):
    """A copy: a load, a store, a move between memories, or a kernel boundary if `segment`.

    Attributes:
        ordered: whether the definition states the memory order of its output.
        held: the tensor in which the kernel holds a part of the same elements (`TensorView.part`); they are
            read from there.
    """

    __slots__ = ("kind", "cache", "segment", "ordered")
    traits = Traits(pointwise=True, move=True, carries_relabels=True)

    def __init__(
        self,
        source: TensorView,
        output: TensorView,
        kind: LoadStoreOpType = LoadStoreOpType.set,
        cache: CacheOp = CacheOp.unspecified,
        segment: bool = False,
        ordered: bool = False,
        held: TensorView | None = None,
    ) -> None:
        super().__init__((source,) if held is None else (source, held), (output,))
        self.kind = kind
        self.cache = cache
        self.segment = segment
        self.ordered = ordered

    @property
    def held(self) -> TensorView | None:
        held = self.inputs[-1] if len(self.inputs) > 1 else None
        return held if isinstance(held, TensorView) else None

    def parameters(self) -> dict[str, object]:
        # The kind of copy shows only where it is no plain one; the label tells a segment boundary.
        kind = {} if self.kind is LoadStoreOpType.set else {"kind": self.kind}
        return {**kind, "cache_op": self.cache}

    @property
    def label(self) -> str:
        return "SegmentSet" if self.segment else "Set"


class Indexed(Node):
    """Each element is the element of inputs[0] that `map` names, or a fill if there is none.

    Attributes:
        inputs: the source; then `indices` integer tensors of the output's rank (`index_value`s of the map);
            then, if `filled`, the fill, a scalar of the output's type. Without a fill the missing elements
            are zero, and nothing reads them.
        kind: its name in printed IR.
        inverse: maps positions in the source to positions in the output, if it exists. Its predicate holds
            for those elements of the source that are in the output; each of them is there once.
        cache: the cache hint of its loads.
    """

    __slots__ = ("kind", "map", "inverse", "indices", "filled", "cache")
    traits = Traits(indexed=True, own_load=True)

    def __init__(
        self,
        kind: str,
        source: TensorView,
        output: TensorView,
        map: IndexMap,
        indices: Sequence[TensorView] = (),
        fill: Scalar | None = None,
        inverse: IndexMap | None = None,
    ) -> None:
        super().__init__((source, *indices, *((fill,) if fill is not None else ())), (output,))
        self.kind = kind
        self.map = map
        self.inverse = inverse
        self.indices = len(indices)
        self.filled = fill is not None
        self.cache = CacheOp.unspecified

    @property
    def index_tensors(self) -> list[TensorView]:
        return [v for v in self.inputs[1 : 1 + self.indices] if isinstance(v, TensorView)]

    @property
    def fill(self) -> Scalar | None:
        fill = self.inputs[-1] if self.filled else None
        return fill if isinstance(fill, Scalar) else None

    @property
    def label(self) -> str:
        return self.kind

    def parameters(self) -> dict[str, object]:
        hint = {} if self.cache is CacheOp.unspecified else {"cache_op": self.cache}
        return {"element": self.map, **hint}

    def count_reduced(self) -> int:
        return self.source.reduced if self.inverse is not None else 0

    def index_expressions(self) -> tuple[Expr, ...]:
        inverse = () if self.inverse is None else self.inverse.expressions
        return (*self.map.expressions, *inverse)

    def axis_map(self, operand: int) -> tuple[int | None, ...]:
        rank = len(self.output.maybe_root)
        if operand:
            return tuple(range(rank))
        same, axes, root = self.map.identity_dims(rank), self.source.shape, self.output.maybe_root
        return tuple(
            dim
            if dim is not None and axes[dim].extent is axis.extent and not axes[dim].is_broadcast
            else None
            for dim, axis in zip(same, root)
        )

    def placement(
        self, source: Placement, shape: Sequence[int], sizes: Mapping[Symbol, int]
    ) -> Placement | None:
        return source.indexed(self.map, shape, sizes)

    def with_sizes(self, rename: Callable[[Expr], Expr]) -> None:
        self.map = self.map.resized(rename, [axis.extent for axis in self.output.logical])
        if self.inverse is not None:
            self.inverse = self.inverse.resized(rename, [axis.extent for axis in self.source.shape])


class Stored(Node):
    """Writes each element of inputs[0] for which `map.pred` holds to the position in the output that `map`
    names.

    The output's root axes are those of its input, and its loops are made from them. Only `map` relates its
    logical axes to them; it reaches every element of the output exactly once.
    """

    __slots__ = ("map",)
    traits = Traits(placed=True)

    def __init__(self, source: TensorView, output: TensorView, map: IndexMap) -> None:
        super().__init__((source,), (output,))
        self.map = map

    def parameters(self) -> dict[str, object]:
        return {"place": self.map}

    def count_reduced(self) -> int:
        return self.source.reduced

    def index_expressions(self) -> tuple[Expr, ...]:
        return self.map.expressions

    def with_sizes(self, rename: Callable[[Expr], Expr]) -> None:
        self.map = self.map.resized(rename, [axis.extent for axis in self.output.maybe_root])


class Piece(Stored):
    """A store to places that no other piece of the same `Join`, which alone reads the output, stores to.

    The output has the type, sizes and memory order of the whole. Its memory is that of the whole.
    """

    __slots__ = ()
    traits = Traits(placed=True, piece=True)


class Join(Node):
    """The whole of which each input, the output of a `Piece`, has some elements. All lie in one memory, so
    that nothing is left to compute.
    """

    __slots__ = ()
    traits = Traits(whole=True)

    def axis_map(self, operand: int) -> tuple[int | None, ...]:
        return (None,) * self.output.ndim


class Update(Stored):
    """The base, in which elements of inputs[0] are stored, or added by `op`, at the positions that `map`
    names.

    The positions may be loaded. The inputs are the source, `indices` integer tensors of its rank
    (`index_value`s of the map), and the base: a tensor of the output's type, sizes and memory order that
    nothing else reads. The base's memory becomes the output's, so a kernel has the node without the base
    (`without_base`). Without `op`, a position that several elements are stored to gets any one of them; with
    `op`, it gets all of them, in any order.
    """

    __slots__ = ("op", "indices", "_has_base")
    traits = Traits(placed=True, updates=True)

    def __init__(
        self,
        source: TensorView,
        output: TensorView,
        map: IndexMap,
        indices: Sequence[TensorView],
        base: TensorView,
        op: ReductionOp | None = None,
    ) -> None:
        Node.__init__(self, (source, *indices, base), (output,))
        self.map = map
        self.op = op
        self.indices = len(indices)
        self._has_base = True

    @property
    def index_tensors(self) -> list[TensorView]:
        return [v for v in self.inputs[1 : 1 + self.indices] if isinstance(v, TensorView)]

    @property
    def base(self) -> TensorView | None:
        base = self.inputs[-1] if self._has_base else None
        return base if isinstance(base, TensorView) else None

    def without_base(self) -> Update:
        """The same node, for an output whose memory is known to hold the base."""
        node = self.copy({})
        assert isinstance(node, Update)
        if node._has_base:
            node.inputs = node.inputs[:-1]
            node._has_base = False
        return node

    @property
    def label(self) -> str:
        return "Update" if self.op is None else f"Update_{self.op.name}"

    def count_reduced(self) -> int:
        return 0

    def axis_map(self, operand: int) -> tuple[int | None, ...]:
        rank = len(self.output.maybe_root)
        return (None,) * rank if operand > self.indices else tuple(range(rank))


class Choose(Node):
    """Element p is inputs[0] where `pred` holds, else inputs[1].

    `pred` is an expression over positions and the values of integer tensors, which are the other inputs.
    """

    __slots__ = ("pred",)
    traits = Traits(pointwise=True, carries_relabels=True)

    def __init__(
        self, first: Val, second: Val, output: TensorView, pred: Expr, indices: Sequence[TensorView] = ()
    ) -> None:
        super().__init__((first, second, *indices), (output,))
        self.pred = pred

    @property
    def index_tensors(self) -> list[TensorView]:
        return [v for v in self.inputs[2:] if isinstance(v, TensorView)]

    def parameters(self) -> dict[str, object]:
        return {"where": self.pred}

    def index_expressions(self) -> tuple[Expr, ...]:
        return (self.pred,)

    def with_sizes(self, rename: Callable[[Expr], Expr]) -> None:
        extents = [axis.extent for axis in self.output.logical]
        self.pred = IndexMap((), self.pred).resized(rename, extents).pred


class Full(Node):
    """Every element is the scalar inputs[0]."""

    __slots__ = ()
    traits = Traits(pointwise=True, carries_relabels=True)

    def __init__(self, fill: Scalar, output: TensorView) -> None:
        super().__init__((fill,), (output,))


class RandomState(Node):
    """The seed and offset of random numbers, from torch's generator: two Int scalars that change at each
    call.
    """

    __slots__ = ()
    traits = Traits()

    def __init__(self, seed: Scalar, offset: Scalar) -> None:
        super().__init__((), (seed, offset))


class Random(Node):
    """Random numbers, each a function of its position in row-major order and of the inputs: seed, offset."""

    __slots__ = ("op",)
    traits = Traits(pointwise=True)  # its row-major position is another where dimensions are

    def __init__(self, op: ElementwiseOp, seed: Scalar, offset: Scalar, output: TensorView) -> None:
        super().__init__((seed, offset), (output,))
        self.op = op

    @property
    def label(self) -> str:
        return self.op.name


class Iota(Node):
    """Element i along the only non-broadcast axis is start + i * step (inputs: start, step)."""

    __slots__ = ()
    traits = Traits(pointwise=True, carries_relabels=True)

    def __init__(self, start: Scalar, step: Scalar, output: TensorView) -> None:
        super().__init__((start, step), (output,))


class LibraryCall(Node):
    """outputs = op(inputs), computed by a library: a contraction, attention, a sort.

    Inputs are tensors, and scalars such as the k of topk. The outputs are whole tensors in memory.

    Attributes:
        options: the arguments of the row's function that are not values of the fusion, by name.
        views: for each input, the view nodes through which it is read, in order; empty if no input is read
            through a view.
    """

    __slots__ = ("op", "options", "views")
    traits = Traits(whole=True)

    def __init__(
        self,
        op: LibraryOp,
        inputs: Sequence[Val],
        outputs: Sequence[TensorView],
        options: Mapping[str, object],
    ) -> None:
        super().__init__(inputs, outputs)
        self.op = op
        self.options = options
        self.views: tuple[tuple[Node, ...], ...] = ()

    def seen_through(self, operand: int) -> tuple[Node, ...]:
        """The nodes that the operation sees an input through."""
        return self.views[operand] if self.views else ()

    def seen(self, operand: int) -> TensorView:
        """A tensor operand as the operation sees it; of a part of a graph, in the sizes of the whole."""
        views = self.seen_through(operand)
        tensor = views[-1].output if views else self.inputs[operand]
        assert isinstance(tensor, TensorView)
        return tensor

    def axis_map(self, operand: int) -> tuple[int | None, ...]:
        return (None,) * self.output.ndim

    @property
    def label(self) -> str:
        return self.op.name

    def parameters(self) -> dict[str, object]:
        return dict(self.options)
