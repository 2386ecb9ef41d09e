"""A layer norm as a scheduler would write it: a row a block, in registers, loaded and stored in vectors."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fusewright.core.dtype import Category, DataType
from fusewright.core.op import ElementwiseOp, Rule, Spelling
from fusewright.kernel.ir import (
    TRUE,
    Alloc,
    BlockReduce,
    Buffer,
    Combine,
    Compute,
    Copy,
    Imm,
    Init,
    Kernel,
    Operand,
    Ref,
    Stmt,
    index_symbol,
)
from fusewright.ops.reductions import SUM
from fusewright.sym import const, symbol
from tests.kernel import builders as b

FLOAT = DataType.Float
_RSQRT = ElementwiseOp("rsqrt", 1, Rule.FLOAT_UP, {Category.FLOAT: Spelling("rsqrtf({0})", torch.rsqrt)})


def layer_norm(columns: int = 1024, threads: int = 128, width: int = 4) -> Kernel:
    """T3 = (T0 - mean) * rsqrt(var + 1e-5) * T1 + T2 for T0 [rows, columns], T1 and T2 [columns], Float."""
    rows, rows_param = b.size("rows")
    vectors = columns // (threads * width)
    x, y = b.tensor("T0", FLOAT, rows * columns), b.tensor("T3", FLOAT, rows * columns, output=True)
    weight, bias = (b.tensor(name, FLOAT, const(columns)) for name in ("T1", "T2"))
    t, row = index_symbol(b.BX, const(threads)), index_symbol(b.GX, rows)
    held = {name: b.local(name, FLOAT, vectors * width) for name in ("x", "w", "b", "y")}
    scratch, centered = b.local("scratch", FLOAT), b.local("centered", FLOAT)
    workspace = b.shared("workspace", FLOAT, threads)
    v, k = symbol("v", hi=vectors - 1), symbol("k", hi=width - 1)
    element = v * width + k
    column = (v * threads + t) * width

    def each(body: Sequence[Stmt]) -> Stmt:
        return b.unrolled("v", vectors, [b.unrolled("k", width, body)])

    def op(row_op: ElementwiseOp, dst: Buffer, *args: Buffer | Operand) -> Compute:
        refs = tuple(b.at(arg) if isinstance(arg, Buffer) else arg for arg in args)
        return Compute(row_op, b.at(dst), refs, FLOAT)

    def mean_of(into: Buffer, source: Ref, compute: Sequence[Stmt] = ()) -> list[Stmt]:
        mine = b.local(f"thread_{into.name}", FLOAT)
        return [
            Alloc(mine),
            Init(SUM, (b.at(mine),)),
            each([*compute, Combine(SUM, (b.at(mine),), (source,))]),
            Alloc(into),
            Init(SUM, (b.at(into),)),
            BlockReduce(SUM, (b.at(into),), (b.at(mine),), (b.BX,), TRUE, (workspace,)),
            op(b.MUL, into, into, Imm(1 / columns, FLOAT)),
        ]

    mean, scale = b.local("mean", FLOAT), b.local("scale", FLOAT)
    center = op(b.SUB, centered, b.at(held["x"], element), mean)
    square = op(b.MUL, scratch, centered, centered)
    normalise = [
        center,
        op(b.MUL, scratch, centered, scale),
        op(b.MUL, scratch, scratch, b.at(held["w"], element)),
        Compute(b.ADD, b.at(held["y"], element), (b.at(scratch), b.at(held["b"], element)), FLOAT),
    ]
    loads: list[Stmt] = [
        Copy(b.at(held["x"], v * width), b.at(x.buffer, row * columns + column), width),
        Copy(b.at(held["w"], v * width), b.at(weight.buffer, column), width),
        Copy(b.at(held["b"], v * width), b.at(bias.buffer, column), width),
    ]
    body: list[Stmt] = [
        *map(Alloc, (*held.values(), scratch, centered, workspace)),
        b.unrolled("v", vectors, loads),
        *mean_of(mean, b.at(held["x"], element)),
        *mean_of(scale, b.at(scratch), [center, square]),
        op(b.ADD, scale, scale, Imm(1e-5, FLOAT)),
        op(_RSQRT, scale, scale),
        each(normalise),
        b.unrolled(
            "v", vectors, [Copy(b.at(y.buffer, row * columns + column), b.at(held["y"], v * width), width)]
        ),
    ]
    return b.kernel("layer_norm", [x, weight, bias, y, rows_param], body, [rows], [threads], threads * 4)
