"""Accesses of the widest vectors, which take two fields where one of a class says that there are vectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fusewright.schedulers import ReductionParams, TransposeParams
from fusewright.tune.facts import WIDEST_ACCESS
from fusewright.tune.heuristic import AutotunerHeuristic
from fusewright.tune.problem import Problem


class WideVectors(AutotunerHeuristic):
    """Names no seed: formulas have such vectors, where sizes allow them, and plain params have none."""

    name = "wide_vectors"

    def is_eligible(self, problem: Problem) -> bool | str:
        return problem.facts is not None and hasattr(problem.formula, "vector_widths")

    def get_neighbors(self, problem: Problem, params: Any) -> Iterator[Any]:
        """Vectors of as many elements as an access has at most, and of half as many."""
        assert problem.facts is not None
        most = WIDEST_ACCESS // problem.facts.least_element_bytes
        for width in (most, most // 2):
            if width > max(params.vector_widths):
                yield _with_vectors(params, width)


def _with_vectors(params: Any, width: int) -> Any:
    if isinstance(params, ReductionParams) and params.fastest_dim:
        return replace(params, vectorize_inner_reduction=True, unroll_factor_inner_reduction=width)
    if isinstance(params, ReductionParams):
        return replace(params, vectorize_iter_dom=True, unroll_factor_iter_dom=width)
    if isinstance(params, TransposeParams):
        return replace(params, vectorize_factor1=width, vectorize_factor2=width)
    return replace(params, vectorization_factor=width)
