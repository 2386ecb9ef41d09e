"""Rewrites of a fusion before schedulers see it: passes that change it in place.

`simplified` runs the rewrites of `graph` on a copy of a definition. `canonicalize` runs those of `candidate`
on a group of nodes that may become a kernel. Both keep inputs and outputs. Then `reshape_border` runs those
of `border`, which give inputs and outputs other dimensions. Schedulers propose the rewrites of `proposed` if
these make faster kernels. `replacement` has shared functions.

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
    """A simplified copy of a fusion, or the fusion itself if it cannot be simplified.

    Values keep their numbers, and inputs and outputs keep their places.

    Raises:
        VerifyError: a rewrite has a bug.
    """
    new, _ = fusion.clone()
    edits = new.edits
    _OF_A_GRAPH.run(new, tracer)
    return fusion if new.edits == edits else new


def canonicalize(fusion: Fusion, tracer: Tracer = SILENT) -> None:
    """Applies all rewrites of a candidate in place; inputs and outputs keep their identity.

    Raises:
        VerifyError: a rewrite has a bug.
    """
    _OF_A_CANDIDATE.run(fusion, tracer)


def reshape_border(fusion: Fusion, tracer: Tracer = SILENT) -> tuple[int, ...]:
    """Gives inputs and outputs of a canonical candidate the dimensions that suit a kernel, in place.

    Returns:
        The positions of the inputs whose dimensions have changed. They are dense in memory.

    Raises:
        VerifyError: a rewrite has a bug.
    """
    before = [value.shape if isinstance(value, TensorView) else () for value in fusion.inputs]
    _OF_A_BORDER.run(fusion, tracer)
    after = [value.shape if isinstance(value, TensorView) else () for value in fusion.inputs]
    return tuple([i for i, (passed, seen) in enumerate(zip(before, after)) if passed != seen])


__all__ = ["GRAPH_REWRITES", "REWRITES", "canonicalize", "reshape_border", "simplified"]
