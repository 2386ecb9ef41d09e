"""The kernel passes, in the order in which they run.

A pass is a function Kernel -> Kernel in its own file. To add a pass, add a line here. The pass manager
(`core.passes`), which `lowering.lower` runs, names, times, dumps and verifies each pass. In any other order
the kernel would be correct, but slower or longer. Guards are gathered after barriers have been inserted and
loads have been moved forward, since branches do not extend across barriers or around loads. Divisions are
named after the statements that share them have been brought together.
"""

from __future__ import annotations

from fusewright.core.passes import Pass
from fusewright.kernel.ir import Kernel
from fusewright.lower.passes.approximate import approximate
from fusewright.lower.passes.barriers import insert_barriers
from fusewright.lower.passes.chosen import load_chosen_once
from fusewright.lower.passes.chunks import separate_whole_chunks
from fusewright.lower.passes.conversions import convert_in_pairs
from fusewright.lower.passes.edges import separate_edges
from fusewright.lower.passes.equal_loads import share_equal_loads
from fusewright.lower.passes.exclusive_loads import join_exclusive_loads
from fusewright.lower.passes.first_iterations import store_before_loops
from fusewright.lower.passes.guards import gather_guards
from fusewright.lower.passes.hoist import hoist_indices
from fusewright.lower.passes.hold import hold_rows
from fusewright.lower.passes.in_flight import copy_asynchronously
from fusewright.lower.passes.in_order import combine_in_order
from fusewright.lower.passes.invariants import hoist_invariants
from fusewright.lower.passes.issue_loads import issue_loads
from fusewright.lower.passes.iterations import separate_iterations
from fusewright.lower.passes.joined_grid_reductions import join_grid_reductions
from fusewright.lower.passes.joined_reductions import join_reductions
from fusewright.lower.passes.loads import bring_loads_forward
from fusewright.lower.passes.narrow import narrow_comparisons
from fusewright.lower.passes.narrow_integers import narrow_integers
from fusewright.lower.passes.neutral import fill_with_neutral_elements
from fusewright.lower.passes.packed_runs import combine_packed_runs
from fusewright.lower.passes.pieces import join_pieces
from fusewright.lower.passes.quotient_loads import load_quotients_once
from fusewright.lower.passes.repeated import read_repeated_registers
from fusewright.lower.passes.repeated_loads import load_repeated_vectors_once
from fusewright.lower.passes.rings import fill_rings
from fusewright.lower.passes.rounding import round_in_registers
from fusewright.lower.passes.row_invariants import keep_invariant_vectors
from fusewright.lower.passes.shared import place_shared
from fusewright.lower.passes.small_numbers import convert_small_numbers
from fusewright.lower.passes.unroll import unroll_register_loops
from fusewright.lower.passes.vector_invariants import hoist_vector_invariants
from fusewright.lower.passes.windows import share_windows
from fusewright.lower.passes.workspaces import order_reductions

PASSES: tuple[Pass[Kernel], ...] = (
    ("share windows", share_windows),
    ("join reductions", join_reductions),
    ("barriers", insert_barriers),
    ("order reductions", order_reductions),
    ("unroll", unroll_register_loops),
    ("keep invariant vectors", keep_invariant_vectors),
    ("fill with neutral elements", fill_with_neutral_elements),
    ("narrow integers", narrow_integers),
    ("combine in order", combine_in_order),
    ("convert small numbers", convert_small_numbers),
    ("load what is chosen once", load_chosen_once),
    ("bring loads forward", bring_loads_forward),
    ("load repeated vectors once", load_repeated_vectors_once),
    ("share equal loads", share_equal_loads),
    ("join exclusive loads", join_exclusive_loads),
    ("load quotients once", load_quotients_once),
    ("join pieces", join_pieces),
    ("read repeated registers", read_repeated_registers),
    ("narrow comparisons", narrow_comparisons),
    ("separate edges", separate_edges),
    ("gather guards", gather_guards),
    ("approximate", approximate),
    ("hoist invariants", hoist_invariants),
    ("hoist vector invariants", hoist_vector_invariants),
    ("store before loops", store_before_loops),
    ("round in registers", round_in_registers),
    ("combine packed runs", combine_packed_runs),
    ("convert in pairs", convert_in_pairs),
    ("hold rows", hold_rows),
    ("separate whole chunks", separate_whole_chunks),
    ("fill rings", fill_rings),
    ("copy asynchronously", copy_asynchronously),
    ("separate iterations", separate_iterations),
    ("issue loads", issue_loads),
    ("hoist indices", hoist_indices),
    ("join grid reductions", join_grid_reductions),
    ("place shared memory", place_shared),
)
