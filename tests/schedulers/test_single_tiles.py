"""Tiles of transposes without vectors: few places beyond the dimensions, threads that both sides divide."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fusewright.core.hardware import DESCRIBED
from fusewright.schedulers.transpose.single_tiles import (
    MAX_ELEMENTS,
    MAX_THREADS,
    Along,
    Tile,
    cheapest_tile,
    least_cost,
    tile_cost,
)

H200 = DESCRIBED["h200"]
USUAL = Tile(128, 32, 256)
MOST = 14_000
SIZES = (1, 7, 31, 63, 65, 67, 96, 129, 257, 513, 1071, 4095, 16899)


def along(size: int, is_run: bool = False) -> Along:
    return Along(size, 2, 0, is_run)


def covered(size: int, tile: int) -> int:
    return -(-size // tile) * tile


@pytest.mark.parametrize("first", SIZES)
@pytest.mark.parametrize("second", SIZES)
def test_a_thread_has_one_place_along_each_side(first: int, second: int) -> None:
    found = cheapest_tile(along(first), along(second), MAX_ELEMENTS, MOST, H200)
    if found is None:
        assert min(first, second) < 16
        return
    cost, tile = found
    assert tile.threads % tile.along1 == tile.threads % tile.along2 == 0
    assert tile.along1 * tile.along2 % tile.threads == 0 and tile.threads <= MAX_THREADS
    assert tile.along1 * tile.along2 <= MOST
    assert cost == tile_cost(along(first), along(second), tile, H200)
    assert cost >= least_cost(along(first), along(second))


@pytest.mark.parametrize("sizes", [(67, 16899), (257, 8127), (16899, 67), (1071, 65)], ids=str)
def test_few_places_lie_beyond_the_dimensions(sizes: tuple[int, int]) -> None:
    found = cheapest_tile(along(sizes[0]), along(sizes[1]), MAX_ELEMENTS, MOST, H200)
    assert found is not None
    tile = found[1]
    assert covered(sizes[0], tile.along1) * covered(sizes[1], tile.along2) < 1.2 * sizes[0] * sizes[1]
    assert found[0] < 0.8 * tile_cost(along(sizes[0]), along(sizes[1]), USUAL, H200)


def test_registers_and_shared_memory_bound_tiles() -> None:
    _, tile = cheapest_tile(along(4095), along(4095), 8, MOST, H200) or (0, USUAL)
    assert tile.along1 * tile.along2 <= 8 * tile.threads
    _, tile = cheapest_tile(along(4095), along(4095), MAX_ELEMENTS, 2048, H200) or (0, USUAL)
    assert tile.along1 * tile.along2 <= 2048


def test_what_is_merged_costs_and_what_is_one_run_does_not() -> None:
    plain = tile_cost(along(64), along(4096), Tile(64, 64, 256), H200)
    assert tile_cost(replace(along(64), merged=1), along(4096), Tile(64, 64, 256), H200) > plain
    assert tile_cost(along(64, is_run=True), along(4096), Tile(64, 64, 256), H200) < plain
    assert tile_cost(along(128, is_run=True), along(4096), Tile(64, 64, 256), H200) == plain
