"""Rows of elementwise operators, most of them made from Fusewright's own table of operations."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from fusewright.core.dtype import Category, DataType, from_torch
from fusewright.core.op import ElementwiseOp, Rule
from fusewright.frontend.handles import Handle, Scalar, Tensor
from fusewright.ops import OPS
from fusewright.ops.binary import BINARY
from fusewright.ops.ternary import TERNARY
from fusewright.ops.unary import UNARY
from fusewright.torch_compile.rows import ROWS, NotRecordable, Overload, add_row, row

if TYPE_CHECKING:
    from fusewright.torch_compile.recording import Recording

# Operations whose torch namesake is another one: torch divides integers truly, and has no C-like division;
# clamp has the promoted type there.
RENAMED: Mapping[str, str] = {"truediv": "div"}
NAMESAKES = frozenset({"div", "clamp"})
#: Further names that torch has for operations.
_OTHER_NAMES: Mapping[str, str] = {
    "bitwise_left_shift": "__lshift__",
    "bitwise_right_shift": "__rshift__",
    "maximum": "clamp_min",
    "minimum": "clamp_max",
}
#: The type that a Python number of a category stands for where it decides the type of the result.
DEFAULT_DTYPES: Mapping[Category, DataType] = {
    Category.BOOL: DataType.Bool,
    Category.INT: DataType.Int,
    Category.FLOAT: DataType.Float,
    Category.COMPLEX: DataType.ComplexFloat,
}
_NUMBER_CATEGORIES: Mapping[type, Category] = {
    bool: Category.BOOL,
    int: Category.INT,
    float: Category.FLOAT,
    complex: Category.COMPLEX,
}
# Rules that look at one operand, or at none.
_UNPROMOTED = frozenset({Rule.LOGICAL, Rule.PREDICATE, Rule.KEEP, Rule.TO_REAL})
_ELEMENTS = frozenset({"Tensor", "number", "Optional[Tensor]", "Optional[number]"})


def result_dtype(operands: Sequence[Any]) -> DataType:
    """torch's promoted type: of the highest category; tensors before tensors of rank 0 before numbers."""
    ranked: list[tuple[int, Category, DataType]] = []
    for operand in operands:
        if isinstance(operand, Tensor):
            ranked.append((2 if operand.ndim else 1, operand.dtype.category, operand.dtype))
        else:
            category = (
                operand.dtype.category if isinstance(operand, Scalar) else _NUMBER_CATEGORIES[type(operand)]
            )
            ranked.append((0, category, DEFAULT_DTYPES[category]))
    highest = max(category for _, category, _ in ranked)
    tier = max(tier for tier, category, _ in ranked if category is highest)
    found = [dtype.torch for its, category, dtype in ranked if its == tier and category is highest]
    return from_torch(functools.reduce(torch.promote_types, found))


def promoted(recording: Recording, operands: Sequence[Any]) -> list[Any]:
    """The operands; those of a lower category than the result's are converted to its type, as in torch.

    Numbers count only if there is no tensor; they then have the type of the tensors that torch makes of them.
    """
    common = result_dtype(operands)
    if not any(isinstance(operand, Handle) for operand in operands):
        return [recording.fd.define_scalar(operand, common) for operand in operands]
    return [
        recording.ops.cast(operand, common)
        if isinstance(operand, Tensor) and operand.dtype.category < common.category
        else operand
        for operand in operands
    ]


def _record(op: ElementwiseOp, names: Sequence[str], recording: Recording, **values: Any) -> Any:
    operands = [values[name] for name in names]
    if "alpha" in values and values["alpha"] != 1 and "alpha" not in names:
        operands[1] = _scaled(recording, operands[1], values["alpha"])
    first = 1 if op.rule is Rule.SELECT else 0
    if op.rule not in _UNPROMOTED and len(operands) > 1:
        given = [value for value in operands[first:] if value is not None]
        converted = iter(promoted(recording, given))
        operands[first:] = [None if value is None else next(converted) for value in operands[first:]]
    return getattr(recording.ops, op.name)(*operands)


def _scaled(recording: Recording, operand: Any, factor: Any) -> Any:
    return recording.ops.mul(operand, factor) if isinstance(operand, (Tensor, Scalar)) else operand * factor


def _derived() -> Iterator[tuple[ElementwiseOp, Overload, list[str]]]:
    """The overloads of ATen that are an operation of the table: their operands are its operands."""
    for op in (*UNARY, *BINARY, *TERNARY):
        if op.name in NAMESAKES or op.name not in OPS:
            continue
        for aten_name in (RENAMED.get(op.name, op.name), _OTHER_NAMES.get(op.name)):
            packet = getattr(torch.ops.aten, aten_name, None) if aten_name else None
            for name in packet.overloads() if packet is not None else ():
                overload = getattr(packet, name)
                if _fits(op, overload):
                    yield op, overload, [a.name for a in overload._schema.arguments[: op.arity]]


