"""What a map of sizes says."""

from __future__ import annotations

from bench.sizes import cliffs, picture

GRID = {(1, 64): 0.9, (1, 128): 0.95, (32, 64): 0.97, (32, 128): 0.7}


def test_a_cell_far_below_one_beside_it_is_a_cliff() -> None:
    assert cliffs(GRID) == [(32, 128, 0.7, 0.97)]
    assert cliffs({(1, 64): 0.1, (32, 128): 0.9}) == []  # not beside each other
    assert cliffs({(1, 64): 0.9, (32, 64): 1.3}) == []  # a slow copy is no goal


def test_the_picture_marks_cliffs() -> None:
    drawn = picture({"softmax": GRID})
    assert drawn.count("stroke-width") == 1 and "0.97" in drawn and "softmax" in drawn
