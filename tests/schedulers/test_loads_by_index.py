"""Rows that an index chooses, in loops that load the next iteration while they work on one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.kernel import ir as k
from fusewright.rewrite import canonicalize
from fusewright.schedule import Schedule
from fusewright.schedulers import (
    InnerOuterParams,
    InnerOuterPersistentParams,
    InnerOuterPersistentScheduler,
    InnerOuterScheduler,
    LaunchParams,
    OuterPersistentScheduler,
    ReductionParams,
    Scheduler,
    apply,
)
from tests.integration.tolerance import assert_close
from tests.lower.running import lowered, run
from tests.schedulers import proposals as p

Results = tuple[Any, ...]


def _sums(fd: Any, x: Any) -> Results:
    return fd.sum(x, [0]), fd.sum(x, [1])


def _centered(fd: Any, x: Any) -> Results:
    return (x - 0.1 * fd.sum(x, [0], keepdim=True),)


def _normalized(fd: Any, x: Any) -> Results:
    y = x * fd.rsqrt(fd.sum(x * x, [1], keepdim=True))
    return y, fd.sum(y, [0])


_ROWS = InnerOuterPersistentParams(
    batches_per_block_inner_reduction=1,
    vectorization_factor=4,
    prefetch_rows=True,
    lparams=LaunchParams(gdimx=3, bdimx=32, bdimy=1, bdimz=2),
)
_RING = InnerOuterPersistentParams(
    batches_per_block_inner_reduction=1,
    vectorization_factor=4,
    prefetch_rows=True,
    circular_stages=2,
    project_persistent_buffers=True,
    lparams=LaunchParams(gdimx=3, bdimx=32, bdimy=1, bdimz=1),
)
_TILES = InnerOuterParams(
    rows_per_block=16,
    vectorization_factor=4,
    prefetch_rows=True,
    assumed_sizes=(37, 120),
    lparams=LaunchParams(bdimx=8, bdimy=4, bdimz=1),
)
_SWEEPS = ReductionParams(
    persistent_kernel=True,
    project_persistent_buffers=True,
    batches_per_block_inner_reduction=0,
    unroll_factor_inner_reduction=2,
    unroll_factor_iter_dom=4,
    vectorize_iter_dom=True,
    held_steps=1,
    prefetches_steps=True,
    lparams=LaunchParams(gdimy=2, bdimx=8, bdimy=4),
)


@pytest.mark.parametrize(
    "scheduler, body, params",
    [
        (InnerOuterPersistentScheduler(), _normalized, _ROWS),
        (InnerOuterPersistentScheduler(), _normalized, _RING),
        (InnerOuterScheduler(), _sums, _TILES),
        (OuterPersistentScheduler(), _centered, _SWEEPS),
    ],
    ids=["rows", "ring", "tiles", "sweeps"],
)
def test_loads_wait_for_the_indices_that_place_them(
    scheduler: Scheduler, body: Callable[[Any, Any], Results], params: Any
) -> None:
    """Others are ahead: what is added to the rows, and in some kernels the indices."""
    with FusionDefinition() as fd:
        x, table = (fd.define_tensor([-1, -1], True) for _ in range(2))
        places = fd.define_tensor([-1], True, DataType.Int)
        for result in body(fd.ops, x + fd.ops.index_select(table, places, 0)):
            fd.add_output(result)
    fusion = fd._finished().fusion
    canonicalize(fusion)
    draw = torch.Generator().manual_seed(1)
    inputs = [torch.randn(37, 120, generator=draw), torch.randn(9, 120, generator=draw)]
    inputs.append(torch.randint(9, (37,), generator=draw))
    schedule = Schedule(fusion)
    apply(scheduler, schedule, params, p.H200)
    expected = body(torch, inputs[0].double() + inputs[1].double()[inputs[2]])
    for found, wanted in zip(run(schedule, inputs), expected, strict=True):
        assert_close(found, wanted, 120)
    copies = [stmt for stmt in k.walk(lowered(schedule).kernel.body) if isinstance(stmt, k.Copy)]
    are_ahead = any(copy.dst.buffer.name.endswith("_next") for copy in copies)
    assert are_ahead or params is _RING
