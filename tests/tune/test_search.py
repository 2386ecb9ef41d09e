"""What is tried next: from invented times, and from those of an H200 that docs/sweeps has."""

from __future__ import annotations

import random
from math import exp, log
from pathlib import Path

from fusewright.tune.heuristic import seeds_of
from fusewright.tune.heuristics import default_heuristics
from fusewright.tune.journal import Journal
from fusewright.tune.search import Search
from fusewright.tune.space import ParamsSpace, points_of
from fusewright.tune.table import measurements_of
from tests.tune.invented import FORMULA, H200, problem, search_of, seconds
from tests.tune.table_space import TableSpace

RECORDED = Path(__file__).parents[2] / "docs" / "sweeps" / "four_fusions.sqlite"
SIZES = [(64, 512), (4096, 1024), (16384, 4096), (100, 50000)]


def answered(search: Search, of, count: int, order=None) -> list[float]:
    """The best time after each configuration that was not refused. order: in which answers come."""
    waiting, best = [], []
    while len(best) < count:
        candidate = search.ask()
        if candidate is not None:
            waiting.append(candidate.params)
            if order is not None and len(waiting) < 4:
                continue
        if not waiting:
            break
        params = waiting.pop(0 if order is None else order.randrange(len(waiting)))
        time = seconds(of, params)
        search.tell(params, time)
        if time is not None:
            best.append(search.best[1])
    return best


def test_a_search_comes_near_the_best_of_a_sample_of_the_whole_space():
    ratios: dict[int, list[float]] = {8: [], 30: []}
    for rows, columns in SIZES:
        of = problem(rows, columns)
        sample = points_of(ParamsSpace(FORMULA, H200), 500, 0)
        least = min(time for params in sample if (time := seconds(of, params)) is not None)
        best = answered(search_of(of), of, 30)
        for count, found in ratios.items():
            found.append(best[count - 1] / least)
    assert {
        n: exp(sum(map(log, found)) / len(found)) < limit
        for (n, found), limit in zip(ratios.items(), (1.1, 1.02))
    } == {8: True, 30: True}, ratios
    assert max(ratios[30]) < 1.05, ratios


def test_the_same_answers_lead_to_the_same_questions_in_whichever_order_they_come():
    of = problem(4096, 1024)

    def questions(order: random.Random | None) -> list[object]:
        search = search_of(of, seed=3)
        answered(search, of, 40, order)
        return [each.params for each in search._questions[:40]]

    assert questions(None) == questions(random.Random(1)) == questions(random.Random(2))
    assert len(set(questions(None))) == len(questions(None)) > 30


def test_a_search_of_what_an_h200_measured_finds_the_best_within_30():
    with Journal(RECORDED, None) as journal:
        tables = list(measurements_of(journal, "NVIDIA H200"))
    assert {table.problem.scheduler for table in tables} == {
        "pointwise", "reduction", "inner_persistent", "transpose",
    }  # fmt: skip
    for table in tables:
        of = table.problem
        space = TableSpace([*table.seconds, *table.refused], ParamsSpace(table.formula, of.hardware))
        seeds = seeds_of(of, space, [default_heuristics().current[0]], [table.formula])
        search = Search(space, seeds, lambda params: ())
        tried = 0
        while tried < 30 and (candidate := search.ask()) is not None:
            search.tell(candidate.params, table.seconds.get(candidate.params))
            tried += candidate.params in table.seconds
        assert search.best[1] <= 1.03 * table.best, of.name
