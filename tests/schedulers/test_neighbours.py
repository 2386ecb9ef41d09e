"""Loads that start at any element: narrower vectors where that makes them aligned, or beside such."""

from __future__ import annotations

import pytest
import torch

from fusewright import FusionDefinition
from fusewright.core.dtype import DataType, from_torch
from fusewright.schedulers.params import PointwiseParams

ROWS, COLUMNS = 64, 134


def neighbours(dtype: torch.dtype, count: int) -> tuple[FusionDefinition, torch.Tensor]:
    """The sum of so many rows' neighbours, most of which start at no multiple of a vector."""
    given = torch.randn(ROWS + 2, COLUMNS).to(dtype)
    with FusionDefinition() as fd:
        x = fd.from_pytorch(given, static_sizes=True)
        total = None
        for i in range(count):
            start = [i % 3, 1 + i // 3]
            part = fd.ops.slice(x, start, [start[0] + ROWS, start[1] + COLUMNS - 6])
            part = fd.ops.cast(part, dtype=DataType.Float)
            total = part if total is None else total + part
        fd.add_output(fd.ops.cast(total, dtype=from_torch(dtype)))
    return fd, given


@pytest.mark.parametrize(
    ("dtype", "count", "words"),
    [(torch.float32, 7, True), (torch.float32, 2, False), (torch.bfloat16, 7, False)],
)
def test_vectors_are_narrower_where_others_start_anywhere(
    dtype: torch.dtype, count: int, words: bool
) -> None:
    fd, given = neighbours(dtype, count)
    (made,) = fd.execute([given])
    height, width = ROWS, COLUMNS - 6
    starts = [(i % 3, 1 + i // 3) for i in range(count)]
    parts = [given[row : row + height, column : column + width].float() for row, column in starts]
    torch.testing.assert_close(made, sum(parts).to(dtype), rtol=2e-2, atol=2e-2)  # type: ignore[union-attr]
    params = fd.kernels_for([given])[0].params
    assert isinstance(params, PointwiseParams)
    assert params.unaligned_inputs == (0,)
    assert (params.vectorization_factor == 2) is params.keeps_aligned is words


@pytest.mark.parametrize(
    ("columns", "steps", "width", "unaligned"),
    [(1022, 3, 8, (0,)), (1022, 5, 2, ()), (1023, 5, 4, (0,)), (1024, 5, 4, (0,))],
    ids=["few", "pairs", "odd rows", "beside aligned ones"],
)
def test_many_neighbours_of_rows_that_end_in_part_are_read_by_pairs(
    columns: int, steps: int, width: int, unaligned: tuple[int, ...]
) -> None:
    """Rows of whole vectors have no such ends, and odd rows have no whole pairs."""
    given = torch.empty(4096, columns + steps - 1, dtype=torch.bfloat16)
    with FusionDefinition() as fd:
        x = fd.from_pytorch(given, static_sizes=True)
        parts = [fd.ops.slice(x, [0, i], [given.shape[0], i + columns]) for i in range(steps)]
        fd.add_output(fd.ops.cast(sum(parts[1:], parts[0]), dtype=DataType.BFloat16))
    params = fd.kernels_for([given])[0].params
    assert isinstance(params, PointwiseParams)
    assert (params.vectorization_factor, params.unaligned_inputs) == (width, unaligned)


@pytest.mark.parametrize(("count", "width"), [(3, 4), (6, 1)])
def test_windows_that_are_read_by_element_have_narrow_vectors(count: int, width: int) -> None:
    """Rows of an odd size, which vectors go through as through one: an output's alone."""
    given, columns = torch.randn(64, 801), 795
    with FusionDefinition() as fd:
        x = fd.from_pytorch(given, static_sizes=True)
        total, *parts = [fd.ops.slice(x, [0, i], [64, i + columns]) for i in range(count)]
        for part in parts:
            total = fd.ops.maximum(total, part)
        fd.add_output(total)
    (made,) = fd.execute([given])
    torch.testing.assert_close(made, torch.stack([given[:, i : i + columns] for i in range(count)]).amax(0))
    params = fd.kernels_for([given])[0].params
    assert isinstance(params, PointwiseParams)
    assert params.vectorization_factor == width
