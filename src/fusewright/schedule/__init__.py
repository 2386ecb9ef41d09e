"""Scheduling: the primitives that users and automatic schedulers call, and their recorded trace.

What lives here: `schedule` (the `Schedule` workbench that records), `transforms` (split, merge, reorder,
swizzle), `caching` (cache_before/after/fork, memory types), `holding`, `circular`, `rfactor`, `propagate`
(transform_like, bounded_transform_backward, parallelize_like), `inlining` with `ordering`, `assume` (ranges
of sizes), `completion` (further primitives that lowering needs), `trace` and `text` (print and replay) and
`faults` (which primitive caused an error). Scheduling never changes the computation, only how it is iterated
over and stored. It may import core, sym, ir, ops, analyze and rewrite. Start reading at `schedule.Schedule`.
"""

from fusewright.schedule.schedule import Schedule, replay
from fusewright.schedule.text import call_lines, function_text, tensor_names, to_python
from fusewright.schedule.trace import Call, TensorRef

__all__ = [
    "Call",
    "Schedule",
    "TensorRef",
    "call_lines",
    "function_text",
    "replay",
    "tensor_names",
    "to_python",
]
