"""Schedules that nobody needs and anybody may write: they compute what is defined, or say why not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from fusewright import CacheOp, DataType, FusionDefinition, MemoryType, ParallelType
from fusewright.core.errors import ScheduleError


def _run(
    fd: FusionDefinition, schedule: Callable[[Any, Any], None], inputs: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """`schedule` is given `fd.sched` and all tensors."""
    fd.schedule = lambda: schedule(fd.sched, fd.sched.tensors())  # type: ignore[method-assign]
    return fd.execute(inputs)


def _of_one_input(
    write: Callable[[FusionDefinition, Any], Any], shape: Sequence[int] = (-1, -1)
) -> FusionDefinition:
    with FusionDefinition() as fd:
        fd.add_output(write(fd, fd.define_tensor(list(shape), contiguity=True)))
    return fd


# ---- what is read from memory without a copy


@pytest.mark.parametrize("is_shared", [False, True])
def test_an_index_may_be_read_where_it_lies(target: torch.device, is_shared: bool) -> None:
    with FusionDefinition() as fd:
        table = fd.define_tensor([-1, -1], contiguity=True)
        index = fd.define_tensor([-1], contiguity=True, dtype=DataType.Int)
        fd.add_output(fd.ops.index_select(table, index, 0) * 2.0)

    def schedule(sched: Any, tensors: Any) -> None:
        if is_shared:
            sched.set_memory_type(sched.cache_after(tensors[1]), MemoryType.shared)

    rows = torch.randn(5, 3, device=target), torch.tensor([4, 0, 4], device=target)
    assert torch.equal(_run(fd, schedule, rows)[0], rows[0][rows[1]] * 2.0)


def test_a_scatter_reads_its_index_where_it_lies(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x, src = (fd.define_tensor([-1], contiguity=True) for _ in range(2))
        index = fd.define_tensor([-1], contiguity=True, dtype=DataType.Int)
        fd.add_output(fd.ops.scatter(x, index, src, 0))
    x, src = torch.randn(6, device=target), torch.randn(3, device=target)
    index = torch.tensor([5, 0, 2], device=target)

    def schedule(sched: Any, tensors: Any) -> None:
        sched.segment(1)
        sched.inline_most()

    assert torch.equal(_run(fd, schedule, [x, src, index])[0], x.scatter(0, index, src))


# ---- copies that are put between


def _load_behind_a_copy(sched: Any, tensors: Any) -> None:
    load = sched.cache_after(tensors[0])
    sched.set_cache_op(load, CacheOp.streaming)
    sched.cache_after(tensors[0])


def _store_behind_a_copy(sched: Any, tensors: Any) -> None:
    sched.cache_before(tensors[-1])
    sched.set_cache_op(tensors[-1], CacheOp.streaming)
    sched.cache_before(tensors[-1])


@pytest.mark.parametrize("schedule", [_load_behind_a_copy, _store_behind_a_copy])
def test_a_cache_hint_of_what_no_longer_reaches_memory(
    target: torch.device, schedule: Callable[[Any, Any], None]
) -> None:
    def inlined(sched: Any, tensors: Any) -> None:
        schedule(sched, tensors)
        sched.inline_most()

    x = torch.randn(3, 8, device=target)
    assert torch.equal(_run(_of_one_input(lambda fd, x: x * 2.0), inlined, [x])[0], x * 2.0)


def test_a_ring_that_is_no_longer_filled_from_memory_is_refused(target: torch.device) -> None:
    def schedule(sched: Any, tensors: Any) -> None:
        ring = sched.cache_after(tensors[0])
        sched.set_memory_type(ring, MemoryType.shared)
        sched.circular_buffer(ring, 2, 1, 0)
        sched.cache_after(tensors[0])
        sched.inline_most()

    with pytest.raises(
        ScheduleError, match="copied in bulk from T0_copy2, which is no longer in global memory"
    ):
        _run(_of_one_input(lambda fd, x: x * 2.0, (8, 32)), schedule, [torch.randn(8, 32, device=target)])


# ---- outputs that are read


@pytest.mark.parametrize("is_bound", [False, True])
def test_an_output_of_one_column_is_not_read_by_the_threads_of_many(
    target: torch.device, is_bound: bool
) -> None:
    """One of the threads that compute an element of the column writes it, with no barrier behind that."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 1], contiguity=[True, None])
        wide = fd.define_tensor([-1, -1], contiguity=True)
        column = fd.ops.neg(x)
        fd.add_output(column)
        fd.add_output(column * wide)

    def schedule(sched: Any, tensors: Any) -> None:
        result = tensors[-1]
        if is_bound:
            sched.merge(result, 0)
            sched.parallelize(result, 0, ParallelType.block_x)
        sched.transform_like(result)
        sched.parallelize_like(result)
        sched.inline_most()

    x, wide = torch.randn(3, 1, device=target), torch.randn(3, 4, device=target)
    if is_bound:
        with pytest.raises(ScheduleError, match=r"T2 is an output, .* that other threads"):
            _run(fd, schedule, [x, wide])
        return
    for found, expected in zip(_run(fd, schedule, [x, wide]), (-x, -x * wide)):
        assert torch.equal(found, expected)


