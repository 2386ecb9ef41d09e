"""Computes extrema of a vector before it is widened.

    for j < 8: a = float(x[j]); m = max(m, a)      ->      m = max(m, x[0 .. 7])

The extremum of values is one of them, so it may be widened afterwards. The GPU compares two half or two
bfloat16 values in one instruction, while widening takes one instruction per element.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator

from fusewright.core.dtype import DataType
from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.ops.elementwise import CAST
from fusewright.sym import ZERO, as_int, substitute


def combine_packed_runs(kernel: k.Kernel) -> k.Kernel:
    if not any(isinstance(stmt, k.Combine) and stmt.op.packed_run for stmt in k.walk(kernel.body)):
        return kernel
    read_later = set(_read_later(kernel.body))
    return k.with_body(kernel, k.rewritten(kernel.body, lambda stmt: [_run(stmt, read_later) or stmt]))


def _read_later(body: tuple[k.Stmt, ...]) -> Iterator[k.Buffer]:
    """The buffers that a statement other than the next one after a `Compute` that sets them reads."""
    for before, stmt in zip((None, *body), body):
        just_set = before.dst.buffer if isinstance(before, k.Compute) else None
        yield from (buffer for buffer in access.read_buffers(stmt) if buffer is not just_set)
        yield from _read_later(k.children(stmt))


def _run(stmt: k.Stmt, read_later: Collection[k.Buffer]) -> k.Combine | None:
    """The packed statement for an unrolled loop that widens and combines adjacent elements, else None."""
    if not isinstance(stmt, k.For) or not stmt.unroll or len(stmt.body) != 2:
        return None
    width = as_int(stmt.extent) or 1
    cast, combine = stmt.body
    if not isinstance(cast, k.Compute) or not isinstance(combine, k.Combine) or not combine.op.packed_run:
        return None
    [value, *_] = cast.args
    is_pair = cast.op is CAST and combine.src == (cast.dst,) and cast.dst.buffer not in read_later
    if not is_pair or not isinstance(value, k.Ref) or width < 2 or width & (width - 1):
        return None
    first = substitute(value.index, {stmt.symbol: ZERO})
    is_run = value.buffer.space is k.Space.LOCAL and value.index - first is stmt.symbol
    widens = value.buffer.dtype in k.PACKED_OPERANDS and cast.dst.buffer.dtype is DataType.Float
    outside = (*combine.dst, cast.dst)
    if not (is_run and widens) or any(stmt.symbol in ref.index.free_symbols for ref in outside):
        return None
    if stmt.symbol in combine.pred.free_symbols:
        return None
    return dataclasses.replace(combine, src=(k.Ref(value.buffer, first),), width=width)
