"""Unrolls loops of small constant extent that index registers.

An array that is indexed by a run-time loop variable is placed in local memory, which is hundreds of times
slower.
"""

from __future__ import annotations

import dataclasses

from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.sym import as_int

# The most iterations of a loop that is unrolled. More code costs more than it saves.
MAX_UNROLL = 128


def unroll_register_loops(kernel: k.Kernel) -> k.Kernel:
    return k.with_body(kernel, k.rewritten(kernel.body, _unrolled))


def _unrolled(stmt: k.Stmt) -> list[k.Stmt]:
    if isinstance(stmt, k.For) and not stmt.unroll and _is_short(stmt) and _indexes_registers(stmt):
        return [dataclasses.replace(stmt, unroll=True)]
    return [stmt]


def _is_short(loop: k.For) -> bool:
    extent = as_int(loop.extent)
    return extent is not None and extent <= MAX_UNROLL


def _indexes_registers(loop: k.For) -> bool:
    return any(
        ref.buffer.space is k.Space.LOCAL and loop.symbol in ref.index.free_symbols
        for stmt in k.walk(loop.body)
        for ref in (*access.read_refs(stmt), *access.written_refs(stmt))
    )
