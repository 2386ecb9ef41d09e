"""Logarithms of exponentials, and exponentials of logarithms.

    log(exp(x))             becomes    x
    log(exp(d) / s)         becomes    d - log(s)
    exp(d - log(s))         becomes    exp(d) * (1 / s)
    x - (max(x) + log(s))   becomes    d - log(s)

where d = x - max(x) and s = sum(exp(d)), along the same dimensions. If the maximum is infinite, another
number may take its place. So the logarithm of a softmax becomes a log-softmax, and the exponential of a
log-softmax a softmax, with one exponential per element in each case.

No result is less accurate. An exponential is off by a few ulp. Its logarithm is off by as many ulp of 1, and
the exponential may be 0 or infinite where its operand is neither. `d - log(s)` is off by half an ulp, and so
its exponential is off by more than a product with a reciprocal, of which there is one per row; a division
takes ten instructions per element. `max(x) + log(s)` loses digits that d keeps. d is not positive and s is 1
or more, so nothing cancels and nothing overflows. Without the maximum, x - log(s) would be off by an ulp of
x, and exp(x) / s would be infinity by infinity where the original formulas are finite. A row with an element
of +inf has NaN there in any case; as in a softmax, its other elements may be NaN, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from fusewright.core.dtype import DataType
from fusewright.core.op import ElementwiseOp
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Copy, Node, Pointwise, Reduction
from fusewright.ir.value import TensorView, Val
from fusewright.ops.elementwise import ELEMENTWISE, QUOTIENTS
from fusewright.ops.reductions import MAX, SUM
from fusewright.rewrite.graph.shown import Shown, shown_by
from fusewright.rewrite.replacement import is_in_memory_of_its_own, read_instead, remove_dead, replace_node

_ADD, _SUB, _MUL, _EXP, _LOG, _RECIPROCAL, _WHERE = (
    ELEMENTWISE[name] for name in ("add", "sub", "mul", "exp", "log", "reciprocal", "where")
)
#: Types that are computed in themselves.
_TYPES = frozenset({DataType.Float, DataType.Double})


def simplify_logarithms(fusion: Fusion) -> Fusion:
    """`fusion` itself, without logarithms and exponentials that undo each other."""
    outputs = set(fusion.output_tensors())
    for node in fusion.ordered_nodes():
        rule = _RULES.get(node.op) if isinstance(node, Pointwise) and not node.is_scalar else None
        if rule is None or node not in fusion.nodes:
            continue
        new = rule(fusion, node.output)
        if new is None:
            continue
        if isinstance(new, Copy) and not is_in_memory_of_its_own(node.output, outputs):
            read_instead(fusion, node.output, new.tensor_inputs[0])
            remove_dead(fusion, node, outputs)
            continue
        replace_node(fusion, node, new, outputs)
    return fusion


def _operands(tensor: Val, *ops: ElementwiseOp) -> tuple[TensorView, ...]:
    """The operands of what computes a tensor, if that is one of `ops`, of tensors of its own type."""
    node = tensor.definition
    if not isinstance(node, Pointwise) or node.op not in ops or tensor.dtype not in _TYPES:
        return ()
    operands = tuple(node.tensor_inputs)
    alike = len(operands) == len(node.inputs) and all(value.dtype is tensor.dtype for value in operands)
    return operands if alike else ()


def _logarithm_of_power(fusion: Fusion, out: TensorView) -> Node | None:
    """log(exp(x)), and log(exp(d) / s)."""
    for power in _operands(out, _LOG):
        for x in _operands(power, _EXP):
            return Copy(x, out)
        for top, bottom in _quotients(power):
            if _shifted_powers(bottom.tensor) is top:
                logarithm = _before_shown(fusion, _LOG, bottom)
                return Pointwise(_SUB, (*_operands(top, _EXP), logarithm), out)
    return None


def _quotients(tensor: TensorView) -> Iterator[tuple[TensorView, Shown]]:
    """(a, s) such that a tensor is a / s, or a times the reciprocal of s."""
    if operands := _operands(tensor, *QUOTIENTS):
        yield operands[0], shown_by(operands[1])
    elif operands := _operands(tensor, _MUL):
        for top, bottom in (operands, operands[::-1]):
            shown = shown_by(bottom)
            for divisor in _operands(shown.tensor, _RECIPROCAL):
                yield top, Shown(divisor, shown.views)


def _before_shown(fusion: Fusion, op: ElementwiseOp, shown: Shown) -> TensorView:
    """`op` of what is shown, computed before it is: once a row, if that is a value a row."""
    source = shown.tensor
    result = fusion.new_like(source)
    fusion.add_node(Pointwise(op, (source,), result))
    return shown.of(fusion, result)


def _power_of_logarithm(fusion: Fusion, out: TensorView) -> Node | None:
    """exp(d - log(s))."""
    for difference in _operands(out, _EXP):
        if operands := _operands(difference, _SUB):
            shown = shown_by(operands[1])
            for total in _operands(shown.tensor, _LOG):
                power = _shifted_powers(total)
                if power is not None and _operands(power, _EXP) == operands[:1]:
                    total_shown = Shown(total, shown.views)
                    return Pointwise(_MUL, (power, _before_shown(fusion, _RECIPROCAL, total_shown)), out)
    return None


def _difference(fusion: Fusion, out: TensorView) -> Node | None:
    """x - (m + log(s)), where d = x - m."""
    if not (operands := _operands(out, _SUB)):
        return None
    shown = shown_by(operands[1])
    parts = _operands(shown.tensor, _ADD)
    for shift, log in (parts, parts[::-1]) if parts else ():
        for total in _operands(shown_by(log).tensor, _LOG):
            power = _shifted_powers(total)
            for known in _operands(power, _EXP) if power is not None else ():
                before = _operands(known, _SUB)
                if before[:1] == operands[:1] and _are_alike(shown_by(before[1]), shown_by(shift), shown):
                    return Pointwise(_SUB, (known, shown.of(fusion, log)), out)
    return None


def _are_alike(shown: Shown, inner: Shown, outer: Shown) -> bool:
    """Whether the first shows the same tensor in the same way as `inner`, seen through `outer`."""
    return (
        shown.tensor is inner.tensor and shown.dims == Shown(inner.tensor, (*inner.views, *outer.views)).dims
    )


def _shifted_powers(total: TensorView) -> TensorView | None:
    """exp(x - max(x)), if a tensor shows the sum of that along the dimensions of the maximum."""
    node = shown_by(total).tensor.definition
    if not isinstance(node, Reduction) or node.op is not SUM:
        return None
    (power,) = node.tensor_inputs
    for shifted in _operands(power, _EXP):
        if operands := _operands(shifted, _SUB):
            x, shift = operands
            return power if _is_maximum(shown_by(shift), x, node.reduced_dims) else None
    return None


def _is_maximum(shown: Shown, x: TensorView, dims: tuple[int, ...]) -> bool:
    """Whether each element of `x` is shown the maximum along `dims`, or what a choice has in place of it."""
    node = shown.tensor.definition
    if isinstance(node, Reduction):
        kept = [dim for dim in range(x.ndim) if dim not in dims]
        table = tuple([kept.index(dim) if dim in kept else None for dim in range(x.ndim)])
        is_of_x = node.op is MAX and node.tensor_inputs[0] is x and node.reduced_dims == dims
        return is_of_x and shown.dims == table
    if not isinstance(node, Pointwise) or node.op is not _WHERE:
        return False
    choices = [shown_by(value) for value in node.tensor_inputs]
    return any(_is_maximum(Shown(each.tensor, (*each.views, *shown.views)), x, dims) for each in choices)


#: By what a node computes, what may compute it instead.
_RULES = {_LOG: _logarithm_of_power, _EXP: _power_of_logarithm, _SUB: _difference}
