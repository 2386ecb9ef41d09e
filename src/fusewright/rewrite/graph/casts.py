"""Folds chains of casts.

    bf16 -> float -> bf16     becomes    nothing
    half -> float -> double   becomes    half -> double
    float -> bf16 -> float    stays, as it rounds

A cast to a type that has every value of the previous type rounds nothing, so later casts may start from the
original value. Two casts from float to integer are not replaced by one, since the result for NaN depends on
the type.
"""

from __future__ import annotations

from fusewright.core.dtype import DataType, represents
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.rewrite.replacement import is_cast, is_in_memory_of_its_own, read_instead


def fold_casts(fusion: Fusion) -> Fusion:
    """Makes casts start from the earliest tensor with the operand's values; returns `fusion`."""
    outputs = set(fusion.output_tensors())
    for node in fusion.ordered_nodes():
        if not is_cast(node):
            continue
        source, out = node.tensor_inputs[0], node.output
        before = _exact_source(source, out.dtype)
        if before is None:
            continue
        if before.dtype is not out.dtype:
            fusion.replace_inputs(node, {source: before})
        elif not is_in_memory_of_its_own(out, outputs):
            read_instead(fusion, out, before)
    return fusion


def _exact_source(tensor: TensorView, dtype: DataType) -> TensorView | None:
    """The operand of the cast that computed a tensor, if a cast of the operand gives the same; else None."""
    node = tensor.definition
    if node is None or not is_cast(node):
        return None
    (before,) = node.tensor_inputs
    if before.is_cpu or not represents(tensor.dtype, before.dtype):
        return None
    is_same = before.dtype is dtype or dtype.is_floating or not before.dtype.is_floating
    return before if is_same and not dtype.is_complex else None
