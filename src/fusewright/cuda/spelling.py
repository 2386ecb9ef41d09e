"""The spelling of types, constants, conversions and names in CUDA C++."""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable, Hashable
from functools import lru_cache

import torch

from fusewright.core.code import PRIMARY, SUM, UNARY, Code, call, cast, member, primary
from fusewright.core.dtype import DataType, PyScalar
from fusewright.core.enums import CacheOp
from fusewright.core.op import converted

TYPE_SNIPPETS = {
    DataType.Half: "half",
    DataType.BFloat16: "bfloat16",
    DataType.Float8_e4m3fn: "fp8",
    DataType.Float8_e5m2: "fp8",
    DataType.Float8_e8m0fnu: "e8m0",
    DataType.Float4_e2m1fn: "e2m1",
    DataType.Float4_e2m1fn_x2: "e2m1",
    DataType.ComplexFloat: "complex",
    DataType.ComplexDouble: "complex",
}
"""The snippet that defines a type which CUDA lacks."""

CACHE_SUFFIX = {
    CacheOp.unspecified: "",
    CacheOp.all_levels: "_ca",
    CacheOp.streaming: "_cs",
    CacheOp.global_: "_cg",
    CacheOp.evict_last: "_el",
}
"""The ending of fw::load and fw::store for each cache hint."""

BITS_OF_A_BYTE = 8

