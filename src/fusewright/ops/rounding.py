"""Rows that round a Float to a narrower type and keep it a Float; kernels have them, and no definition."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fusewright.core.dtype import Category, DataType
from fusewright.core.op import ElementwiseOp, Rule, Spelling

__all__ = ["ROUNDED"]

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
