"""Normalizations: what is reduced is read again with the results, and so held meanwhile.

Along the contiguous dimension: `inner`, whose params `inner_heuristic` chooses; along others: `outer`.

What they hold, and how much of it a thread has: `held_rows`, `held_length`, `row_threads`. Where:
`clustered_rows` (a cluster), `shared_rows` and `streamed_rows` (shared memory), `staged_rows` (several short
ones), `rows_in_turns` (beside weights that start anywhere), `column_tiles`. What is held nowhere is gone over
again: `two_sweeps`, chosen by `sweep_heuristic`.
"""
