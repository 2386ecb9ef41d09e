"""Tuned calls.

`tuned_calls` (`fd.execute(inputs, tune=...)`, `fusewright.tuning`), `active_tuning` (the active policy),
`problems` (a call as a problem for a search).
"""
