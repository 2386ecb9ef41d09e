"""The host program: the work of a call, compiled to one Python function per signature of inputs.

`executor` is the entry (signature -> program). `inputs` (the inputs of a call), `program` (the host program),
`reuse` (reuse of earlier calls) and `kernels` (which kernels serve a call) import each other in this order.
`profile` times a call, and `kernel_dumps` writes kernels to files.

It may import everything from core to runtime. Start reading at `executor.FusionExecutor`.
"""

from fusewright.host.executor import FusionExecutor
from fusewright.host.kernels.finished import AnySchedule, FinishedSchedule, PlannedCall, SegmentSchedules
from fusewright.host.kernels.segment_kernels import SegmentKernel, SegmentKernels

__all__ = [
    "AnySchedule",
    "FinishedSchedule",
    "FusionExecutor",
    "PlannedCall",
    "SegmentKernel",
    "SegmentKernels",
    "SegmentSchedules",
]
