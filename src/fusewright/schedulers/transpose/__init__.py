"""Elementwise operations on tensors that are contiguous along different dimensions.

`scheduler` applies the params that `heuristic` chooses, with the tiles of `tile_choice`. `access_groups`
finds the two groups of accesses between which a tile transposes, `merged_dimensions` what params merge,
`banks` pads the tile, `single_tiles` handles tiles with one element per access, `small_sides` those with a
side of few elements, and `narrow_borders` keeps tensors between kernels as narrow as the inputs.
"""
