"""`fd.segment`: the kernels of a definition as separate definitions.

`definitions` (these definitions, and calls that run them), `records` (the records of a segment's definition),
`borders` (the values between segments).
"""
