"""Assigns every shared buffer its position in the block's arena."""

from __future__ import annotations

import dataclasses

from fusewright.core.hardware import MAX_VECTOR_BYTES
from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.sym import Expr, ceildiv, const

# The alignment of every buffer, so that vector accesses within it are aligned.
_LEAST_ALIGN = MAX_VECTOR_BYTES


def place_shared(kernel: k.Kernel) -> k.Kernel:
    """Places the buffers one after another, aligned; `shared_bytes` is the end of the last one."""
    placed: dict[k.Buffer, k.Buffer] = {}
    end: Expr = const(0)
    for stmt in k.walk(kernel.body):
        buffer = access.declared_buffer(stmt)
        if buffer is not None and buffer.space is k.Space.SHARED:
            start = _aligned(end, max(buffer.align, _LEAST_ALIGN))
            placed[buffer] = dataclasses.replace(buffer, offset=start)
            end = _aligned(start + buffer.size * buffer.dtype.size, _LEAST_ALIGN)
    if not placed:
        return kernel
    body = k.rewritten(kernel.body, lambda stmt: [access.map_buffers(stmt, placed)])
    return dataclasses.replace(kernel, body=body, shared_bytes=end)


def _aligned(bytes_: Expr, align: int) -> Expr:
    """The next multiple of `align`."""
    return ceildiv(bytes_, align) * align
