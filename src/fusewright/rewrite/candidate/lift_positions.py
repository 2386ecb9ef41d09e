"""Replaces an indexed read of positions by arithmetic on positions."""

from __future__ import annotations

import operator
from functools import reduce

from fusewright.ir.fusion import Fusion
from fusewright.ir.index_map import is_size, position_of
from fusewright.ir.node import Choose, Indexed, Iota, Pointwise
from fusewright.ir.value import TensorView, Val
from fusewright.ops.build_elementwise import apply, constant, convert, scalar_of_extent
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.rewrite.replacement import positions_along
from fusewright.sym import TRUE, Expr, Symbol, fold, is_nonneg
from fusewright.sym.nodes import Const, Division

#: The elementwise operation for each operation of index expressions. C's division rounds down for operands >=
#: 0.
_OPERATIONS = {"add": "add", "mul": "mul", "floordiv": "div", "mod": "mod"}

#: Commutative operations, of which the operands that are sizes can be combined first.
_COMMUTATIVE = {"add": operator.add, "mul": operator.mul}


def lift_over_positions(fusion: Fusion, node: Indexed, above: Iota) -> bool:
    """Indexed(Iota) -> start + step * (arithmetic on Iotas along the dimensions of the result).

    Returns:
        Whether the rewrite was possible. It is not if an index is a loaded value, or is computed from
        positions by other operations than sums, products, quotients and remainders of terms >= 0.
    """
    along = [i for i, axis in enumerate(above.output.maybe_root) if not axis.is_broadcast]
    if node.index_tensors or len(along) != 1:
        return False
    index = node.map.indices[along[0]]
    if is_size(index) or not _is_arithmetic(index):
        return False
    start, step = above.inputs
    dtype = above.output.dtype
    place = convert(fusion, fold(index, lambda e, args: _value(fusion, e, args, node.output)), dtype)
    scaled = apply(fusion, "mul", place, step)
    fusion.remove_node(node)
    pred, fill = node.map.pred, node.fill or fusion.new_scalar(dtype, dtype.zero)
    value = node.output if pred is TRUE else fusion.new_like(node.output)
    fusion.add_node(Pointwise(ELEMENTWISE["add"], (scaled, start), value))
    if value is not node.output:
        fusion.add_node(Choose(value, fill, node.output, pred))
    return True


def _is_arithmetic(e: Expr) -> bool:
    """Whether an expression consists of positions and sizes, and all its dividends are >= 0."""
    if isinstance(e, Symbol):
        return position_of(e) is not None or is_size(e)
    if isinstance(e, Const):
        return True
    if isinstance(e, Division) and not is_nonneg(e.dividend):
        return False
    return e.kind in _OPERATIONS and all(map(_is_arithmetic, e.args))


def _value(fusion: Fusion, e: Expr, args: tuple[Val, ...], output: TensorView) -> Val:
    """Adds nodes that compute an index as an Int at each position of `output`.

    Args:
        args: the values of the operands of `e`.
    """
    if isinstance(e, Const):
        return constant(fusion, e.value)
    if is_size(e):  # as one size, since the host computes no scalars for a single segment
        return scalar_of_extent(fusion, e)
    if isinstance(e, Symbol):
        dim = position_of(e)
        assert dim is not None
        return positions_along(fusion, output, dim)
    operands = list(args)
    combine = _COMMUTATIVE.get(e.kind)
    sizes = [part for part in e.args if is_size(part)]
    if combine is not None and len(sizes) > 1:  # i1 * i2 * position: i1 * i2 is one size
        operands = [value for part, value in zip(e.args, args) if not is_size(part)]
        operands.append(scalar_of_extent(fusion, reduce(combine, sizes)))
    return reduce(lambda a, b: apply(fusion, _OPERATIONS[e.kind], a, b), operands)
