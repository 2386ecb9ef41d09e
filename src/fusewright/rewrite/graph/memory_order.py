"""Gives tensors between kernels the memory order of the inputs, as outputs have it."""

from __future__ import annotations

from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.ops.memory_format import lay_out_intermediates


def keep_memory_order(fusion: Fusion) -> Fusion:
    """`fusion` itself, in which tensors keep the memory order of the inputs: for example, tensors computed
    from channels-last inputs are channels last.
    """
    if any(_is_ordered(tensor) for tensor in fusion.tensors()) and lay_out_intermediates(fusion):
        fusion.edits += 1
    return fusion


def _is_ordered(tensor: TensorView) -> bool:
    """Whether its order in memory is not row-major."""
    if tensor.allocation == tensor.logical:
        return False
    return tensor.memory_axes != list(tensor.shape)
