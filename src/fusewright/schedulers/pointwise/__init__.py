"""Elementwise work: every output element is computed by itself.

`scheduler` applies the params that `heuristic` chooses; `space` is the dimensions that the kernel iterates
over, which scans and transposes go over, too; `divided_sizes` are those by which it divides indices.
"""
