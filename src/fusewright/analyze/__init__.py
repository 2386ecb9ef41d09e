"""Facts that several layers need: corresponding axes, tensors that outlive a reduction, vector accesses.

What lives here: `axis_map` (how axes of neighbouring tensors correspond, and structural keys that show
whether two axes were made in the same way), `inputs` (nodes that compute with elements of inputs), `kept`
(cached analyses), `kinds` (nodes that a scheduler does not know), `parameters` (the parameters of a kernel),
`persistent` (tensors that must outlive a reduction), `runs` and `vectorize` (where and how wide vector
accesses are), `scan_axes` (the loops of scans) and `shared_loops` (which loops inlining makes one). It may
import core, sym, ir and ops. Start reading at `axis_map`.
"""
