"""Rows that bring a number nearer to what a narrower type holds, and keep its type; kernels have them, and no
definition.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fusewright.core.dtype import Category, DataType
from fusewright.core.op import ElementwiseOp, Rule, Spelling

__all__ = ["ROUNDED", "SATURATED_POSITION"]

#: By the type that is rounded to: those that the GPU converts to more slowly than it rounds.
ROUNDED: Mapping[DataType, ElementwiseOp] = MappingProxyType(
    {
        DataType.BFloat16: ElementwiseOp(
            "round_to_bfloat16",
            1,
            Rule.FLOAT_UP,
            MappingProxyType(
                {
                    Category.FLOAT: Spelling(
                        "fw::rounded_bfloat16({0})", lambda x: x.bfloat16().float(), ("rounded_bfloat16",)
                    )
                }
            ),
        )
    }
)

_LOWEST, _HIGHEST = -1, 2**31 - 1
#: The nearest integer from -1, which is no position, to the largest of 32 bits; of 64 bits as the operand.
SATURATED_POSITION = ElementwiseOp(
    "saturate_position",
    1,
    Rule.KEEP,
    MappingProxyType(
        {
            Category.INT: Spelling(
                f"max(min({{0}}, {_HIGHEST}ll), {_LOWEST}ll)", lambda x: x.clamp(_LOWEST, _HIGHEST)
            )
        }
    ),
)
