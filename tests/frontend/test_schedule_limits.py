"""Numbers that no kernel has, and calls that contradict each other: refused, and nothing is changed."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright import FusionDefinition, MemoryType, ParallelType
from fusewright.core.errors import ArgumentTypeError, ParamsError, ScheduleError

HUGE = 2**70
LONGEST = 2**31 - 1


class _Scaled(FusionDefinition):
    def definition(self) -> None:
        self.x = self.define_tensor([-1, -1], contiguity=True)
        self.y = self.ops.relu(self.x)
        self.z = self.y * 2.0
        self.add_output(self.z)

    def copy(self) -> Any:
        """A copy of the input in shared memory."""
        copy = self.sched.cache_after(self.x)
        self.sched.set_memory_type(copy, MemoryType.shared)
        return copy


def _split_twice(fd: _Scaled) -> None:
    fd.z.split(0, LONGEST)
    fd.z.split(0, LONGEST)


def _ring(fd: _Scaled) -> None:
    fd.ring = fd.copy()
    fd.sched.circular_buffer(fd.ring, 2, 1, 0)


def _multiple(fd: _Scaled) -> None:
    fd.sched.assume_multiple(fd.x, 0, 3**30)


# What a schedule did before, and what happens then.
BEFORE: dict[str, Callable[[_Scaled], None]] = {"splits": _split_twice, "ring": _ring, "multiples": _multiple}
REFUSED: dict[str, tuple[Callable[[_Scaled], Any], str]] = {
    "splits": (
        lambda fd: fd.z.split(0, LONGEST),
        "split: the loops of T2 have more points than 64 bits count",
    ),
    "factor": (lambda fd: fd.z.split(0, LONGEST + 1), "split: no loop is that long"),
    "shifted": (
        lambda fd: fd.sched.shifted_split(fd.z, 1, HUGE, fd.x),
        "shifted_split: no loop is that long",
    ),
    "no threads": (lambda fd: fd.z.parallelize(1, ParallelType.block_x, 0), "expected: 1 to 1024"),
    "minus threads": (lambda fd: fd.z.parallelize(1, ParallelType.block_x, -1), "given: -1"),
    "threads": (lambda fd: fd.z.parallelize(1, ParallelType.block_x, HUGE), "expected: 1 to 1024"),
    "size": (lambda fd: fd.sched.assume(fd.x, 0, HUGE, HUGE), f"i0 in [{HUGE}, {2**63 - 1}]"),
    "multiple": (lambda fd: fd.sched.assume_multiple(fd.x, 0, HUGE), f"expected: 1 to {2**63 - 1}"),
    "multiples": (lambda fd: fd.sched.assume_multiple(fd.x, 0, 2**30), f"i0, a multiple of {3**30}"),
    "padding": (lambda fd: fd.sched.store_along(fd.shared, [0, 1], HUGE), f"expected: 0 to {LONGEST}"),
    "stages": (lambda fd: fd.sched.circular_buffer(fd.shared, HUGE, 1, 0), f"expected: 2 to {LONGEST}"),
    "ring": (
        lambda fd: fd.sched.set_memory_type(fd.ring, MemoryType.local),
        "T0_copy is filled in shared memory since circular_buffer",
    ),
    "position": (lambda fd: fd.sched.parallelize_like(fd.z, 3), "expected: -1 for all loops, or 0 to 2"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_kernel_has_is_refused_and_changes_nothing(case: str) -> None:
    act, says = REFUSED[case]
    fd = _Scaled()
    fd._setup_schedule([torch.randn(3, 8)])
    fd.shared = fd.copy() if case in ("padding", "stages") else None
    BEFORE.get(case, lambda fd: None)(fd)
    before = fd.sched.to_python(), fd.sched.user_schedule_ir()
    with pytest.raises(ScheduleError, match=f"(?s).*{re.escape(says)}"):
        act(fd)
    assert (fd.sched.to_python(), fd.sched.user_schedule_ir()) == before


@pytest.mark.parametrize("twice", [{"arg": 0, "tensor": 0, "dim": 0}, {"arg": 0, "dim": 1, "axis": 0}])
def test_an_argument_that_is_given_by_two_keywords(twice: dict[str, Any]) -> None:
    fd = _Scaled()
    fd._setup_schedule([torch.ones(3, 8)])
    given = {name: fd.z if name in ("arg", "tensor") else value for name, value in twice.items()}
    with pytest.raises(ArgumentTypeError, match=r"split\(\): (?s:.*)two of these keywords name one argument"):
        fd.sched.split(**given, factor=2)


@pytest.mark.parametrize("number", [2**31, HUGE])
def test_params_that_no_loop_counts(number: int) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        fd.add_output(fd.ops.sum(x, 1))
    inputs = [torch.ones(3, 8)]
    params = dataclasses.replace(fd.kernels_for(inputs)[0].params, unaligned_inputs=(number,))
    with pytest.raises(ParamsError, match=rf"unaligned_inputs\[0\]`: expected 0 to {LONGEST}, got {number}"):
        fd.execute(inputs, schedules={0: params})
