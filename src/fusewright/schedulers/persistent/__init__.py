"""Normalizations: the reduced data is read again with the results, and is held meanwhile.

`inner` handles reductions along the contiguous dimension, with params from `inner_heuristic`; `outer` handles
other dimensions, with params from `outer_heuristic`.

What is held: `held_rows` and `row_buffers` (which values, how many bytes), `held_length` and
`constant_length` (what is assumed of the length), `row_threads` (how much each thread holds). Where it is
held: `block_rows` (by one block, in general), `clustered_rows` (a cluster), `shared_rows` and `streamed_rows`
(shared memory), `staged_rows` (several short rows), `rows_in_turns` (with weights that start at any element),
`column_tiles`. Data that cannot be held is swept again: `two_sweeps`, with params from `sweep_heuristic`.
Rows that are scanned, too: `held_scans`, with params from `scanned_rows`. `row_cost` estimates kernels of
rows.
"""
