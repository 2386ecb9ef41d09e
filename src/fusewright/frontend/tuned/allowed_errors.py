"""What results of any legal params may differ by from their reference, where a search checks them.

These differ by more than those of a definition's own schedule: sums are in other orders, and what is computed
from them rounds the other way near the middle of two numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fusewright.core.dtype import DataType
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import Val

# Of the tolerances of float32 results, a multiple that results of any legal params are within: the sum of a
# column of 15,182 elements by one thread missed them by a factor of 2.8.
OTHER_ORDERS = 8
# The share of integers and bools that may differ if they follow from floats: quantized values, counts and
# results of comparisons, and the places of extrema, change where a float is off by its last bit.
FEW_DIFFER = 1e-3
# Of a pair's elements: the relative distance of neighbours, and the least number.
PAIR_STEP, PAIR_LEAST = 0.5, 0.5


@dataclass(frozen=True)
class AllowedErrors:
    """The allowed differences of all visible outputs.

    Attributes:
        tolerances: (absolute, relative) of each.
        shares: for each, the share of its elements that may differ by more.
    """

    tolerances: Sequence[tuple[float, float]]
    shares: Sequence[float]


def allowed_errors(fusion: Fusion, tolerances: Sequence[tuple[float, float]]) -> AllowedErrors:
    """What is allowed beyond the tolerances of a definition's results."""
    outputs = [output.tensor for output in fusion.outputs if not output.hidden]
    floats = _follow_from_floats(fusion)
    wide = [_widened(output.dtype, *tolerance) for output, tolerance in zip(outputs, tolerances)]
    inexact = [not _is_float(output.dtype) and output in floats for output in outputs]
    return AllowedErrors(wide, [FEW_DIFFER if each else 0.0 for each in inexact])


def _widened(dtype: DataType, absolute: float, relative: float) -> tuple[float, float]:
    """At least one step of the type, and several times the errors of sums in float32."""
    if not _is_float(dtype):
        return absolute, relative
    if dtype is DataType.Float:
        absolute, relative = OTHER_ORDERS * absolute, OTHER_ORDERS * relative
    if dtype is DataType.Float4_e2m1fn_x2:
        return max(absolute, PAIR_LEAST), max(relative, PAIR_STEP)
    numbers = torch.finfo(dtype.torch)
    return max(absolute, numbers.smallest_normal * numbers.eps), max(relative, numbers.eps)


def _is_float(dtype: DataType) -> bool:
    return dtype.is_floating or dtype.is_complex or dtype is DataType.Float4_e2m1fn_x2


def _follow_from_floats(fusion: Fusion) -> set[Val]:
    """The values that are computed from floats."""
    found: set[Val] = set()
    for node in fusion.ordered_nodes():
        if any(each in found or _is_float(each.dtype) for each in node.inputs):
            found.update(node.outputs)
    return found
