"""Elementwise operations: every output element is computed independently.

`scheduler` applies the params that `heuristic` chooses. `space` is the iteration space, which scans and
transposes use, too. `divided_sizes` are the sizes by which the kernel divides indices.
"""
