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


@pytest.mark.parametrize(
    "dims, first, second, order",
    [
        # Tokens, new streams, streams, columns: the new streams of a token are neighbours.
        ("tnsc", "tsc", "tns", "tnsc"),
        # Weights of all columns are as many as the elements of a token: nothing moves.
        ("tnsc", "tsc", "nsc", None),
        # Results are contiguous along columns: these stay innermost, whichever axis the first input lacks.
        ("ntcs", "tcs", "ns", "tncs"),
        # What is reduced is outermost in memory: nothing is outside of it.
        ("sntc", "stc", "nt", "nstc"),
    ],
)
def test_blocks_that_read_the_same_elements_are_neighbours(
    dims: str, first: str, second: str, order: str | None
) -> None:
    """Sums over s of products of two inputs; each letter is a dimension."""
    with FusionDefinition() as fd:
        factors = [
            fd.ops.broadcast(
                fd.define_tensor([-1] * len(own), True, DataType.Float), [dim not in own for dim in dims]
            )
            for own in (first, second)
        ]
        fd.add_output(fd.ops.sum(factors[0] * factors[1], [dims.index("s")]))
    space = space_of(fd)
    found = "".join(dims[space.reference.logical.index(axis)] for axis in space.order)
    if order is not None:
        assert found == order
    else:
        assert space.main is not None and space.order[0] not in space.main.concrete
