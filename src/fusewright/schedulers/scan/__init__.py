"""Scans along one dimension, with elementwise operations before and after them.

`scheduler` applies the params that `heuristic` chooses; `space` finds the dimensions.
"""
