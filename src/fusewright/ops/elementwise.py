"""All elementwise operations by name. To add one, add its row to unary, binary or ternary."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fusewright.core.op import ElementwiseOp
from fusewright.ops.binary import BINARY
from fusewright.ops.ternary import TERNARY
from fusewright.ops.unary import CAST, UNARY

__all__ = ["CAST", "ELEMENTWISE"]

ELEMENTWISE: Mapping[str, ElementwiseOp] = MappingProxyType(
    {row.name: row for row in (*UNARY, *BINARY, *TERNARY)}
)
