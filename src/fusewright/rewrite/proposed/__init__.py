"""Rewrites that schedulers propose of what they are asked to compute, where that makes faster kernels.

docs/redefinition.md shows who proposes which.
"""
