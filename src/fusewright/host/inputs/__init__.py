"""The inputs of a call: what kernels need of them.

`signature` (the key of a call), `binding` (checks inputs against the definition and finds every size),
`memory` and `layout` (how tensors lie, and what the host allocates), `memory_checks` (what kernels cannot
read), `places` (what may lie in host memory), `scalars` (what the host computes). It imports nothing else
of host.
"""
