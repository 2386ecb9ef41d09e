"""Builders of elementwise operations: promotion, alignment of ranks, and the nodes of every row."""

from __future__ import annotations

import ctypes
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from fusewright.core.dtype import DataType, PyScalar, fits, integers_of, of_python_value
from fusewright.core.errors import ArgumentTypeError, DtypeError, warn_user
from fusewright.core.op import ElementwiseOp, Rule, converted
from fusewright.ir import Broadcast, Copy, Fusion, IterDomain, IterKind, Pointwise, Scalar, TensorView, Val
from fusewright.ops.bits import BITCASTS, has_plain_bits
from fusewright.ops.elementwise import CAST, ELEMENTWISE
from fusewright.ops.promotion import Tier, promote_operands
from fusewright.ops.registry import EQUALITY, OPS, OpDef, Operand, ScalarLike, op, register
from fusewright.sym import Expr, as_int, const, maximum

# ---- scalars -----------------------------------------------------------------------------------------------


def constant(fusion: Fusion, value: PyScalar, dtype: DataType | None = None) -> Scalar:
    """A number as a scalar, of the dtype of its Python type or converted to `dtype`."""
    own = of_python_value(value)
    if dtype is None or dtype is own:
        return fusion.new_scalar(own, value)
    check_fits(value, dtype)
    return fusion.new_scalar(dtype, _constant_as(value, own, dtype))


def check_has_values(dtype: DataType | None, what: str) -> None:
    """Raises DtypeError for a type that no element or scalar of a fusion can have."""
    if dtype is DataType.Float4_e2m1fn_x2:
        raise DtypeError(
            what=what,
            expected=DataType.Float4_e2m1fn,
            given=dtype,
            hint="inputs are unpacked, and outputs packed in pairs, by themselves",
        )
    if dtype is None or dtype is DataType.Null:
        raise DtypeError(what=what, expected="a type with values", given=dtype)


def check_fits(value: PyScalar, dtype: DataType) -> None:
    """Raises DtypeError for a constant that the type which the user gave it cannot hold, as torch.full.

    It is beyond the range, or has an imaginary part. A negative integer is the unsigned one with its bits.
    Constants that arithmetic converts, as in `x * 1e300` for a Float tensor, round to infinity instead;
    integers wrap.
    """
    check_has_values(dtype, "a constant")
    is_unsigned = integers_of(dtype)[0] == 0
    is_real = value.imag == 0 or dtype.is_complex or dtype.is_bool
    if is_real and fits(abs(value) if is_unsigned and isinstance(value, int) else value, dtype):
        return
    if not is_real:
        expected = "a real number"
    elif dtype.is_integral:
        limits = torch.iinfo(dtype.torch)
        expected = f"from {limits.min} to {limits.max}"
    else:
        expected = f"at most {dtype.largest:g} in magnitude"
    raise DtypeError(f"The constant {value} is beyond the range of {dtype}", expected=expected, given=value)


def _constant_as(value: PyScalar, source: DataType, target: DataType) -> PyScalar:
    """What a cast makes of a constant, rounded as storage of `target` rounds."""
    if source.is_floating and target in (DataType.Float, DataType.Double):
        number = float(value.real)
        # Kept exact: whoever uses it rounds, and printed IR shows 0.1 as 0.1. Beyond the range, infinite.
        return number if fits(number, target) else ctypes.c_float(number).value
    tensor = torch.tensor(value, dtype=source.compute.torch, device="cpu")
    return converted(tensor, target).item()


def scalar_of_extent(fusion: Fusion, extent: Expr) -> Scalar:
    """A size as an Int scalar."""
    return fusion.new_scalar(DataType.Int, as_int(extent), extent)


def as_value(fusion: Fusion, operand: Operand) -> Val:
    """The operand, a Python number as a constant."""
    if isinstance(operand, (TensorView, Scalar)):
        return operand
    return constant(fusion, operand)


# The integer operations that sizes are computed with: their results are sizes too.
_EXTENT_OF: Mapping[str, Callable[..., Expr]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "maximum": maximum,
}


def _scalar_result(
    fusion: Fusion, row: ElementwiseOp, operands: Sequence[Scalar], computed: DataType, dtype: DataType
) -> Scalar:
    """The value of an operation on scalars: a constant if all are, else a scalar that the host computes."""
    values = [s.value for s in operands]
    if None not in values:
        tensors = [torch.tensor(s.value, dtype=s.dtype.compute.torch, device="cpu") for s in operands]
        value = converted(row.spelling(computed).torch(*tensors), dtype).item()
        return fusion.new_scalar(dtype, value)
    extent = None
    rule = _EXTENT_OF.get(row.name)
    if rule is not None and dtype.is_integral:
        extents = [s.extent for s in operands if s.extent is not None]
        extent = rule(*extents) if len(extents) == len(operands) else None
    out = fusion.new_scalar(dtype, None if extent is None else as_int(extent), extent)
    fusion.add_node(Pointwise(row, operands, out))
    return out


