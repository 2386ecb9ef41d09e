"""A GPU that holds no such cluster: what was proposed gives way, what a user asked for is an error."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from fusewright import FusionDefinition, ScheduleError
from fusewright.core.hardware import described
from fusewright.cuda.driver import Launcher
from fusewright.runtime.compiled_kernel import CompiledKernel
from fusewright.runtime.launch_sizes import LaunchShape, check_clusters
from fusewright.runtime.targets import SimulatedTarget


@pytest.fixture(autouse=True)
def no_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the SMs that lie together have no room for a cluster."""
    launcher = SimulatedTarget.launcher

    def refused(target: SimulatedTarget, kernel: CompiledKernel, shape: LaunchShape, tracer: Any) -> Any:
        if kernel.kernel.cluster > 1:
            check_clusters(1, 0, kernel.kernel.cluster, target.hardware)
        return launcher(target, kernel, shape, tracer)

    monkeypatch.setattr(SimulatedTarget, "launcher", refused)
    monkeypatch.setattr(Launcher, "resident_clusters", lambda launcher: 0)
    monkeypatch.setenv("FUSEWRIGHT_SIM_DEVICE", "h200")


def shifted(x: torch.Tensor) -> FusionDefinition:
    with FusionDefinition() as fd:
        T0 = fd.from_pytorch(x)
        T1 = fd.ops.max(T0, dims=[1], keepdim=True)
        fd.add_output(T0 - T1)
    return fd


def clusters(fd: FusionDefinition, inputs: Sequence[torch.Tensor]) -> int:
    return max(kernel.kernel.kernel.cluster for kernel in fd.kernels_for(inputs))


@pytest.mark.faults
def test_other_kernels_are_used(target: torch.device, caplog: pytest.LogCaptureFixture) -> None:
    x = torch.randn(2, 70_000, device=target)
    fd = shifted(x)
    assert clusters(fd, [x]) > 1
    with caplog.at_level(logging.ERROR, logger="fusewright"):
        [result] = fd.execute([x])
    torch.testing.assert_close(result, x - x.amax(1, keepdim=True))
    assert "at most 0 clusters" in caplog.text and "Other kernels are used" in caplog.text


def test_a_users_clusters_are_refused(target: torch.device) -> None:
    x = torch.randn(2, 4096, device=target)
    with pytest.raises(ScheduleError, match="the blocks of the launch have to be resident at once"):
        shifted(x).execute([x], schedules={0: {"blocks_per_cluster": 2, "lparams": {"bdimx": -1}}})


def test_clusters_that_wait_for_each_other_are_counted() -> None:
    check_clusters(31, 31, 4, described("h200"))
    with pytest.raises(
        ScheduleError, match="wait for each other, but not all of them are resident"
    ) as raised:
        check_clusters(32, 31, 4, described("h200"))
    assert "at most 31 clusters of 4 blocks" in str(raised.value) and "32 clusters" in str(raised.value)
