"""Lowering: a scheduled fusion becomes a kernel. The only package that sees both sides.

The way: `domains` (extents where things are computed) -> `loops` (which axes share a loop) -> `nodes` and
`reductions` (one rule a node class, asking `indexing`, `buffers` and `last_block`) -> one loop nest -> the
kernel passes of `passes`, in order, each verified, dumped and timed. Start reading at `lowering.lower`.
"""

from fusewright.lower.interface import (
    Argument,
    Lowered,
    LowerOptions,
    ScalarArgument,
    SizeArgument,
    StrideArgument,
    TensorArgument,
    WorkspaceArgument,
    check_symbols,
)
from fusewright.lower.lowering import lower

__all__ = [
    "Argument",
    "LowerOptions",
    "Lowered",
    "ScalarArgument",
    "SizeArgument",
    "StrideArgument",
    "TensorArgument",
    "WorkspaceArgument",
    "check_symbols",
    "lower",
]
