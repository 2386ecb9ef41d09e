"""Facts that several layers need: which axes are the same, what outlives a reduction, what vectorizes.

What lives here: `axis_map` (how axes of neighbouring tensors correspond, and structural keys that tell
whether two axes were made in the same way). It may import core, sym, ir and ops.
"""
