"""Gives tensors between kernels the memory order of the inputs, which outputs have already."""

from __future__ import annotations

from fusewright.ir.fusion import Fusion
from fusewright.ops.memory_format import lay_out_intermediates


def keep_memory_order(fusion: Fusion) -> Fusion:
    """Gives tensors the memory order of the inputs; returns `fusion`.

    For example, tensors that are computed from channels-last inputs become channels last.
    """
    if not all(tensor.is_row_major for tensor in fusion.tensors()) and lay_out_intermediates(fusion):
        fusion.edits += 1
    return fusion
