"""Rows that round a number to the values of another type, and rows that convert small numbers. Kernels have
them; definitions do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch

from fusewright.core.dtype import Category, DataType
from fusewright.core.op import ElementwiseOp, Rule, Spelling

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

#: Of numbers up to so many, either way.
LARGEST_SMALL = 2**22


def _of_small(
    name: str, rule: Rule, category: Category, reference: Callable[..., torch.Tensor]
) -> ElementwiseOp:
    spelling = Spelling(f"fw::{name}({{0}})", reference, ("small_numbers",))
    return ElementwiseOp(name, 1, rule, MappingProxyType({category: spelling}))


FLOAT_OF_SMALL = _of_small("float_of_small", Rule.TO_FLOAT, Category.INT, lambda x: x.float())
#: A zero below 0 becomes 0.
NEAREST_WHOLE = _of_small("nearest_whole", Rule.FLOAT_UP, Category.FLOAT, lambda x: x.round() + 0.0)
#: The nearest integer, half to even.
NEAREST_INTEGER = _of_small("nearest_integer", Rule.TO_INTEGER, Category.FLOAT, lambda x: x.round().int())
#: The same, and 0 of NaN.
NEAREST_INTEGER_OR_0 = _of_small(
    "nearest_integer_or_0", Rule.TO_INTEGER, Category.FLOAT, lambda x: x.round().nan_to_num(0.0).int()
)
#: Of what is not negative.
INTEGER_BELOW = _of_small("integer_below", Rule.TO_INTEGER, Category.FLOAT, lambda x: x.floor().int())
