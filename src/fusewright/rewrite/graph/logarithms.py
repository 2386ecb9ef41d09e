"""Simplifies logarithms of exponentials and exponentials of logarithms.

    log(exp(x))             becomes    x
    log(exp(d) / s)         becomes    d - log(s)
    exp(d - log(s))         becomes    exp(d) * (1 / s)
    x - (max(x) + log(s))   becomes    d - log(s)

where d = x - max(x) and s = sum(exp(d)), along the same dimensions. If the maximum is infinite, another
number may take its place. So the logarithm of a softmax becomes a log-softmax, and the exponential of a
log-softmax a softmax, with one exponential per element in each case.

No result becomes less accurate:

* log(exp(x)): the exponential has an error of a few ulp, so its logarithm has an error of as many ulp of 1.
  The exponential may also be 0 or infinite although x is finite.
* exp(d - log(s)): the operand has an error of half an ulp, so the exponential has a larger error than a
  product with a reciprocal. There is one reciprocal per row; a division would take ten instructions per
  element.
* x - (max(x) + log(s)): the sum loses digits that d keeps.

d <= 0 and s >= 1, so nothing cancels and nothing overflows. Without the maximum, x - log(s) would have an
error of an ulp of x, and exp(x) / s would be infinity by infinity where the original formulas are finite. In
a row with an element +inf, that element becomes NaN in any case; as in a softmax, the other elements may
become NaN, too.
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
#: Types in which computation takes place.
_TYPES = frozenset({DataType.Float, DataType.Double})


def simplify_logarithms(fusion: Fusion) -> Fusion:
    """Removes logarithms and exponentials that undo each other; returns `fusion`."""
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
    """The operands of the node that computes a tensor; empty if it is not of `ops`, or types differ."""
    node = tensor.definition
    if not isinstance(node, Pointwise) or node.op not in ops or tensor.dtype not in _TYPES:
        return ()
    operands = tuple(node.tensor_inputs)
    alike = len(operands) == len(node.inputs) and all(value.dtype is tensor.dtype for value in operands)
    return operands if alike else ()


def _logarithm_of_power(fusion: Fusion, out: TensorView) -> Node | None:
    """The replacement of log(exp(x)) or log(exp(d) / s), if `out` is one of these."""
    for power in _operands(out, _LOG):
        for x in _operands(power, _EXP):
            return Copy(x, out)
        for top, bottom in _quotients(power):
            if _shifted_powers(bottom.tensor) is top:
                logarithm = _before_shown(fusion, _LOG, bottom)
                return Pointwise(_SUB, (*_operands(top, _EXP), logarithm), out)
    return None


def _quotients(tensor: TensorView) -> Iterator[tuple[TensorView, Shown]]:
    """Yields pairs (a, s) such that a tensor is a / s or a * (1 / s)."""
    if operands := _operands(tensor, *QUOTIENTS):
        yield operands[0], shown_by(operands[1])
    elif operands := _operands(tensor, _MUL):
        for top, bottom in (operands, operands[::-1]):
            shown = shown_by(bottom)
            for divisor in _operands(shown.tensor, _RECIPROCAL):
                yield top, Shown(divisor, shown.views)


def _before_shown(fusion: Fusion, op: ElementwiseOp, shown: Shown) -> TensorView:
    """`op` of a shown tensor, computed before its views: once per row, if it has one value per row."""
    source = shown.tensor
    result = fusion.new_like(source)
    fusion.add_node(Pointwise(op, (source,), result))
    return shown.of(fusion, result)


def _power_of_logarithm(fusion: Fusion, out: TensorView) -> Node | None:
    """The replacement of exp(d - log(s)), if `out` is that."""
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
    """The replacement of x - (m + log(s)) with d = x - m, if `out` is that."""
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
    """Whether `shown` shows the tensor of `inner` like the views of `inner` and then those of `outer`."""
    return (
        shown.tensor is inner.tensor and shown.dims == Shown(inner.tensor, (*inner.views, *outer.views)).dims
    )


def _shifted_powers(total: TensorView) -> TensorView | None:
    """exp(x - max(x)), if a tensor shows the sum of these along the dimensions of the maximum; else None."""
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
    """Whether `shown` is the maximum of `x` along `dims`, or a selection between that and another value."""
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


#: The rule for each operation. It returns the node that replaces a node, or None.
_RULES = {_LOG: _logarithm_of_power, _EXP: _power_of_logarithm, _SUB: _difference}
