"""Facts that several layers need: which axes are the same, which tensors outlive a reduction, what
vectorizes.

What lives here: `axis_map` (how axes of neighbouring tensors correspond, and structural keys that show
whether two axes were made in the same way), `inputs` (what is computed with their elements), `kinds` (nodes
that no scheduler knows), `shared_loops` (which loops inlining makes one), `persistent` (tensors that must
outlive a reduction) and `vectorize` (the axis and the width of vector accesses). It may import core, sym, ir
and ops. Start reading at `axis_map`.
"""
