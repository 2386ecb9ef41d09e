"""Kernel IR: one GPU kernel as loops, memory, compute, reductions and barriers.

What lives here: `ir` (the nodes, with those of `collectives`, `waits` and `operands`), `access` (what a
statement reads, writes and defines), `verify` (whether a kernel is well-formed), `text` (the printed form)
and `combine` (several kernels as one). A kernel knows nothing of fusions, axes or schedules; `lower` produces
it, `cuda` prints it and `sim` executes it. It may import core and sym. Start reading at `ir.Kernel`.
"""
