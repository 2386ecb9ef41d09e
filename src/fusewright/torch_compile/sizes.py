"""Sizes of a graph that is traced with symbols: functions that compute with them, and expressions of them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod, PythonMod

from fusewright.core.dtype import DataType


def _size(ops: Any, tensor: Any, dim: int) -> Any:
    return ops.size(tensor, dim)


def _numel(ops: Any, tensor: Any) -> Any:
    return functools.reduce(ops.mul, [ops.size(tensor, dim) for dim in range(tensor.ndim)])


def _binary(name: str) -> Callable[..., Any]:
    return lambda ops, a, b: getattr(ops, name)(a, b)


SIZE_FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    torch.ops.aten.sym_size.int: _size,
    torch.ops.aten.sym_numel.default: _numel,
    operator.add: _binary("add"),
    operator.sub: _binary("sub"),
    operator.mul: _binary("mul"),
    operator.pow: _binary("pow"),
    operator.neg: lambda ops, a: ops.neg(a),
    # Sizes are not negative, so a quotient that is rounded to zero is rounded down.
    operator.floordiv: _binary("div"),
    operator.mod: _binary("mod"),
    operator.truediv: _binary("truediv"),
    torch.sym_float: lambda ops, a: ops.cast(a, DataType.Double),
    torch.sym_max: _binary("maximum"),
    torch.sym_min: _binary("minimum"),
    torch.sym_sum: lambda ops, terms: functools.reduce(ops.add, terms),
}
"""Each takes the operations of a definition, and handles or numbers."""

_EXPRESSIONS: Mapping[type[sympy.Basic], str] = {
    sympy.Add: "add",
    sympy.Mul: "mul",
    sympy.Pow: "pow",
    Mod: "mod",
    PythonMod: "remainder",
    Max: "maximum",
    Min: "minimum",
}


def computed_size(ops: Any, size: sympy.Expr, known: Callable[[sympy.Expr], Any]) -> Any:
    """A size that torch states as an expression, which no node of the graph computes.

    Args:
        ops: the operations of a definition.
        size: an expression of sizes, as `(s0**2)//s0`, which torch writes for the rest of a view.
        known: the scalar of a part that is known, or None.

    Returns:
        A number or a scalar, or None, where a part is neither known nor computed here.
    """
    found = int(size) if isinstance(size, sympy.Integer) else known(size)
    if found is not None:
        return found
    parts = [computed_size(ops, part, known) for part in size.args]
    if not parts or any(part is None for part in parts):
        return None
    if isinstance(size, FloorDiv):
        dividend, divisor = parts
        if not size.args[0].is_nonnegative:
            dividend = ops.sub(dividend, ops.remainder(dividend, divisor))
        return ops.div(dividend, divisor)
    name = _EXPRESSIONS.get(type(size))
    return None if name is None else functools.reduce(getattr(ops, name), parts)


def is_size(value: Any) -> bool:
    """Whether a node's fake value is a size or a number rather than a tensor."""
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, bool, int, float))


def is_known(value: Any) -> bool:
    """Whether it is a plain number."""
    return isinstance(value, (bool, int, float))
