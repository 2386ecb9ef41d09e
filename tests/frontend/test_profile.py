"""fd.profile(): what ran, for how long, and over how many bytes."""

from __future__ import annotations

import pytest
import torch

from fusewright import FusionDefinition, SchedulerType
from fusewright.core.errors import ProfileError


def two_sums() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1, -1], True)
        fd.add_output(fd.ops.sum(fd.ops.sqrt(fd.ops.sum(x + 1.0, [-1])), [-1]))
    return fd


def test_two_stacked_reductions(target: torch.device) -> None:
    fd, x = two_sums(), torch.rand(8, 16, 32, device=target)
    [out] = fd.execute([x], profile=True)
    torch.testing.assert_close(out, (x + 1).sum(2).sqrt().sum(1))
    profile = fd.profile()
    first, second = profile.kernel_profiles
    assert fd.profiled and profile.segments == 2 and profile.fusion_id == fd.id()
    assert (profile.input_bytes, profile.output_bytes) == (8 * 16 * 32 * 4, 8 * 4)
    assert (first.input_bytes, first.output_bytes) == (8 * 16 * 32 * 4, 8 * 16 * 4)
    assert second.input_bytes == first.output_bytes
    assert first.scheduler == second.scheduler == "reduction"
    assert first.grid_str == "[32, 1, 1]" and first.registers > 0
    assert first.name in fd.last_cuda_code()
    assert profile.kernel_time_ms == first.time_ms + second.time_ms > 0
    assert profile.compile_time_ms > 0 and profile.effective_bandwidth_gbs > 0


def test_each_byte_of_an_expanded_tensor_counts_once() -> None:
    # The output is expanded like its input.
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 16], [True, None])
        fd.add_output(x * 2.0)
    fd.execute([torch.rand(8, 1).expand(8, 16)], profile=True)
    assert (fd.profile().input_bytes, fd.profile().output_bytes) == (8 * 4, 8 * 4)


def test_a_users_schedule_is_called_so() -> None:
    class Scheduled(FusionDefinition):
        def definition(self) -> None:
            self.add_output(self.define_tensor([-1], True) * 2.0)

        def schedule(self) -> None:
            self.sched.schedule(SchedulerType.pointwise)

    fd = Scheduled()
    fd.execute([torch.rand(8)], profile=True)
    assert [kernel.scheduler for kernel in fd.profile().kernel_profiles] == ["user"]


def test_without_a_profiled_call_there_is_none() -> None:
    fd = two_sums()
    fd.execute([torch.rand(2, 2, 2)])
    with pytest.raises(ProfileError, match="nothing to show") as caught:
        fd.profile()
    assert isinstance(caught.value, ValueError)
    assert not fd.profiled
