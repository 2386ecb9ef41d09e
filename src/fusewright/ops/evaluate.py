"""Runs a fusion node by node with torch: the values that generated kernels must reproduce.

As in kernels, every value is computed in its type's compute type and rounded to its own type after the node
that makes it. Reductions differ from kernels' only in the order of their additions.
"""

from __future__ import annotations

import functools
import math
import operator
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from fusewright.core.dtype import DataType, PyScalar
from fusewright.core.errors import InputError, InternalError, ShapeError
from fusewright.core.op import converted, movable, selected
from fusewright.ir import (
    Broadcast,
    Choose,
    Copy,
    Expand,
    Full,
    Fusion,
    Indexed,
    Iota,
    IterDomain,
    Join,
    LibraryCall,
    Node,
    Permute,
    Piece,
    Pointwise,
    Random,
    RandomState,
    Reduction,
    Relabel,
    Scalar,
    Scan,
    Squeeze,
    Stored,
    TensorView,
    Update,
    Val,
    position_of,
    value_extent,
    value_of,
)
from fusewright.ops.elementwise import CAST
from fusewright.ops.random import BLOCK_BYTES
from fusewright.sym import Expr, Symbol, as_int, evaluate, fold

Value = torch.Tensor | PyScalar
Values = dict[Val, torch.Tensor]
Sizes = dict[Symbol, int]
#: The seed and offset of the random numbers that a fusion draws next.
Draw = Callable[[], tuple[int, int]]


def bind_sizes(fusion: Fusion, inputs: Sequence[Value]) -> Sizes:
    """The value of every symbol that sizes of the inputs, or integer inputs, stand for.

    Raises:
        InputError: the number of inputs, or a tensor's rank, is wrong.
        ShapeError: two sizes that the fusion takes as one differ.
    """
    if len(inputs) != len(fusion.inputs):
        raise InputError(f"Expected {len(fusion.inputs)} inputs, but got {len(inputs)}")
    sizes: Sizes = {}

    def bind(extent: Expr, size: int, what: str) -> None:
        known = sizes.setdefault(extent, size) if isinstance(extent, Symbol) else as_int(extent)
        if known != size:
            raise ShapeError(
                f"{what}: a conflict was found with 2 different sizes", expected=known, given=size
            )

    named = _symbols_of_scalars(fusion)
    for i, (value, given) in enumerate(zip(fusion.inputs, inputs)):
        if isinstance(value, TensorView):
            if not isinstance(given, torch.Tensor) or given.ndim != value.ndim:
                raise InputError(
                    index=i, name=value.name, expected=f"a tensor of rank {value.ndim}", given=given
                )
            for dim, (extent, size) in enumerate(zip(value.extents, given.shape)):
                bind(extent, size, f"input {i}, dimension {dim}")
        else:
            for name in named.get(value, ()):
                bind(name, int(given.real), f"input {i}")
    _add_computed_sizes(fusion, sizes)
    return sizes


def _symbols_of_scalars(fusion: Fusion) -> Mapping[Val, Sequence[Symbol]]:
    """The symbols that stand for the value of each scalar."""
    found: defaultdict[Val, list[Symbol]] = defaultdict(list)
    for name, scalar in fusion.scalar_of.items():
        found[scalar].append(name)
    return found


def _add_computed_sizes(fusion: Fusion, sizes: Sizes) -> None:
    """Adds those that follow from sizes which are known already."""
    for symbol, computed in fusion.computed_sizes.items():
        if sizes.keys() >= computed.free_symbols:
            sizes[symbol] = evaluate(computed, sizes)


def evaluate_fusion(fusion: Fusion, inputs: Sequence[Value], draw: Draw | None = None) -> list[torch.Tensor]:
    """The visible outputs, each a separate tensor; arguments and errors as in `evaluate_values`."""
    values = evaluate_values(fusion, inputs, draw)
    visible = [o.tensor for o in fusion.outputs if not o.hidden]
    return [
        values[t].view(t.dtype.torch) if t.dtype is DataType.Float4_e2m1fn_x2 else values[t] for t in visible
    ]


