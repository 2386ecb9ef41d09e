"""Rewrites of a candidate that change the dimensions of its inputs and outputs, but not their memory.

Each file's docstring starts with the transformation. Dense memory can have any dimensions with the same
number of elements, so a kernel may use other dimensions than the tensors that it is called with.
"""

from __future__ import annotations

from fusewright.core.passes import Pass
from fusewright.ir.fusion import Fusion
from fusewright.rewrite.border.dense_views import view_dense_memory
from fusewright.rewrite.border.divided_dimensions import split_divided_dimensions
from fusewright.rewrite.border.merged_dimensions import merge_reduced_dimensions
from fusewright.rewrite.border.single_dimensions import drop_single_dimensions

BORDER_REWRITES: tuple[Pass[Fusion], ...] = (
    ("view dense memory", view_dense_memory),
    ("split divided dimensions", split_divided_dimensions),
    ("drop single dimensions", drop_single_dimensions),
    ("merge reduced dimensions", merge_reduced_dimensions),
)

__all__ = ["BORDER_REWRITES"]
