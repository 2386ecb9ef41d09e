"""Normalizations: the reduced data is read again with the results, and is held meanwhile.

`inner` handles reductions along the contiguous dimension, with params from `inner_heuristic`; `outer` handles
other dimensions.

What is held, and how much of it per thread: `held_rows`, `held_length`, `row_threads`. Where it is held:
`clustered_rows` (a cluster), `shared_rows` and `streamed_rows` (shared memory), `staged_rows` (several short
rows), `rows_in_turns` (with weights that start at any element), `column_tiles`. Data that cannot be held is
swept again: `two_sweeps`, with params from `sweep_heuristic`.
"""