# ---- conversions -------------------------------------------------------------------------------------------


def convert(fusion: Fusion, value: Val, dtype: DataType) -> Val:
    """`value` in another type: itself if it has that type already."""
    if value.dtype is dtype:
        return value
    if isinstance(value, TensorView):
        return convert_tensor(fusion, value, dtype)
    if value.value is not None:
        return fusion.new_scalar(dtype, _constant_as(value.value, value.dtype, dtype))
    extent = value.extent if dtype.is_integral and value.dtype.is_integral else None
    out = fusion.new_scalar(dtype, extent=extent)
    fusion.add_node(Pointwise(CAST, (value,), out))
    return out


def as_element(fusion: Fusion, value: Val, dtype: DataType) -> Val:
    """`convert`, for a value that becomes an element of a result, or is compared with elements, as it is.

    Raises:
        DtypeError: a constant beyond the range of an integer type (`check_fits`).
    """
    if isinstance(value, Scalar) and value.value is not None and dtype.is_integral:
        check_fits(value.value, dtype)
    return convert(fusion, value, dtype)


def convert_tensor(fusion: Fusion, tensor: TensorView, dtype: DataType) -> TensorView:
    """`tensor` in another type: itself if it has that type already."""
    if tensor.dtype is dtype:
        return tensor
    out = fusion.new_like(tensor, dtype)
    fusion.add_node(Pointwise(CAST, (tensor,), out))
    return out


def as_computed(fusion: Fusion, tensor: TensorView, operation: str) -> TensorView:
    """The input of `operation` in the type that it is computed in. DtypeError if it is not floating.

    What is composed of several steps computes them all in this type, and rounds the result once.
    """
    if not tensor.dtype.is_floating:
        raise DtypeError(what=f"the input of {operation}", expected="a floating type", given=tensor.dtype)
    return convert_tensor(fusion, tensor, tensor.dtype.compute)


# ---- axes --------------------------------------------------------------------------------------------------


def copied_axes(fusion: Fusion, tensor: TensorView) -> list[IterDomain]:
    """Fresh axes like those that consumers of `tensor` see."""
    return [fusion.copy_axis(axis) for axis in tensor.shape]


def insert_axes(fusion: Fusion, tensor: TensorView, flags: Sequence[bool]) -> TensorView:
    """Broadcast: size-1 axes where `flags` is True. The tensor itself if there is none."""
    if not any(flags):
        return tensor
    sources = iter(tensor.shape)
    axes = [
        fusion.new_axis(const(1), IterKind.BROADCAST) if new else fusion.copy_axis(next(sources))
        for new in flags
    ]
    out = fusion.new_tensor(axes, tensor.dtype)
    fusion.add_node(Broadcast(tensor, out, flags))
    return out


def with_rank(fusion: Fusion, tensor: TensorView, rank: int) -> TensorView:
    """`tensor` with leading size-1 axes up to `rank` dimensions."""
    missing = rank - tensor.ndim
    return insert_axes(fusion, tensor, [True] * missing + [False] * tensor.ndim)


def _joined_axis(fusion: Fusion, axes: Sequence[IterDomain], what: str) -> IterDomain:
    """The axis of a result over operands with these axes. ShapeError if their sizes cannot be equal."""
    sizes = [a.visible_extent for a in axes if not a.is_broadcast or a.expanded is not None]
    for size in sizes[1:]:
        fusion.equate(sizes[0], size, what)
    iterated = [a for a in axes if not a.is_broadcast]
    if iterated:
        constants = [a for a in iterated if as_int(a.extent) is not None]
        return fusion.copy_axis((constants or iterated)[0])
    return fusion.new_axis(const(1), IterKind.BROADCAST, sizes[0] if sizes else None)


def pointwise(fusion: Fusion, row: ElementwiseOp, operands: Sequence[Val], dtype: DataType) -> TensorView:
    """A node over operands that have the types it computes in, at least one a tensor; ranks are aligned."""
    rank = max(v.ndim for v in operands if isinstance(v, TensorView))
    aligned = [with_rank(fusion, v, rank) if isinstance(v, TensorView) else v for v in operands]
    tensors = [v for v in aligned if isinstance(v, TensorView)]
    axes = [
        _joined_axis(fusion, [t.shape[i] for t in tensors], f"{row.name}, dimension {i}") for i in range(rank)
    ]
    out = fusion.new_tensor(axes, dtype)
    fusion.add_node(Pointwise(row, aligned, out))
    return out


