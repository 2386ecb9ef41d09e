"""Reuse of earlier calls of a fusion for the next one.

`repeated_calls` (a call that repeats the previous one), `rebinding` (inputs of a kind that was bound before),
`recorded_calls` (sizes that are decided like earlier ones), `stable_sizes` (sizes that have never changed).
It may import `program` and `inputs`.
"""
