"""Wide vectors, and many rows in flight, that searches name beside params without any."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fusewright.tune.heuristics.variations import Variations
from fusewright.tune.heuristics.wide_vectors import WideVectors
from fusewright.tune.recording import read_recording
from fusewright.tune.table import Measurements

DRAWN = Path(__file__).parent / "drawn_20261124_h200.json"


@pytest.fixture(scope="module")
def tables() -> dict[str, Measurements]:
    return {table.problem.name: table for table in read_recording(DRAWN)}


def _named(table: Measurements) -> list[object]:
    heuristic, of = WideVectors(), replace(table.problem, formula=table.formula)
    assert heuristic.is_eligible(of) is True
    return list(heuristic.get_neighbors(of, table.plain))


def test_vectors_are_as_wide_as_an_access_of_the_widest_tensor_and_of_the_narrowest(tables):
    """A mask has elements of one byte beside those of four."""
    table = tables["masked_softmax 26961x136 float"]
    assert max(table.plain.vector_widths) == 1
    assert {max(params.vector_widths) for params in _named(table)} == {16, 4, 2}


@pytest.mark.parametrize(
    "name", ("masked_softmax 26961x136 float", "softmax_columns 3065x5952", "layernorm_bwd 31537x776")
)
def test_a_thread_holds_as_many_elements_as_before_or_as_many_vectors(tables, name):
    plain, named = tables[name].plain, _named(tables[name])
    batches = plain.batches_per_block_inner_reduction
    for width in {max(params.vector_widths) for params in named}:
        own = [params for params in named if max(params.vector_widths) == width]
        assert {params.batches_per_block_inner_reduction for params in own} == {
            batches,
            max(1, batches // width),
        }


def test_what_registers_have_no_room_for_is_held_in_shared_memory(tables):
    """Half of the way to the fastest params, which no single step leads to."""
    table = tables["softmax_columns 3065x5952"]
    best = min(table.seconds, key=table.seconds.__getitem__)
    held = [params for params in _named(table) if params.persistent_in_shared_memory]
    assert {params.unroll_factor_iter_dom for params in held} == {8, 4}
    assert all(params.project_persistent_buffers for params in held)
    assert best.persistent_in_shared_memory and best.unroll_factor_iter_dom == 8


def test_rows_that_vectors_do_not_divide_are_shifted(tables):
    """From plain params a search ended at 1.20 of the best: vectors that do not divide a row are refused."""
    odd = tables["add_rmsnorm 809x7489, segment 0"]
    named = _named(odd)
    assert {params.unroll_factor_inner_reduction for params in named} == {8, 4, 2}
    assert all(params.shift_rows and params.vectorize_inner_reduction for params in named)
    even = tables["sum_inner 33367x640"]
    assert not any(params.shift_rows for params in _named(even))


def test_sums_of_columns_have_many_rows_in_flight_at_once(tables):
    """Two and four gain little: from plain params a search ended at 1.29 of the best, and tried no eight."""
    table = tables["sum_middle 14x2574x128"]
    assert table.plain.unroll_factor_inner_reduction == 1
    named = list(Variations().get_neighbors(table.problem, table.plain))
    assert replace(table.plain, unroll_factor_inner_reduction=8) in named