def evaluate_values(
    fusion: Fusion, inputs: Sequence[Value], draw: Draw | None = None, sizes: Sizes | None = None
) -> Values:
    """The values of the inputs and of everything that outputs depend on; a scalar is a tensor of rank 0.

    They are on the device of the inputs (the CPU if none is a tensor). Nothing is written: an output that
    aliases an input is a separate tensor.

    Args:
        draw: the start of the random numbers that the fusion takes from a generator.
        sizes: those that no input of a segment determines.

    Raises:
        InputError: the fusion takes random numbers from a generator, and there is no `draw`.
    """
    sizes = {**(sizes or {}), **bind_sizes(fusion, inputs)}
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    device = next((t.device for t in tensors if t.device.type != "cpu"), torch.device("cpu"))
    values: Values = {}
    for value, given in zip(fusion.inputs, inputs):
        if isinstance(given, torch.Tensor):
            given = given.view(value.dtype.values) if value.dtype is DataType.Float4_e2m1fn_x2 else given
            values[value] = given.to(device) if not given.ndim else given
        else:
            values[value] = torch.tensor(given, dtype=value.dtype.torch, device=device)
    run = _Evaluation(values, sizes, device, draw)
    named = _symbols_of_scalars(fusion)
    for node in _size_nodes(fusion):
        (out,) = node.outputs
        (result,) = RULES[type(node)](run, node)
        values[out] = converted(result, out.dtype)
        sizes.update(dict.fromkeys(named.get(out, ()), int(values[out].real)))
    _add_computed_sizes(fusion, sizes)
    for node in fusion.ordered_nodes():
        results = RULES[type(node)](run, node)
        for out, result in zip(node.outputs, results):
            run.values[out] = converted(result, out.dtype)
    return run.values


def _size_nodes(fusion: Fusion) -> list[Node]:
    """What computes scalars that are sizes: tensors have them without being made from them."""
    used = fusion.size_symbols()
    stack: list[Val] = [scalar for symbol, scalar in fusion.scalar_of.items() if symbol in used]
    needed: set[Node] = set()
    while stack:
        node = stack.pop().definition
        if node is not None and node not in needed:
            needed.add(node)
            stack += node.inputs
    return [node for node in fusion.nodes if node in needed]


class _Evaluation:
    """The values found so far."""

    def __init__(self, values: Values, sizes: Sizes, device: torch.device, draw: Draw | None) -> None:
        self.values = values
        self.sizes = sizes
        self.device = device
        self.draw = draw

    def get(self, value: Val) -> torch.Tensor:
        """A value in its compute type; a scalar as a tensor of rank 0."""
        if value not in self.values:
            assert isinstance(value, Scalar)
            number = value.value if value.value is not None else self.size(value)
            self.values[value] = torch.tensor(number, dtype=value.dtype.torch, device=self.device)
        return converted(self.values[value], value.dtype.compute)

    def size(self, scalar: Scalar) -> int:
        if scalar.extent is None:
            raise InternalError(problem=f"scalar {scalar} has neither a value nor a definition")
        return evaluate(scalar.extent, self.sizes)

    def shape(self, tensor: TensorView) -> list[int]:
        return [evaluate(extent, self.sizes) for extent in tensor.extents]


Rule = Callable[[_Evaluation, Any], Sequence[torch.Tensor]]


def _pointwise(run: _Evaluation, node: Pointwise) -> Sequence[torch.Tensor]:
    operands = [run.get(v) for v in node.inputs]
    if node.op is CAST:
        return operands
    if node.op.stored is not None:  # the bits themselves: those of a NaN do not survive a conversion
        operands = [run.values[v] for v in node.inputs]
    # The last operand has the compute type: the first of `where` is its condition.
    result = node.op.spelling(node.inputs[-1].dtype.compute).torch(*operands)
    out = node.outputs[0]
    return [result.expand(run.shape(out)) if isinstance(out, TensorView) else result]


