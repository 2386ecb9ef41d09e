"""Accesses with the widest vectors. They change two fields at once if a field of the class enables vectors.

They change three if vectors do not divide rows: vectors that start within a row are rejected, and shifting
rows gains nothing without vectors, so no single step reaches such params.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import gcd
from typing import Any

from fusewright.schedulers import ReductionParams, TransposeParams
from fusewright.tune.facts import WIDEST_ACCESS
from fusewright.tune.heuristic import AutotunerHeuristic
from fusewright.tune.problem import Problem


class WideVectors(AutotunerHeuristic):
    """Proposes no seed: formulas choose such vectors if sizes allow them, and plain params have none."""

    name = "wide_vectors"

    def is_eligible(self, problem: Problem) -> bool | str:
        return problem.facts is not None and hasattr(problem.formula, "vector_widths")

    def get_neighbors(self, problem: Problem, params: Any) -> Iterator[Any]:
        """Vectors of as many elements as an access has at most, and of half as many; where these divide no
        row, of as many as do, too.

        A thread that holds batches of vectors then has as many elements as before, or as many vectors, or
        they are held in shared memory, as they come from memory: registers have no room for more.
        """
        assert problem.facts is not None
        own = max(params.vector_widths)
        for width in _widths(problem):
            if width > own:
                wide = _shifted(problem, _with_vectors(params, width), width)
                fewer = _with_fewer_batches(params, wide)
                if fewer is not None:
                    yield fewer
                if fewer is not None and isinstance(wide, ReductionParams) and wide.holds_batches:
                    yield replace(wide, persistent_in_shared_memory=True, project_persistent_buffers=True)
                yield wide


def _widths(problem: Problem) -> list[int]:
    """Of all tensors an access, of the narrowest one, and half of the first; and of rows what divides them:
    distinct, the widest first.
    """
    facts = problem.facts
    assert facts is not None
    all_tensors = WIDEST_ACCESS // facts.element_bytes
    widths = {WIDEST_ACCESS // facts.least_element_bytes, all_tensors, all_tensors // 2}
    if facts.reduction is not None and facts.reduction.is_inner:
        widths.add(gcd(facts.reduction.length, all_tensors))
    return sorted((width for width in widths if width > 1), reverse=True)


def _with_vectors(params: Any, width: int) -> Any:
    if isinstance(params, ReductionParams) and params.fastest_dim:
        return replace(params, vectorize_inner_reduction=True, unroll_factor_inner_reduction=width)
    if isinstance(params, ReductionParams):
        return replace(params, vectorize_iter_dom=True, unroll_factor_iter_dom=width)
    if isinstance(params, TransposeParams):
        return replace(params, vectorize_factor1=width, vectorize_factor2=width)
    return replace(params, vectorization_factor=width)


def _shifted(problem: Problem, wide: Any, width: int) -> Any:
    """The same for rows that vectors do not divide: these begin at aligned addresses, wherever rows do."""
    if not (isinstance(wide, ReductionParams) and wide.fastest_dim) or (problem.length or 0) % width == 0:
        return wide
    return replace(wide, shift_rows=True)


def _with_fewer_batches(params: Any, wide: Any) -> Any | None:
    """The wide ones with as many elements a thread as before; None: a thread holds no batches."""
    batches = getattr(wide, "batches_per_block_inner_reduction", 0)
    held, wanted = getattr(wide, "elements_held", None), getattr(params, "elements_held", None)
    if batches < 2 or not held or not wanted or held <= wanted:
        return None
    return replace(wide, batches_per_block_inner_reduction=max(1, batches * wanted // held))
