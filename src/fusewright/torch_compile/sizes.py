"""Functions of a graph that compute with sizes: what they are in a definition."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch

from fusewright.core.dtype import DataType


def _size(ops: Any, tensor: Any, dim: int) -> Any:
    return ops.size(tensor, dim)


def _binary(name: str) -> Callable[..., Any]:
    return lambda ops, a, b: getattr(ops, name)(a, b)


SIZE_FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    torch.ops.aten.sym_size.int: _size,
    operator.add: _binary("add"),
    operator.sub: _binary("sub"),
    operator.mul: _binary("mul"),
    # Sizes are not negative, so a quotient that is rounded to zero is rounded down.
    operator.floordiv: _binary("div"),
    operator.mod: _binary("mod"),
    operator.truediv: _binary("truediv"),
    torch.sym_float: lambda ops, a: ops.cast(a, DataType.Double),
    torch.sym_max: _binary("maximum"),
    torch.sym_min: _binary("minimum"),
}
"""Each takes the operations of a definition, and handles or numbers."""


def is_size(value: Any) -> bool:
    """Whether a node's fake value is a size or a number rather than a tensor."""
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, bool, int, float))


def is_known(value: Any) -> bool:
    """Whether it is a plain number."""
    return isinstance(value, (bool, int, float))
