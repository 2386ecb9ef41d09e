"""Reductions whose results are not read again with the same elements, and code that all reductions share.

`scheduler` applies the params that `heuristic` chooses, for some of them through `joined_rows` (columns of
short rows) and `crossed_loads` (inputs that are contiguous along different dimensions).

Shared with the schedulers that hold rows: `space` (kept and reduced dimensions), `loops` (how these are
split), `planner` (facts from the fusion alone), `wider_vectors` (for rows that no wide vector divides), and
reductions that move to other kernels: `few_elements` and `short_runs`.
"""
