"""Rewrites of a fusion, or of a part that may become a segment, before schedulers see it.

What lives here: `lift` (changes of shape and order move up to the loads), `sink` (or down to the stores),
`implied` (choices by the position that are made already),
`equal_reads` (one load for both), `separate` (small tensors that are read before a
reduction and elsewhere), `powers` (small ones as products), REWRITES, the list of these rewrites, and
`canonicalize`, which runs them: each changes a fusion in place, keeps its inputs and outputs, and returns
it. `two_pass`, `chunks` and `split_k` are ones that schedulers propose. `simplified` runs those of a whole
fusion before it is cut: `uniform` (tensors of one value as scalars), `nested_reductions` (in one step),
`operand_views` (a library reads what its operands are views of). It may import core, sym, ir, ops and
analyze.
"""

from __future__ import annotations

from collections.abc import Callable

from fusewright.core.passes import PassManager
from fusewright.core.tracing import SILENT, Tracer
from fusewright.ir.fusion import Fusion
from fusewright.ir.text import fusion_text
from fusewright.ir.verify import verify_fusion
from fusewright.rewrite.equal_reads import share_equal_reads
from fusewright.rewrite.implied import simplify_choices
from fusewright.rewrite.lift import lift_views
from fusewright.rewrite.nested_reductions import join_nested_reductions
from fusewright.rewrite.operand_views import with_viewed_operands
from fusewright.rewrite.powers import expand_powers
from fusewright.rewrite.separate import separate_small_tensors
from fusewright.rewrite.sink import sink_views
from fusewright.rewrite.uniform import read_scalars

REWRITES: tuple[tuple[str, Callable[[Fusion], Fusion]], ...] = (
    ("lift views", lift_views),
    ("sink views", sink_views),
    ("simplify choices", simplify_choices),
    ("share equal reads", share_equal_reads),
    ("separate small tensors", separate_small_tensors),
    ("expand powers", expand_powers),
)
GRAPH_REWRITES: tuple[tuple[str, Callable[[Fusion], Fusion]], ...] = (
    ("read scalars", read_scalars),
    ("join nested reductions", join_nested_reductions),
)
_MANAGER = PassManager("rewrite", REWRITES, fusion_text, verify_fusion, lambda fusion: fusion.edits)
_OF_A_GRAPH = PassManager("rewrite", GRAPH_REWRITES, fusion_text, verify_fusion, lambda fusion: fusion.edits)


def simplified(fusion: Fusion, tracer: Tracer = SILENT) -> Fusion:
    """A fusion that computes the same with less; `fusion`, which is not changed, if there is none.

    Raises:
        VerifyError: a fault of a rewrite.
    """
    new, _ = fusion.clone()
    edits = new.edits
    _OF_A_GRAPH.run(new, tracer)
    return with_viewed_operands(fusion if new.edits == edits else new)


def canonicalize(fusion: Fusion, tracer: Tracer = SILENT) -> None:
    """Applies all rewrites in place; inputs and outputs keep their identity.

    Raises:
        VerifyError: a fault of a rewrite.
    """
    _MANAGER.run(fusion, tracer)


__all__ = [
    "GRAPH_REWRITES",
    "REWRITES",
    "canonicalize",
    "expand_powers",
    "lift_views",
    "separate_small_tensors",
    "simplified",
    "simplify_choices",
    "sink_views",
]
