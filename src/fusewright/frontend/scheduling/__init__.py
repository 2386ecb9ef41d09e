"""`fd.sched`, and what becomes of a user's schedules.

`operators` (its methods), `primitives` (how they take arguments), `automatic` (the automatic schedulers),
`params` (mutable copies of heuristic params), `workbench` (what a user's `schedule()` works on),
`user_schedules` (which schedule serves which inputs), `early_schedule` (what is called before the
definition is complete).
"""
