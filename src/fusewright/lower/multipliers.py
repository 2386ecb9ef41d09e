"""Replaces divisions of indices by sizes by multiplications with values that the host computes.

The GPU has no integer division. The CUDA compiler's division takes about twenty instructions, among them a
reciprocal and two conversions. Each vector of a permutation, or of a normalization over two dimensions, needs
one or two divisions. A multiplication and a shift take three instructions (snippets/quotient.cuh). A divisor
qualifies if it depends only on sizes, which the host knows, and if indices have 32 bits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from fusewright.core.dtype import DataType
from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.sym import Const, Expr, FloorDiv, Mod, Symbol, fold, le, prove

#: The most multipliers that a kernel has as parameters, 8 bytes each.
MAX_MULTIPLIERS = 16


def with_multipliers(kernel: k.Kernel, strides: Collection[Symbol]) -> k.Kernel:
    """Adds a parameter for each divisor that qualifies.

    Args:
        strides: symbols of parameters that are strides, not sizes.
    """
    if kernel.index_dtype is not DataType.Int32:
        return kernel
    known = {p.symbol for p in kernel.params if isinstance(p, k.ScalarParam) and p.symbol is not None}
    sizes = known.difference(strides)
    divisors: dict[Expr, None] = {}

    def visit(e: Expr, _: tuple[None, ...]) -> None:
        if not isinstance(e, (FloorDiv, Mod)) or isinstance(e.divisor, Const):
            return
        if e.divisor.free_symbols <= sizes and prove(le(0, e.dividend)) and prove(le(1, e.divisor)):
            divisors[e.divisor] = None

    done: dict[Expr, None] = {}
    for stmt in k.walk(kernel.body):
        for expr in access.expressions(stmt):
            fold(expr, visit, done)
    if not 0 < len(divisors) <= MAX_MULTIPLIERS:
        return kernel
    added = [k.ScalarParam(f"over{i}", DataType.Int, divisor=divisor) for i, divisor in enumerate(divisors)]
    return dataclasses.replace(kernel, params=(*kernel.params, *added))
