"""How the values of a kernel's parameters are passed to the driver."""

from __future__ import annotations

from typing import Any

import torch

from fusewright.core.dtype import DataType
from fusewright.core.errors import FusewrightError
from fusewright.kernel.ir import Param, ScalarParam

_CODES: dict[DataType, str] = {
    DataType.Bool: "?",
    DataType.Int: "q",
    DataType.Int32: "i",
    DataType.UInt64: "Q",
    DataType.Float: "f",
    DataType.Double: "d",
    DataType.ComplexFloat: "F",
    DataType.ComplexDouble: "D",
}
# Types that Python has no number for are passed as the integers of their bits.
_BITS: dict[DataType, tuple[str, torch.dtype]] = {
    DataType.Half: ("h", torch.int16),
    DataType.BFloat16: ("h", torch.int16),
    DataType.Float8_e4m3fn: ("b", torch.int8),
    DataType.Float8_e5m2: ("b", torch.int8),
    DataType.Float8_e8m0fnu: ("b", torch.int8),
    DataType.Float4_e2m1fn: ("b", torch.int8),
    DataType.Int8: ("b", torch.int8),
    DataType.UInt8: ("b", torch.int8),
    DataType.Int16: ("h", torch.int16),
    DataType.UInt16: ("h", torch.int16),
}


def argument_code(param: Param, index_dtype: DataType) -> str:
    """The code of `cuda.driver.ARGUMENT_CODES` for a parameter."""
    if not isinstance(param, ScalarParam):
        return "P"
    dtype = index_dtype if param.dtype is DataType.Index else param.dtype
    code = _CODES.get(dtype) or (_BITS[dtype][0] if dtype in _BITS else None)
    if code is None:
        raise FusewrightError(f"a kernel cannot take a scalar of dtype {dtype}")
    return code


def passed_value(param: ScalarParam, value: Any) -> Any:
    """A scalar as its code takes it: types of 8 and 16 bits as an integer of these, others as they are."""
    bits = _BITS.get(param.dtype)
    if bits is None:
        return value
    return int(torch.tensor(value, dtype=param.dtype.torch, device="cpu").view(bits[1]).item())