def _fits(op: ElementwiseOp, overload: Overload) -> bool:
    schema = overload._schema
    if schema.is_mutable or [str(r.type) for r in schema.returns] != ["Tensor"]:
        return False
    if schema.returns[0].alias_info is not None or len(schema.arguments) < op.arity:
        return False
    operands, rest = schema.arguments[: op.arity], schema.arguments[op.arity :]
    types = [str(argument.type) for argument in operands]
    takes_tensor = [parameter.kind.is_operand for parameter in OPS[op.name].parameters]
    return (
        _ELEMENTS.issuperset(types)
        and "Tensor" in types
        and all(takes or "Tensor" not in its for takes, its in zip(takes_tensor, types))
        and [argument.name for argument in rest] in ([], ["alpha"])
    )


for _op, _overload, _names in _derived():
    _takes = frozenset(a.name for a in _overload._schema.arguments)
    add_row(str(_overload), functools.partial(_record, _op, _names), _takes)

# ---- by hand -----------------------------------------------------------------------------------------------


@row("rsub.Tensor", "rsub.Scalar")
def rsub(r: Recording, x: Any, other: Any, alpha: Any) -> Any:
    a, b = promoted(r, (other, x))
    return r.ops.sub(a, b if alpha == 1 else _scaled(r, b, alpha))


@row("div.Tensor_mode", "div.Scalar_mode")
def div_rounded(r: Recording, x: Any, other: Any, rounding_mode: str | None) -> Any:
    a, b = promoted(r, (x, other))
    if rounding_mode is None:
        return r.ops.truediv(a, b)
    if a.dtype.is_integral and rounding_mode == "trunc":
        return r.ops.div(a, b)
    if a.dtype.is_integral:
        rest = r.ops.fmod(a, b)
        is_below = r.ops.logical_and(r.ops.ne(rest, 0), r.ops.ne(r.ops.lt(rest, 0), r.ops.lt(b, 0)))
        return r.ops.sub(r.ops.div(a, b), r.ops.cast(is_below, a.dtype))
    if rounding_mode == "floor":
        return _rounded_down(r, a, b)
    return r.ops.trunc(r.ops.truediv(a, b))


def _rounded_down(r: Recording, a: Any, b: Any) -> Any:
    """The quotient of floats rounded down, by the steps of torch: the division of what is left after the
    remainder is exact, but for what its own rounding adds.
    """
    if a.dtype not in (DataType.Float, DataType.Double):
        raise NotRecordable("torch rounds each step to the narrow type")
    quotient = r.ops.truediv(a, b)
    rest = r.ops.fmod(a, b)
    is_below = r.ops.logical_and(r.ops.ne(rest, 0.0), r.ops.ne(r.ops.lt(rest, 0.0), r.ops.lt(b, 0.0)))
    whole = r.ops.sub(r.ops.truediv(r.ops.sub(a, rest), b), r.ops.cast(is_below, a.dtype))
    floor = r.ops.floor(whole)
    floor = r.ops.add(floor, r.ops.cast(r.ops.gt(r.ops.sub(whole, floor), 0.5), a.dtype))
    positive, negative = (r.fd.define_scalar(zero, a.dtype) for zero in (0.0, -0.0))
    zero = r.ops.where(r.ops.signbit(quotient), negative, positive)
    return r.ops.where(r.ops.eq(b, 0.0), quotient, r.ops.where(r.ops.ne(whole, 0.0), floor, zero))


@row("fmax.default")
def fmax(r: Recording, x: Any, other: Any) -> Any:
    a, b = promoted(r, (x, other))
    return _of_numbers(r, a, b, r.ops.maximum(a, b))


@row("fmin.default")
def fmin(r: Recording, x: Any, other: Any) -> Any:
    a, b = promoted(r, (x, other))
    return _of_numbers(r, a, b, r.ops.minimum(a, b))


def _of_numbers(r: Recording, a: Any, b: Any, found: Any) -> Any:
    """What was found of two values; the other where one is not a number."""
    if not r.dtype().is_floating:
        return found
    return r.ops.where(r.ops.isnan(a), b, r.ops.where(r.ops.isnan(b), a, found))


@row("copysign.Tensor", "copysign.Scalar")
def copysign(r: Recording, x: Any, other: Any) -> Any:
    a, b = (r.ops.cast(operand, r.dtype()) for operand in promoted(r, (x, other)))
    return r.ops.where(r.ops.eq(r.ops.signbit(a), r.ops.signbit(b)), a, r.ops.neg(a))


@row("ldexp.Tensor")
def ldexp(r: Recording, x: Any, other: Any) -> Any:
    a, exponent = (r.ops.cast(operand, r.dtype()) for operand in (x, other))
    return r.ops.mul(a, r.ops.pow(2.0, exponent))


