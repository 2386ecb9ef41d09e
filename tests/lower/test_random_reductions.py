"""Sums under random schedules: rfactored, over threads and blocks, with what follows inlined or not."""

from __future__ import annotations

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fusewright.core.enums import ParallelType
from fusewright.core.errors import ScheduleError
from fusewright.ir import Fusion, TensorView
from fusewright.ops.build_elementwise import apply_to_tensor, copy_tensor
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_reduction import sum_, var_mean
from fusewright.schedule import Schedule
from tests.lower import random_axes
from tests.lower.running import run_if_launchable

# What a schedule may not ask for; whatever else is refused is a fault.
REFUSED = (
    "is not constant",
    "in a serial loop",
    "which only one block holds",
    "in the registers of each thread",
    "from another thread",
)

shapes = st.lists(st.integers(1, 7), min_size=1, max_size=3)


def transform(draw, schedule: Schedule, tensor: TensorView) -> None:
    """Random splits, merges of axes of one kind, and moves."""
    for _ in range(draw(st.integers(0, 4))):
        rank = len(tensor.loop)
        a, b = draw(st.integers(0, rank - 1)), draw(st.integers(0, rank - 1))
        kind = draw(st.sampled_from(("split", "merge", "reorder")))
        if kind == "split":
            schedule.split(tensor, a, draw(st.integers(1, 4)), draw(st.booleans()))
        elif kind == "reorder":
            schedule.reorder(tensor, {a: b})
        elif a != b and tensor.loop[a].is_reduction == tensor.loop[b].is_reduction:
            schedule.merge(tensor, a, b)


def maybe_rfactor(draw, schedule: Schedule, tensor: TensorView) -> TensorView:
    reduced = [i for i, axis in enumerate(tensor.loop) if axis.is_reduction]
    chosen = draw(st.lists(st.sampled_from(reduced), unique=True, max_size=len(reduced) - 1))
    return schedule.rfactor(tensor, chosen) if chosen else tensor


def input_of(shape: list[int], symbolic: bool) -> tuple[Fusion, TensorView, torch.Tensor]:
    fusion = Fusion()
    x = define_tensor(fusion, [-1 if symbolic and n > 1 else n for n in shape], True)
    count = torch.Size(shape).numel()
    # Small integers: sums are exact in any order.
    return fusion, x, (torch.arange(count) * 7 % 11 - 3.0).reshape(shape)


def reduced_dims(draw, shape: list[int]) -> list[int]:
    dims = [d for d, n in enumerate(shape) if n > 1]
    assume(dims)
    return sorted(draw(st.lists(st.sampled_from(dims), min_size=1, unique=True)))


def _run(schedule: Schedule, values: torch.Tensor) -> torch.Tensor:
    try:
        return run_if_launchable(schedule, [values])[0]
    except ScheduleError as error:
        assume(not any(text in str(error) for text in REFUSED))
        raise


@given(st.data(), shapes, st.booleans())
@settings(max_examples=50)
def test_sums_of_random_schedules(data, shape, symbolic):
    dims = reduced_dims(data.draw, shape)
    fusion, x, values = input_of(shape, symbolic)
    add_output(fusion, apply_to_tensor(fusion, "neg", sum_(fusion, copy_tensor(fusion, x), dims)))
    schedule = Schedule(fusion)
    total = next(t for t in schedule.tensors() if t.is_reduction)
    transform(data.draw, schedule, total)
    schedule.transform_like(total)
    first = maybe_rfactor(data.draw, schedule, total)
    random_axes.parallelize(data.draw, schedule, first, random_axes.THREADS + random_axes.BLOCKS)
    schedule.parallelize_like(first)
    schedule.inline_most()
    torch.testing.assert_close(_run(schedule, values), -values.sum(dims), rtol=0, atol=0)


@given(st.data(), shapes)
@settings(max_examples=40)
def test_normalizations_of_random_schedules(data, shape):
    """x - mean(x) with Welford: the row is held while it is reduced, on any threads."""
    dims = reduced_dims(data.draw, shape)
    fusion, x, values = input_of(shape, symbolic=False)
    held = copy_tensor(fusion, x)
    var, mean = var_mean(fusion, held, dims, 0, True)
    centered = apply_to_tensor(fusion, "sub", held, mean)
    add_output(fusion, apply_to_tensor(fusion, "add", centered, var))
    schedule = Schedule(fusion)
    welford = next(t for t in schedule.tensors() if t.is_reduction)
    transform(data.draw, schedule, welford)
    schedule.transform_like(welford)
    first = maybe_rfactor(data.draw, schedule, welford)
    random_axes.parallelize(data.draw, schedule, first, (ParallelType.block_x, ParallelType.block_y))
    schedule.parallelize_like(first)
    if data.draw(st.booleans()):
        schedule.inline_most()
    wanted = values - values.mean(dims, keepdim=True) + values.var(dims, keepdim=True, correction=0)
    torch.testing.assert_close(_run(schedule, values), wanted, rtol=1e-5, atol=1e-4)
