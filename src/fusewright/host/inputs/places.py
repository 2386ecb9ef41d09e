"""Tensors of a call that may be in host memory while the others are on a GPU.

torch's operators keep some of their states there, such as the seed of attention's dropout. A fake tensor does
not tell: the same operator leaves the state on the GPU while a CUDA graph is captured.
"""

from __future__ import annotations

from fusewright.ir import LibraryCall, TensorView


def is_kept_by_torch(tensor: TensorView) -> bool:
    """Whether only operators of torch make and read a tensor of rank 0: they take it from either memory."""
    if tensor.ndim:
        return False
    makers = () if tensor.definition is None else (tensor.definition,)
    return all(isinstance(node, LibraryCall) and node.op.anywhere for node in (*makers, *tensor.uses))
