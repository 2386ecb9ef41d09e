"""Holds rows in registers in their stored type across a block reduction.

    sum += float(x[i])                      sum += float(x[i])
    block reduction                         block reduction
    y[i] = float(x[i]) - sum        ->      hold x
                                            y[i] = float(x[i]) - sum

The CUDA compiler would hold all float(x[i]) across the reduction to save the conversions. That takes twice
the registers of a bfloat16 row. With only the registers that the schedule assumed, more blocks share an SM.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.core.hardware import REGISTER_BYTES
from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.sym import as_int

# Rows of fewer elements per thread are not held: the registers also have room for values that are computed
# from them, and holding these is faster. (Measured with exponentials of 50 elements per thread, softmax
# 8192x50257 on an H200.)
MIN_ELEMENTS = 64


def hold_rows(kernel: k.Kernel) -> k.Kernel:
    if not any(isinstance(stmt, k.Alloc) and _is_row(stmt.buffer) for stmt in k.walk(kernel.body)):
        return kernel
    return k.with_body(kernel, _held(kernel.body))


def _held(body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
    result: list[k.Stmt] = []
    read: dict[k.Buffer, None] = {}
    for position, stmt in enumerate(body):
        result.append(k.with_children(stmt, _held))
        read.update(dict.fromkeys(_rows(body[position : position + 1])))
        if isinstance(stmt, k.BlockReduce) and read:
            later = _rows(body[position + 1 :])
            held = [buffer for buffer in read if buffer in later]
            result += map(k.Hold, held)
            read.clear()
    return k.body_of(body, result)


def _rows(body: Sequence[k.Stmt]) -> dict[k.Buffer, None]:
    """The arrays in registers that statements read."""
    found = (buffer for stmt in k.walk(tuple(body)) for buffer in access.read_buffers(stmt))
    return dict.fromkeys(buffer for buffer in found if _is_row(buffer))


def _is_row(buffer: k.Buffer) -> bool:
    size = as_int(buffer.size) or 0
    return (
        buffer.space is k.Space.LOCAL
        and size >= MIN_ELEMENTS
        and size * buffer.dtype.size % REGISTER_BYTES == 0
    )
