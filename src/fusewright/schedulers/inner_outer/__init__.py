"""Reductions of rows and of columns of one domain, which is read once.

`scheduler` where the results of neither are read again; `persistent` where rows are held and read again, as
in the gradients of normalizations, with its params from `persistent_heuristic` and `row_tiles`. `space` and
`persistent_space` are the dimensions.
"""
