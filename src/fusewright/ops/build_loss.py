"""Builders of losses."""

from __future__ import annotations

from fusewright.core.dtype import DataType
from fusewright.core.errors import DefinitionError, DtypeError, RankError
from fusewright.ir import Fusion, TensorView
from fusewright.ops.build_elementwise import Elementwise, as_computed, convert_tensor, insert_axes
from fusewright.ops.build_factory import real_scalar
from fusewright.ops.build_indexing import take_along_axis
from fusewright.ops.build_reduction import count_of, max_, sum_
from fusewright.ops.registry import ScalarLike, op

# How the losses of all targets become one.
REDUCTIONS = ("none", "mean", "sum")


@op()
def cross_entropy(
    fusion: Fusion,
    logits: TensorView,
    target: TensorView,
    weight: TensorView | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: ScalarLike = 0.0,
) -> TensorView:
    """The negative logarithm of the softmax of `logits` at the class that `target` names, as torch's.

    Classes are dimension 1 of `logits`, or the only one; `target` has the others, and is Int or Int32. Where
    it is `ignore_index` the loss is 0. `weight` has a factor for each class. `reduction` is "none", "sum", or
    "mean", the sum over the total weight of the targets. `label_smoothing` is the share of the loss that
    is spread evenly over the classes. Computed in Float for reduced floats; the result is of the type of the
    logits. A target that is no class and is not ignored finds a logit of 0.
    """
    classes = min(1, logits.ndim - 1)
    _check(logits, target, weight, reduction)
    x = as_computed(fusion, logits, "cross_entropy")
    steps = Elementwise(fusion)

    def at_target(tensor: TensorView) -> TensorView:
        wide = insert_axes(fusion, target, [dim == classes for dim in range(logits.ndim)])
        found = sum_(fusion, take_along_axis(fusion, tensor, wide, classes), classes)
        return convert_tensor(fusion, found, x.dtype)

    top = max_(fusion, x, classes)
    flags = [dim == classes for dim in range(logits.ndim)]
    less = steps.sub(x, insert_axes(fusion, top, flags))
    logarithm = steps.log(sum_(fusion, steps.exp(less), classes))
    loss = steps.sub(logarithm, steps.sub(at_target(logits), top))
    factors: TensorView | None = None
    beside: TensorView | None = None
    if weight is not None:
        beside = insert_axes(fusion, weight, [dim != classes for dim in range(logits.ndim)])
        factors = at_target(beside)
        loss = steps.mul(loss, factors)
    smoothing = real_scalar(fusion, "label_smoothing", label_smoothing)
    if smoothing.value != 0:
        each = steps.sub(insert_axes(fusion, logarithm, flags), less)
        spread = sum_(fusion, each if beside is None else steps.mul(each, beside), classes)
        spread = steps.truediv(spread, count_of(fusion, logits, [classes]))
        loss = steps.lerp(loss, spread, smoothing)
    ignored = steps.eq(target, ignore_index)
    loss = steps.where(ignored, 0.0, loss)
    if reduction != "none":
        total = sum_(fusion, loss)
        if reduction == "mean":
            shares = steps.where(ignored, 0.0, 1.0 if factors is None else factors)
            total = steps.truediv(total, sum_(fusion, shares))
        loss = total
    return convert_tensor(fusion, loss, logits.dtype)


def _check(logits: TensorView, target: TensorView, weight: TensorView | None, reduction: str) -> None:
    if not logits.ndim:
        raise RankError(what="the logits of cross_entropy", expected="at least 1", given=0)
    if target.ndim != logits.ndim - 1:
        raise RankError(what="the target of cross_entropy", expected=logits.ndim - 1, given=target.ndim)
    if target.dtype not in (DataType.Int, DataType.Int32):
        raise DtypeError(what="the target of cross_entropy", expected="Int or Int32", given=target.dtype)
    if weight is not None and weight.ndim != 1:
        raise RankError(what="the weight of cross_entropy", expected=1, given=weight.ndim)
    if reduction not in REDUCTIONS:
        raise DefinitionError(
            f"cross_entropy: {reduction} is not a valid value for reduction",
            expected=" or ".join(f'"{name}"' for name in REDUCTIONS),
            given=f'"{reduction}"',
        )
