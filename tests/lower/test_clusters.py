"""Axes of the blocks of a cluster: reductions across them, and what other GPUs say of them."""

from __future__ import annotations

import pytest
import torch

from fusewright import FusionDefinition
from fusewright.core.enums import ParallelType
from fusewright.core.errors import ScheduleError
from fusewright.core.hardware import described
from fusewright.kernel import ir as k
from fusewright.kernel.combine import common_block
from fusewright.runtime.launch_sizes import check_architecture
from fusewright.schedule import Schedule
from tests.lower.running import lowered, run


def below_maximum(threads: int, cluster: int | None) -> Schedule:
    """x - the maximum of each row, by `cluster` blocks of `threads`; None: as many as it takes."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        fd.add_output(x - fd.ops.max(x, [1], keepdim=True))
    schedule = Schedule(fd._finished().fusion)
    x, maximum = schedule.tensor(0), next(t for t in schedule.tensors() if schedule.is_reduction(t))
    schedule.recompute(schedule.cache_after(x))
    schedule.split(maximum, 1, threads)
    schedule.split(maximum, 1, cluster or 2, inner_split=cluster is not None)
    schedule.transform_like(maximum)
    partial = schedule.rfactor(maximum, [1])
    schedule.transform_like(partial)
    for axis, kind in ((0, ParallelType.grid_x), (2, ParallelType.cluster_x), (3, ParallelType.block_x)):
        schedule.parallelize(partial, axis, kind)
    schedule.parallelize_like(partial)
    schedule.inline_most()
    return schedule


@pytest.mark.parametrize("threads, cluster", [(64, 4), (24, 3)])
def test_rows_are_reduced_across_the_blocks_of_a_cluster(threads: int, cluster: int):
    schedule, x = below_maximum(threads, cluster), torch.randn(5, 1000)
    torch.testing.assert_close(run(schedule, [x])[0], x - x.amax(1, keepdim=True))
    kernel = lowered(schedule).kernel
    assert sum(isinstance(stmt, k.ClusterReduce) for stmt in k.walk(kernel.body)) == 1
    assert kernel.cluster == cluster and common_block(kernel) is None


def test_the_blocks_of_a_cluster_are_constant_and_few():
    with pytest.raises(ScheduleError, match="the blocks of a cluster are not constant"):
        lowered(below_maximum(64, None))
    kernel = lowered(below_maximum(64, 16)).kernel
    check_architecture(kernel, described("h200"))
    with pytest.raises(ScheduleError, match="no clusters, which GPUs since sm_90 have, on NVIDIA A100"):
        check_architecture(kernel, described("a100"))
