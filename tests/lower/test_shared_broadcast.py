"""Shared memory along broadcast axes: what is written there is what is read."""

from __future__ import annotations

import pytest
import torch

from fusewright import DataType, FusionDefinition, MemoryType, ParallelType


def test_each_block_writes_its_copy_of_a_promoted_broadcast(target: torch.device) -> None:
    class Scaled(FusionDefinition):
        def definition(self) -> None:
            x = self.define_tensor([-1, -1], [True, True], DataType.Float)
            w = self.define_tensor([-1], [True], DataType.Float)
            self.row = self.ops.broadcast_in_dim(w, [1, w.size(0)], [1])
            self.out = x * self.ops.set(self.row)
            self.add_output(self.out)

        def schedule(self) -> None:
            copy = self.sched.cache_after(self.row)
            self.sched.set_memory_type(copy, MemoryType.shared)
            self.sched.parallelize(self.out, 0, ParallelType.grid_x)
            self.sched.parallelize(self.out, 1, ParallelType.block_x)
            self.sched.transform_like(self.out)
            self.sched.parallelize_like(self.out)
            self.sched.inline_at(self.out, 1, best_effort=True)

    x, w = torch.randn(5, 33, device=target), torch.randn(33, device=target)
    fd = Scaled()
    (out,) = fd.execute([x, w])
    torch.testing.assert_close(out, x * w, rtol=0, atol=0)
    assert "fw_smem" in fd.last_cuda_code()


@pytest.mark.parametrize("expanded", [False, True])
def test_all_points_of_a_split_broadcast_are_written(expanded: bool, target: torch.device) -> None:
    """A size-1 axis that is split by 4 has four points, over which the reader goes too."""

    class Sums(FusionDefinition):
        def definition(self) -> None:
            self.x = self.define_tensor([-1, 1, -1], [True, None, True], DataType.Float)
            wide = self.ops.expand(self.x, [-1, 3, -1]) if expanded else self.x
            self.sums = self.ops.sum(wide, 2)
            self.add_output(self.sums)

        def schedule(self) -> None:
            copy = self.sched.cache_after(self.x)
            self.sched.set_memory_type(copy, MemoryType.shared)
            self.sched.split(self.sums, 1, 4)
            self.sched.transform_like(self.sums)

    x = torch.randn(4, 1, 33, device=target)
    (sums,) = Sums().execute([x])
    torch.testing.assert_close(sums, x.sum(2).expand(4, 3 if expanded else 1))
