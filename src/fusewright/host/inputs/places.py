"""Tensors of a call that may be in host memory while the others are on a GPU.

torch's operators keep some states in host memory, such as the seed of attention's dropout. The device of a
fake tensor does not show where a state will be, since the same operator leaves it on the GPU while a CUDA
graph is captured.
"""

from __future__ import annotations

from fusewright.ir import LibraryCall, TensorView


def is_kept_by_torch(tensor: TensorView) -> bool:
    """Whether a tensor has rank 0 and only operators of torch that accept either memory make and read it."""
    if tensor.ndim:
        return False
    makers = () if tensor.definition is None else (tensor.definition,)
    return all(isinstance(node, LibraryCall) and node.op.anywhere for node in (*makers, *tensor.uses))
