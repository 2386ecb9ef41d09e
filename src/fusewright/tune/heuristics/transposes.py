"""Transposes by the stride that they go across."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fusewright.schedulers import TransposeParams
from fusewright.tune.heuristic import AutotunerHeuristic
from fusewright.tune.problem import Problem

# Bytes of a row of a tile on the side that is read across: two sectors of a line at least.
TILE_BYTES = 128
# Bytes of a stride from which neighbours of a column lie in different pages: wider tiles use each longer.
FAR = 16384
WIDEST_ACCESS = 16
THREADS = 256


class Transposes(AutotunerHeuristic):
    """Tiles of whole lines on either side; of two lines across far strides."""

    name = "transposes"
    scheduler = "transpose"

    def is_eligible(self, problem: Problem) -> bool | str:
        if problem.facts is None or problem.facts.transpose is None:
            return "no tensor lies along another dimension"
        return isinstance(problem.formula, TransposeParams)

    def get_seed_params(self, problem: Problem) -> Any | None:
        facts, formula = problem.facts, problem.formula
        assert facts is not None and facts.transpose is not None
        assert isinstance(formula, TransposeParams)
        line = TILE_BYTES // facts.element_bytes
        width = max(1, WIDEST_ACCESS // facts.element_bytes // 2)
        return replace(
            formula,
            tile_size1=line,
            tile_size2=2 * line if facts.transpose.stride >= FAR else line,
            vectorize_factor1=min(formula.vectorize_factor1, width),
            vectorize_factor2=min(formula.vectorize_factor2, width),
            lparams=replace(formula.lparams, bdimx=THREADS),
        )

    def get_neighbors(self, problem: Problem, params: Any) -> Iterator[Any]:
        """The tile turned, and vectors of the same other width on both sides."""
        yield replace(params, tile_size1=params.tile_size2, tile_size2=params.tile_size1)
        for width in (params.vectorize_factor1 // 2, params.vectorize_factor1 * 2):
            if width:
                yield replace(params, vectorize_factor1=width, vectorize_factor2=width)
