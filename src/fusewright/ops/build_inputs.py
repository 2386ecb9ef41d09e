"""Builders of the parts of a definition outside `fd.ops`: its inputs, constants and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fusewright.core.dtype import DataType, torch_dtype_to_datatype
from fusewright.core.errors import ContiguityError, DtypeError, OutputError, RankError, ShapeError
from fusewright.ir import Fusion, IterKind, Output, Scalar, TensorView
from fusewright.ops.build_elementwise import check_has_values, constant, convert_tensor, copy_tensor
from fusewright.ops.build_pairs import packed, unpacked
from fusewright.ops.build_shape import check_extent, memory_order, vector_of
from fusewright.ops.memory_format import keep_memory_format, lay_out
from fusewright.ops.registry import Contiguity, OpDef, Operand, ScalarLike, ScalarVector, Values, op
from fusewright.sym import Expr, const

# Inputs of one call: as many as a definition may have records by default.
MAX_VECTOR = 9999

DEFINERS: dict[str, OpDef] = {}
"""The methods of a definition itself, by name: rows like those of `OPS`."""


# ---- inputs ------------------------------------------------------------------------------------------------


def _declared_extents(fusion: Fusion, shape: Sequence[int]) -> list[Expr]:
    """One extent a dimension. Each takes a scalar's number, and the first tensor one more for the constant
    zero: the numbers of later scalars, which messages show, are as in nvFuser."""
    extents: list[Expr] = []
    for size in shape:
        if size == -1:
            extents.append(fusion.new_extent())
        else:
            fusion.new_scalar(DataType.Int, size)
            extents.append(const(size))
    if not any(isinstance(value, TensorView) for value in fusion.inputs):
        fusion.new_scalar(DataType.Int, 0)
    return extents


def _declared_contiguity(
    shape: Sequence[int], order: Sequence[int], contiguity: Contiguity
) -> tuple[bool | None, ...]:
    """One entry a dimension in memory order."""
    if isinstance(contiguity, bool):
        return tuple(None if shape[dim] == 1 else contiguity for dim in order)
    if len(contiguity) != len(shape):
        raise ContiguityError(
            f"Length of contiguity argument ({len(contiguity)}) "
            f"must match that of shape argument ({len(shape)})"
        )
    for dim, entry in zip(order, contiguity):
        if shape[dim] == 1 and entry is not None:
            raise ContiguityError(
                f"dimension {dim} has size 1, so its contiguity must be None",
                expected=None,
                given=entry,
                hint="contiguity is listed in memory order, outermost first",
            )
    return tuple(contiguity)


def _contiguity_as_list(values: list[Any]) -> None:
    """`contiguity=True` recorded as the list that it stands for."""
    shape, contiguity, stride_order = values[0], values[1], values[4]
    listed = isinstance(shape, (list, tuple)) and isinstance(stride_order, (list, tuple))
    if isinstance(contiguity, bool) and listed and not stride_order:
        values[1] = [None if size == 1 else contiguity for size in shape]


@op(DEFINERS, arrange=_contiguity_as_list)
def define_tensor(
    fusion: Fusion,
    shape: Sequence[int],
    contiguity: Contiguity = False,
    dtype: DataType = DataType.Float,
    is_cpu: bool = False,
    stride_order: Sequence[int] = (),
) -> TensorView:
    """The next input, a tensor.

    Args:
        shape: -1 for a size known at the call, 0, 1 for a broadcast dimension, or a fixed size.
        contiguity: in memory order, outermost first: True if the stride is the product of the sizes inside,
            None for a broadcast. A bool stands for every dimension whose size is not 1.
        is_cpu: a rank-0 tensor in host memory.
        stride_order: 0 for the innermost dimension in memory; empty for row-major.
        dtype: Float4_e2m1fn_x2 stands for pairs of Float4_e2m1fn in a byte: the tensor has elements of
            that type, twice as many along its innermost dimension as `shape` says.
    """
    for i, size in enumerate(shape):
        check_extent(size, i, least=-1)
    if is_cpu and shape:
        raise RankError("CPU non-scalar tensor is not supported!", expected=0, given=len(shape))
    if dtype in (DataType.Float4_e2m1fn, DataType.Float4_e2m1fn_x2):
        return _define_pairs(fusion, shape, contiguity, dtype, stride_order)
    check_has_values(dtype, "a tensor")
    return _defined(fusion, shape, contiguity, dtype, is_cpu, stride_order)


def _define_pairs(
    fusion: Fusion, shape: Sequence[int], contiguity: Contiguity, dtype: DataType, stride_order: Sequence[int]
) -> TensorView:
    """The elements of an input of pairs. `shape` counts bytes if `dtype` is that of pairs, else elements."""
    if not shape:
        raise RankError(f"a tensor of {dtype} is packed in pairs along a dimension", expected=1, given=0)
    sizes, dim = list(shape), list(stride_order).index(0) if 0 in stride_order else len(shape) - 1
    if dtype is DataType.Float4_e2m1fn and sizes[dim] > 0:
        if sizes[dim] % 2:
            raise ShapeError(
                f"a tensor of {dtype} is packed in pairs along dimension {dim}",
                expected="an even size",
                given=sizes[dim],
            )
        sizes[dim] //= 2
    pairs = DataType.Float4_e2m1fn_x2
    return unpacked(fusion, _defined(fusion, sizes, contiguity, pairs, False, stride_order))


def _defined(
    fusion: Fusion,
    shape: Sequence[int],
    contiguity: Contiguity,
    dtype: DataType,
    is_cpu: bool,
    stride_order: Sequence[int],
) -> TensorView:
    order = memory_order(stride_order, len(shape)) if stride_order else list(range(len(shape)))
    flags = _declared_contiguity(shape, order, contiguity)
    extents = _declared_extents(fusion, shape)
    broadcast = {dim for dim, flag in zip(order, flags) if flag is None}
    axes = []
    for dim, extent in enumerate(extents):
        if dim in broadcast:
            axes.append(fusion.new_axis(const(1), IterKind.BROADCAST, None if shape[dim] == 1 else extent))
        else:
            axes.append(fusion.new_axis(extent))
    tensor = fusion.new_tensor(
        axes, dtype, allocation=[axes[dim] for dim in order], contiguity=flags, is_cpu=is_cpu
    )
    fusion.add_input(tensor)
    return tensor


def _scalar_dtype(values: list[Any]) -> None:
    """The overload (dtype), and the type that a constant has by itself."""
    value, dtype = values
    if isinstance(value, (DataType, torch.dtype, type)):
        value, dtype = None, value
    if isinstance(value, np.generic):
        value = value.item()
    if dtype is None:
        dtype = DataType.Double if value is None else torch_dtype_to_datatype.get(type(value))
    values[:] = value, dtype


@op(DEFINERS, arrange=_scalar_dtype, overloads={("dtype",): Scalar})
def define_scalar(fusion: Fusion, value: ScalarLike | None = None, dtype: DataType | None = None) -> Scalar:
    """A constant of the value's own type or `dtype`; with None the next input, a Double by default."""
    check_has_values(dtype, "a scalar")
    assert dtype is not None
    if value is None:
        scalar = fusion.new_scalar(dtype)
        fusion.add_input(scalar)
        return scalar
    if isinstance(value, Scalar):
        raise DtypeError("define_scalar: a Scalar is no constant", expected="a number", given=value.dtype)
    return constant(fusion, value, dtype)


