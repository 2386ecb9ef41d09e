"""Rows that pack two Float4 in a byte and unpack them. Only builders use them: users see single elements."""

from __future__ import annotations

from types import MappingProxyType

import torch

from fusewright.core.dtype import Category, DataType
from fusewright.core.op import ElementwiseOp, Rule, Spelling, converted

# The magnitudes that the lower three of a Float4's bits stand for; the fourth is the sign.
_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_SIGN = 8


def _code(value: torch.Tensor) -> torch.Tensor:
    """The four bits of the Float4 nearest to each float."""
    value = converted(value, DataType.Float4_e2m1fn).float()
    magnitudes = torch.tensor(_MAGNITUDES, device=value.device)
    return torch.searchsorted(magnitudes, value.abs().contiguous()) + _SIGN * value.signbit()


def _float(code: torch.Tensor) -> torch.Tensor:
    magnitude = torch.tensor(_MAGNITUDES, device=code.device)[(code % _SIGN).long()]
    return torch.where(code < _SIGN, magnitude, -magnitude)


def elements_of_pairs(pairs: torch.Tensor) -> torch.Tensor:
    """Bytes of two Float4 as floats, twice as many along the last dimension."""
    return torch.stack([_float(pairs % 16), _float(pairs // 16)], -1).flatten(-2)


def _packed(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    return (_code(low) + 16 * _code(high)).to(DataType.Float4_e2m1fn_x2.values)


#: Two floats, rounded, as one byte: the first in its lower half.
PACK = ElementwiseOp(
    "pack_e2m1",
    2,
    Rule.PACK,
    MappingProxyType({Category.FLOAT: Spelling("fw::pack_e2m1({0}, {1})", _packed, ("e2m1",))}),
)
#: The element in the lower half of a byte, and the one in its upper half, as Float.
LOW = ElementwiseOp(
    "low_e2m1",
    1,
    Rule.UNPACK,
    MappingProxyType({Category.PAIR: Spelling("fw::low_e2m1({0})", lambda x: _float(x % 16), ("e2m1",))}),
)
HIGH = ElementwiseOp(
    "high_e2m1",
    1,
    Rule.UNPACK,
    MappingProxyType({Category.PAIR: Spelling("fw::high_e2m1({0})", lambda x: _float(x // 16), ("e2m1",))}),
)
