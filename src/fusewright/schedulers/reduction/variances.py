"""What Welford's steps take, and variances by two sums of a row that is held in place of them."""

from __future__ import annotations

from math import prod

from fusewright.core.hardware import KIB
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Reduction
from fusewright.ir.value import TensorView
from fusewright.ops.reductions import WELFORD
from fusewright.rewrite.proposed.two_pass import is_plain_welford, two_pass
from fusewright.schedulers.base import Facts, Part, Rewrite
from fusewright.schedulers.params import ReductionParams
from fusewright.schedulers.reduction.space import ReductionSpace
from fusewright.schedulers.sizes import ceil_div

# ---- kernels that hold rows ----

# Share of a kernel's speed that is left where Welford's steps, with a division each, take the place of two
# sums of a held row; and the seconds of their last chain of divisions.
#   H200: 0.93 in layer norm, 0.94 and 0.81 in its gradients, of 1024 and 4096 elements.
WELFORD_SPEED = 0.93  # of the speed without these steps
WELFORD_SECONDS = 0.4e-6  # for the last chain of divisions

# ---- reductions of rows ----

# The same share where no row is held. It is less in a thread's last vectors if these go beyond the end of a
# row: counts are not constant then, so each step divides.
#   H200, us by Welford's steps and by two sums of held rows: bf16 131072x256 27.5 and 25.4, 65536x1024 54.5
#   and 42.9, 16384x4096 43.8 and 42.8, 8192x8192 44.3 and 42.9, 8192x16384 79.1 and 72.6; float 65536x1024
#   71.6 and 71.9. Beyond the end: half 65536x1025 87.3 and 51.0, bf16 65536x1030 136 and 52.8, float
#   65536x513 94.8 and 49.1.
SPEED_OF_WHOLE_ROWS = 0.9
SPEED_OF_PARTS = 0.42
# Bytes of the longest row for which this counts, and that is held for its variance alone: longer ones were
# not timed.
LONGEST_HELD = 32 * KIB


def has_welford(fusion: Fusion) -> bool:
    """Whether Welford's steps find a variance."""
    return any(isinstance(node, Reduction) and node.op is WELFORD for node in fusion.nodes)


def with_welford(speed: float, steps: float) -> tuple[float, float]:
    """Returns the share of a copy's speed, and the seconds besides, of a kernel that holds rows and takes
    Welford's steps.
    """
    return speed * WELFORD_SPEED, steps + WELFORD_SECONDS


def speed_of_steps(space: ReductionSpace, params: ReductionParams, facts: Facts) -> float:
    """Returns the share of its speed that a reduction keeps where it takes Welford's steps; 1 where they were
    not timed: along columns and long rows.
    """
    if not params.fastest_dim or not _has_short_rows(space, facts):
        return 1.0
    length = space.reduction_size(facts)
    threads = max(1, params.lparams.bdimx) * max(1, params.lparams.gdimy)
    step = threads * params.unroll_factor_top_of_vectorization * prod(params.vector_widths)
    if not params.shift_rows and length % step == 0:
        return SPEED_OF_WHOLE_ROWS
    steps = ceil_div(length, step)
    return steps / ((steps - 1) / SPEED_OF_WHOLE_ROWS + 1 / SPEED_OF_PARTS)


def variance_in_two_passes(part: Part) -> Rewrite | None:
    """Two sums instead of Welford's steps, which cost more if a row is held."""
    nodes = [node for node in part.nodes if is_plain_welford(part.graph, node)]
    if not nodes:
        return None

    def replace_all(graph: Fusion) -> dict[TensorView, TensorView]:
        return {old: new for node in nodes for old, new in two_pass(graph, node).items()}

    reason = "two sums of a row that is held cost less than Welford's steps"
    return Rewrite("variance in two passes", replace_all, reason)


def variance_of_short_rows(part: Part, space: ReductionSpace, facts: Facts) -> Rewrite | None:
    """The same for a kernel that holds no row so far, if rows are short."""
    return variance_in_two_passes(part) if space.is_inner and _has_short_rows(space, facts) else None


def _has_short_rows(space: ReductionSpace, facts: Facts) -> bool:
    return space.reduction_size(facts) * space.element_bytes <= LONGEST_HELD