# ---- operations --------------------------------------------------------------------------------------------


def _tier(value: Val) -> Tier:
    if isinstance(value, Scalar):
        return Tier.SCALAR
    return Tier.TENSOR if value.ndim else Tier.RANK0


# What these rules make of several operands is one of them.
_TAKES_ELEMENTS = frozenset({Rule.KEEP, Rule.SELECT})


def elementwise(fusion: Fusion, row: ElementwiseOp, *operands: Operand) -> Val:
    """One operation of the table: a tensor, or a scalar if all operands are scalars.

    Raises:
        DtypeError: the operation does not take such types. ShapeError: sizes that cannot be equal.
    """
    if row.rule is Rule.SELECT:
        _check_condition(row, operands)
    values = [as_value(fusion, operand) for operand in operands]
    wanted, dtype = promote_operands(row, [(v.dtype, _tier(v)) for v in values])
    converts = as_element if row.rule in _TAKES_ELEMENTS else convert
    values = [converts(fusion, value, target) for value, target in zip(values, wanted)]
    if any(isinstance(v, TensorView) for v in values):
        return pointwise(fusion, row, values, dtype)
    scalars = [v for v in values if isinstance(v, Scalar)]
    return _scalar_result(fusion, row, scalars, wanted[-1], dtype)


def _check_condition(row: ElementwiseOp, operands: Sequence[Operand]) -> None:
    """Refuses a Python bool that chooses between tensors: `a == b` of two handles compares the handles."""
    condition, *choices = operands
    if isinstance(condition, bool) and any(isinstance(v, TensorView) for v in choices):
        raise ArgumentTypeError(
            function=row.name,
            expected="a Tensor or Scalar as its condition",
            given=f"the Python bool {condition}",
            hint=EQUALITY,
        )


def apply(fusion: Fusion, name: str, *operands: Operand) -> Val:
    """`elementwise` by the name of the row."""
    return elementwise(fusion, ELEMENTWISE[name], *operands)


class Elementwise:
    """The operations on tensors of a fusion, as a formula is read: `steps.mul(x, y)` is `apply_to_tensor`."""

    def __init__(self, fusion: Fusion) -> None:
        self._fusion = fusion

    def __getattr__(self, name: str) -> Callable[..., TensorView]:
        return partial(apply_to_tensor, self._fusion, name)


def apply_to_tensor(fusion: Fusion, name: str, *operands: Operand) -> TensorView:
    """`apply` where an operand is a tensor, and so the result."""
    out = apply(fusion, name, *operands)
    assert isinstance(out, TensorView)
    return out


RESULT_TYPE = {
    Rule.KEEP: "the type of its first operand",
    Rule.SAME_UP: "the common type of its operands; reduced floats become Float",
    Rule.FLOAT_UP: "the common type of its operands; reduced floats, integers and bools become Float",
    Rule.FULL_FLOAT: "the common type of its operands, which must be Float or Double",
    Rule.COMPARE: "Bool",
    Rule.LOGICAL: "Bool, to which its operands are converted first",
    Rule.PREDICATE: "Bool",
    Rule.TO_REAL: "the real type of its operand",
    Rule.MAKE_COMPLEX: "the complex type of its operands, both Float or both Double",
    Rule.SELECT: "the common type of the operands after the Bool condition; reduced floats stay",
}
_OPERAND_NAMES: Mapping[str, tuple[str, ...]] = {
    "where": ("condition", "x", "y"),
    "lerp": ("start", "end", "weight"),
    "addcmul": ("a", "b", "c", "alpha"),
    "threshold": ("x", "threshold", "value"),
    "complex": ("real", "imag"),
    "pow": ("base", "exponent"),
}
# Operands that are no tensors.
_SCALAR_OPERANDS = {("addcmul", "alpha"), ("threshold", "threshold"), ("threshold", "value")}
# `cast` and `clamp` have builders of their own below.
_OWN_BUILDERS = {CAST.name, "clamp"}


def _operand_names(row: ElementwiseOp) -> tuple[str, ...]:
    default = ("x",) if row.arity == 1 else tuple("abc"[: row.arity])
    return _OPERAND_NAMES.get(row.name, default)


def register_row(row: ElementwiseOp, key: str | None = None) -> OpDef:
    """Makes a method of `fd.ops` of a row of the table."""
    names = _operand_names(row)
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_ONLY,
            annotation=ScalarLike if (row.name, name) in _SCALAR_OPERANDS else Operand,
        )
        for name in names
    ]

    def build(fusion: Fusion, *operands: Any) -> Val:
        return elementwise(fusion, row, *operands)

    sign = f" ({names[0]} {row.symbol} {names[1]})" if row.symbol and row.arity == 2 else ""
    call = f"{row.name}({', '.join(names)}){sign}"
    doc = f"{call}, element by element.\n\nThe result's type is {RESULT_TYPE[row.rule]}."
    signature = inspect.Signature(parameters, return_annotation=Val)
    return register(OPS, row.name, signature, build, doc, key=key)


