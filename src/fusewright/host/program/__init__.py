"""The host program: the work of a call, compiled to one Python function.

`ir` and `build` (the host IR of a fusion), `codegen` (its Python), `plan` and `evaluation` (launches, and
segments that torch computes), `programs` (binds a program to a signature), `views` (outputs that are views),
`overlaps` (inputs that share memory), `workspaces`. It may import `inputs`.
"""
