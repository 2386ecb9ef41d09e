"""Rewrites of a fusion before it is segmented and scheduled.

What lives here: `relabel` (rank changes move up to the loads) and `canonicalize`, the list of all rewrites. A
rewrite takes a fusion that it may change, and keeps its inputs and outputs. It may import core, sym, ir, ops
and analyze.
"""

from __future__ import annotations

from collections.abc import Callable

from fusewright.ir.fusion import Fusion
from fusewright.ir.value import Val
from fusewright.rewrite.relabel import lift_rank_changes

REWRITES: tuple[tuple[str, Callable[[Fusion], None]], ...] = (("lift rank changes", lift_rank_changes),)


def canonicalize(fusion: Fusion) -> tuple[Fusion, dict[Val, Val]]:
    """A rewritten copy, and the map from values to those of the copy that are still computed."""
    copy, values = fusion.clone()
    for _, rewrite in REWRITES:
        rewrite(copy)
    return copy, values


__all__ = ["REWRITES", "canonicalize", "lift_rank_changes"]