for _row in ELEMENTWISE.values():
    if _row.name not in _OWN_BUILDERS:
        register_row(_row)


@op()
def clamp(fusion: Fusion, x: Operand, min: ScalarLike | None = None, max: ScalarLike | None = None) -> Val:
    """x limited to the range from `min` to `max`, which are converted to its type; None is no limit.

    The result is NaN where x or a limit is NaN, and max where min > max.
    """
    value = as_value(fusion, x)
    if value.dtype.is_complex:
        raise DtypeError(what="clamp: x", expected="a type with an order", given=value.dtype)
    limits = value.dtype if value.dtype.is_integral else value.dtype.compute
    low = limits.lowest if min is None else min
    high = limits.highest if max is None else max
    return apply(fusion, "clamp", value, low, high)


@op()
def cast(fusion: Fusion, arg: Operand, dtype: DataType) -> Val:
    """A tensor or scalar in another type. Complex to real drops the imaginary part, with a warning."""
    value = as_value(fusion, arg)
    check_has_values(dtype, "cast")
    if value.dtype.is_complex and not (dtype.is_complex or dtype.is_bool):
        warn_user("Casting from complex to real: the imaginary part is dropped")
    if isinstance(value, TensorView) and value.dtype is dtype:
        return set_(fusion, value)
    return convert(fusion, value, dtype)


@op()
def bitcast(fusion: Fusion, arg: TensorView, dtype: DataType) -> TensorView:
    """The bits of each element as one of another type, of the same size: torch's `arg.view(dtype)`."""
    for what, each in (("arg", arg.dtype), ("dtype", dtype)):
        if not has_plain_bits(each):
            raise DtypeError(what=f"bitcast: {what}", expected="an integer or floating type", given=each)
    if dtype.size != arg.dtype.size:
        raise DtypeError(
            f"bitcast: {arg.dtype} has {arg.dtype.size} bytes an element and {dtype} has {dtype.size}",
            expected=f"a type of {arg.dtype.size} bytes",
            given=dtype,
            hint="`cast` converts values",
        )
    if dtype is arg.dtype:
        return copy_tensor(fusion, arg)
    return pointwise(fusion, BITCASTS[arg.dtype, dtype], [arg], dtype)


@op(name="set")
def set_(fusion: Fusion, arg: Operand) -> Val:
    """A copy."""
    value = as_value(fusion, arg)
    return copy_tensor(fusion, value) if isinstance(value, TensorView) else value


@op()
def segment_set(fusion: Fusion, arg: TensorView) -> TensorView:
    """A copy that one kernel writes and another reads: the fusion is cut here."""
    return copy_tensor(fusion, arg, segment=True)


def copy_tensor(
    fusion: Fusion, tensor: TensorView, segment: bool = False, memory_order: Sequence[int] | None = None
) -> TensorView:
    """A copy; `memory_order` lists its dimensions from the outermost in memory to the innermost."""
    axes = copied_axes(fusion, tensor)
    allocation = None if memory_order is None else [axes[i] for i in memory_order]
    out = fusion.new_tensor(axes, tensor.dtype, allocation=allocation)
    fusion.add_node(Copy(tensor, out, segment=segment, ordered=memory_order is not None))
    return out


def _scaled(fusion: Fusion, name: str, a: Operand, b: Operand, alpha: ScalarLike) -> Val:
    """a +- alpha * b in the common type of a and b, to which alpha is converted."""
    x, y = as_value(fusion, a), as_value(fusion, b)
    (wanted, _), dtype = promote_operands(ELEMENTWISE[name], [(v.dtype, _tier(v)) for v in (x, y)])
    factor = convert(fusion, as_value(fusion, alpha), wanted)
    product = apply(fusion, "mul", factor, convert(fusion, y, dtype))
    return apply(fusion, name, convert(fusion, x, dtype), product)


@op()
def add_alpha(fusion: Fusion, a: Operand, b: Operand, alpha: ScalarLike, /) -> Val:
    """a + alpha * b, in the common type of a and b; reduced floats become Float."""
    return _scaled(fusion, "add", a, b, alpha)


@op()
def sub_alpha(fusion: Fusion, a: Operand, b: Operand, alpha: ScalarLike, /) -> Val:
    """a - alpha * b, in the common type of a and b; reduced floats become Float."""
    return _scaled(fusion, "sub", a, b, alpha)
