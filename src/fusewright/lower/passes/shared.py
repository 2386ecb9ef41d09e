"""Gives every shared buffer its place in the block's arena."""

from __future__ import annotations

import dataclasses

from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.sym import Expr, ceildiv, const

# Any vector access within a buffer is aligned if the buffer is.
_ALIGN = 16


def place_shared(kernel: k.Kernel) -> k.Kernel:
    """Buffers one after another, each aligned to 16 bytes; `shared_bytes` is their end."""
    placed: dict[k.Buffer, k.Buffer] = {}
    end: Expr = const(0)
    for stmt in k.walk(kernel.body):
        if isinstance(stmt, k.Alloc) and stmt.buffer.space is k.Space.SHARED:
            placed[stmt.buffer] = dataclasses.replace(stmt.buffer, offset=end)
            end = end + ceildiv(stmt.buffer.size * stmt.buffer.dtype.size, _ALIGN) * _ALIGN
    if not placed:
        return kernel
    return dataclasses.replace(kernel, body=_replace(kernel.body, placed), shared_bytes=end)


def _replace(body: tuple[k.Stmt, ...], table: dict[k.Buffer, k.Buffer]) -> tuple[k.Stmt, ...]:
    return tuple(
        k.with_children(stmt, lambda nested: _replace(nested, table))
        if k.children(stmt)
        else access.map_buffers(stmt, table)
        for stmt in body
    )
