"""All rows of kernels by class and name, for kernels that are sent from one process to another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from fusewright.core.op import ElementwiseOp, ReductionOp
from fusewright.ops import approximate, bits, pairs, random, reductions, rounding
from fusewright.ops.elementwise import CAST, ELEMENTWISE

Row: TypeAlias = "ElementwiseOp | ReductionOp"


def rows_by_name() -> dict[tuple[str, str], Row]:
    """By class and name; rows that users registered are among them."""
    return {(type(row).__name__, row.name): row for row in _rows()}


def _rows() -> Iterator[Row]:
    yield from ELEMENTWISE.values()
    yield CAST
    for module in (approximate, bits, pairs, random, reductions, rounding):
        for value in vars(module).values():
            several = value.values() if hasattr(value, "values") and not isinstance(value, type) else (value,)
            yield from (each for each in several if isinstance(each, (ElementwiseOp, ReductionOp)))
