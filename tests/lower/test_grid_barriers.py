"""Results that pass between blocks which wait for each other: all-reduces, and tensors in global memory."""

from __future__ import annotations

import pytest
import torch

from fusewright import FusionDefinition
from fusewright.core.enums import MemoryType, ParallelType
from fusewright.core.errors import ScheduleError
from fusewright.core.hardware import described
from fusewright.cuda.nvrtc import Resources
from fusewright.ir import Fusion
from fusewright.kernel import ir as k
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_reduction import sum_
from fusewright.runtime.launch_sizes import LaunchShape, check_resident
from fusewright.schedule import Schedule, replay
from tests.lower.running import lowered, run


def shared_column_sums() -> Schedule:
    """Four blocks sum rows, then each block sums what all of them found in its columns."""
    fusion = Fusion()
    add_output(fusion, sum_(fusion, define_tensor(fusion, [-1, -1], True), [0]))
    schedule = Schedule(fusion)
    total = schedule.tensor(1)
    schedule.split(total, 0, 4, inner_split=False)
    partial = schedule.rfactor(total, [1])
    schedule.set_memory_type(partial, MemoryType.global_)
    schedule.parallelize(partial, 0, ParallelType.grid_x)
    schedule.split(partial, 2, 32)
    schedule.parallelize(partial, 3, ParallelType.block_x)
    schedule.reorder(partial, {1: 3})
    schedule.split(total, 1, 32)
    schedule.parallelize(total, 2, ParallelType.block_x)
    schedule.parallelize(total, 1, ParallelType.grid_x)
    return schedule


def test_blocks_read_what_others_stored_after_one_grid_barrier():
    schedule = replay(shared_column_sums().original, shared_column_sums().trace())
    x = torch.randn(37, 100)
    torch.testing.assert_close(run(schedule, [x])[0], x.sum(0))
    kernel = lowered(schedule).kernel
    assert sum(isinstance(stmt, k.GridBarrier) for stmt in k.walk(kernel.body)) == 1
    assert k.is_cooperative(kernel)


def centered(rows: int, everywhere: bool) -> None:
    """x - the sums of its columns, with a row a block, by a user's schedule."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        total = fd.ops.sum(x, [0], keepdim=True)
        out = x - total
        fd.add_output(out)
    values = [torch.randn(rows, 40)]
    fd._setup_schedule(values, overwrite_existing_schedule=True)
    for tensor in fd.sched.tensors()[1:]:
        fd.sched.parallelize(tensor, 0, ParallelType.grid_x)
        fd.sched.parallelize(tensor, -1, ParallelType.block_x)
    if everywhere:
        fd.sched.all_reduce(next(t for t in fd.sched.tensors() if fd.sched.is_reduction(t)))
    fd._finalize_schedule(values)
    torch.testing.assert_close(fd.execute(values)[0], values[0] - values[0].sum(0), rtol=1e-5, atol=1e-4)


def test_all_blocks_have_the_result_of_an_all_reduce():
    centered(7, everywhere=True)
    with pytest.raises(ScheduleError, match=r"the last of these blocks alone holds(.|\n)*all_reduce"):
        centered(7, everywhere=False)


def test_blocks_that_wait_for_each_other_have_to_fit_the_gpu():
    with pytest.raises(ScheduleError, match=r"not all of them are resident at once(.|\n)*given: 9001 blocks"):
        centered(9001, everywhere=True)
    h200, shape = described("h200"), LaunchShape((264, 1, 1), (1024, 1, 1), 0)
    check_resident(shape, Resources(registers=32), h200)
    with pytest.raises(ScheduleError, match=r"at most 132 blocks on NVIDIA H200.*limited by registers"):
        check_resident(shape, Resources(registers=33), h200)
