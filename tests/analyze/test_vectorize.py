"""Vector width and direction: which axis lanes run along, and how wide access may be."""

from __future__ import annotations

import pytest

from fusewright.analyze.runs import Run, expression_run, memory_run
from fusewright.analyze.vectorize import (
    lane_axis,
    loads_along_lane,
    stores_along_lane,
    unit_stride_axis,
    widest_aligned,
)
from fusewright.ir import Fusion
from fusewright.ir.index_map import IndexMap, position
from fusewright.ops.build_elementwise import apply_to_tensor, copy_tensor
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_shape import broadcast, permute
from fusewright.schedule import transforms
from fusewright.sym import const, substitute, symbol


@pytest.fixture
def fusion() -> Fusion:
    return Fusion()


@pytest.mark.parametrize(
    "element, alignment, width",
    [
        (4, 256, 4),  # 16 bytes
        (2, 16, 8),
        (8, 256, 2),
        (1, 48, 16),
        (4, 8, 2),
        (4, 4, 1),
        (2, 2, 1),
        (8, 4, 1),  # an address that no element may have: accesses are of one at a time
        (16, 256, 1),
    ],
)
def test_widest_aligned(element, alignment, width):
    assert widest_aligned(element, alignment) == width


@pytest.mark.parametrize("less, moves", [(0, True), (2, False)])
def test_a_remainder_is_a_run_if_its_divisor_is_known_to_be_positive(fusion, less, moves):
    """Of others the index of a vector's lanes is not simplified to the first lane's and the lane."""
    size, columns = fusion.new_extent(), fusion.new_extent()
    index = (position(0, columns) + 8) % (size - less)
    run = expression_run(index, 0)
    assert run == (Run(True, (const(8), size)) if moves else None)
    vector, lane = symbol("vector"), symbol("lane", lo=0, hi=1)
    even = symbol(size.name, multiple_of=2)
    lanes = substitute(index, {position(0, columns): 2 * vector + lane, size: even})
    assert (substitute(lanes, {lane: 0}) + lane is lanes) is moves


@pytest.mark.parametrize(
    "contiguity, joined, sizes",
    [
        ([True, True, True], 2, (const(42),)),  # the stride of what is outside
        ([False, True, True], 2, ()),
        ([True, False, True], 1, (const(7),)),
    ],
    ids=["dense", "gap outside", "gap between rows"],
)
def test_dimensions_without_gaps_are_gone_through_as_one(fusion, contiguity, joined, sizes):
    x = define_tensor(fusion, [4, 6, 7], contiguity)
    place = position(1, const(42))
    run = memory_run(x, IndexMap((position(0, const(4)), place // 7, place % 7)), 1, x.logical[2])
    assert run == Run(True, sizes, tuple(x.logical[-joined:]))


def test_unit_stride_axis_is_the_innermost_in_memory(fusion):
    x = define_tensor(fusion, [-1, -1], True)
    assert unit_stride_axis(x) is x.logical[1]
    columns = define_tensor(fusion, [-1, -1], True, stride_order=[0, 1])
    assert unit_stride_axis(columns) is columns.logical[0]
    assert unit_stride_axis(define_tensor(fusion, [-1, -1], [True, False])) is None
    flat = define_tensor(fusion, [-1, 1], [True, None])
    assert unit_stride_axis(flat) is flat.logical[0]


def test_lane_leads_through_inner_sides(fusion):
    x = copy_tensor(fusion, define_tensor(fusion, [-1, -1], True))
    transforms.merge(fusion, x, 0)
    transforms.split(fusion, x, 0, 128)
    transforms.split(fusion, x, 1, 4)
    assert lane_axis(x, 4) is x.logical[1]


def test_lane_stops_at_splits_that_cut_vectors(fusion):
    x = copy_tensor(fusion, define_tensor(fusion, [-1], True))
    assert lane_axis(x, 1) is None  # no split
    transforms.split(fusion, x, 0, 6)
    transforms.split(fusion, x, 1, 4)
    assert lane_axis(x, 4) is None and lane_axis(x, 2) is x.logical[0]


def test_outer_result_of_a_split_is_no_lane(fusion):
    x = copy_tensor(fusion, define_tensor(fusion, [-1], True))
    transforms.split(fusion, x, 0, 4)
    transforms.reorder(x, {0: 1})
    assert lane_axis(x, 4) is None


def test_loads_and_stores_along_memory(fusion):
    x = define_tensor(fusion, [-1, -1], True)
    rows = copy_tensor(fusion, x)
    columns = permute(fusion, x, [1, 0])
    for tensor in (rows, columns):
        add_output(fusion, tensor)
        transforms.split(fusion, tensor, 1, 4)
    assert loads_along_lane(rows.definition, 4) and stores_along_lane(rows, 4)
    assert not loads_along_lane(columns.definition, 4) and stores_along_lane(columns, 4)


@pytest.mark.parametrize("inner, along", [(1, True), (-1, False)])
def test_trailing_broadcast_is_skipped_unless_consumers_iterate_over_it(fusion, inner, along):
    """y[i, b] + x[i, j]: inlined, neighbours along j read one element of y."""
    x, y = define_tensor(fusion, [-1, inner], True), define_tensor(fusion, [-1], True)
    wide = broadcast(fusion, y, [False, True])
    add_output(fusion, apply_to_tensor(fusion, "add", x, wide))
    transforms.merge(fusion, wide, 0)
    transforms.split(fusion, wide, 0, 4)
    assert loads_along_lane(wide.definition, 4) == along
