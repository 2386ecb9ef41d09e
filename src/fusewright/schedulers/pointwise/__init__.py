"""Elementwise operations: every output element is computed independently.

`scheduler` applies the params that `heuristic` chooses, by way of `cut_choice` (rows, columns and vectors:
a `cut`, or `tiles`), `accesses` (what memory and the caches serve) and `blocks` (accesses in flight). `space`
is the iteration space, which scans and transposes use, too. `divided_sizes` are the sizes by which the kernel
divides indices.
"""
