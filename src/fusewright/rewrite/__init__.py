"""Rewrites of a fusion before schedulers see it: of the whole, and of each part that may become a segment.

Both are lists of passes that change a fusion in place, keep its inputs and outputs, and return it.

`GRAPH_REWRITES`, which `simplified` runs on a copy of a definition, save work and memory traffic. `REWRITES`,
which `canonicalize` runs on a candidate, give it the form that schedulers expect: changes of shape and order
move up to the loads (`lift`) or down to the stores (`sink`). Schedulers propose the others (`two_pass`,
`one_pass_softmax`, `columns_first`, `short_reductions`, `chunks`, `split_k`).

A rewrite is a file, which begins with what it makes of what; docs/how-to-add-a-pass.md shows those of a graph
in their order. `replacement` and `shown` are what several share.

It may import core, sym, ir, ops and analyze.
"""

from __future__ import annotations

from collections.abc import Callable

from fusewright.core.passes import PassManager
from fusewright.core.tracing import SILENT, Tracer
from fusewright.ir.fusion import Fusion
from fusewright.ir.text import fusion_text
from fusewright.ir.verify import verify_fusion
from fusewright.rewrite.aliases import separate_aliases
from fusewright.rewrite.casts import fold_casts
from fusewright.rewrite.common import merge_equal_nodes
from fusewright.rewrite.computed_indices import compute_indices
from fusewright.rewrite.dead import remove_dead_nodes
from fusewright.rewrite.equal_reads import share_equal_reads
from fusewright.rewrite.implied import simplify_choices
from fusewright.rewrite.lift import lift_views
from fusewright.rewrite.logarithms import simplify_logarithms
from fusewright.rewrite.memory_order import keep_memory_order
from fusewright.rewrite.narrow_sums import narrow_sums
from fusewright.rewrite.nested_reductions import join_nested_reductions
from fusewright.rewrite.operand_views import view_operands
from fusewright.rewrite.partial_results import reduce_partial_results
from fusewright.rewrite.parts import read_parts
from fusewright.rewrite.powers import expand_powers
from fusewright.rewrite.reduced_reshapes import reduce_before_reshapes
from fusewright.rewrite.reduced_views import store_beside_views
from fusewright.rewrite.roots import divide_by_roots
from fusewright.rewrite.round_trips import cancel_round_trips
from fusewright.rewrite.row_factors import multiply_row_factors
from fusewright.rewrite.rows_first import reduce_rows_first
from fusewright.rewrite.separate import separate_small_tensors
from fusewright.rewrite.shared_sums import share_sums
from fusewright.rewrite.single_places import choose_single_places
from fusewright.rewrite.sink import sink_views
from fusewright.rewrite.slices import move_slices_up
from fusewright.rewrite.uniform import read_scalars

Pass = tuple[str, Callable[[Fusion], Fusion]]

GRAPH_REWRITES: tuple[Pass, ...] = (
    ("read scalars", read_scalars),
    ("choose single places", choose_single_places),
    ("fold casts", fold_casts),
    ("read parts", read_parts),
    ("cancel round trips", cancel_round_trips),
    ("reduce before reshapes", reduce_before_reshapes),
    ("join nested reductions", join_nested_reductions),
    ("reduce rows first", reduce_rows_first),
    ("merge equal nodes", merge_equal_nodes),
    ("reduce partial results", reduce_partial_results),
    ("divide by roots", divide_by_roots),
    ("simplify logarithms", simplify_logarithms),
    ("share sums", share_sums),
    ("narrow sums", narrow_sums),
    ("multiply row factors", multiply_row_factors),
    ("merge what became equal", merge_equal_nodes),
    ("remove dead nodes", remove_dead_nodes),
    ("move slices up", move_slices_up),
    ("separate aliases", separate_aliases),
    ("keep memory order", keep_memory_order),
    ("view operands", view_operands),
)
REWRITES: tuple[Pass, ...] = (
    ("store beside views", store_beside_views),
    ("lift views", lift_views),
    ("sink views", sink_views),
    ("compute indices", compute_indices),
    ("simplify choices", simplify_choices),
    ("share equal reads", share_equal_reads),
    ("separate small tensors", separate_small_tensors),
    ("expand powers", expand_powers),
)


def _manager(passes: tuple[Pass, ...]) -> PassManager[Fusion]:
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
