"""Rewrites of a fusion before schedulers see it: passes that change it in place.

`graph`: `simplified` runs these on a copy of a definition. `candidate`: `canonicalize` runs these on a group
of nodes that may become a kernel. Both keep inputs and outputs. `border`: `reshape_border` runs these next,
and gives inputs and outputs other dimensions. `proposed`: schedulers propose these if they make faster
kernels. `replacement` has shared functions.

Each rewrite is one file, whose docstring starts with the transformation. It may import core, sym, ir, ops and
analyze.
"""

from __future__ import annotations

from fusewright.core.passes import Pass, PassManager
from fusewright.core.tracing import SILENT, Tracer
from fusewright.ir.fusion import Fusion
from fusewright.ir.text import fusion_text
from fusewright.ir.value import TensorView
from fusewright.ir.verify import verify_fusion
from fusewright.rewrite.border import BORDER_REWRITES
from fusewright.rewrite.candidate import REWRITES
from fusewright.rewrite.graph import GRAPH_REWRITES


def _manager(passes: tuple[Pass[Fusion], ...]) -> PassManager[Fusion]:
    return PassManager("rewrite", passes, fusion_text, verify_fusion, lambda fusion: fusion.edits)


_OF_A_GRAPH, _OF_A_CANDIDATE = _manager(GRAPH_REWRITES), _manager(REWRITES)
_OF_A_BORDER = _manager(BORDER_REWRITES)


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


def reshape_border(fusion: Fusion, tracer: Tracer = SILENT) -> tuple[int, ...]:
    """Gives inputs and outputs of a canonical candidate the dimensions that say most of memory, in place.

    Returns the positions of the inputs that have others than before. They lie in memory without gaps.

    Raises:
        VerifyError: a fault of a rewrite.
    """
    before = [value.shape if isinstance(value, TensorView) else () for value in fusion.inputs]
    _OF_A_BORDER.run(fusion, tracer)
    after = [value.shape if isinstance(value, TensorView) else () for value in fusion.inputs]
    return tuple([i for i, (passed, seen) in enumerate(zip(before, after)) if passed != seen])


__all__ = ["GRAPH_REWRITES", "REWRITES", "canonicalize", "reshape_border", "simplified"]
