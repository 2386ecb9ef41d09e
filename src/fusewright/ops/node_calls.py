"""The calls of `fd.ops` that make a single node.

A composite operation is several nodes, which may be in several kernels. A definition of one of these kernels
cannot contain the operation, so it contains the calls for the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fusewright.core.dtype import DataType
from fusewright.core.errors import DefinitionError
from fusewright.ir import (
    Broadcast,
    Choose,
    Copy,
    Expand,
    Full,
    Indexed,
    Iota,
    LibraryCall,
    Node,
    Permute,
    Pointwise,
    Random,
    Reduction,
    Relabel,
    Scan,
    Squeeze,
    TensorView,
    Update,
)
from fusewright.ir.index_map import is_size, position, position_of, positions, value_of
from fusewright.ops.elementwise import CAST, ELEMENTWISE
from fusewright.ops.random import UNIFORM
from fusewright.ops.reductions import ARGMAX, ARGMIN, LOGSUMEXP, MAX_SUM_EXP, SUM, WELFORD
from fusewright.ops.registry import OPS
from fusewright.sym import ONE, TRUE, ZERO, Expr, Symbol, as_int, const, le, product, substitute


class Result:
    """The result of a call that is no value of the fusion."""

    __slots__ = ()


#: A value of the fusion, a `Result`, a size (an `Expr`), a plain Python value, or a list of such.
Argument = Any


@dataclass(frozen=True, eq=False)
class Call:
    """One call of `fd.ops`.

    Attributes:
        args: of the first parameters; options: of others, by name.
        results: what each result of the call is, a value of the fusion or a `Result`; None: nothing.
    """

    op: str
    args: tuple[Argument, ...]
    options: Mapping[str, Argument] = field(default_factory=dict)
    results: tuple[Argument, ...] = ()


def calls_of(node: Node) -> list[Call]:
    """The calls that make the outputs of `node` from its inputs, in order.

    DefinitionError for a node that no operations make alone.
    """
    write = _WRITERS.get(type(node))
    calls = write(node) if write is not None else []
    if not calls or any(call.op not in OPS for call in calls):
        raise DefinitionError(
            problem=f"no operation makes {', '.join(map(str, node.outputs))} = {node.label}(...) alone",
            hint="it is part of an operation whose other parts are computed elsewhere",
        )
    return calls


# ---- nodes that one operation makes ------------------------------------------------------------------------


def _pointwise(node: Pointwise) -> list[Call]:
    if node.op is CAST:
        return [Call("cast", (node.inputs[0], node.outputs[0].dtype), results=node.outputs)]
    if ELEMENTWISE.get(node.op.name, node.op) is not node.op:
        return []  # of a row that is registered no more; another has its name
    return [Call(node.op.name, node.inputs, results=node.outputs)]


def _reduction(node: Reduction) -> list[Call]:
    source = node.inputs[0]
    dims = list(node.reduced_dims)
    if node.op in (WELFORD, MAX_SUM_EXP) and len(node.inputs) == 1:
        return [Call(node.op.name, (source, dims), results=node.outputs)]
    if node.op in (ARGMAX, ARGMIN):
        dim = dims[0] if len(dims) == 1 else None
        found = Result()
        return [
            Call(node.op.name, (source, dim), results=(found,)),
            Call("cast", (found, node.outputs[1].dtype), results=(node.outputs[1],)),
        ]
    return [Call(node.op.name, (source, dims), results=node.outputs)] if len(node.inputs) == 1 else []


def _scan(node: Scan) -> list[Call]:
    init = {"init": node.inputs[1]} if len(node.inputs) > 1 else {}
    name = "logcumsumexp" if node.op is LOGSUMEXP else f"cum{node.op.name}"
    return [Call(name, (node.inputs[0], node.dim), init, node.outputs)]


def _copy(node: Copy) -> list[Call]:
    if node.ordered:
        out = node.output
        place = {axis: i for i, axis in enumerate(reversed(out.allocation))}
        order = [place[axis] for axis in out.shape]
        return [Call("stride_order", (node.inputs[0], order), results=node.outputs)]
    return [Call("segment_set" if node.segment else "set", node.inputs, results=node.outputs)]


def _relabel(node: Relabel) -> list[Call]:
    """A squeeze of what disappears, a permutation of what stays, a broadcast of what is new."""
    source = node.source
    kept = [dim for dim in node.dims if dim is not None]
    gone = [i for i in range(source.ndim) if i not in kept]
    left, order = Result(), Result()
    ranks = [sorted(kept).index(dim) for dim in kept]
    return [
        Call("squeeze", (source, gone, True), results=(left,)),
        Call("permute", (left, ranks), results=(order,)),
        Call("broadcast", (order, [dim is None for dim in node.dims]), results=node.outputs),
    ]


def _expand(node: Expand) -> list[Call]:
    source = node.source
    sizes = [
        axis.visible_extent if axis.expanded is not None and before.expanded is None else -1
        for before, axis in zip(source.shape, node.output.shape)
    ]
    return [Call("expand", (source, sizes), results=node.outputs)]


def _full(node: Full) -> list[Call]:
    out = node.output
    return [Call("full", (list(out.extents), node.inputs[0], out.dtype), results=node.outputs)]


def _iota(node: Iota) -> list[Call]:
    (size,) = node.output.extents
    return [Call("iota", (size, *node.inputs, node.output.dtype), results=node.outputs)]


def _random(node: Random) -> list[Call]:
    out = node.output
    seed, offset = node.inputs
    name = "uniform" if node.op in UNIFORM.values() else "normal"
    state = {"rng_seed": seed, "rng_offset": offset, "dtype": out.dtype}
    return [Call(name, (0.0, 1.0, list(out.extents)), state, node.outputs)]


def _library_call(node: LibraryCall) -> list[Call]:
    """The operation of the same name, if its parameters are the node's operands, then the node's options."""
    row = OPS.get(node.op.name)
    if row is None:
        return []
    operands = [p for p in row.parameters if p.name not in node.options]
    if not node.options.keys() <= row.index.keys() or len(operands) < len(node.inputs):
        return []
    given = {p.name: value for p, value in zip(operands, node.inputs)}
    return [Call(row.name, (), {**given, **node.options}, node.outputs)]


# ---- nodes of index expressions ----------------------------------------------------------------------------


def _indexed(node: Indexed) -> list[Call]:
    write = _INDEXED.get(node.kind)
    return (write(node) if write is not None else None) or _found_by_index(node)


def _reshape(node: Indexed) -> list[Call]:
    return [Call("reshape", (node.source, list(node.output.extents)), results=node.outputs)]


def _slice(node: Indexed) -> list[Call] | None:
    starts: list[Expr] = []
    ends: list[Expr] = []
    steps: list[Expr] = []
    for dim, (axis, index, out) in enumerate(zip(node.source.shape, node.map.indices, node.output.shape)):
        size = out.visible_extent
        place = position(dim, out.extent)
        start = ZERO if axis.is_broadcast else substitute(index, {place: 0})
        step = const(1) if axis.is_broadcast else substitute(index, {place: 1}) - start
        step = const(1) if step is ZERO else step
        if not axis.is_broadcast and index not in (start + place * step, start):
            return None
        starts.append(start)
        ends.append(start + size * step)
        steps.append(step)
    return [Call("slice", (node.source, starts, ends, steps, True), results=node.outputs)]


def _pad(node: Indexed) -> list[Call] | None:
    widths: list[Expr] = []
    for dim, (axis, index, out) in enumerate(zip(node.source.shape, node.map.indices, node.output.shape)):
        size = out.visible_extent
        if axis.is_broadcast:
            if size is not axis.visible_extent:
                return None
            widths[:0] = [ZERO, ZERO]
            continue
        before = ZERO - substitute(index, {position(dim, out.extent): 0})
        widths[:0] = [before, size - axis.visible_extent - before]
    return [Call("pad", (node.source, widths, node.fill), results=node.outputs)]


def _looked_up(name: str) -> Callable[[Indexed], list[Call] | None]:
    """Writes a node that looks elements up along one dimension by the operation `name`."""

    def write(node: Indexed) -> list[Call] | None:
        dims = [
            i for i, e in enumerate(node.map.indices) if isinstance(e, Symbol) and value_of(e) is not None
        ]
        if len(dims) != 1 or node.indices != 1 or node.source.ndim != node.output.ndim:
            return None
        return [Call(name, (node.source, node.index_tensors[0], dims[0]), results=node.outputs)]

    return write


# Writers by the kind of a node; None where the node is not as their operation makes it.
_INDEXED: Mapping[str, Callable[[Indexed], list[Call] | None]] = {
    "Reshape": _reshape,
    "Flatten": _reshape,
    "Slice": _slice,
    "Split": _slice,
    "Pad": _pad,
    "Gather": _looked_up("gather"),
    "TakeAlongAxis": _looked_up("take_along_axis"),
    "IndexSelect": _looked_up("index_select"),
}


def _found_by_index(node: Indexed) -> list[Call]:
    """Any node: the source as a line, and for each element of the result its place there."""
    out, source = node.output, node.source
    sizes = list(out.extents)
    linear: Expr = ZERO
    for size, index in zip(source.extents, node.map.indices):
        linear = linear * size + index
    calls: list[Call] = []
    place = _over_positions(linear, sizes, node.index_tensors, calls)
    if isinstance(place, (int, Expr)):
        wide = _call(calls, "full", sizes, place, DataType.Int)
    else:
        wide = _call(calls, "expand", place, sizes)
    line = _call(calls, "reshape", source, [product(source.extents)])
    at = _call(calls, "reshape", wide, [product(sizes)])
    found = _call(calls, "reshape", _call(calls, "index_select", line, at, 0), sizes)
    if node.map.pred is not TRUE:
        pred = _condition(node.map.pred, out, node.index_tensors, calls)
        fill = node.fill if node.fill is not None else out.dtype.zero
        found = _call(calls, "where", pred, found, fill)
    calls.append(Call("cast", (found, out.dtype), results=node.outputs))
    return calls


def _choose(node: Choose) -> list[Call]:
    first, second = node.inputs[:2]
    calls: list[Call] = []
    pred = _condition(node.pred, node.output, node.index_tensors, calls)
    calls.append(Call("where", (pred, first, second), results=node.outputs))
    return calls


def _over_positions(
    e: Expr, sizes: Sequence[Expr], values: Sequence[TensorView], calls: list[Call]
) -> Argument:
    """A tensor that broadcasts to these sizes: `e` at each position. `e` itself if it is a size."""
    known: dict[Symbol, Argument] = {}

    def leaf(s: Symbol) -> Argument:
        dim, number = position_of(s), value_of(s)
        if number is not None:
            return values[number]
        if dim is None:
            return s
        if s not in known:
            line = _call(calls, "iota", sizes[dim], 0, 1, DataType.Int)
            known[s] = _call(calls, "broadcast", line, [i != dim for i in range(len(sizes))])
        return known[s]

    return expression_calls(e, leaf, calls, is_size)


def _condition(e: Expr, out: TensorView, values: Sequence[TensorView], calls: list[Call]) -> Argument:
    """`_over_positions` of a predicate; a Bool where it is the same everywhere."""
    pred = _over_positions(e, out.extents, values, calls)
    return _call(calls, "eq", pred, 1) if isinstance(pred, (int, Expr)) else pred


def _call(calls: list[Call], op: str, *args: Argument) -> Result:
    result = Result()
    calls.append(Call(op, args, results=(result,)))
    return result


# ---- updates -----------------------------------------------------------------------------------------------


def _update(node: Update) -> list[Call]:
    base = node.base
    if base is None or (node.op is not None and node.op is not SUM):
        return []
    if node.op is None:
        dim = _dim_by_value(node, base)
        return [Call("scatter", (base, node.index_tensors[0], node.source, dim), results=node.outputs)]
    return _added_by_index(node, base)


def _dim_by_value(node: Update, base: TensorView) -> int | None:
    """The one dimension of the base along which a loaded index says the place; None if it is not so simple.

    Of a dimension of size one the place is known without: it is one that the elements of the source are more
    than, if there is such a one.
    """
    space = node.output.maybe_root
    if len(space) != base.ndim or node.indices != 1:
        return None
    loaded = [dim for dim, place in enumerate(node.map.indices) if _is_loaded(place)]
    longer = [dim for dim, axis in enumerate(base.shape) if axis.is_broadcast and not space[dim].is_broadcast]
    short = [dim for dim, axis in enumerate(base.shape) if axis.is_broadcast]
    return next(iter((*loaded, *longer, *short)), None)


def _is_loaded(place: Expr) -> bool:
    return isinstance(place, Symbol) and value_of(place) is not None


def _added_by_index(node: Update, base: TensorView) -> list[Call]:
    """A node that adds rows: the base and the source as rows, and for each row of the source its place."""
    sizes = [axis.visible_extent for axis in node.output.maybe_root]
    inner = _rows(node, base)
    outer, row = len(sizes) - inner, sizes[len(sizes) - inner :]
    linear: Expr = ZERO
    for size, index in zip(base.extents[: base.ndim - inner], node.map.indices):
        linear = linear * size + index
    calls: list[Call] = []
    place = _over_positions(linear, sizes, node.index_tensors, calls)
    source: Argument = node.source
    if node.map.pred is not le(ZERO, node.map.indices[0]) or base.ndim - inner > 1:
        # A row that goes nowhere is zeros that go to the first one.
        kept = _over_positions(node.map.pred, sizes, node.index_tensors, calls)
        kept = _call(calls, "eq", kept, 1) if isinstance(kept, (int, Expr)) else kept
        source = _call(calls, "where", kept, source, node.output.dtype.zero)
        source = _call(calls, "cast", source, node.output.dtype)
        place = _call(calls, "where", kept, place, 0)
    axes = zip(node.source.shape, node.output.maybe_root)
    if outer > 1 or any(ours.is_broadcast and not axis.is_broadcast for ours, axis in axes):
        source = _call(calls, "expand", source, sizes)
    if outer > 1 or place is not node.index_tensors[0]:
        zeros = _call(calls, "full", [*sizes[:outer], *[ONE] * inner], 0, DataType.Int)
        place = _call(calls, "reshape", _call(calls, "add", zeros, place), [product(sizes[:outer])])
    if outer > 1:
        source = _call(calls, "reshape", source, [product(sizes[:outer]), *row])
    if base.ndim - inner == 1:
        return [*calls, Call("index_put_accumulate", (base, place, source), results=node.outputs)]
    rows = _call(calls, "reshape", base, [product(base.extents[: base.ndim - inner]), *row])
    result = _call(calls, "index_put_accumulate", rows, place, source)
    return [*calls, Call("reshape", (result, list(base.extents)), results=node.outputs)]


def _rows(node: Update, base: TensorView) -> int:
    """How many of the last dimensions of the base are those of the source, whatever the index says."""
    space = node.output.maybe_root
    places = positions([axis.extent for axis in space])
    most = min(base.ndim, len(space)) - 1
    for i in range(1, most + 1):
        if (
            node.map.indices[-i] is not places[-i]
            or base.extents[-i] is not space[-i].visible_extent
            or not places[-i].free_symbols.isdisjoint(node.map.pred.free_symbols)
            or not all(index.shape[-i].is_broadcast for index in node.index_tensors)
        ):
            return i - 1
    return most


# ---- expressions -------------------------------------------------------------------------------------------

# Kind of an expression -> the operation that combines two of its operands.
_COMBINED: Mapping[str, str] = {
    "add": "add",
    "mul": "mul",
    "mod": "remainder",
    "min": "minimum",
    "max": "maximum",
    "xor": "bitwise_xor",
    "lt": "lt",
    "le": "le",
    "eq": "eq",
    "and": "logical_and",
    "or": "logical_or",
}


def expression_calls(
    e: Expr, leaf: Callable[[Symbol], Argument], calls: list[Call], is_known: Callable[[Expr], bool]
) -> Argument:
    """What `e` is, computed by operations that are added to `calls`.

    Args:
        leaf: what a symbol is.
        is_known: of expressions that are arguments by themselves.
    """
    number = as_int(e)
    if number is not None:
        return number
    if is_known(e):
        return e
    if isinstance(e, Symbol):
        return leaf(e)
    operands = [expression_calls(arg, leaf, calls, is_known) for arg in e.args]
    if e.kind == "not":
        return _call(calls, "logical_not", operands[0])
    if e.kind == "floordiv":  # that of operations rounds to zero
        a, b = operands
        rest = _call(calls, "remainder", a, b)
        return _call(calls, "div", _call(calls, "sub", a, rest), b)
    result = operands[0]
    for operand in operands[1:]:
        result = _call(calls, _COMBINED[e.kind], result, operand)
    return result


_WRITERS: Mapping[type[Node], Callable[[Any], list[Call]]] = {
    Pointwise: _pointwise,
    Reduction: _reduction,
    Scan: _scan,
    Copy: _copy,
    Broadcast: lambda node: [Call("broadcast", (node.inputs[0], list(node.flags)), results=node.outputs)],
    Squeeze: lambda node: [Call("squeeze", (node.inputs[0], list(node.dims), True), results=node.outputs)],
    Permute: lambda node: [Call("permute", (node.inputs[0], list(node.dims)), results=node.outputs)],
    Relabel: _relabel,
    Expand: _expand,
    Full: _full,
    Iota: _iota,
    Random: _random,
    LibraryCall: _library_call,
    Indexed: _indexed,
    Choose: _choose,
    Update: _update,
}
