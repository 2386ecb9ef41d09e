"""The inputs of a call, and the facts about them that kernels need.

`signature` (the key of a call), `binding` (checks inputs against the definition and finds every size),
`memory` and `layout` (layouts of tensors, and what the host allocates), `memory_checks` (inputs that kernels
cannot read), `places` (tensors that may be in host memory), `scalars` (values that the host computes). It
imports nothing else of host.
"""
