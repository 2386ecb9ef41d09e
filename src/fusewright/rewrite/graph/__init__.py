"""Rewrites of a whole definition before it is partitioned into kernels. They save work and memory traffic.

Each file is one pass, and its docstring starts with the transformation. docs/how-to-add-a-pass.md shows the
passes in order. `shown` has code that several passes share.
"""

from __future__ import annotations

from fusewright.core.passes import Pass
from fusewright.ir.fusion import Fusion
from fusewright.rewrite.graph.accumulated_products import accumulate_products
from fusewright.rewrite.graph.aliases import separate_aliases
from fusewright.rewrite.graph.casts import fold_casts
from fusewright.rewrite.graph.dead import remove_dead_nodes
from fusewright.rewrite.graph.equal_nodes import merge_equal_nodes
from fusewright.rewrite.graph.joined_reads import join_reads
from fusewright.rewrite.graph.late_casts import cast_late
from fusewright.rewrite.graph.logarithms import simplify_logarithms
from fusewright.rewrite.graph.memory_order import keep_memory_order
from fusewright.rewrite.graph.narrow_sums import narrow_sums
from fusewright.rewrite.graph.nested_reductions import join_nested_reductions
from fusewright.rewrite.graph.operand_views import view_operands
from fusewright.rewrite.graph.partial_results import reduce_partial_results
from fusewright.rewrite.graph.parts import read_parts
from fusewright.rewrite.graph.reduced_reshapes import reduce_before_reshapes
from fusewright.rewrite.graph.roots import divide_by_roots
from fusewright.rewrite.graph.round_trips import cancel_round_trips
from fusewright.rewrite.graph.row_factors import multiply_row_factors
from fusewright.rewrite.graph.rows_first import reduce_rows_first
from fusewright.rewrite.graph.shared_sums import share_sums
from fusewright.rewrite.graph.single_places import choose_single_places
from fusewright.rewrite.graph.slices import move_slices_up
from fusewright.rewrite.graph.uniform import read_scalars

GRAPH_REWRITES: tuple[Pass[Fusion], ...] = (
    ("read scalars", read_scalars),
    ("choose single places", choose_single_places),
    ("cast late", cast_late),
    ("fold casts", fold_casts),
    ("read parts", read_parts),
    ("join reads", join_reads),
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
    ("accumulate products", accumulate_products),
    ("view operands", view_operands),
)

__all__ = ["GRAPH_REWRITES"]
