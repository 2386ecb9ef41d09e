"""Rewrites that give a group of nodes, which may become a kernel, the form that schedulers expect.

Changes of shape and order move up to the loads (`lift`) or down to the stores (`sink`). Each file's docstring
starts with the transformation.
"""

from __future__ import annotations

from fusewright.core.passes import Pass
from fusewright.ir.fusion import Fusion
from fusewright.rewrite.candidate.computed_indices import compute_indices
from fusewright.rewrite.candidate.equal_reads import share_equal_reads
from fusewright.rewrite.candidate.implied import simplify_choices
from fusewright.rewrite.candidate.lift import lift_views
from fusewright.rewrite.candidate.powers import expand_powers
from fusewright.rewrite.candidate.reduced_views import store_beside_views
from fusewright.rewrite.candidate.separate import separate_small_tensors
from fusewright.rewrite.candidate.sink import sink_views

REWRITES: tuple[Pass[Fusion], ...] = (
    ("store beside views", store_beside_views),
    ("lift views", lift_views),
    ("sink views", sink_views),
    ("compute indices", compute_indices),
    ("simplify choices", simplify_choices),
    ("share equal reads", share_equal_reads),
    ("separate small tensors", separate_small_tensors),
    ("expand powers", expand_powers),
)

__all__ = ["REWRITES"]