def _reduction(run: _Evaluation, node: Reduction) -> Sequence[torch.Tensor]:
    dims = tuple(i for i, axis in enumerate(node.output.maybe_root) if axis.is_reduction)
    if len(node.inputs) != node.op.operands:
        raise InternalError(
            problem="a reduction of partial results belongs to a schedule, not to a definition"
        )
    return node.op.reduce(tuple(run.get(v) for v in node.inputs), dims)


def _scan(run: _Evaluation, node: Scan) -> Sequence[torch.Tensor]:
    x, *init = (run.get(v) for v in node.inputs)
    assert node.op.scan is not None
    found = node.op.scan(x.expand(run.shape(node.output)), node.dim)
    if not init:
        return [found]
    return node.op.combining(node.output.dtype).torch((init[0],), (found,))


def _same(run: _Evaluation, node: Copy) -> Sequence[torch.Tensor]:
    return [run.get(node.inputs[0])]


def _relabel(run: _Evaluation, node: Broadcast | Squeeze | Permute | Relabel) -> Sequence[torch.Tensor]:
    x, dims = run.get(node.inputs[0]), node.axis_map(0)
    kept = sorted(dim for dim in dims if dim is not None)
    for removed in reversed(range(x.ndim)):
        if removed not in kept:
            # All points of an expanded dimension are one; of one without points nothing depends on it.
            others = [size for dim, size in enumerate(x.shape) if dim != removed]
            x = x.select(removed, 0) if x.shape[removed] else x.new_zeros(others)
    x = x.permute([kept.index(dim) for dim in dims if dim is not None])
    for position, dim in enumerate(dims):
        if dim is None:
            x = x.unsqueeze(position)
    return [x]


def _expand(run: _Evaluation, node: Expand) -> Sequence[torch.Tensor]:
    return [run.get(node.inputs[0]).expand(run.shape(node.output))]


def _sizes(run: _Evaluation, axes: Sequence[IterDomain]) -> list[int]:
    return [evaluate(axis.visible_extent, run.sizes) for axis in axes]


def _positions(run: _Evaluation, axes: Sequence[IterDomain]) -> list[torch.Tensor]:
    """The position of every element along each dimension, zero along broadcasts; they broadcast together."""
    shape, rank = _sizes(run, axes), len(axes)
    places = []
    for dim, (size, axis) in enumerate(zip(shape, axes)):
        counted = torch.arange(0 if axis.is_broadcast and not size else size, device=run.device)
        line = torch.zeros_like(counted) if axis.is_broadcast else counted
        places.append(line.reshape([size if i == dim else 1 for i in range(rank)]))
    return places


def _indexed(run: _Evaluation, node: Indexed) -> Sequence[torch.Tensor]:
    source, shape = run.get(node.source), run.shape(node.output)
    places, values = _positions(run, node.output.shape), [run.get(v).long() for v in node.index_tensors]
    found = [_index_values(run, e, places, values) for e in node.map.expressions]
    *indices, pred = [e.expand(shape) for e in found]
    fill = run.get(node.fill) if node.fill is not None else source.new_zeros(())
    if not source.numel():
        return [fill.expand(shape)]
    # What is outside is read somewhere inside, and not used.
    inside = [i.clamp(0, size - 1) for i, size in zip(indices, source.shape)]
    element = source[tuple(inside)] if inside else source.expand(shape)
    return [selected(pred.bool(), element, fill)]


def _stored(run: _Evaluation, node: Stored) -> Sequence[torch.Tensor]:
    return [_stored_in(run, node, run.get(node.source).new_zeros(run.shape(node.output)))]


