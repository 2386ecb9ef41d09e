"""Rewrites that schedulers propose for segments that they accepted, if they make faster kernels.

docs/redefinition.md shows which scheduler proposes which rewrite.
"""
