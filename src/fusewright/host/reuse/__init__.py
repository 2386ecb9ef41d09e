"""What earlier calls of a fusion say of the next one.

`repeated_calls` (a call like the one before it), `rebinding` (inputs of a kind that was bound before),
`recorded_calls` (sizes that are decided as earlier ones were), `stable_sizes` (which have never changed).
It may import `program` and `inputs`.
"""
