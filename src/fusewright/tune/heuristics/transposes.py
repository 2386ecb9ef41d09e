"""Transposes, by their stride in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fusewright.schedulers import TransposeParams
from fusewright.tune.heuristic import AutotunerHeuristic
from fusewright.tune.problem import Problem

# Bytes of a sector: what memory moves at least, of lines of four of them.
SECTOR_BYTES = 32
# Threads of a block with tiles of two lines on both sides; elements that each has of such a tile.
THREADS = 256


class Transposes(AutotunerHeuristic):
    """Larger or longer tiles.

    If rows start within a sector, neighbouring tiles share their first and last sectors: it proposes tiles of
    twice the size on both sides, with twice the threads. Otherwise it proposes tiles that are long on the
    side that is read across.
    """

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
        sizes = facts.transpose.size1, facts.transpose.size2
        launch = replace(formula.lparams, bdimx=THREADS)
        within = any(size * facts.element_bytes % SECTOR_BYTES for size in sizes)
        width = 2 * formula.tile_size1 if within else max(1, formula.tile_size1 // 2)
        return replace(formula, lparams=launch, tile_size1=width, tile_size2=2 * formula.tile_size2)

    def get_neighbors(self, problem: Problem, params: Any) -> Iterator[Any]:
        """Tiles that are twice as wide, with narrower vectors across; tiles that are taller, with narrower
        vectors and more threads; the tile turned.
        """
        width1, width2, launch = params.vectorize_factor1, params.vectorize_factor2, params.lparams
        half1, half2 = max(1, width1 // 2), max(1, width2 // 2)
        yield replace(params, tile_size1=2 * params.tile_size1, vectorize_factor2=half2)
        yield replace(
            params,
            tile_size2=2 * params.tile_size2,
            vectorize_factor1=half1,
            vectorize_factor2=half2,
            lparams=replace(launch, bdimx=2 * THREADS),
        )
        yield replace(params, tile_size1=params.tile_size2, tile_size2=params.tile_size1)
