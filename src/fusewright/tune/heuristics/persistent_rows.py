"""Rows that a kernel holds while it reduces them, by their length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fusewright.core.hardware import WARP_SIZE
from fusewright.schedulers import ReductionParams
from fusewright.tune.heuristic import AutotunerHeuristic
from fusewright.tune.problem import Problem

# Bytes of one access.
WIDEST_ACCESS = 16
# Elements of a row up to which one warp holds it: no barrier, only shuffles.
MOST_OF_A_WARP = 1024
# Vectors that a thread of a long row holds: as many loads are in flight.
BATCHES = 4


class PersistentRows(AutotunerHeuristic):
    """Widest vectors; short rows in one warp each, several a block; long ones in BATCHES vectors a thread."""

    name = "persistent_rows"
    scheduler = "inner_persistent"

    def is_eligible(self, problem: Problem) -> bool | str:
        facts = problem.facts
        if facts is None or facts.reduction is None:
            return "there is no reduction"
        width = WIDEST_ACCESS // facts.element_bytes
        if facts.reduction.length % width:
            return f"rows of {facts.reduction.length} are no whole vectors of {width}"
        return isinstance(problem.formula, ReductionParams)

    def get_seed_params(self, problem: Problem) -> Any | None:
        facts = problem.facts
        assert facts is not None and facts.reduction is not None
        formula: ReductionParams = problem.formula
        length, width = facts.reduction.length, WIDEST_ACCESS // facts.element_bytes
        vectors = length // width
        is_short = length <= MOST_OF_A_WARP
        batches = _power_of_two(-(-vectors // WARP_SIZE)) if is_short else BATCHES
        rows = WARP_SIZE // 8 if is_short else 1
        return replace(
            formula,
            unroll_factor_inner_reduction=width,
            vectorize_inner_reduction=width > 1,
            batches_per_block_inner_reduction=batches,
            lparams=replace(formula.lparams, bdimx=-1, bdimy=rows if rows > 1 else -1),
        )

    def get_neighbors(self, problem: Problem, params: Any) -> Iterator[Any]:
        """As many elements in half and in twice the threads: two fields that move together."""
        batches, threads = params.batches_per_block_inner_reduction, params.lparams.bdimx
        for more in (2, 0.5):
            if batches * more < 1 or batches * more != int(batches * more):
                continue
            launch = params.lparams
            if threads > 0:
                launch = replace(launch, bdimx=max(1, int(threads / more)))
            yield replace(params, batches_per_block_inner_reduction=int(batches * more), lparams=launch)


def _power_of_two(value: int) -> int:
    return 1 << max(0, value - 1).bit_length()
