"""Invented times: a formula in place of a GPU, to test searches and policies. They are no measurements."""

from __future__ import annotations

import hashlib
from math import log2
from typing import Any

from fusewright.core.hardware import DESCRIBED
from fusewright.schedulers import LaunchParams, PointwiseParams
from fusewright.tune.changes import differences
from fusewright.tune.facts import ProblemFacts
from fusewright.tune.heuristic import seeds_of
from fusewright.tune.heuristics import default_heuristics
from fusewright.tune.problem import Problem, TensorLike
from fusewright.tune.search import Search
from fusewright.tune.space import ParamsSpace
from fusewright.tune.table import Measurements

H200 = DESCRIBED["h200"]
FORMULA = PointwiseParams(
    break_point=1, vectorization_factor=4, lparams=LaunchParams(bdimx=128), unroll_factor_inner=1
)


def problem(rows: int, columns: int) -> Problem:
    """An elementwise kernel of a tensor and a row, with the facts that a plan would have."""
    sizes = f"{rows}x{columns}"
    like = TensorLike((rows, columns), (columns, 1), "float32")
    row = TensorLike((columns,), (1,), "float32")
    bytes_ = 4 * (2 * rows * columns + columns)
    facts = ProblemFacts(sizes, "invented", bytes_, rows * columns, 4, 4, rows * columns, 2, 1, 1)
    return Problem(
        sizes, "pointwise", f"# invented {sizes}", 0, (like, row), (like,), H200, (), "", facts, FORMULA
    )


def copy_seconds(of: Problem) -> float:
    return 3e-6 + of.bytes / 4e12


def seconds(of: Problem, params: PointwiseParams) -> float | None:
    """Fields act together: what is in flight and the size of a block have an optimum that moves with the
    bytes, rows on grid_x help large problems, and each configuration has a whim of up to 1%. None: refused.
    """
    if params.vectorization_factor > 4 or params.break_point > 1:
        return None
    large = of.bytes > H200.l2_bytes
    flight = log2(params.vectorization_factor * params.unroll_factor_inner * params.unroll_factor_outer)
    threads = log2(params.lparams.bdimx if params.lparams.bdimx > 0 else 128)
    slow = 1.0
    slow += 0.02 * (flight - (4 if large else 2)) ** 2
    slow += 0.015 * (threads + 0.5 * flight - 9) ** 2
    slow += 0.05 * (params.vectorization_factor < 4) + 0.04 * (params.break_point == 0)
    slow += 0.03 * (large != params.flip_grid_binding) + 0.02 * params.split_grid_y_dim
    changes = sorted(differences(FORMULA, params).items())  # the same, whatever fields there are besides
    whim = int(hashlib.sha256(repr((of.name, changes)).encode()).hexdigest()[:4], 16) / 65536
    return 1.04 * copy_seconds(of) * slow * (1 + 0.01 * whim)


def measurements(of: Problem, points: list[Any]) -> Measurements:
    """A table of these points."""
    times = {params: seconds(of, params) for params in points}
    return Measurements(
        of,
        FORMULA,
        {params: time for params, time in times.items() if time is not None},
        frozenset(params for params, time in times.items() if time is None),
        copy_seconds(of),
        "invented",
    )


def search_of(of: Problem, seed: int = 0) -> Search:
    space = ParamsSpace(FORMULA, H200)
    seeds = seeds_of(of, space, default_heuristics())
    return Search(space, seeds, lambda params: seeds.neighbors(of, params), seed)