@op(DEFINERS)
def define_vector(fusion: Fusion, values: Values, dtype: DataType = DataType.Int) -> ScalarVector:
    """A vector: of that many Int inputs, or of these sizes (integers of at least -1, and Scalars)."""
    if not isinstance(values, int):
        return vector_of(fusion, values)
    if not 0 <= values <= MAX_VECTOR:
        problem = "negative" if values < 0 else "too large"
        raise ShapeError(f"define_vector: its size is {problem}", expected=f"0 to {MAX_VECTOR}", given=values)
    scalars = []
    for _ in range(values):
        scalar = fusion.new_scalar(dtype)
        fusion.add_input(scalar)
        scalars.append(scalar)
    return ScalarVector(scalars)


# ---- outputs -----------------------------------------------------------------------------------------------


def _output_order(values: list[Any]) -> None:
    """The overload (output, stride_order)."""
    if isinstance(values[1], (list, tuple)):
        values[1], values[2] = None, values[1]


@op(DEFINERS, arrange=_output_order, overloads={("output", "stride_order"): None})
def add_output(
    fusion: Fusion, output: Operand, alias_input: TensorView | None = None, stride_order: Sequence[int] = ()
) -> None:
    """The next output; with `alias_input` it is written into that input's memory and not returned.

    `stride_order` fixes the order in memory (0 for the innermost dimension); else that of the inputs is kept,
    as torch keeps it. A tensor that is also added
    without alias is returned once for each time, in the input's memory. Elements of Float4_e2m1fn are
    returned as pairs, Float4_e2m1fn_x2: half as many along the innermost dimension.
    """
    if not isinstance(output, TensorView):
        raise OutputError(what=f"{output}, a scalar,", problem="only tensors may be outputs")
    if alias_input is not None:
        add_aliased_output(fusion, output, alias_input)
        return
    if stride_order:
        output = copy_tensor(fusion, output, memory_order=memory_order(stride_order, output.ndim))
    alias = next((o.alias for o in fusion.outputs if o.tensor is output), None)
    if alias is None:
        keep_memory_format(output)
    if output.dtype is DataType.Float4_e2m1fn:
        output = packed(fusion, output)  # along what is innermost now
    fusion.add_output(output, alias)


def add_aliased_output(fusion: Fusion, output: TensorView, alias: TensorView) -> None:
    """A hidden output, converted to the type of the input `alias`, that is written into its memory."""
    if not fusion.is_input(alias):
        raise OutputError(
            what=f"an alias of {alias.name}",
            problem="alias_input must be an input of the fusion",
            hint="pass the tensor that define_tensor returned",
        )
    if alias.is_cpu:
        raise OutputError(
            "KernelExecutor does not support the Fusion provided.",
            expected="an alias in the memory of the device, which kernels write",
            given=f"{alias.name}, a tensor of rank 0 in host memory",
            hint="add the output without alias_input, and copy_ it after the call",
        )
    for known in fusion.outputs:
        if known.alias is alias and output is not known.tensor and output not in known.tensor.producers:
            raise OutputError(
                what=f"a second output written into {alias.name}",
                problem=f"{known.tensor.name} is written there already",
            )
    if output.ndim != alias.ndim:
        raise RankError(what=f"the output that aliases {alias.name}", expected=alias.ndim, given=output.ndim)
    for i, (ours, theirs) in enumerate(zip(output.extents, alias.extents)):
        fusion.equate(ours, theirs, f"output written into {alias.name}, dimension {i}")
    written = convert_tensor(fusion, output, alias.dtype)
    taken = next((o.alias for o in fusion.outputs if o.tensor is written and o.alias is not None), None)
    if fusion.is_input(written) or taken not in (None, alias):
        written = copy_tensor(fusion, written)
    lay_out(written, [alias.shape.index(axis) for axis in alias.allocation], alias.contiguity)
    # Plain outputs of the same tensor share the input's memory.
    fusion.outputs = [Output(o.tensor, alias, o.hidden) if o.tensor is written else o for o in fusion.outputs]
    fusion.add_output(written, alias, hidden=True)
