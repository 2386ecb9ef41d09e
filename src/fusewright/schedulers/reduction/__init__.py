"""Reductions whose results nothing reads the same elements again with; and what all reductions share.

`scheduler` applies the params that `heuristic` chooses, for some by way of `joined_rows` (columns of short
rows) and `crossed_loads` (inputs that are contiguous along different dimensions).

Shared with the schedulers that hold rows: `space` (rows and what is reduced), `loops` (how those are cut),
`planner` (what follows from the fusion alone), `wider_vectors` (of rows that no wide vector divides), and
reductions that other kernels take over: `few_elements` and `short_runs`.
"""
