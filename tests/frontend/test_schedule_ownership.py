"""What a user schedules belongs to the definition object that asked for it; equal kernels are made once."""

from __future__ import annotations

import pytest
import torch

from fusewright import FusionDefinition, ParallelType, SchedulerType


class Doubled(FusionDefinition):
    """2x, without a schedule of its own."""

    def definition(self) -> None:
        self.out = self.define_tensor([-1], True) * 2.0
        self.add_output(self.out)


def in_blocks_of(fd: FusionDefinition, block: int) -> None:
    [*_, out] = fd.sched.tensors()
    fd.sched.split(out, 0, block)
    fd.sched.transform_like(out)
    fd.sched.parallelize(out, 0, ParallelType.grid_x)
    fd.sched.parallelize(out, 1, ParallelType.block_x)
    fd.sched.parallelize_like(out)
    fd.sched.inline_most()


class Blocked(Doubled):
    def __init__(self, block: int) -> None:
        super().__init__()
        self.block = block

    def schedule(self) -> None:
        in_blocks_of(self, self.block)


X = torch.arange(300.0)


def threads(fd: FusionDefinition) -> int:
    """Threads a block of the kernel that runs for X."""
    [out] = fd.execute([X])
    assert torch.equal(out, 2 * X)
    [kernel] = fd._last_kernels()
    return kernel.launch_bounds


def test_each_of_several_equal_definitions_gets_its_own_schedule() -> None:
    blocks = [32, 64, 128, 256]
    made = [Blocked(block) for block in blocks]
    assert [threads(fd) for fd in made] == blocks
    assert [threads(fd) for fd in made] == blocks
    assert len({fd.id() for fd in made}) == 1


def test_an_assigned_schedule_replaces_the_one_before() -> None:
    fd = Doubled()
    given: list[int] = []
    for block in (32, 64, 32):
        fd.schedule = lambda block=block: in_blocks_of(fd, block)  # type: ignore[method-assign]
        given.append(threads(fd))
    assert given == [32, 64, 32]
    del fd.schedule
    automatic = threads(fd)
    assert automatic == threads(Doubled()) not in given


def test_automatic_definitions_stay_automatic() -> None:
    blocked = Blocked(32)
    threads(blocked)
    same_leaf = FusionDefinition(blocked.id())
    assert not same_leaf._exist_schedule([X])
    assert threads(same_leaf) == threads(Doubled()) != 32
    same_leaf._setup_schedule([X])
    in_blocks_of(same_leaf, 64)
    same_leaf._finalize_schedule([X])
    assert [threads(same_leaf), threads(blocked)] == [64, 32]
    assert same_leaf._exist_schedule([X])
    assert not FusionDefinition(blocked.id())._exist_schedule([X])


def test_equal_schedules_share_a_kernel_and_a_program() -> None:
    first, second = Blocked(32), Blocked(32)
    kernels = []
    for fd in (first, second):
        threads(fd)
        kernels += fd._last_kernels()
    assert kernels[0] is kernels[1]
    leaf = first._finished()
    assert list(leaf.user.values()) == list(first._schedules(leaf).values())


def test_schedules_may_be_shared_as_in_nvfuser() -> None:
    written: list[int] = []

    class Shared(Blocked):
        shares_schedules = True

        def schedule(self) -> None:
            written.append(self.block)
            super().schedule()

    assert [threads(Shared(block)) for block in (32, 64)] == [32, 32]
    assert written == [32]
    Shared(64).execute([X], profile=True)
    assert [threads(Shared(128)), threads(Blocked(256))] == [64, 256]


@pytest.mark.parametrize("scheduled_first", [False, True])
def test_a_schedule_of_its_own_is_no_other_definitions_operator(scheduled_first: bool) -> None:
    """To torch, definitions without a schedule of their own are one operator, which none of them changes."""
    first, second = Doubled(), Doubled()
    for fd in (first, second):
        fd._prepare_operator()
    assert first._operator is not None and second._operator is not None
    assert first._operator.handle == second._operator.handle
    scheduled, other = (first, second) if scheduled_first else (second, first)
    ran: list[int] = []
    scheduled.schedule = lambda: ran.append(scheduled.sched.schedule(SchedulerType.pointwise))  # type: ignore
    assert torch.equal(torch.compile(other.execute, backend="eager")([X])[0], 2 * X)
    assert not ran