def _join(run: _Evaluation, node: Join) -> Sequence[torch.Tensor]:
    whole = run.get(node.source).new_zeros(run.shape(node.output))
    for piece in node.tensor_inputs:
        assert isinstance(piece.definition, Piece)
        whole = _stored_in(run, piece.definition, whole)
    return [whole]


def _stored_in(run: _Evaluation, node: Stored, out: torch.Tensor) -> torch.Tensor:
    """`out`, which is changed, with what the node stores."""
    source = node.source
    size, places = run.shape(source), _positions(run, source.shape)
    *indices, pred = [_index_values(run, e, places, []).expand(size) for e in node.map.expressions]
    taken = pred.bool()
    elements = run.get(source).expand(size)[taken]
    if not indices:
        return elements.reshape(())
    movable(out)[tuple(i[taken] for i in indices)] = movable(elements)
    return out


def _update(run: _Evaluation, node: Update) -> Sequence[torch.Tensor]:
    return [_updated(run, node, *(run.get(v) for v in node.inputs if isinstance(v, TensorView)))]


def updated(node: Update, sizes: Mapping[Symbol, int], *operands: torch.Tensor) -> torch.Tensor:
    """The output of a node, from its operands: the source, the index tensors, the base, none of them changed.

    Deterministic if torch's deterministic algorithms are in use. RuntimeError for an index out of range on
    the CPU; on a GPU the element is dropped.
    """
    return _updated(_Evaluation({}, dict(sizes), operands[0].device, None), node, *operands)


def _updated(run: _Evaluation, node: Update, *operands: torch.Tensor) -> torch.Tensor:
    source, *indices, base = operands
    root = node.output.maybe_root
    shape, places = _sizes(run, root), _positions(run, root)
    for symbol in {s for e in node.map.expressions for s in e.free_symbols}:
        number = value_of(symbol)
        if number is not None and base.device.type == "cpu":
            _check_range(indices[number], evaluate(value_extent(symbol), run.sizes))
    values = [index.long() for index in indices]
    found = [_index_values(run, e, places, values).expand(shape) for e in node.map.expressions]
    *at, pred = found
    flat: torch.Tensor = torch.zeros(shape, dtype=torch.int64, device=run.device)
    for index, size in zip(at, base.shape):
        flat = flat * size + index
    # What is dropped goes to a place behind the last, as selecting the rest would wait for the device.
    line = torch.cat([movable(base).reshape(-1), movable(base).new_zeros(1)])
    flat = torch.where(pred.bool(), flat, base.numel()).reshape(-1)
    elements = movable(source).expand(shape).reshape(-1)
    line = line.index_put((flat,), elements, accumulate=node.op is not None)
    return line[:-1].reshape(base.shape).view(base.dtype)


def _check_range(index: torch.Tensor, size: int) -> None:
    outside = index[(index < 0) | (index >= size)]
    if outside.numel():
        raise RuntimeError(f"index {outside[0]} is out of bounds for a dimension with size {size}")


def _choose(run: _Evaluation, node: Choose) -> Sequence[torch.Tensor]:
    shape = run.shape(node.output)
    values = [run.get(v).long() for v in node.index_tensors]
    pred = _index_values(run, node.pred, _positions(run, node.output.shape), values).bool()
    first, second = (run.get(v).expand(shape) for v in node.inputs[:2])
    return [selected(pred.expand(shape), first, second)]


def _index_values(
    run: _Evaluation, expr: Expr, places: Sequence[torch.Tensor], values: Sequence[torch.Tensor]
) -> torch.Tensor:
    """An index expression for all positions at once; a predicate gives 0 and 1."""

    def visit(e: Expr, args: tuple[torch.Tensor, ...]) -> torch.Tensor:
        if isinstance(e, Symbol):
            dim, number = position_of(e), value_of(e)
            if dim is not None:
                return places[dim]
            if number is None:
                return torch.tensor(run.sizes[e], device=run.device)
            value, extent = values[number], evaluate(value_extent(e), run.sizes)
            return torch.where((value >= 0) & (value < extent), value, -1)
        return _INDEX_RULES[e.kind](e, *args)

    return fold(expr, visit).to(run.device)  # a constant had none


