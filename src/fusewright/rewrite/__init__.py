"""Rewrites of a fusion, or of a part that may become a segment, before schedulers see it.

What lives here: `relabel` (changes of rank and order move up to the loads) and `canonicalize`, the list of
all rewrites. A rewrite takes a fusion that it may change, and keeps its inputs and outputs. It may import
core, sym, ir, ops and analyze.
"""

from __future__ import annotations

from collections.abc import Callable

from fusewright.ir.fusion import Fusion
from fusewright.rewrite.relabel import lift_relabels

REWRITES: tuple[tuple[str, Callable[[Fusion], None]], ...] = (("lift relabels", lift_relabels),)


def canonicalize(fusion: Fusion) -> None:
    """Applies all rewrites in place; inputs and outputs keep their identity."""
    for _, rewrite in REWRITES:
        rewrite(fusion)


__all__ = ["REWRITES", "canonicalize", "lift_relabels"]
