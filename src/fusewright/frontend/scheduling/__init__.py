"""`fd.sched`, and the storage of a user's schedules.

`operators` (its methods), `primitives` (how they take arguments), `automatic` (the automatic schedulers),
`params` (mutable copies of heuristic params), `workbench` (the fusion or kernels that a user's `schedule()`
changes), `user_schedules` (which schedule applies to which inputs), `early_schedule` (calls before the
definition is complete).
"""
