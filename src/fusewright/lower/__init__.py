"""Lowering: a scheduled fusion becomes a kernel. The only package that sees both sides.

The way: `prepare` (is the schedule complete) -> `domains` (extents where things are computed) -> `loops`
(which axes share a loop) -> `nodes`, with `node_work`, `reductions` and `scans` (one rule a node class,
asking a `context` of `indexing`, `guards`, `buffers` and `last_block`) -> one loop nest -> the kernel
passes of `passes`, in order, each verified, dumped and timed. Copies of vectors are `vector_copies`, those
that may start anywhere `partial_vectors` and `straight_runs`; what runs ahead of its use is in `prefetch`
and `rings`. `multipliers` divide indices by sizes, `value_ranges` serve passes on integers. `interface` is
what goes in and comes out. Start reading at `lowering.lower`.
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
