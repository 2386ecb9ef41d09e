"""Rows that reinterpret the bits of an element as another type of its size; the builder `bitcast` chooses
one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch

from fusewright.core.dtype import DataType
from fusewright.core.op import ElementwiseOp, Rule, Spelling, converted


def has_plain_bits(dtype: DataType) -> bool:
    """Whether any bits are an element of the type, and the same ones in a kernel and in memory."""
    return dtype not in _WITHOUT and (dtype.is_integral or dtype.is_floating)


# Index has another width in each kernel, a Float4 by itself is stored as an e4m3.
_WITHOUT = frozenset({DataType.Null, DataType.Index, DataType.Float4_e2m1fn, DataType.Float4_e2m1fn_x2})


def _reference(source: DataType, target: DataType) -> Callable[[torch.Tensor], torch.Tensor]:
    """Takes the compute type as well, of which a stored type holds each value that there can be."""
    return lambda x: converted(x, source).view(target.torch)


def _row(source: DataType, target: DataType) -> ElementwiseOp:
    cuda = f"fw::bits_as<{target.cuda}>({{0}})"
    spelling = Spelling(cuda, _reference(source, target), ("bits_as",))
    return ElementwiseOp(
        f"bits_of_{source.name}_as_{target.name}",
        1,
        Rule.BITS,
        MappingProxyType({source.category: spelling}),
        stored=(source, target),
    )


_TYPES = [dtype for dtype in DataType if has_plain_bits(dtype)]

#: By the type of the operand and that of the result, which are of the same size.
BITCASTS: Mapping[tuple[DataType, DataType], ElementwiseOp] = MappingProxyType(
    {(a, b): _row(a, b) for a in _TYPES for b in _TYPES if a is not b and a.size == b.size}
)
