"""Scans scheduled by hand: which axes may be threads and in which order loops go, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fusewright.core.enums import MemoryType, ParallelType
from fusewright.core.errors import ScheduleError
from fusewright.ir import Fusion, TensorView
from fusewright.kernel.ir import BlockScan, GridScan, is_cooperative, walk
from fusewright.ops.build_elementwise import apply_to_tensor
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_scan import cumsum
from fusewright.schedule import Schedule
from tests.lower.running import lowered, run

P = ParallelType
Steps = Callable[[Schedule, TensorView], None]


def scheduled(steps: Steps, dim: int = 1) -> Schedule:
    """x [rows, columns] -> 2 * x -> cumsum along `dim` -> minus x, all with the loops of `steps`."""
    fusion = Fusion()
    x = define_tensor(fusion, [-1, -1], True)
    total = cumsum(fusion, apply_to_tensor(fusion, "mul", x, 2.0), dim)
    add_output(fusion, apply_to_tensor(fusion, "sub", total, x))
    schedule = Schedule(fusion)
    out = schedule.fusion.output_tensors()[0]
    steps(schedule, out)
    schedule.transform_like(out)
    schedule.parallelize_like(out)
    schedule.inline_most()
    return schedule


def serial(s: Schedule, t: TensorView) -> None:
    s.parallelize(t, 0, P.grid_x)


def threads_and_elements(s: Schedule, t: TensorView) -> None:
    s.split(t, 1, 3)
    s.split(t, 1, 40)  # not a power of two, nor warps
    s.parallelize(t, 0, P.grid_x)
    s.parallelize(t, 2, P.block_x)


def last_axis_of_threads(s: Schedule, t: TensorView) -> None:
    s.split(t, 1, 5)
    s.split(t, 0, 4)
    s.parallelize(t, 1, P.block_x)
    s.parallelize(t, 3, P.block_z)


def columns_side_by_side(s: Schedule, t: TensorView) -> None:
    s.split(t, 0, 4)
    s.split(t, 1 + 1, 2)
    s.split(t, 1 + 1, 8)
    s.reorder(t, {1: 4})
    s.parallelize(t, 0, P.grid_x)
    s.parallelize(t, 2, P.block_y)
    # [BIDx, steps, TIDy, elements, columns]


def columns_outside(s: Schedule, t: TensorView) -> None:
    s.split(t, 0, 4)
    s.split(t, 2, 32)
    s.reorder(t, {1: 2})
    s.parallelize(t, 3, P.block_x)
    # [rows, steps, columns, TIDx]


def blocks_and_steps_of_each(s: Schedule, t: TensorView) -> None:
    for factor in (2, 8, 2, 3):
        s.split(t, 1, factor)
    for position, kind in ((0, P.grid_x), (2, P.grid_y), (3, P.unroll), (4, P.block_x), (5, P.unroll)):
        s.parallelize(t, position, kind)
    # [BIDx, steps, BIDy, steps of a block, TIDx, elements]


def blocks_and_columns(s: Schedule, t: TensorView) -> None:
    for factor in (2, 4, 3):
        s.split(t, 1, factor)
    s.split(t, 0, 4)
    s.reorder(t, {1: 5})
    for position, kind in ((0, P.grid_x), (2, P.grid_y), (3, P.block_y), (4, P.unroll), (5, P.unroll)):
        s.parallelize(t, position, kind)
    # [BIDx, steps, BIDy, TIDy, elements, columns]


@pytest.mark.parametrize("steps", [blocks_and_steps_of_each, blocks_and_columns])
def test_blocks_scan_together(steps: Steps) -> None:
    schedule = scheduled(steps)
    for columns in (107, 5, 192):
        x = torch.randn(11, columns)
        torch.testing.assert_close(run(schedule, [x])[0], (2 * x).cumsum(1) - x, rtol=1e-5, atol=1e-4)
    kernel = lowered(schedule).kernel
    assert is_cooperative(kernel) and any(isinstance(stmt, GridScan) for stmt in walk(kernel.body))


@pytest.mark.parametrize(
    ("steps", "collective"),
    [
        (serial, False),
        (threads_and_elements, True),
        (last_axis_of_threads, True),
        (columns_side_by_side, True),
        (columns_outside, True),
    ],
)
def test_loops_in_order(steps: Steps, collective: bool) -> None:
    schedule = scheduled(steps)
    x = torch.randn(11, 107)
    torch.testing.assert_close(run(schedule, [x])[0], (2 * x).cumsum(1) - x, rtol=1e-5, atol=1e-4)
    kernel = lowered(schedule).kernel
    assert any(isinstance(stmt, BlockScan) for stmt in walk(kernel.body)) is collective


def test_an_output_is_scanned_in_registers() -> None:
    fusion = Fusion()
    add_output(fusion, cumsum(fusion, define_tensor(fusion, [-1], True), 0))
    schedule = Schedule(fusion)
    out = schedule.fusion.output_tensors()[0]
    schedule.split(out, 0, 64)
    schedule.parallelize(out, 1, P.block_x)
    assert out.memory is MemoryType.global_
    x = torch.randn(150)
    torch.testing.assert_close(run(schedule, [x])[0], x.cumsum(0), rtol=1e-5, atol=1e-5)


def out_of_order(s: Schedule, t: TensorView) -> None:
    s.split(t, 1, 8)
    s.reorder(t, {1: 2})


def across_blocks(s: Schedule, t: TensorView) -> None:
    s.split(t, 1, 8)
    s.parallelize(t, 1, P.grid_x)


def across_blocks_of_clusters(s: Schedule, t: TensorView) -> None:
    s.split(t, 1, 8)
    s.split(t, 1, 4)
    s.parallelize(t, 1, P.grid_y)
    s.parallelize(t, 2, P.block_x)
    s.split(t, 0, 2)
    s.parallelize(t, 1, P.cluster_x)


def columns_without_elements(s: Schedule, t: TensorView) -> None:
    s.split(t, 0, 4)
    s.split(t, 2, 4)
    s.reorder(t, {1: 3})
    s.parallelize(t, 1, P.grid_y)
    s.parallelize(t, 2, P.block_x)
    # [rows, BIDy, TIDx, columns]


def two_loops_of_a_thread(s: Schedule, t: TensorView) -> None:
    s.split(t, 1, 8)
    s.split(t, 2, 2)
    s.parallelize(t, 1, P.block_x)


def merged(s: Schedule, t: TensorView) -> None:
    s.merge(t, 0)


def rows_inside(s: Schedule, t: TensorView) -> None:
    s.reorder(t, {0: 1})


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        (out_of_order, "do not go through the scanned dimension in order"),
        (across_blocks, "is spread over blockIdx.x"),
        (columns_without_elements, "goes through columns outside of its own loops"),
        (across_blocks_of_clusters, "is spread over the grid in a kernel whose blocks are clusters"),
        (two_loops_of_a_thread, "goes through its elements in 2 loops"),
        (merged, "runs along a loop that more than splits of the scanned dimension made"),
        (rows_inside, "carries in the registers of each thread"),
    ],
)
def test_loops_that_make_no_scan(steps: Steps, text: str) -> None:
    with pytest.raises(ScheduleError, match=text):
        lowered(scheduled(steps))