_INDEX_RULES: Mapping[str, Callable[..., torch.Tensor]] = {
    "const": lambda e: torch.tensor(as_int(e), device="cpu"),
    "add": lambda e, *args: functools.reduce(operator.add, args),
    "mul": lambda e, *args: functools.reduce(operator.mul, args),
    "floordiv": lambda e, a, b: torch.div(a, b, rounding_mode="floor"),
    "mod": lambda e, a, b: torch.remainder(a, b),
    "min": lambda e, *args: functools.reduce(torch.minimum, args),
    "max": lambda e, *args: functools.reduce(torch.maximum, args),
    "xor": lambda e, *args: functools.reduce(operator.xor, args),
    "lt": lambda e, a, b: (a < b).long(),
    "le": lambda e, a, b: (a <= b).long(),
    "eq": lambda e, a, b: (a == b).long(),
    "not": lambda e, a: 1 - a,
    "and": lambda e, *args: functools.reduce(torch.minimum, args),
    "or": lambda e, *args: functools.reduce(torch.maximum, args),
}


def _full(run: _Evaluation, node: Full) -> Sequence[torch.Tensor]:
    return [run.get(node.inputs[0]).expand(run.shape(node.output))]


def _iota(run: _Evaluation, node: Iota) -> Sequence[torch.Tensor]:
    start, step = (run.get(v) for v in node.inputs)
    shape = run.shape(node.output)
    is_along = [not axis.is_broadcast for axis in node.output.shape]  # no axis of one that has one element
    position = torch.arange(math.prod(n for n, along in zip(shape, is_along) if along), device=run.device)
    position = position.reshape([n if along else 1 for n, along in zip(shape, is_along)])
    return [(start + position.to(step.dtype) * step).expand(shape)]


def _random_state(run: _Evaluation, node: RandomState) -> Sequence[torch.Tensor]:
    if run.draw is None:
        raise InputError(
            "the fusion takes random numbers from a generator, which its reference would advance",
            expected="rng_seed and rng_offset, which make them the same each time",
        )
    return [torch.tensor(value, device=run.device) for value in run.draw()]


def _random(run: _Evaluation, node: Random) -> Sequence[torch.Tensor]:
    shape, dtype = run.shape(node.output), node.output.dtype
    numbers = torch.arange(math.prod(shape), device=run.device).reshape(shape)
    each = BLOCK_BYTES // dtype.size
    seed, offset = (run.get(v) for v in node.inputs)
    return [node.op.spelling(dtype).torch(numbers // each, numbers % each, seed, offset)]


def _library_call(run: _Evaluation, node: LibraryCall) -> Sequence[torch.Tensor]:
    function = (node.op.reference or node.op.function)(run.device.type, **node.options)
    operands = [run.get(v) if isinstance(v, TensorView) else run.get(v).item() for v in node.inputs]
    if node.op.typed:
        operands = [run.values[v] if isinstance(v, TensorView) else x for v, x in zip(node.inputs, operands)]
    results = function(*operands)
    return [results] if len(node.outputs) == 1 else results


#: One rule a node class: the outputs' values, from those of the inputs.
RULES: Mapping[type[Node], Rule] = {
    Pointwise: _pointwise,
    Reduction: _reduction,
    Scan: _scan,
    Copy: _same,
    Broadcast: _relabel,
    Squeeze: _relabel,
    Permute: _relabel,
    Relabel: _relabel,
    Expand: _expand,
    Indexed: _indexed,
    Stored: _stored,
    Piece: _stored,
    Join: _join,
    Update: _update,
    Choose: _choose,
    Full: _full,
    Iota: _iota,
    RandomState: _random_state,
    Random: _random,
    LibraryCall: _library_call,
}
