"""Copies to shared memory that go on by themselves are waited for before they are read."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.enums import CacheOp, MemoryType, ParallelType
from fusewright.core.errors import RaceError, VerifyError
from fusewright.kernel import ir as k
from fusewright.kernel.verify import verify
from fusewright.schedule import Schedule
from fusewright.schedulers.params import LaunchParams
from fusewright.sim import simulate
from tests.lower.running import copy_fusion, lowered, run


def held_in_shared_memory() -> Schedule:
    """x -> shared memory -> registers -> output: vectors of 4, 3 to a thread."""
    schedule = Schedule(copy_fusion([768], copies=3))
    shared = schedule.tensor(1)
    schedule.set_memory_type(shared, MemoryType.shared)
    for tensor in schedule.tensors()[1:]:
        schedule.split(tensor, 0, 4)
        schedule.split(tensor, 0, 64)
        schedule.parallelize(tensor, 1, ParallelType.block_x)
        schedule.parallelize(tensor, 2, ParallelType.vectorize)
    return schedule


def test_copies_are_all_started_before_one_wait():
    schedule, x = held_in_shared_memory(), torch.randn(768)
    assert torch.equal(run(schedule, [x])[0], x)
    kernel = lowered(schedule).kernel
    copies = [s.asynchronous for s in k.walk(kernel.body) if isinstance(s, k.Copy)]
    assert copies == [True, False, False]
    waits = [i for i, stmt in enumerate(kernel.body) if isinstance(stmt, k.WaitForCopies)]
    assert len(waits) == 1 and isinstance(kernel.body[waits[0] - 1], k.For)


def test_copies_that_are_started_have_no_hint() -> None:
    for hint, starts in ((CacheOp.evict_last, True), (CacheOp.streaming, True), (CacheOp.all_levels, False)):
        schedule = held_in_shared_memory()
        schedule.set_cache_op(schedule.tensor(1), hint)
        kernel = lowered(schedule).kernel
        found = next(s for s in k.walk(kernel.body) if isinstance(s, k.Copy))
        assert (found.asynchronous, found.cache) == (starts, CacheOp.unspecified if starts else hint)
        unknown = replace(found, asynchronous=True, cache=CacheOp.all_levels)
        body = tuple(map_statements(stmt, {found: unknown}) for stmt in kernel.body)
        with pytest.raises(VerifyError, match="goes on by itself with the hint all_levels"):
            verify(replace(kernel, body=body))


def map_statements(stmt: k.Stmt, changed: dict[k.Stmt, k.Stmt]) -> k.Stmt:
    if isinstance(stmt, (k.For, k.If)):
        return k.with_children(stmt, lambda body: tuple(map_statements(each, changed) for each in body))
    return changed.get(stmt) or stmt


def test_a_read_that_does_not_wait_is_a_race():
    kernel = lowered(held_in_shared_memory()).kernel
    hasty = replace(kernel, body=tuple(s for s in kernel.body if not isinstance(s, k.WaitForCopies)))
    verify(hasty)
    with pytest.raises(RaceError, match="copies to `T1` are on their way, and nothing has waited for them"):
        simulate(hasty, [torch.randn(768), torch.empty(768)])


def test_edges_of_rows_do_not_hold_up_copies_of_their_vectors() -> None:
    """Of rows that vectors do not divide, whole vectors go on while single elements are stored."""
    with FusionDefinition() as fd:
        given = fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.BFloat16)
        x = fd.ops.cast(given, DataType.Float)
        e = fd.ops.exp(x - fd.ops.max(x, dims=[1], keepdim=True))
        fd.add_output(fd.ops.cast(e / fd.ops.sum(e, dims=[1], keepdim=True), DataType.BFloat16))
    x = torch.randn(4, 1025, generator=torch.Generator().manual_seed(0)).bfloat16()
    fd.execute([x])
    [chosen] = fd.kernels_for([x])
    params = replace(
        chosen.params,
        shift_rows=True,
        unroll_factor_inner_reduction=8,
        vectorize_inner_reduction=True,
        batches_per_block_inner_reduction=3,
        persistent_in_shared_memory=True,
        project_persistent_buffers=True,
        lparams=LaunchParams(bdimx=64, bdimy=1),
    )
    [out] = fd.execute([x], schedules={0: params})
    torch.testing.assert_close(out.float(), x.float().softmax(1), rtol=0.01, atol=1e-6)
    [kernel] = fd._finished().executor.last_program.kernels
    loops = [stmt for stmt in k.walk(kernel.kernel.body) if isinstance(stmt, k.For)]
    started = [s for loop in loops for s in k.walk(loop.body) if isinstance(s, k.Copy) and s.asynchronous]
    assert started and not any(isinstance(s, k.WaitForCopies) for loop in loops for s in k.walk(loop.body))
