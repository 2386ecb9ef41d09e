"""Reductions of rows and of columns of one domain, which is read once.

`scheduler` handles fusions that do not read the domain again with the results. `persistent` holds rows that
are read again, as in the gradients of normalizations; its params come from `persistent_heuristic` and
`row_tiles`. `space` and `persistent_space` find the dimensions.
"""
