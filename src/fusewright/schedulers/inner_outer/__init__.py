"""Reductions of rows and of columns of one domain, which is read once.

`scheduler` handles fusions that do not read the domain again with the results, with params from `heuristic`.
Of a batch of matrices each is reduced by itself; `batches` chooses how many blocks share one.
`persistent` holds rows that are read again, as in the gradients of normalizations. Its params come from
`persistent_heuristic`, by way of `tile_choice` (how threads lie along rows: the best of `row_tiles`) and
`block_resources` (what blocks need). `space` and `persistent_space` find the dimensions.
"""
