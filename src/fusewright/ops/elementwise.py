"""All elementwise operations by name. Add a row to unary, binary or ternary, or register one (`plugins`)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fusewright.core.op import ElementwiseOp
from fusewright.ops.binary import BINARY
from fusewright.ops.ternary import TERNARY
from fusewright.ops.unary import CAST as CAST
from fusewright.ops.unary import UNARY

_ROWS: dict[str, ElementwiseOp] = {row.name: row for row in (*UNARY, *BINARY, *TERNARY)}
ELEMENTWISE: Mapping[str, ElementwiseOp] = MappingProxyType(_ROWS)
#: The rows that divide floats.
QUOTIENTS = frozenset({_ROWS["div"], _ROWS["truediv"]})


def add_row(row: ElementwiseOp) -> None:
    """Makes the row one of the table."""
    _ROWS[row.name] = row


def remove_row(name: str) -> None:
    """Takes the row of this name out, if there is one."""
    _ROWS.pop(name, None)
