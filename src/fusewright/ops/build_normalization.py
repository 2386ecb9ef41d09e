"""Builders of normalizations.

They are composed of several steps. As in torch, all steps are computed in the compute type of the input
(Float for a reduced float). Statistics stay in that type, and the result has the input's type.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fusewright.core.errors import OutputError, RankError, ShapeError
from fusewright.ir import Fusion, Pointwise, Scalar, TensorView
from fusewright.ops.build_elementwise import (
    Elementwise,
    apply,
    apply_to_tensor,
    as_computed,
    convert_tensor,
    copy_tensor,
    insert_axes,
)
from fusewright.ops.build_factory import real_scalar
from fusewright.ops.build_inputs import add_aliased_output
from fusewright.ops.build_reduction import count_of, mean, moments, with_kept_dims
from fusewright.ops.build_reshape import reshaped
from fusewright.ops.build_shape import extent_of, known_size
from fusewright.ops.elementwise import CAST
from fusewright.ops.registry import Operand, ScalarLike, Values, op
from fusewright.sym import ZERO, Expr, as_int, const, eq, floordiv, mod

Normalized = tuple[TensorView, TensorView, TensorView]


def _inverse_deviation(fusion: Fusion, variance: TensorView, eps: ScalarLike) -> TensorView:
    steps = Elementwise(fusion)
    return steps.rsqrt(steps.add(variance, real_scalar(fusion, "eps", eps)))


def _affine(fusion: Fusion, x: TensorView, weight: TensorView | None, bias: TensorView | None) -> TensorView:
    steps = Elementwise(fusion)
    x = x if weight is None else steps.mul(x, weight)
    return x if bias is None else steps.add(x, bias)


def _variance(fusion: Fusion, m2: TensorView, x: TensorView, dims: Sequence[int], lost: int) -> TensorView:
    """m2 over the number of elements along `dims`, less those `lost` to what was estimated from them."""
    count: Operand = count_of(fusion, x, dims)
    if lost:
        count = apply(fusion, "maximum", apply(fusion, "sub", count, lost), 0)
    return apply_to_tensor(fusion, "truediv", m2, count)


# ---- over the last dimensions ------------------------------------------------------------------------------


def _normalized_dims(fusion: Fusion, name: str, arg: TensorView, shape: Values) -> list[int]:
    """The last dimensions of `arg`, as many as `shape` says or as it has sizes, which must be theirs."""
    count = shape if isinstance(shape, int) else len(shape)
    if not 1 <= count <= arg.ndim:
        raise RankError(
            what=f"the normalized_shape of {name}",
            expected=f"1 to {arg.ndim}",
            given=count,
            hint="normalized_shape is a list of sizes, or how many of the last dimensions are normalized",
        )
    dims = list(range(arg.ndim - count, arg.ndim))
    if not isinstance(shape, int):
        for dim, size in zip(dims, shape):
            fusion.equate(arg.extents[dim], extent_of(known_size(size)), f"{name}, dimension {dim}")
    return dims


def _check_factor(name: str, what: str, factor: TensorView | None, arg: TensorView, dims: list[int]) -> None:
    """Raises ShapeError unless weight or bias has just the dimensions `dims` of `arg`."""
    if factor is None:
        return
    if factor.ndim != len(dims):
        raise RankError(what=f"the {what} of {name}", expected=len(dims), given=factor.ndim)
    for own, dim in zip(factor.extents, dims):
        if as_int(own) == 1 and as_int(arg.extents[dim]) != 1:
            raise ShapeError(what=f"the {what} of {name}", expected=str(arg.extents[dim]), given="1")


@op()
def layer_norm(
    fusion: Fusion,
    arg: TensorView,
    normalized_shape: Values,
    weight: TensorView | None = None,
    bias: TensorView | None = None,
    eps: ScalarLike = 1e-5,
) -> Normalized:
    """(out, mean, invstd): out = (arg - mean) * invstd * weight + bias over the last dimensions.

    `normalized_shape` lists their sizes, or says how many they are. `mean` and invstd, which is
    1 / sqrt(variance + eps), keep them at size 1. Reduced floats are computed in Float, which mean and
    invstd then are of; out is of the input's type.
    """
    dims = _normalized_dims(fusion, "layer_norm", arg, normalized_shape)
    for what, factor in (("weight", weight), ("bias", bias)):
        _check_factor("layer_norm", what, factor, arg, dims)
    steps, x = Elementwise(fusion), as_computed(fusion, arg, "layer_norm")
    average, m2, _ = moments(fusion, x, dims)
    average = with_kept_dims(fusion, average, dims, True)
    variance = _variance(fusion, m2, x, dims, 0)
    invstd = with_kept_dims(fusion, _inverse_deviation(fusion, variance, eps), dims, True)
    out = _affine(fusion, steps.mul(steps.sub(x, average), invstd), weight, bias)
    return convert_tensor(fusion, out, arg.dtype), average, invstd


@op()
def rms_norm(
    fusion: Fusion,
    arg: TensorView,
    normalized_shape: Values,
    weight: TensorView | None = None,
    eps: ScalarLike | None = None,
) -> tuple[TensorView, TensorView]:
    """(out, invstd): out = arg * invstd * weight, where invstd is 1 / sqrt(mean(arg * arg) + eps).

    `normalized_shape` and the types are as in `layer_norm`. The default `eps` is the distance from 1 to the
    next number in the compute type.
    """
    dims = _normalized_dims(fusion, "rms_norm", arg, normalized_shape)
    _check_factor("rms_norm", "weight", weight, arg, dims)
    steps, x = Elementwise(fusion), as_computed(fusion, arg, "rms_norm")
    safety = torch.finfo(x.dtype.torch).eps if eps is None else eps
    invstd = _inverse_deviation(fusion, mean(fusion, steps.mul(x, x), dims, keepdim=True), safety)
    out = _affine(fusion, steps.mul(x, invstd), weight, None)
    return convert_tensor(fusion, out, arg.dtype), invstd


# ---- over the positions of channels, or of groups of them -------------------------------------------------


def _normalized_channels(
    fusion: Fusion,
    arg: TensorView,
    groups: Expr,
    weight: TensorView | None,
    bias: TensorView | None,
    eps: ScalarLike,
    name: str,
) -> Normalized:
    """`arg` [N, C, ...] normalized in each of `groups` groups of its channels; see `group_norm`.

    All is computed with the channels of a group as a dimension of their own, so that nothing but views stands
    before and after it.
    """
    steps, apart = Elementwise(fusion), groups is arg.extents[1]

    def grouped(tensor: TensorView, channel: int) -> TensorView:
        before, (channels, *after) = tensor.extents[:channel], tensor.extents[channel:]
        members = floordiv(channels, groups)
        return tensor if apart else reshaped(fusion, "Reshape", tensor, [*before, groups, members, *after])

    def beside_channels(tensor: TensorView) -> TensorView:
        split = grouped(tensor, 0)
        return insert_axes(fusion, split, [True, *(False,) * split.ndim, *(True,) * (arg.ndim - 2)])

    x = as_computed(fusion, grouped(arg, 1), name)
    dims = list(range(2, x.ndim))
    average, m2, _ = moments(fusion, x, dims)
    invstd = _inverse_deviation(fusion, _variance(fusion, m2, x, dims, 0), eps)
    centre, scale = (with_kept_dims(fusion, t, dims, True) for t in (average, invstd))
    affine = [None if t is None else beside_channels(t) for t in (weight, bias)]
    out = convert_tensor(fusion, _affine(fusion, steps.mul(steps.sub(x, centre), scale), *affine), arg.dtype)
    return out if apart else reshaped(fusion, "Reshape", out, arg.extents), average, invstd


@op()
def group_norm(
    fusion: Fusion,
    arg: TensorView,
    num_groups: int,
    weight: TensorView | None = None,
    bias: TensorView | None = None,
    eps: ScalarLike = 1e-5,
) -> Normalized:
    """(out, mean, invstd): arg [N, C, ...] normalized in each group of C / num_groups channels.

    It is then multiplied by `weight` and added to `bias`, of the channels. mean and invstd are
    [N, num_groups], in the type that is computed in; out is of the input's type.
    """
    _check_channels("group_norm", arg, weight, bias)
    channels, groups = arg.extents[1], const(num_groups)
    wrong = f"num_groups={num_groups} where there are {channels} channels"
    if num_groups < 1:
        raise ShapeError("group_norm: num_groups", expected="at least 1", given=num_groups)
    fusion.require(
        eq(mod(channels, groups), ZERO),
        f"Expected number of channels in input to be divisible by num_groups, but got {wrong}",
    )
    return _normalized_channels(fusion, arg, groups, weight, bias, eps, "group_norm")


@op()
def instance_norm(
    fusion: Fusion,
    arg: TensorView,
    weight: TensorView | None = None,
    bias: TensorView | None = None,
    eps: ScalarLike = 1e-5,
) -> Normalized:
    """`group_norm` of groups of one channel: mean and invstd are [N, C]."""
    _check_channels("instance_norm", arg, weight, bias)
    return _normalized_channels(fusion, arg, arg.extents[1], weight, bias, eps, "instance_norm")


def _check_channels(name: str, arg: TensorView, weight: TensorView | None, bias: TensorView | None) -> None:
    if arg.ndim < 2:
        raise RankError(what=f"the input of {name}", expected="at least 2", given=arg.ndim)
    for what, factor in (("weight", weight), ("bias", bias)):
        _check_factor(name, what, factor, arg, [1])


# ---- over all but the channels -----------------------------------------------------------------------------


def _update(fusion: Fusion, what: str, running: TensorView, batch: TensorView, momentum: Scalar) -> None:
    """running = (1 - momentum) * running + momentum * batch, written into the input that `running` is."""
    source, definition = running, running.definition
    if isinstance(definition, Pointwise) and definition.op is CAST:
        source = definition.tensor_inputs[0]
    if not fusion.is_input(source):
        raise OutputError(
            what=f"the new {what} of batch_norm, to be written into {source.name},",
            problem=f"in training {what} must be an input of the fusion, or a cast of one",
            hint="pass the tensor that define_tensor returned",
        )
    steps = Elementwise(fusion)
    old = steps.mul(running, apply(fusion, "sub", 1.0, momentum))
    add_aliased_output(fusion, steps.add(old, steps.mul(batch, momentum)), source)


@op()
def batch_norm(
    fusion: Fusion,
    arg: TensorView,
    weight: TensorView | None,
    bias: TensorView | None,
    running_mean: TensorView | None,
    running_var: TensorView | None,
    momentum: ScalarLike,
    eps: ScalarLike,
    training: bool,
    channels_last: bool = False,
) -> Normalized:
    """(out, mean, invstd): arg normalized in each channel, times weight, plus bias.

    The channels are dimension 1, or the last with `channels_last`. In training, and without running
    statistics, mean and invstd = 1 / sqrt(variance + eps) are those of `arg` over all other dimensions; else
    they are the running ones. Training writes (1 - momentum) * old + momentum * new into the running
    statistics, where the new variance is the unbiased one. Reduced floats are computed in Float, which is
    then the type of mean and invstd; out has the input's type.
    """
    if arg.ndim < 2:
        raise RankError(what="the input of batch_norm", expected="at least 2", given=arg.ndim)
    if (running_mean is None) != (running_var is None):
        missing = "running_mean" if running_mean is None else "running_var"
        raise ShapeError(
            "batch_norm: running_mean and running_var go together",
            expected="both or none",
            given=f"no {missing}",
        )
    channel = arg.ndim - 1 if channels_last else 1
    factors = {"weight": weight, "bias": bias, "running_mean": running_mean, "running_var": running_var}
    for what, factor in factors.items():
        _check_factor("batch_norm", what, factor, arg, [channel])
    dims = [dim for dim in range(arg.ndim) if dim != channel]
    steps, x = Elementwise(fusion), as_computed(fusion, arg, "batch_norm")
    if training or running_mean is None or running_var is None:
        average, m2, _ = moments(fusion, x, dims)
        invstd = _inverse_deviation(fusion, _variance(fusion, m2, x, dims, 0), eps)
        if running_mean is not None and running_var is not None:
            momentum = real_scalar(fusion, "momentum", momentum)
            _update(fusion, "running_mean", running_mean, average, momentum)
            _update(fusion, "running_var", running_var, _variance(fusion, m2, x, dims, 1), momentum)
    else:
        average, variance = (convert_tensor(fusion, t, x.dtype) for t in (running_mean, running_var))
        average = copy_tensor(fusion, average) if fusion.is_input(average) else average
        invstd = _inverse_deviation(fusion, variance, eps)

    def beside_channels(tensor: TensorView) -> TensorView:
        return insert_axes(fusion, tensor, [dim != channel for dim in range(arg.ndim)])

    normalized = steps.mul(steps.sub(x, beside_channels(average)), beside_channels(invstd))
    scaled = [None if t is None else beside_channels(t) for t in (weight, bias)]
    return convert_tensor(fusion, _affine(fusion, normalized, *scaled), arg.dtype), average, invstd
