"""Replaces reads at indices computed only from positions by reads at these positions.

    y[i, j] = x[i, v] with v = abs(j - 1)      becomes      y[i, j] = x[i, max(j - 1, 1 - j)]

The indices of a reflecting or a replicating pad have this form. So have those of a pad of what follows from a
padded tensor, which are read at other such indices. The analyses of index maps then apply to these reads:
they find where the index is contiguous, so that vectors can be loaded, and equal reads become one. Sizes must
be constants, to prove that an index is inside the source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fusewright.core.dtype import DataType
from fusewright.ir.fusion import Fusion
from fusewright.ir.index_map import IndexMap, index_value, position, value_extent, value_of
from fusewright.ir.node import Choose, Indexed, Iota, Node, Pointwise
from fusewright.ir.value import Scalar, Val
from fusewright.rewrite.replacement import replace_node
from fusewright.sym import (
    TRUE,
    And,
    Expr,
    Symbol,
    as_int,
    const,
    floordiv,
    land,
    lt,
    maximum,
    minimum,
    mod,
    substitute,
)

# The largest index of 32 bits. Computation within this range does not wrap.
_LARGEST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class _Number:
    """An integer computed from positions, and its inclusive range."""

    expr: Expr
    lo: int
    hi: int


@dataclass(frozen=True, slots=True)
class _Known:
    """What was found, so that what many indices follow from is looked at once.

    Attributes:
        numbers: by values and the sizes of what they are read for.
        tables: of nodes, the index expressions of their tensors (`_table`).
    """

    numbers: dict[tuple[Val, tuple[Expr, ...]], _Number | None]
    tables: dict[Node, dict[int, Expr]]


def compute_indices(fusion: Fusion) -> Fusion:
    """Replaces index tensors that are computed only from positions; returns `fusion`."""
    outputs, known = set(fusion.output_tensors()), _Known({}, {})
    for node in fusion.ordered_nodes():
        if isinstance(node, (Indexed, Choose)) and node.index_tensors and node in fusion.nodes:
            table = _table(node, known)
            if table:
                replace_node(fusion, node, _without(node, table), outputs)
    return fusion


def _table(node: Indexed | Choose, known: _Known) -> dict[int, Expr]:
    """Maps the numbers of index tensors that are computed only from positions to index expressions."""
    if node in known.tables:
        return known.tables[node]
    expressions = node.map.expressions if isinstance(node, Indexed) else (node.pred,)
    extents = {
        value_of(s): as_int(value_extent(s))
        for e in expressions
        for s in e.free_symbols
        if value_of(s) is not None
    }
    found: dict[int, Expr] = {}
    for number, tensor in enumerate(node.index_tensors):
        extent = extents.get(number)
        value = _number(tensor, node.output.extents, known)
        if extent is not None and value is not None and value.lo >= 0 and value.hi < extent:
            found[number] = value.expr
    known.tables[node] = found
    return found


def _without(node: Indexed | Choose, table: Mapping[int, Expr]) -> Indexed | Choose:
    """The node without the index tensors of these numbers, whose values are inside the source.

    Args:
        table: the index expressions that replace the tensors.
    """
    tensors = [tensor for number, tensor in enumerate(node.index_tensors) if number not in table]
    found = _map_without(node, table)
    if isinstance(node, Choose):
        return Choose(node.inputs[0], node.inputs[1], node.output, found.pred, tensors)
    new = Indexed(node.kind, node.source, node.output, found, tensors, node.fill, node.inverse)
    new.cache = node.cache
    return new


def _map_without(node: Indexed | Choose, table: Mapping[int, Expr]) -> IndexMap:
    """Where the node without them reads, and under which condition. A choice reads nowhere."""
    kept = [number for number in range(len(node.index_tensors)) if number not in table]

    def replace(s: Symbol) -> Expr | None:
        number = value_of(s)
        if number is None:
            return None
        return table[number] if number in table else index_value(kept.index(number), value_extent(s))

    def inside(pred: Expr) -> Expr:
        """The predicate without the conditions that these values are inside the source."""
        terms = pred.args if isinstance(pred, And) else (pred,)
        values = {s for term in terms for s in term.free_symbols if value_of(s) in table}
        known = {lt(-1, s) for s in values}
        return land(*(term for term in terms if term not in known))

    indices, pred = ((), node.pred) if isinstance(node, Choose) else (node.map.indices, node.map.pred)
    return IndexMap(indices, inside(pred)).rewritten(replace)


def _number(value: Val, extents: tuple[Expr, ...], known: _Known) -> _Number | None:
    """The value of an integer as an expression of positions in a result of these sizes, or None."""
    key = value, extents
    if key not in known.numbers:
        found = _found(value, extents, known)
        fits = found is not None and found.lo >= -_LARGEST and found.hi <= _LARGEST
        known.numbers[key] = found if fits else None
    return known.numbers[key]


def _found(value: Val, extents: tuple[Expr, ...], known: _Known) -> _Number | None:
    if isinstance(value, Scalar):
        number = value.value
        return _constant(number) if isinstance(number, int) and not isinstance(number, bool) else None
    node = value.definition
    if isinstance(node, Iota):
        return _position(node, extents)
    if isinstance(node, Indexed):
        return _read(node, extents, known)
    if isinstance(node, Choose):
        return _number(node.inputs[0], extents, known) if _takes_first(node, known) else None
    if not isinstance(node, Pointwise):
        return None
    args = [_number(each, extents, known) for each in node.inputs]
    if node.op.name == "where":
        return _chosen(node, args, extents, known)
    rule = _RULES.get(node.op.name)
    if rule is None or value.dtype not in (DataType.Int, DataType.Int32) or None in args:
        return None
    return rule(*args)


def _position(node: Iota, extents: Sequence[Expr]) -> _Number | None:
    along = [i for i, axis in enumerate(node.output.shape) if not axis.is_broadcast]
    start, step = (v.value if isinstance(v, Scalar) else None for v in node.inputs)
    if len(along) != 1 or not isinstance(start, int) or not isinstance(step, int):
        return None
    extent = as_int(extents[along[0]])
    if not extent or node.output.shape[along[0]].extent is not extents[along[0]]:
        return None
    last = start + step * (extent - 1)
    place = position(along[0], extents[along[0]])
    return _Number(place * step + start, min(start, last), max(start, last))


def _read(node: Indexed, extents: tuple[Expr, ...], known: _Known) -> _Number | None:
    """The number at the place of its source that a read takes, if it has one at all positions."""
    if any(not a.is_broadcast and a.extent is not e for a, e in zip(node.output.shape, extents)):
        return None
    table, source = _table(node, known), node.source.extents
    if len(table) < len(node.index_tensors):
        return None
    places = _map_without(node, table)
    value = _number(node.source, source, known) if places.pred is TRUE else None
    if value is None:
        return None
    at = {position(i, extent): index for i, (extent, index) in enumerate(zip(source, places.indices))}
    return _Number(substitute(value.expr, at), value.lo, value.hi)


def _takes_first(node: Choose, known: _Known) -> bool:
    """Whether a choice takes its first operand at all positions."""
    return _map_without(node, _table(node, known)).pred is TRUE


def _constant(number: int) -> _Number:
    return _Number(const(number), number, number)


def _negative(a: _Number) -> _Number:
    return _Number(-a.expr, -a.hi, -a.lo)


def _sum(a: _Number, b: _Number) -> _Number:
    return _Number(a.expr + b.expr, a.lo + b.lo, a.hi + b.hi)


def _product(a: _Number, b: _Number) -> _Number | None:
    if a.lo != a.hi and b.lo != b.hi:
        return None
    ends = [x * y for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    return _Number(a.expr * b.expr, min(ends), max(ends))


def _larger(a: _Number, b: _Number) -> _Number:
    if a.lo >= b.hi or b.lo >= a.hi:
        return a if a.lo >= b.hi else b
    return _Number(maximum(a.expr, b.expr), max(a.lo, b.lo), max(a.hi, b.hi))


def _smaller(a: _Number, b: _Number) -> _Number:
    if a.hi <= b.lo or b.hi <= a.lo:
        return a if a.hi <= b.lo else b
    return _Number(minimum(a.expr, b.expr), min(a.lo, b.lo), min(a.hi, b.hi))


def _quotient(a: _Number, b: _Number) -> _Number | None:
    """A quotient of an integer >= 0 and a positive constant, for which all ways of rounding agree."""
    if a.lo < 0 or b.lo != b.hi or b.lo < 1:
        return None
    return _Number(floordiv(a.expr, b.expr), a.lo // b.lo, a.hi // b.lo)


def _remainder(a: _Number, b: _Number) -> _Number | None:
    if a.lo < 0 or b.lo != b.hi or b.lo < 1:
        return None
    return _Number(mod(a.expr, b.expr), 0, min(a.hi, b.lo - 1))


def _absolute(a: _Number) -> _Number:
    found = _larger(a, _negative(a))
    return _Number(found.expr, max(0, found.lo), found.hi)


_RULES: dict[str, Callable[..., _Number | None]] = {
    "add": _sum,
    "sub": lambda a, b: _sum(a, _negative(b)),
    "mul": _product,
    "div": _quotient,
    "fmod": _remainder,
    "mod": _remainder,
    "remainder": _remainder,
    "neg": _negative,
    "abs": _absolute,
    "maximum": _larger,
    "minimum": _smaller,
    "clamp": lambda a, low, high: _smaller(_larger(a, low), high),
    "cast": lambda a: a,
}


def _chosen(
    node: Pointwise, args: Sequence[_Number | None], extents: tuple[Expr, ...], known: _Known
) -> _Number | None:
    """The operand that a selection takes, if its condition has one value at all positions; else None."""
    test = node.inputs[0].definition
    while isinstance(test, Choose) and _takes_first(test, known):
        test = test.inputs[0].definition
    if not isinstance(test, Pointwise) or test.op.name not in _ALWAYS:
        return None
    left, right = (_number(each, extents, known) for each in test.inputs)
    if left is None or right is None:
        return None
    outcome = _ALWAYS[test.op.name](left, right)
    return None if outcome is None else args[1 if outcome else 2]


def _is_less(a: _Number, b: _Number) -> bool | None:
    """Whether a < b at all positions; None if it depends on the position."""
    return True if a.hi < b.lo else False if a.lo >= b.hi else None


def _is_at_most(a: _Number, b: _Number) -> bool | None:
    """Whether a <= b at all positions; None if it depends on the position."""
    return True if a.hi <= b.lo else False if a.lo > b.hi else None


_ALWAYS: dict[str, Callable[[_Number, _Number], bool | None]] = {
    "lt": _is_less,
    "le": _is_at_most,
    "gt": lambda a, b: _is_less(b, a),
    "ge": lambda a, b: _is_at_most(b, a),
}
