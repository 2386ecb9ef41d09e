"""Reductions whose results are not read again with the same elements, and code that all reductions share.

`scheduler` applies the params that `heuristic` chooses. That asks, by where the elements of a reduction lie
in memory, `row_heuristic` (contiguous rows), `column_heuristic` (columns), `split_rows` (rows in several
stretches), `shared_elements` (rows that read the same elements), `joined_rows` or `whole_rows` (columns of
short rows), `crossed_loads` or `tile_heuristic` (inputs that are contiguous along different dimensions).
`joined_rows`, `whole_rows`, `crossed_loads` and, for `tile_heuristic`, `crossed_tiles` also apply params.
`grid_reduction` decides how many blocks share a reduction.

Shared with the schedulers that hold rows: `space` (kept and reduced dimensions), `loops` (how these are
split), `planner` (facts from the fusion alone), `arithmetic` (what threads compute), `step_loads` (the loads
that registers have room for), `wider_vectors` (for rows that no wide vector divides), and reductions that
move to other kernels: `few_elements` and `short_runs`.
"""