# ---- rows that are shifted


@pytest.mark.parametrize("dims", [[1], [0, 1]])
def test_an_axis_that_is_reduced_may_be_shifted(target: torch.device, dims: list[int]) -> None:
    def schedule(sched: Any, tensors: Any) -> None:
        x, result = tensors[:2]
        sched.shifted_split(result, 1, 4, x)
        if len(dims) > 1:
            sched.rfactor(result, [0])
        sched.inline_most()

    x = torch.randn(5, 7, device=target)
    found = _run(_of_one_input(lambda fd, x: fd.ops.sum(x, dims), (5, 7)), schedule, [x])[0]
    torch.testing.assert_close(found, x.sum(dims))


@pytest.mark.parametrize("operation", ["sum", "cumsum"])
def test_an_axis_that_is_shifted_by_what_accumulates_is_refused(target: torch.device, operation: str) -> None:
    def schedule(sched: Any, tensors: Any) -> None:
        sched.shifted_split(tensors[1], 1, 4, tensors[0])
        sched.transform_like(tensors[1])
        sched.inline_most()

    fd = _of_one_input(lambda fd, x: getattr(fd.ops, operation)(x, 0), (5, 7))
    with pytest.raises(ScheduleError, match="is shifted by the place along that"):
        _run(fd, schedule, [torch.randn(5, 7, device=target)])


def test_axes_that_are_shifted_by_one_another_are_refused(target: torch.device) -> None:
    with FusionDefinition() as fd:
        rows = fd.define_tensor([5, 6], contiguity=True)
        columns = fd.define_tensor([5, 6], contiguity=True, stride_order=[0, 1])
        fd.add_output(rows + columns)

    def schedule(sched: Any, tensors: Any) -> None:
        rows, columns, result = tensors[:3]
        sched.shifted_split(result, 1, 4, rows)
        sched.shifted_split(result, 0, 4, columns)
        sched.inline_most()

    with pytest.raises(ScheduleError, match="are each shifted by the place along the other"):
        _run(fd, schedule, [torch.randn(5, 6, device=target), torch.randn(6, 5, device=target).t()])


# ---- nothing to compute


def _in_shared_memory(sched: Any, tensors: Any) -> None:
    sched.set_memory_type(tensors[1], MemoryType.shared)


def _with_an_invariant(sched: Any, tensors: Any) -> None:
    sched.split(tensors[1], 0, 4)
    sched.cache_after(tensors[1])


def _split_in_eight(sched: Any, tensors: Any) -> None:
    sched.split(tensors[1], 1, 8, inner_split=False)
    sched.cache_after(tensors[0])
    sched.inline_most()


@pytest.mark.parametrize(
    "schedule", [lambda *_: None, _in_shared_memory, _with_an_invariant, _split_in_eight]
)
@pytest.mark.parametrize("columns", [1, 4])
def test_tensors_of_no_elements(
    target: torch.device, schedule: Callable[[Any, Any], None], columns: int
) -> None:
    fd = _of_one_input(lambda fd, x: fd.ops.neg(fd.ops.slice(x, [0, columns], [6, columns])), (6, columns))
    assert _run(fd, schedule, [torch.randn(6, columns, device=target)])[0].shape == (6, 0)
