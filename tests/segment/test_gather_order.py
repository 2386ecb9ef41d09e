"""Gathers from memory in another order: from a copy where that pays, and what they compute."""

from __future__ import annotations

import pytest
import torch

from fusewright.host.kernels.segment_kernels import SegmentKernels
from tests.segment.test_few_elements import definition

Tensor = torch.Tensor


def chosen(table: Tensor, rows: Tensor, scale: Tensor) -> Tensor:
    return table.float()[rows] * scale[:, None]


def inputs(table: tuple[int, int], count: int, in_rows: bool = False) -> list[Tensor]:
    """A table column by column, unless in rows, and as many rows of it."""
    memory = torch.randn(table if in_rows else table[::-1]).half()
    return [memory if in_rows else memory.t(), torch.randint(0, table[0], (count,)), torch.randn(count)]


def kernels(table: tuple[int, int], count: int, in_rows: bool = False) -> SegmentKernels:
    arguments = inputs(table, count, in_rows)
    return definition(chosen, *arguments).kernels_for(arguments)


def test_columns_are_copied_into_rows_before_these_are_gathered_many_times() -> None:
    first, second = kernels((4096, 512), 32768)
    assert (first.scheduler, second.scheduler) == ("transpose", "pointwise")
    assert first.bytes_read == first.bytes_written == 4096 * 512 * 2


def test_a_table_in_the_l1_cache_is_copied_since_each_load_looks_up_many_lines() -> None:
    """H200: 23.6 us, and 76.9 as one kernel."""
    assert [kernel.scheduler for kernel in kernels((128, 512), 32768)] == ["transpose", "pointwise"]


def test_rows_of_the_copy_are_those_of_the_table() -> None:
    arguments = inputs((2048, 128), 16384)
    made = definition(chosen, *arguments)
    assert len(made.kernels_for(arguments)) == 2
    [result] = made.execute(arguments)
    torch.testing.assert_close(result, chosen(*arguments), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("table", "count", "in_rows"),
    [
        ((4096, 512), 32768, True),
        ((32768, 512), 1024, False),  # few of many
    ],
)
def test_where_a_copy_gains_little_there_is_one_kernel(
    table: tuple[int, int], count: int, in_rows: bool
) -> None:
    assert len(kernels(table, count, in_rows)) == 1
