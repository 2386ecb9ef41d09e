"""Kernels for racecheck, in which every lane of a warp arrives at an mbarrier for itself.

In a kernel as it is, one lane arrives for its warp after `__syncwarp`, which orders what the other lanes did
before (PTX ISA, causality order: bar.warp.sync synchronizes the lanes, and the arrival releases what was
ordered before it). Racecheck knows of lanes that arrive, not of those that another one arrives for: it
reports what these read from a stage of a ring beside the copy that fills the stage next. Fences, waits and
copies are the same in these kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

from fusewright.core.hardware import WARP_SIZE
from fusewright.cuda.printer import CudaSource, print_kernel
from fusewright.kernel import ir as k
from fusewright.runtime import compiled_kernel
from fusewright.sym import const


def arriving_by_lanes(kernel: k.Kernel) -> k.Kernel:
    """The kernel with an arrival of each thread where it has one of each warp."""
    by_warps = {
        stmt.mbarrier.buffer for stmt in k.walk(kernel.body) if isinstance(stmt, k.Arrive) and stmt.by_warp
    }

    def change(body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
        return tuple(changed(k.with_children(stmt, change)) for stmt in body)

    def changed(stmt: k.Stmt) -> k.Stmt:
        if isinstance(stmt, k.Arrive) and stmt.by_warp:
            return replace(stmt, by_warp=False)
        if isinstance(stmt, k.InitMbarriers) and stmt.buffer in by_warps:
            return replace(stmt, arrivals=stmt.arrivals * const(WARP_SIZE))
        return stmt

    return replace(kernel, body=change(kernel.body)) if by_warps else kernel


@contextmanager
def lanes_arrive() -> Iterator[None]:
    """All kernels that are printed meanwhile are such."""

    def printed(kernel: k.Kernel) -> CudaSource:
        return print_kernel(arriving_by_lanes(kernel))

    with mock.patch.object(compiled_kernel, "print_kernel", printed):
        yield
