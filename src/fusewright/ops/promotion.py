"""Type promotion: the common type of an operation's operands, and the type of the result.

The pairwise rule (`core.dtype.promote`) is C++'s. The rule of tiers comes first: a scalar does not widen the
tensor that it is combined with, unless the scalar is of a larger category. Unlike in torch, an integer tensor
with a Double scalar gives Double, and most operations on reduced floats return Float.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from fusewright.core.dtype import Category, DataType, promote
from fusewright.core.errors import DtypeError
from fusewright.core.op import ElementwiseOp, Rule, result_dtype


class Tier(enum.IntEnum):
    """How much an operand's type counts."""

    SCALAR = 0
    RANK0 = 1  # a tensor without axes
    TENSOR = 2


Operand = tuple[DataType, Tier]


def common_dtype(operands: Sequence[Operand]) -> DataType:
    """The type that the operands meet in, before any rule of the operation (reduced floats are not widened).

    Raises:
        DtypeError: a complex scalar with a tensor of reduced floats, for which no complex type exists.
    """
    first = operands[0][0]
    if all(dtype is first for dtype, _ in operands):
        return first
    common: DataType | None = None
    for tier in sorted(Tier, reverse=True):
        dtypes = [_within_tier(dtype, tier) for dtype, its_tier in operands if its_tier is tier]
        if not dtypes:
            continue
        meeting = dtypes[0]
        for dtype in dtypes[1:]:
            meeting = promote(meeting, dtype)
        common = meeting if common is None else _combine(common, meeting)
    assert common is not None
    return common


def _within_tier(dtype: DataType, tier: Tier) -> DataType:
    """A scalar is held in a register of at least 32 bits: one of a reduced float type counts as Float."""
    return dtype.compute if tier is Tier.SCALAR else dtype


def _combine(higher: DataType, lower: DataType) -> DataType:
    """The type in which a higher tier meets a lower one."""
    if higher.is_complex:
        return higher
    if lower.is_complex:
        if not higher.is_floating:
            return lower
        if higher.is_reduced_float:
            raise DtypeError(
                f"{higher} has no complex type to meet a {lower} scalar in",
                expected=f"{DataType.Float} or {DataType.Double}",
                given=higher,
                hint="cast the tensor to Float or to a complex type first",
            )
        return higher.complex
    if higher.is_floating:
        return higher
    if higher.category is Category.BOOL or lower.is_floating:
        return promote(higher, lower)
    return higher


# These rules look at operand 0 or at no operand at all.
_WITHOUT_PROMOTION = frozenset({Rule.KEEP, Rule.PREDICATE, Rule.TO_REAL, Rule.LOGICAL})


def promote_operands(op: ElementwiseOp, operands: Sequence[Operand]) -> tuple[tuple[DataType, ...], DataType]:
    """The type that each operand of `op` has to be cast to, and the type of the result.

    Raises:
        DtypeError: the operation does not take such operands; the message names it.
    """
    types = [dtype for dtype, _ in operands]
    if op.rule in _WITHOUT_PROMOTION:
        return result_dtype(op, types)
    first = 1 if op.rule is Rule.SELECT else 0
    return result_dtype(op, types, common=common_dtype(operands[first : op.promoting]))
