"""Kernels that compute expressions of every operation and operand, with values at the limits of the types."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import torch

from fusewright.core.dtype import Category, DataType, PyScalar
from fusewright.core.enums import ParallelType
from fusewright.core.op import ElementwiseOp
from fusewright.kernel.ir import (
    Alloc,
    Compute,
    Copy,
    If,
    Imm,
    IndexValue,
    Kernel,
    Operand,
    ScalarParam,
    ScalarRef,
    Stmt,
    TensorParam,
    index_symbol,
)
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.sym import Expr, bitxor, ceildiv, const, eq, floordiv, lt, maximum, minimum, mod
from tests.kernel.builders import at, kernel, local, size, tensor

COMPUTED = [
    d
    for d in DataType
    if d not in (DataType.Null, DataType.UInt64, DataType.Float4_e2m1fn_x2) and d.compute is d
]
"""The types that kernels compute in."""

THREADS = 64
_BX, _GX = ParallelType.block_x, ParallelType.grid_x


def limits(dtype: DataType) -> list[PyScalar]:
    """Constants of `dtype` at its ends and in between."""
    if dtype is DataType.Bool:
        return [False, True]
    if dtype.is_integral:
        bits = 64 if dtype is DataType.Int else 32  # Index may have either
        return [0, 1, -1, -5, 7, 2**31 - 1, -(2**31), 2 ** (bits - 1) - 1, -(2 ** (bits - 1))]
    reals: list[PyScalar] = [0.0, -0.0, 1.0, -1.5, 1e-30, -1e30, math.inf, -math.inf, math.nan]
    if dtype.is_complex:
        return [complex(a, b) for a, b in zip(reals, reversed(reals))]
    return reals


def _indices(n: Expr) -> list[Expr]:
    """Index expressions of every outermost operator."""
    block, thread = index_symbol(_GX, ceildiv(n, THREADS)), index_symbol(_BX, const(THREADS))
    i = block * THREADS + thread
    return [
        i,
        i - n,
        -i,
        i * n,
        floordiv(i, 7),
        mod(i, 5),
        floordiv(i - n, 3),
        mod(i - n, 4),
        minimum(i, 9, n),
        maximum(i - 40, 3),
        bitxor(i, n, 5),
        lt(i, 5),
        eq(mod(i, 2), 0),
        lt(i, 5) + lt(3, i),
        const(-3),
    ]


def every_operand_kernel(
    dtype: DataType,
    index_dtype: DataType,
    rows: Sequence[ElementwiseOp] | None = None,
    each: int = 3,
) -> Kernel:
    """Each operation on `dtype` (or of `rows`, those that have it), with each kind of operand in each place.

    Every place takes `each` constants, as many indices and a scalar of another type, in turn.
    """
    n, n_param = size("n0", hi=2**20)
    i = index_symbol(_BX, const(THREADS))
    x, mask = tensor("x", dtype.in_memory, n), tensor("mask", DataType.Bool, n)
    scalars = [ScalarParam("scalar", DataType.Double), ScalarParam("number", DataType.Int)]
    rows = [op for op in rows or ELEMENTWISE.values() if dtype.category in op.supports]
    outs = [tensor(f"out_{op.name}", op.result_of(dtype).in_memory, n, output=True) for op in rows]
    constants = {t: itertools.cycle([Imm(value, t) for value in limits(t)]) for t in (dtype, DataType.Bool)}
    indices = itertools.cycle([IndexValue(e, DataType.Int) for e in _indices(n)])
    parameters = itertools.cycle([ScalarRef(param) for param in scalars])
    body: list[Stmt] = []
    for op, out in zip(rows, outs):
        types = op.operand_dtypes(dtype)
        plain: list[Operand] = [at((mask if t is DataType.Bool else x).buffer, i) for t in types]
        for place, t in enumerate(types):
            others: list[Operand] = [*itertools.islice(constants[t], each), *itertools.islice(indices, each)]
            for other in (*others, next(parameters)):
                args = (*plain[:place], other, *plain[place + 1 :])
                body.append(Compute(op, at(out.buffer, i), args, dtype))
    return kernel(
        "every_operand", [x, mask, *outs, n_param, *scalars], body, [ceildiv(n, THREADS)], [THREADS],
        index_dtype=index_dtype,
    )  # fmt: skip


# Operations whose results are the same on every device, to the last bit: no divisions, no functions, and no
# sign of a zero that is not fixed.
_EXACT = {
    Category.BOOL: "logical_and logical_or logical_not bitwise_xor where eq ne add mul maximum neg sub",
    Category.INT: """add sub mul neg abs sign relu maximum minimum eq ne lt le gt ge where clamp threshold gcd
        bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift
        logical_right_shift pow addcmul lerp""",
    Category.FLOAT: """add sub mul neg abs sign relu maximum minimum eq ne lt le gt ge where clamp threshold
        ceil floor round trunc isnan isinf isfinite""",
}


def random_kernel(
    rng: random.Random, dtypes: Sequence[DataType], index_dtype: DataType, statements: int = 40
) -> tuple[Kernel, list[TensorParam], list[TensorParam]]:
    """A kernel of random operations on random operands; its input tensors and its output tensors.

    Each statement computes in one of `dtypes` and may take what earlier ones computed in another. All tensors
    have as many elements as there are threads, and the only other argument is that number.
    """
    n, n_param = size("n0", hi=2**16)
    i = index_symbol(_GX, ceildiv(n, THREADS)) * THREADS + index_symbol(_BX, const(THREADS))
    ins = [tensor(f"x{k}", dtype, n) for k, dtype in enumerate(dtypes)]
    known: list[Operand] = [at(param.buffer, i) for param in ins]
    outs: list[TensorParam] = []
    body: list[Stmt] = []
    for number in range(statements):
        dtype = rng.choice(list(dtypes))
        op = ELEMENTWISE[rng.choice(_EXACT[dtype.category].split())]
        args: list[Operand] = []
        for t in op.operand_dtypes(dtype):
            index = IndexValue(rng.choice(_indices(n)), DataType.Int)
            args.append(
                rng.choice([*rng.sample(known, min(3, len(known))), Imm(rng.choice(limits(t)), t), index])
            )
        value = local(f"v{number}", op.result_of(dtype))
        out = tensor(f"out{number}", value.dtype, n, output=True)
        body += [Alloc(value), Compute(op, at(value), tuple(args), dtype), Copy(at(out.buffer, i), at(value))]
        known.append(at(value))
        outs.append(out)
    whole = kernel(
        "random_expressions", [*ins, *outs, n_param], [If(lt(i, n), tuple(body))], [ceildiv(n, THREADS)],
        [THREADS], index_dtype=index_dtype,
    )  # fmt: skip
    return whole, ins, outs


def inputs(ins: Sequence[TensorParam], elements: int, generator: torch.Generator) -> list[torch.Tensor]:
    """Random values, the limits of the types among them."""
    made = []
    for param in ins:
        dtype = param.buffer.dtype
        special = torch.tensor(limits(dtype), dtype=dtype.torch)
        values = torch.randint(-40, 40, (elements,), generator=generator).to(dtype.torch)
        chosen = torch.randint(0, len(special), (elements,), generator=generator)
        made.append(torch.where(torch.rand(elements, generator=generator) < 0.5, values, special[chosen]))
    return made
