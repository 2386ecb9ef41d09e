"""The order in which reductions go over memory."""

from __future__ import annotations

import pytest

from fusewright import DataType, FusionDefinition
from fusewright.rewrite import canonicalize
from fusewright.schedulers.reduction.space import ReductionSpace, reduction_space


def space_of(fd: FusionDefinition) -> ReductionSpace:
    fusion = fd._finished().fusion
    canonicalize(fusion)
    space = reduction_space(fusion)
    assert isinstance(space, ReductionSpace)
    return space


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2)], ids=["as it lies", "permuted"])
def test_parts_of_a_reshaped_dimension_stand_as_they_lie_in_memory(order: tuple[int, ...]) -> None:
    """Neighbouring rows are neighbours in memory: the parts of a row are inside of the rows."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Float)
        parts = fd.ops.permute(fd.ops.reshape(x, [fd.ops.size(x, 0), -1, 8]), list(order))
        fd.add_output(fd.ops.sum(parts, [2]))
    space = space_of(fd)
    logical = space.reference.logical
    assert [logical.index(axis) for axis in space.iteration] == list(order[:2])


@pytest.mark.parametrize("swapped", [False, True], ids=["rows first", "columns first"])
def test_without_a_load_of_all_points_rows_stand_as_the_results_lie(swapped: bool) -> None:
    """Neighbouring threads store neighbours, whichever input has the last dimension."""
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([-1, -1], True, DataType.Float) for _ in range(2))
        rows, columns = (y, x) if swapped else (x, y)
        rows = fd.ops.broadcast(rows, [False, True, False])
        fd.add_output(fd.ops.sum(rows * fd.ops.broadcast(columns, [True, False, False]), [2]))
    space = space_of(fd)
    assert list(space.iteration) == list(space.reference.logical[:2])


def test_a_column_beside_a_matrix_says_nothing_of_the_order_in_memory() -> None:
    """Its rows have one element: what is contiguous in it are not the rows that both are reduced along."""
    with FusionDefinition() as fd:
        column, matrix = (fd.define_tensor([-1, size], True, DataType.Float) for size in (1, -1))
        fd.add_output(fd.ops.sum(fd.ops.cat([column, matrix], dim=1), [1]))
    space = space_of(fd)
    assert space.main is not None and not space.main.tensor.shape[1].is_broadcast
    assert space.is_inner


def _mixed(weights: list[int], places: list[bool]) -> ReductionSpace:
    """Streams `[tokens, streams, columns]` mixed to as many others by weights that lie as `places` says."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1, -1], True, DataType.Float)
        w = fd.define_tensor(weights, True, DataType.Float)
        mixed = fd.ops.broadcast(x, [False, True, False, False]) * fd.ops.broadcast(w, places)
        fd.add_output(fd.ops.sum(mixed, [2]))
    return space_of(fd)


def test_what_reads_the_same_elements_is_neighbours() -> None:
    """Tokens, the new streams, and columns: the streams of a token are read again before the next token's."""
    space = _mixed([-1, -1, -1], [False, False, False, True])
    assert space.main is not None and len(space.main.tensor.shape) == 3
    logical = space.reference.logical
    assert list(space.iteration) == [logical[0], logical[1], logical[3]]
    assert list(space.order) == [logical[0], logical[1], logical[2], logical[3]]


def test_of_two_loads_that_are_read_again_in_turn_the_main_one_is() -> None:
    """Weights of all columns are as many as the elements of a token."""
    space = _mixed([-1, -1, -1], [True, False, False, False])
    assert space.main is not None
    assert space.iteration[0] not in space.main.concrete


def test_an_axis_along_which_results_are_contiguous_stays_innermost() -> None:
    """Threads along it store neighbours, whichever axis the input lacks."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1, -1], True, DataType.Float)
        w = fd.define_tensor([-1, -1], True, DataType.Float)
        x = fd.ops.broadcast(x, [True, False, False, False])
        fd.add_output(fd.ops.sum(x * fd.ops.broadcast(w, [False, True, True, False]), [3]))
    space = space_of(fd)
    logical = space.reference.logical
    assert list(space.iteration) == [logical[1], logical[0], logical[2]]


def test_axes_stay_outside_of_what_is_reduced() -> None:
    """Of columns that are reduced along the first dimension nothing is outside."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1, -1], True, DataType.Float)
        w = fd.define_tensor([-1, -1], True, DataType.Float)
        x = fd.ops.broadcast(x, [False, True, False, False])
        fd.add_output(fd.ops.sum(x * fd.ops.broadcast(w, [False, True, True, False]), [0]))
    space = space_of(fd)
    logical = space.reference.logical
    assert list(space.order) == [logical[1], logical[0], logical[2], logical[3]]
