"""Elementwise work on tensors that are contiguous along different dimensions.

`scheduler` applies the params that `heuristic` chooses. `access_groups` finds the two groups of accesses that
a tile turns between, `banks` pads it, `single_tiles` are those of one element an access, and `narrow_borders`
keeps what is handed on as narrow as it was read.
"""
