"""Which kernels serve a call.

`new_calls` (the entry: a call that no program is bound to), `recall` (a new size that is decided like an
earlier one), `calls` (the partition's view of a call), `kept_partitions`, `selection` (and the handling of
wrong proposals), `steps` (compiles kernels), `bundles` (segments that share a launch), `settings` (shared by
calls with equal options), `learned_params`, `finished` (a user's schedules), `planning` (for a GPU that is
not present), `segment_kernels` (kernels as values for users). It may import `reuse`, `program` and `inputs`.
"""
