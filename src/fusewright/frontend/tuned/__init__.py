"""Calls that are tuned.

`tuned_calls` (`fd.execute(inputs, tune=...)`, `fusewright.tuning`), `active_tuning` (the policy in force),
`problems` (a call as a problem for a search).
"""
