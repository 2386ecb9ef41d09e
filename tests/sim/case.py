"""The small kernel in which tests of the simulator plant mistakes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from fusewright.core.dtype import DataType
from fusewright.kernel.ir import (
    Alloc,
    Copy,
    Kernel,
    Param,
    Stmt,
    index_symbol,
)
from fusewright.sim import SimOptions, SimReport, simulate
from fusewright.sym import Expr, const, symbol
from tests.kernel.builders import BX, GX, at, kernel, local, shared, tensor

F32 = DataType.Float
BLOCKS, THREADS = 2, 8
LANES = BLOCKS * THREADS
T, B = index_symbol(BX, const(THREADS)), index_symbol(GX, const(BLOCKS))
LANE = B * THREADS + T
STEP = symbol("i", hi=3)


# Most kernels here stop short of writing their output; test_outputs.py is about that.
PARTIAL = SimOptions(outputs=False)


class Case:
    """Two blocks of eight threads, an input `x` and an output `y` of 16 floats, registers `r`, shared `s`."""

    def __init__(self) -> None:
        self.x, self.y = tensor("x", F32, const(LANES)), tensor("y", F32, const(LANES), output=True)
        self.r, self.s = local("r", F32, 4), shared("s", F32, THREADS)

    def kernel(self, body: Sequence[Stmt], params: Sequence[Param] = ()) -> Kernel:
        declared: list[Stmt] = [Alloc(self.r), Alloc(self.s)]
        return kernel("case", [self.x, self.y, *params], [*declared, *body], [BLOCKS], [THREADS], THREADS * 4)

    def run(self, *body: Stmt, races: bool = True, uninitialized: bool = True) -> SimReport:
        args = [torch.arange(float(LANES)), torch.empty(LANES)]
        options = replace(PARTIAL, races=races, uninitialized=uninitialized)
        return simulate(self.kernel(body), args, options=options)

    def load(self, index: Expr | int = LANE, into: int = 0) -> Copy:
        return Copy(at(self.r, into), at(self.x.buffer, index))

    def store(self, index: Expr | int = LANE) -> Copy:
        return Copy(at(self.y.buffer, index), at(self.r))

    def put(self, index: Expr | int = T) -> Copy:
        return Copy(at(self.s, index), at(self.r))

    def get(self, index: Expr | int = T) -> Copy:
        return Copy(at(self.r), at(self.s, index))
