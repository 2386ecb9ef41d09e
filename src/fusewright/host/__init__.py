"""The host program: what happens in a call, compiled to one Python function per signature of inputs.

What lives here: `executor` (the entry: signature -> program), `signature` (the key of a call), `binding`
(checks the inputs of a new signature and finds its sizes), `rebinding` (the same for inputs like earlier
ones), `memory_checks` (what kernels cannot read), `overlaps` (inputs that share memory), `new_calls`,
`kept_partitions` and `selection` (which kernels serve a call, and what happens where a proposal is wrong),
`recall` and `recorded_calls` (which serve calls that are decided as earlier ones), `repeated_calls` (calls
that are like the one before them), `steps` (compiles kernels), `settings` (options with a device),
`bundles` (which of them are one launch), `segment_kernels` (what is known of them, for the user),
`scalars` (what the host computes), `layout` (shapes and strides of what it allocates), `finished` (a user's
schedules), `ir` and `build` (the host IR of a fusion), `codegen` (its Python), `plan` (launches) and
`programs` (binds a program to a signature), `profile` (runs one with a clock) and `workspaces`. It may import
everything from core to runtime. Start reading at `executor.FusionExecutor`.
"""

from fusewright.host.executor import FusionExecutor
from fusewright.host.finished import AnySchedule, FinishedSchedule, PlannedCall, SegmentSchedules
from fusewright.host.segment_kernels import SegmentKernel, SegmentKernels

__all__ = [
    "AnySchedule",
    "FinishedSchedule",
    "FusionExecutor",
    "PlannedCall",
    "SegmentKernel",
    "SegmentKernels",
    "SegmentSchedules",
]
