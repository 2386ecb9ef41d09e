"""Builders of activations and masks: composed of elementwise steps, with the result in the input's type."""

from __future__ import annotations

import math

from fusewright.core.dtype import DataType
from fusewright.core.errors import DefinitionError, DtypeError
from fusewright.ir import Fusion, TensorView
from fusewright.ops.build_elementwise import (
    Elementwise,
    apply_to_tensor,
    as_computed,
    as_value,
    convert,
    convert_tensor,
)
from fusewright.ops.registry import Operand, op


@op()
def gelu(fusion: Fusion, arg: TensorView, approximate: str = "none") -> TensorView:
    """arg times the standard normal distribution function of arg; "tanh" is torch's approximation of it.

    Computed in Float for reduced floats; the result is of the input's type.
    """
    steps = Elementwise(fusion)
    x = as_computed(fusion, arg, "gelu")
    times = Elementwise(fusion).mul

    if approximate == "none":
        curve = steps.erf(times(x, math.sqrt(0.5)))
    elif approximate == "tanh":
        cube = times(times(x, x), x)
        inner = steps.add(x, times(cube, 0.044715))
        curve = steps.tanh(times(inner, math.sqrt(2 / math.pi)))
    else:
        raise DefinitionError(
            "gelu: approximate argument must be either none or tanh",
            expected='"none" or "tanh"',
            given=f'"{approximate}"',
        )
    out = times(times(x, 0.5), steps.add(curve, 1.0))
    return convert_tensor(fusion, out, arg.dtype)


@op()
def masked_fill(fusion: Fusion, arg: TensorView, mask: TensorView, value: Operand) -> TensorView:
    """`value`, converted to the type of `arg`, where the Bool `mask` is True; `arg` elsewhere."""
    if mask.dtype is not DataType.Bool:
        raise DtypeError(what="the mask of masked_fill", expected=DataType.Bool, given=mask.dtype)
    fill = as_value(fusion, value)
    if fill.dtype.is_complex and not arg.dtype.is_complex:
        raise DtypeError(what="the value of masked_fill", expected=arg.dtype, given=fill.dtype)
    return apply_to_tensor(fusion, "where", mask, convert(fusion, fill, arg.dtype), arg)
