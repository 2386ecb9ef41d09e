"""`fd.segment`: the kernels of a definition as definitions of their own.

`definitions` (these, and calls that run them), `records` (what the definition of a segment says), `borders`
(where segments meet).
"""