@row("clamp.default")
def clamp(r: Recording, x: Any, min: Any, max: Any) -> Any:
    """Bounds of a higher category promote the value."""
    return r.ops.clamp(r.ops.cast(x, r.dtype()) if x.dtype.category < r.dtype().category else x, min, max)


@row("clamp.Tensor")
def clamp_tensors(r: Recording, x: Any, min: Any, max: Any) -> Any:
    for name, bound in (("maximum", min), ("minimum", max)):
        if bound is not None:
            x = getattr(r.ops, name)(*promoted(r, (x, bound)))
    return x


@row("logical_xor.default")
def logical_xor(r: Recording, x: Any, other: Any) -> Any:
    return r.ops.ne(r.ops.cast(x, DataType.Bool), r.ops.cast(other, DataType.Bool))


@row("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(r: Recording, x: Any, mask: Any, value: Any) -> Any:
    fill = (
        r.ops.cast(value, x.dtype)
        if isinstance(value, (Tensor, Scalar))
        else r.fd.define_scalar(value, x.dtype)
    )
    return r.ops.where(mask, fill, x)


@row("gelu.default")
def gelu(r: Recording, x: Any, approximate: str) -> Any:
    return r.ops.gelu(x, approximate)


@row("square.default")
def square(r: Recording, x: Any) -> Any:
    return r.ops.mul(x, x)


@row("linalg_cross.default")
def linalg_cross(r: Recording, self: Any, other: Any, dim: int) -> Any:
    a, b = promoted(r, (self, other))
    place = dim % a.ndim
    first = r.ops.mul(r.ops.roll(a, 2, place), r.ops.roll(b, 1, place))
    return r.ops.sub(first, r.ops.mul(r.ops.roll(a, 1, place), r.ops.roll(b, 2, place)))


@row("angle.default")
def angle(r: Recording, x: Any) -> Any:
    if x.dtype.is_complex:
        return r.ops.atan2(r.ops.imag(x), r.ops.real(x))
    turned = r.ops.cast(r.ops.where(r.ops.lt(x, 0), math.pi, 0.0), r.dtype())
    return r.ops.where(r.ops.ne(x, x), x, turned) if x.dtype.is_floating else turned


@row("polar.default")
def polar(r: Recording, x: Any, angle: Any) -> Any:
    return r.ops.complex(r.ops.mul(x, r.ops.cos(angle)), r.ops.mul(x, r.ops.sin(angle)))


@row("addcdiv.default")
def addcdiv(r: Recording, x: Any, tensor1: Any, tensor2: Any, value: Any) -> Any:
    quotient = r.ops.truediv(tensor1, tensor2)
    return r.ops.add(x, quotient if value == 1 else r.ops.mul(quotient, value))


@row("prims.fma.default")
def fma(r: Recording, x: Any, b: Any, c: Any) -> Any:
    """What torch.compile makes of the steps of an optimizer, `addcmul_` and others."""
    return r.ops.add(r.ops.mul(x, b), c)


# ---- lists of tensors --------------------------------------------------------------------------------------


def _foreach(name: str, names: Sequence[str], recording: Recording, **values: Any) -> list[Any]:
    """One operation for each place in the lists; what is no list serves all."""
    lists = [value for value in values.values() if isinstance(value, (list, tuple))]
    base = ROWS[name]
    made = []
    for i in range(len(lists[0])):
        own = {n: v[i] if isinstance(v, (list, tuple)) else v for n, v in values.items()}
        renamed = {base_name: own[n] for base_name, n in zip(names, own)}
        made.append(base.record(recording, **renamed))
    return made


#: How the overloads of an operator on lists are called where it takes single tensors; the first that is.
_LISTED: Mapping[str, Sequence[str]] = {
    "default": ("default",),
    "List": ("Tensor", "default", "Tensor_Tensor"),
    "Scalar": ("Scalar", "Tensor_Scalar", "default"),
    "ScalarList": ("Scalar", "Tensor_Scalar", "default"),
    "Tensor": ("Tensor",),
    "ScalarAndTensor": ("Scalar_Tensor",),
}


def _add_foreach_rows() -> None:
    for qualified in torch._C._dispatch_get_all_op_names():
        name, _, overload = qualified.removeprefix("aten::").partition(".")
        overload = overload or "default"
        if not qualified.startswith("aten::_foreach_") or overload not in _LISTED:
            continue
        bases = (f"aten.{name.removeprefix('_foreach_')}.{o}" for o in _LISTED[overload])
        base = next((b for b in bases if b in ROWS), None)
        if base is None:
            continue
        takes = [a.name for a in _schema_of(base).arguments]
        if "x" in ROWS[base].takes:
            takes[0] = "x"
        own = [a.name for a in _schema_of(f"aten.{name}.{overload}").arguments]
        if len(own) <= len(takes):
            record = functools.partial(_foreach, base, takes)
            add_row(f"aten.{name}.{overload}", record, frozenset(own))


def _schema_of(name: str) -> Any:
    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)._schema


_add_foreach_rows()
