"""Which kernels serve a call.

`new_calls` (the entry: a call that no program is bound to), `recall` (a new size, decided as earlier ones),
`calls` (what the partition is told), `kept_partitions`, `selection` (and what happens where a proposal is
wrong), `steps` (compiles kernels), `bundles` (which of them are one launch), `settings` (what calls with
equal options share), `learned_params`, `finished` (a user's schedules), `planning` (for a GPU that is not
there), `segment_kernels` (what the user is told). It may import `reuse`, `program` and `inputs`.
"""
