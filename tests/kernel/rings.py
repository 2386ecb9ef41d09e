"""A kernel whose blocks read rows through a ring in shared memory, which a warp of its own fills."""

from __future__ import annotations

from dataclasses import dataclass

from fusewright.core.dtype import DataType
from fusewright.kernel.ir import (
    TRUE,
    Alloc,
    Arrive,
    BlockReduce,
    Buffer,
    BulkCopy,
    Copy,
    For,
    If,
    Init,
    InitMbarriers,
    Kernel,
    ProxyFence,
    Role,
    Roles,
    Space,
    Stmt,
    Wait,
    index_symbol,
)
from fusewright.ops.reductions import SUM
from fusewright.sym import Expr, const, eq, floordiv, mod, symbol
from tests.kernel.builders import BX, GX, at, kernel, local, tensor

F32 = DataType.Float
BLOCKS, ROWS, STAGES, WARP = 2, 5, 2, 32


@dataclass
class Ring:
    """Block b copies its ROWS rows of 32 floats, each with the row's sum added, through STAGES stages.

    `consume` and `produce` are what either role does in each of its iterations.
    """

    def __post_init__(self) -> None:
        elements = BLOCKS * ROWS * WARP
        self.x, self.y = tensor("x", F32, const(elements)), tensor("y", F32, const(elements), output=True)
        self.stage = Buffer("stage", F32, Space.SHARED, const(STAGES * WARP), 128, const(0))
        self.full, self.empty = (
            Buffer(name, DataType.Int, Space.SHARED, const(STAGES), 16, const(place))
            for name, place in (("full", 1024), ("empty", 1040))
        )
        self.r, self.total = local("r", F32), local("total", F32)
        self.thread = index_symbol(BX, const(WARP))
        block = index_symbol(GX, const(BLOCKS))
        self.n, self.m = symbol("n", hi=ROWS - 1), symbol("m", hi=ROWS - 1)
        n, m = self.n, self.m
        self.full_wait = Wait(at(self.full, mod(n, STAGES)), floordiv(n, STAGES))
        self.read = Copy(at(self.r), at(self.stage, mod(n, STAGES) * WARP + self.thread))
        self.release = Arrive(at(self.empty, mod(n, STAGES)), by_warp=True)
        self.fence = ProxyFence()
        self.reduce = BlockReduce(SUM, (at(self.total),), (at(self.r),), (BX,), TRUE, ())
        self.add = BlockReduce(SUM, (at(self.r),), (at(self.total),), (BX,), eq(self.thread, 0), ())
        self.store = Copy(at(self.y.buffer, (block * ROWS + n) * WARP + self.thread), at(self.r))
        self.consume: list[Stmt] = [
            self.full_wait, self.read, self.fence, self.release,
            Init(SUM, (at(self.total),)), self.reduce, self.add, self.store,
        ]  # fmt: skip
        slot = mod(m, STAGES)
        self.empty_wait = Wait(at(self.empty, slot), floordiv(m, STAGES) - 1)
        row = at(self.x.buffer, (block * ROWS + m) * WARP)
        self.copy = BulkCopy(at(self.stage, slot * WARP), row, const(WARP), at(self.full, slot))
        self.announce = Arrive(at(self.full, slot))
        self.produce: list[Stmt] = [self.empty_wait, self.copy, self.announce]

    def kernel(self, arrivals: Expr | int = 1) -> Kernel:
        first = symbol("threadIdx.x", lo=0, hi=2 * WARP - 1)
        load = If(eq(first, WARP), (For(self.m, const(ROWS), tuple(self.produce)),))
        body: list[Stmt] = [
            *map(Alloc, (self.stage, self.full, self.empty, self.r, self.total)),
            InitMbarriers(self.full, const(1)),
            InitMbarriers(self.empty, const(1)),
            Roles(
                (
                    Role("compute", BX, 0, WARP, (For(self.n, const(ROWS), tuple(self.consume)),)),
                    Role("load", BX, WARP, WARP, (load,)),
                )
            ),
        ]
        return kernel("ring", [self.x, self.y], body, [BLOCKS], [2 * WARP], 2048)
