"""Records nodes of a graph of ATen operators in a definition, and checks each against torch's tracing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import fx

from fusewright.core.dtype import DataType, from_torch
from fusewright.core.errors import DtypeError, UserError
from fusewright.frontend.definition import FusionDefinition
from fusewright.frontend.descriptors import compute_tensor_descriptor
from fusewright.frontend.handles import Handle, Scalar, Tensor
from fusewright.frontend.operators import Operators
from fusewright.ops.aten import refusal
from fusewright.ops.library import LIBRARY
from fusewright.torch_compile.rows import PLACEMENT, ROWS, NotRecordable, Overload, Row, bound_arguments
from fusewright.torch_compile.sizes import (
    SIZE_FUNCTIONS,
    computed_size,
    expression_of,
    is_computable,
    is_known,
    is_number,
)

SYMBOLIC = -1


class UnsupportedNode(Exception):
    """A definition cannot hold this node; the text says why."""

    def __init__(self, node: fx.Node, reason: str) -> None:
        super().__init__(reason)
        self.node = node
        self.reason = reason


def meta_of(node: fx.Node) -> Any:
    """What torch's tracing found a node to return: fake tensors, sizes and numbers."""
    return node.meta.get("val")


def result_tensors(node: fx.Node) -> list[torch.Tensor]:
    """The fake tensors that a node returns."""
    found = meta_of(node)
    values = found if isinstance(found, (list, tuple)) else [found]
    return [value for value in values if isinstance(value, torch.Tensor)]


def takes_dtype(dtype: torch.dtype) -> bool:
    """Whether tensors of a definition may be of this type."""
    try:
        from_torch(dtype)
    except DtypeError:
        return False
    return True


def is_on_host(tensor: torch.Tensor) -> bool:
    """Whether it is in host memory, if the graph runs on a GPU."""
    return tensor.device.type == "cpu"


def restrided(value: Any, node: fx.Node) -> Any:
    """A value; a tensor in the memory order that the graph was traced with, copied if need be."""
    traced = meta_of(node)
    if not isinstance(value, torch.Tensor) or value.stride() == traced.stride():
        return value
    order = sorted(range(value.ndim), key=lambda dim: -stride_order(traced)[dim])
    back = [order.index(dim) for dim in range(value.ndim)]
    return value.permute(order).contiguous().permute(back)


