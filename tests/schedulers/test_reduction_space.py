"""The order in which reductions go over memory."""

from __future__ import annotations

import pytest

from fusewright import DataType, FusionDefinition
from fusewright.rewrite import canonicalize
from fusewright.schedulers.reduction.space import ReductionSpace, reduction_space


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2)], ids=["as it lies", "permuted"])
def test_parts_of_a_reshaped_dimension_stand_as_they_lie_in_memory(order: tuple[int, ...]) -> None:
    """Neighbouring rows are neighbours in memory: the parts of a row are inside of the rows."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Float)
        parts = fd.ops.permute(fd.ops.reshape(x, [fd.ops.size(x, 0), -1, 8]), list(order))
        fd.add_output(fd.ops.sum(parts, [2]))
    fusion = fd._finished().fusion
    canonicalize(fusion)
    space = reduction_space(fusion)
    assert isinstance(space, ReductionSpace)
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
    fusion = fd._finished().fusion
    canonicalize(fusion)
    space = reduction_space(fusion)
    assert isinstance(space, ReductionSpace)
    assert list(space.iteration) == list(space.reference.logical[:2])


def test_a_column_beside_a_matrix_says_nothing_of_the_order_in_memory() -> None:
    """Its rows have one element: what is contiguous in it are not the rows that both are reduced along."""
    with FusionDefinition() as fd:
        column, matrix = (fd.define_tensor([-1, size], True, DataType.Float) for size in (1, -1))
        fd.add_output(fd.ops.sum(fd.ops.cat([column, matrix], dim=1), [1]))
    fusion = fd._finished().fusion
    canonicalize(fusion)
    space = reduction_space(fusion)
    assert isinstance(space, ReductionSpace)
    assert space.main is not None and space.main.tensor is fusion.inputs[1]
    assert space.is_inner
