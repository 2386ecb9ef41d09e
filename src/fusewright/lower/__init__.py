"""Lowering: turns a scheduled fusion into a kernel. Only this package knows both.

The steps: `prepare` (checks that the schedule is complete) -> `domains` (extents at the positions of
computation) -> `loops` (which axes share a loop) -> `nodes`, with `node_work`, `reductions` and `scans` (one
rule for each node class, which uses a `context` of `indexing`, `guards`, `buffers` and `last_block`) -> one
loop nest -> the kernel passes of `passes`, in order, each verified, dumped and timed. `vector_copies` lowers
copies of vectors; `partial_vectors` and `straight_runs` lower vectors that may start at any element;
`prefetch` and `rings` lower loads that run ahead of their use. `multipliers` replaces divisions of indices by
sizes. `value_ranges` serves passes on integers. `interface` has the inputs and outputs. Start reading at
`lowering.lower`.
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