class Recording:
    """A definition while nodes of a graph are recorded in it.

    Attributes:
        ops: the definition's operations.
        inputs: the nodes whose values are its inputs, in order.
        evaluated: the nodes without an operation that torch computes within it, and why.
        library: all nodes that torch computes within it.
    """

    def __init__(self, fd: FusionDefinition, known: Mapping[fx.Node, Any], on_gpu: bool) -> None:
        """`known`: nodes that are plain numbers, or nothing. `on_gpu`: whether the graph runs there."""
        self.fd = fd
        self._on_gpu = on_gpu
        self.ops: Operators = fd.ops
        self.inputs: list[fx.Node] = []
        self.evaluated: dict[fx.Node, str] = {}
        self.library: set[fx.Node] = set()
        self._values: dict[fx.Node, Any] = dict(known)
        #: what torch says of each tensor, by its state
        self._stated: dict[int, torch.Tensor] = {}
        #: by the text of a symbolic size: where it is known from
        self._sizes: dict[str, tuple[Tensor, int] | Scalar] = {}
        self._node: fx.Node | None = None

    @property
    def on_gpu(self) -> bool:
        """Whether the graph runs on a GPU, where some operators of torch compute in another way."""
        return self._on_gpu

    # ---- inputs and outputs

    def add_input(self, node: fx.Node) -> None:
        """Defines an input like the fake value of `node`: sizes that are numbers are constants."""
        value = meta_of(node)
        self.inputs.append(node)
        if isinstance(value, torch.Tensor):
            self._values[node] = self._define_tensor(value)
            return
        kinds = ((torch.SymInt, int, DataType.Int), (torch.SymFloat, float, DataType.Double))
        for symbolic, plain, dtype in kinds:
            if isinstance(value, (symbolic, plain)):
                scalar = self._values[node] = self.fd.define_scalar(dtype)
                self._sizes.setdefault(str(value), scalar)
                return
        raise UnsupportedNode(node, f"an input that is a {type(value).__name__}")

    def add_size(self, node: fx.Node) -> None:
        """A size that a call knows: computed from the sizes of inputs if possible, else an input."""
        if not is_known(meta_of(node)) and not self._is_computable(expression_of(meta_of(node))):
            self.add_input(node)

    def _define_tensor(self, value: torch.Tensor) -> Tensor:
        symbols = [not isinstance(size, int) for size in value.shape]
        hints = [int(size) if isinstance(size, int) else _hint(size) for size in value.shape]
        strides = [s if isinstance(s, int) else _hint(s) for s in value.stride()]
        contiguity, order = compute_tensor_descriptor(hints, strides)
        shape = [SYMBOLIC if symbolic else size for symbolic, size in zip(symbols, hints)]
        is_cpu = self._on_gpu and is_on_host(value)
        tensor = self.fd.define_tensor(shape, contiguity, from_torch(value.dtype), is_cpu, order)
        self._stated[tensor.index] = value
        for dim, size in enumerate(value.shape):
            if symbols[dim]:
                self._sizes.setdefault(str(size), (tensor, dim))
        return tensor

    def value(self, argument: Any) -> Any:
        """The handle of a node; numbers and lists are returned unchanged."""
        if isinstance(argument, fx.Node):
            if argument not in self._values:
                self._values[argument] = self._size(meta_of(argument))
            return self._values[argument]
        if isinstance(argument, (list, tuple)):
            return [self.value(item) for item in argument]
        return argument

    # ---- what rows ask

    def sizes(self, tensor: Tensor) -> list[int | Scalar]:
        """The sizes of an argument, as numbers if the definition knows them."""
        return [self._size(size) for size in self._stated[tensor.index].shape]

    def are_of_one_size(self, a: Tensor, b: Tensor, but_for: int | None = None) -> bool:
        """Whether torch knows that two arguments have the same sizes, except for those along `but_for`."""
        ours, theirs = ([*map(str, self._stated[each.index].shape)] for each in (a, b))
        if but_for is not None:
            del ours[but_for], theirs[but_for]
        return ours == theirs

    def shape(self, result: int | None = None) -> list[int | Scalar]:
        """The sizes of the current node's result, or of one of several."""
        return [self._size(size) for size in self._result(result).shape]

    def is_size(self, dim: int, size: int) -> bool:
        """Whether torch knows that the current node's result has this size along `dim`."""
        return is_number(self._result().shape[dim], size)

    def rank(self) -> int:
        return self._result().ndim

    def dtype(self, result: int | None = None) -> DataType:
        """The type of the current node's result, or of one of several."""
        return from_torch(self._result(result).dtype)

    def changes_layout(self) -> bool:
        """Whether the current node's result has another memory layout than its first argument."""
        return self._source().stride() != self._result().stride()

    def is_reshape(self) -> bool:
        """Whether the current node's result has the elements of its first argument in that order."""
        source, result = self._source(), self._result()
        return source.is_contiguous() and result.is_contiguous() and source.numel() == result.numel()

    def _source(self) -> torch.Tensor:
        """The current node's first argument, as torch has it."""
        assert self._node is not None
        source = self._node.args[0]
        assert isinstance(source, fx.Node)
        return meta_of(source)

    def _result(self, index: int | None = None) -> torch.Tensor:
        assert self._node is not None
        return result_tensors(self._node)[index or 0]

    def _size(self, size: Any) -> int | Scalar:
        if is_known(size):
            return size
        if not self._is_computable(size.node.expr):
            raise NotRecordable(f"the size {size} is computed from others")
        found = computed_size(self.ops, size.node.expr, self._known_size)
        if isinstance(found, Scalar):
            self._sizes[str(size)] = found
        return found

    def _is_computable(self, size: Any) -> bool:
        return is_computable(size, lambda part: str(part) in self._sizes)

    def _known_size(self, size: Any) -> Scalar | None:
        """The scalar of an expression of sizes that a tensor has or a node computed."""
        known = self._sizes.get(str(size))
        if isinstance(known, tuple):
            tensor, dim = known
            known = self._sizes[str(size)] = self.ops.size(tensor, dim)
        return known

    # ---- nodes

    def record(self, node: fx.Node) -> None:
        """Records the computation of a node. UnsupportedNode: a definition cannot hold it."""
        self._node = node
        if node.target in SIZE_FUNCTIONS:
            self._values[node] = self._size_function(node)
            return
        target = node.target
        if not isinstance(target, Overload):
            source = self.value(node.args[0])  # operator.getitem
            self._values[node] = source[node.args[1]]
            if node.args[0] in self.library:
                self.library.add(node)
            return
        bound = bound_arguments(target, node.args, node.kwargs)
        known = ROWS.get(str(target))
        if known is None:
            made = self._by_torch(node, target, bound, "there is no operation for it")
        else:
            try:
                made = self._converted(node, self._by_row(node, known, target, bound))
            except (NotRecordable, UserError) as error:
                reason = error.message.splitlines()[0] if isinstance(error, UserError) else str(error)
                made = self._by_torch(node, target, bound, reason)
        self._values[node] = made

    def _by_row(self, node: fx.Node, known: Row, target: Overload, bound: Mapping[str, Any]) -> Any:
        recorder = self.fd._recorder
        assert recorder is not None
        before = len(recorder.records)
        made = known.apply(self, target, {name: self.value(v) for name, v in bound.items()})
        if any(record.op in LIBRARY for record in recorder.records[before:]):
            self.library.add(node)
        return made

    def lay_out(self, node: fx.Node) -> None:
        """Has a tensor that is computed here lie in memory as torch has it, for whoever reads it."""
        order = stride_order(result_tensors(node)[0])
        if order != sorted(order, reverse=True) and node not in self.library:
            laid_out = self._values[node] = self.ops.stride_order(self._values[node], order)
            self._stated[laid_out.index] = result_tensors(node)[0]

    def _size_function(self, node: fx.Node) -> Any:
        value = meta_of(node)
        if is_known(value):
            return value
        known = self._sizes.get(str(value))
        if known is None:
            scalar = SIZE_FUNCTIONS[node.target](self.ops, *map(self.value, node.args))
            self._sizes[str(value)] = scalar
            return scalar
        return self._size(value)

    def _converted(self, node: fx.Node, made: Any) -> Any:
        """What a row returned, in the types that torch gives it.

        Raises:
            NotRecordable: it is something else, for operands whose types torch promotes in another way.
        """
        stated = result_tensors(node)
        handles = list(_tensors(made))
        if len(handles) != len(stated):
            raise NotRecordable(f"torch has {len(stated)} results, and its row {len(handles)}")
        converted = [self._checked(handle, value) for handle, value in zip(handles, stated)]
        return converted[0] if isinstance(made, Handle) else converted

    def _checked(self, handle: Tensor, stated: torch.Tensor) -> Tensor:
        dtype = from_torch(stated.dtype)
        # Operations on reduced floats give Float, which torch rounds after each operator.
        fits = handle.dtype in (dtype, dtype.compute) and handle.ndim == stated.ndim
        if not fits:
            given = f"{handle.dtype} of rank {handle.ndim}"
            raise NotRecordable(f"it is {dtype} of rank {stated.ndim} in torch, and its row {given}")
        result = handle if handle.dtype is dtype else self.ops.cast(handle, dtype)
        self._stated[result.index] = stated
        return result

    # ---- what torch computes

    def _by_torch(self, node: fx.Node, target: Overload, bound: Mapping[str, Any], reason: str) -> Any:
        """Records a call of torch. UnsupportedNode: it returns what a definition cannot hold."""
        target = _without_views(target)
        refused = "it is no operator of ATen" if target.namespace != "aten" else refusal(target)
        if refused is not None:
            raise UnsupportedNode(node, f"{reason}, and torch cannot compute it in a definition: {refused}")
        values = [None if name in PLACEMENT else self.value(v) for name, v in bound.items()]
        found = meta_of(node)
        results = found if isinstance(found, (list, tuple)) else (found,)
        is_tensor = [isinstance(value, torch.Tensor) for value in results]
        try:
            made = self.ops.aten(
                str(target).removeprefix("aten."),
                values,
                [[self._size(s) for s in t.shape] if there else [] for t, there in zip(results, is_tensor)],
                [from_torch(t.dtype) if there else DataType.Null for t, there in zip(results, is_tensor)],
                [stride_order(t) if there else [] for t, there in zip(results, is_tensor)],
            )
        except (NotRecordable, UserError) as error:
            raise UnsupportedNode(node, f"{reason}; {str(error).splitlines()[0]}") from error
        made = made if isinstance(made, tuple) else (made,)
        self.evaluated[node] = reason
        self.library.add(node)
        self._stated.update((m.index, t) for m, t, there in zip(made, results, is_tensor) if there)
        # Sizes among the results, such as those of attention, are numbers.
        merged = [m if there else value for m, value, there in zip(made, results, is_tensor)]
        return merged if isinstance(found, (list, tuple)) else merged[0]


def _hint(size: torch.SymInt) -> int:
    return int(size.node.hint)


def _tensors(values: Any) -> Iterable[Tensor]:
    if isinstance(values, Tensor):
        return [values]
    return [v for v in values if isinstance(v, Tensor)] if isinstance(values, (list, tuple)) else []


def stride_order(tensor: torch.Tensor) -> list[int]:
    """The order of its dimensions in memory: 0 for the innermost."""
    strides = [s if isinstance(s, int) else _hint(s) for s in tensor.stride()]
    sizes = [s if isinstance(s, int) else _hint(s) for s in tensor.shape]
    return compute_tensor_descriptor(sizes, strides)[1]


def _without_views(target: Overload) -> Overload:
    """The operator that copies what `target` gives a view of, if that is what it does."""
    if all(result.alias_info is None for result in target._schema.returns) or target._schema.is_mutable:
        return target
    name = target._schema.name.removeprefix("aten::")
    packet = getattr(torch.ops.aten, f"{name}_copy", None)
    return getattr(packet, target._overloadname, target)
