"""Rewrites of a fusion before schedulers see it: passes that change it in place.

`graph`: `simplified` runs these on a copy of a definition. `candidate`: `canonicalize` runs these on a group
of nodes that may become a kernel. Both keep inputs and outputs. `proposed`: schedulers propose these if they
make faster kernels. `replacement` has shared functions.

Each rewrite is one file, whose docstring starts with the transformation. It may import core, sym, ir, ops and
analyze.
"""

from __future__ import annotations

from fusewright.core.passes import Pass, PassManager
from fusewright.core.tracing import SILENT, Tracer
from fusewright.ir.fusion import Fusion
from fusewright.ir.text import fusion_text
from fusewright.ir.verify import verify_fusion
from fusewright.rewrite.candidate import REWRITES
from fusewright.rewrite.graph import GRAPH_REWRITES


def _manager(passes: tuple[Pass[Fusion], ...]) -> PassManager[Fusion]:
    return PassManager("rewrite", passes, fusion_text, verify_fusion, lambda fusion: fusion.edits)


_OF_A_GRAPH, _OF_A_CANDIDATE = _manager(GRAPH_REWRITES), _manager(REWRITES)


def simplified(fusion: Fusion, tracer: Tracer = SILENT) -> Fusion:
    """A fusion that computes the same with less; `fusion`, which is not changed, if there is none.

    Values keep their numbers, and inputs and outputs their places.

    Raises:
        VerifyError: a fault of a rewrite.
    """
    new, _ = fusion.clone()
    edits = new.edits
    _OF_A_GRAPH.run(new, tracer)
    return fusion if new.edits == edits else new


def canonicalize(fusion: Fusion, tracer: Tracer = SILENT) -> None:
    """Applies all rewrites of a candidate in place; inputs and outputs keep their identity.

    Raises:
        VerifyError: a fault of a rewrite.
    """
    _OF_A_CANDIDATE.run(fusion, tracer)


__all__ = ["GRAPH_REWRITES", "REWRITES", "canonicalize", "simplified"]