# Words that an identifier of a kernel may not be: the language's, CUDA's built-ins, and names that the
# printed text itself uses.
RESERVED = frozenset(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl const constexpr
    const_cast continue decltype default delete do double dynamic_cast else enum explicit export extern false
    float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or
    or_eq private protected public register reinterpret_cast return short signed sizeof static static_assert
    static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned
    using virtual void volatile wchar_t while xor xor_eq
    threadIdx blockIdx blockDim gridDim warpSize min max abs dim3 fw fw_smem fw_turn partial w
    """.split()  # noqa: SIM905 (a list literal would take forty lines)
)


def identifier(name: str) -> str:
    """`name` as a C identifier: other characters become `_`. Distinct names may meet in one identifier."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII)
    if text in RESERVED or text[:1].isdigit() or text.startswith("__") or not text:
        return f"v_{text}"
    return text


def type_name(dtype: DataType, index_dtype: DataType) -> str:
    """The C++ type of `dtype` in a kernel whose index arithmetic is done in `index_dtype`."""
    return (index_dtype if dtype is DataType.Index else dtype).cuda


def convert(code: Code, source: DataType, target: DataType, index_dtype: DataType) -> Code:
    """`code`, an expression of type `source`, as one of type `target`: a call, a cast or the code itself."""
    source, target = (index_dtype if dtype is DataType.Index else dtype for dtype in (source, target))
    if source is target:
        return code
    if source.is_complex and not target.is_complex and target is not DataType.Bool:
        return convert(member(code, "re"), source.real, target, index_dtype)
    if target.is_reduced_float:
        # Reduced floats are made from floats, so that there is one rounding rule (torch's) for all sources.
        if source.compute is not DataType.Float:
            code = call("float", code)
        return call(target.cuda, code)
    if source.is_reduced_float and target is not DataType.Float:
        code = call("float", code)
    if target.is_short_integer and not source.is_integral:
        code = cast(DataType.Int32.cuda, code)  # what is out of range wraps, then
    return cast(type_name(target, index_dtype), code)


def _shortest_float(value: float) -> str:
    """The shortest decimal that reads back as the same float32."""
    for digits in range(6, 10):
        text = f"{value:.{digits}g}"
        if ctypes.c_float(float(text)).value == value:
            break
    return text if any(c in text for c in ".e") else text + ".0"


def _float32(value: float) -> str:
    value = ctypes.c_float(value).value  # overflows to infinity, as a cast does
    if math.isnan(value):
        return "__int_as_float(0x7fc00000)"
    if math.isinf(value):
        return f"__int_as_float(0x{'7f' if value > 0 else 'ff'}800000)"
    return _shortest_float(value) + "f"


def _float64(value: float) -> str:
    if math.isnan(value):
        return "__longlong_as_double(0x7ff8000000000000ll)"
    if math.isinf(value):
        return f"__longlong_as_double(0x{'7f' if value > 0 else 'ff'}f0000000000000ll)"
    return repr(value)


def _signed(bits: int, suffix: str) -> Callable[[int], Code]:
    lowest = -(2 ** (bits - 1))

    def spell(value: int) -> Code:
        # The lowest value has no literal: -x is the negation of a literal x that does not fit.
        if value == lowest:
            return Code(f"-{-lowest - 1}{suffix} - 1", SUM)
        return _with_sign(f"{value}{suffix}")

    return spell


def _with_sign(text: str) -> Code:
    return Code(text, UNARY if text.startswith("-") else PRIMARY)


_REAL_LITERALS: dict[DataType, Callable[..., Code]] = {
    DataType.Double: lambda value: _with_sign(_float64(value)),
    DataType.Float: lambda value: _with_sign(_float32(value)),
    DataType.Int: _signed(64, "ll"),
    DataType.Int32: _signed(32, ""),
    DataType.UInt64: lambda value: primary(f"{value}ull"),
    DataType.Bool: lambda value: primary("true" if value else "false"),
    DataType.Float4_e2m1fn_x2: lambda value: call(DataType.Float4_e2m1fn_x2.cuda, str(value)),
}


@lru_cache(maxsize=4096)
def _rounded_once(value: PyScalar, kind: Hashable, dtype: DataType) -> PyScalar:
    if dtype.is_reduced_float:
        return converted(torch.tensor(value, dtype=torch.float32), dtype).float().item()
    if dtype is DataType.Float:
        return ctypes.c_float(float(value.real)).value
    if dtype.is_integral:
        bits = BITS_OF_A_BYTE * dtype.size
        whole = int(value.real) % 2**bits
        return whole if dtype.lowest == 0 or whole < 2 ** (bits - 1) else whole - 2**bits
    if dtype is DataType.Bool:
        return bool(value)
    if dtype is DataType.Float4_e2m1fn_x2:
        return int(value.real)
    return float(value.real) if dtype is DataType.Double else complex(value)


def _rounded(value: PyScalar, dtype: DataType) -> PyScalar:
    """`value` as `dtype` holds it."""
    # The class keeps 1, 1.0 and True apart in the cache, the sign 0.0 and -0.0.
    sign = math.copysign(1.0, value.real), math.copysign(1.0, value.imag)
    return _rounded_once(value, (type(value), sign), dtype)


def literal(value: PyScalar, dtype: DataType, index_dtype: DataType) -> Code:
    """The constant `value` of `dtype`, exact."""
    if dtype is DataType.Index:
        dtype = index_dtype
    value = _rounded(value, dtype)
    if dtype.is_complex:
        part = _REAL_LITERALS[dtype.real]
        return call(dtype.cuda, part(value.real), part(value.imag))
    if dtype.is_reduced_float:
        return call(dtype.cuda, _float32(float(value.real)))
    if dtype.is_short_integer:
        return cast(dtype.cuda, _REAL_LITERALS[DataType.Int32](value))
    return _REAL_LITERALS[dtype](value)


def converted_literal(value: PyScalar, source: DataType, target: DataType, index_dtype: DataType) -> Code:
    """The constant `value` of `source`, rounded as such and then converted to `target`.

    Floats out of an integer's range become what the device makes of them, which C leaves to the compiler.
    """
    source, target = (index_dtype if dtype is DataType.Index else dtype for dtype in (source, target))
    rounded = _rounded(value, source)
    if isinstance(rounded, complex) and not target.is_complex and target is not DataType.Bool:
        rounded = rounded.real
    if isinstance(rounded, float) and target.is_integral:
        wide = DataType.Double if source.real is DataType.Double else DataType.Float
        rounded = converted(torch.tensor(rounded, dtype=wide.torch), target).item()
    return literal(rounded, target, index_dtype)
