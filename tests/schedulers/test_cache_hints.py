"""Inputs that are to leave the L2 cache last: which kernels mark them, and that results stay."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fusewright import DataType, FusionDefinition
from fusewright.core.errors import ParamsError
from fusewright.schedulers import InnerPersistentScheduler, PointwiseScheduler, ReductionScheduler
from tests.schedulers import proposals as p


@pytest.mark.parametrize(
    "scheduler, fusion, shape, keeps",
    [
        (PointwiseScheduler(), p.elementwise(2), (16384, 4096), True),
        (
            PointwiseScheduler(),
            p.elementwise(2),
            (1024, 4096),
            False,
        ),  # the next kernel finds it in the cache
        (InnerPersistentScheduler(), p.normalized(), (16384, 4096), True),
        (InnerPersistentScheduler(), p.normalized(), (1024, 4096), False),
        (ReductionScheduler(), p.reduced([1]), (16384, 8192), False),  # it stores little
    ],
)
def test_large_inputs_of_kernels_that_store_as_much_leave_the_cache_last(
    scheduler: Any, fusion: Any, shape: tuple[int, int], keeps: bool
) -> None:
    params, _ = p.propose(scheduler, fusion, p.facts_of(fusion, [shape]))
    assert params.keeps_inputs is keeps


@pytest.mark.parametrize("length, rows, streams", [(2, 8, False), (4, 4, False), (4096, 1, True)])
def test_many_whole_rows_of_a_thread_are_not_marked_as_read_once(
    length: int, rows: int, streams: bool
) -> None:
    fusion = p.reduced([1])
    params, _ = p.propose(ReductionScheduler(), fusion, p.facts_of(fusion, [(67108864 // length, length)]))
    assert params.unroll_factor_iter_dom == rows
    assert params.streams_inputs is streams


def _add(x: torch.Tensor, y: torch.Tensor, in_place: bool = False) -> FusionDefinition:
    with FusionDefinition() as fd:
        a, b = fd.from_pytorch(x), fd.from_pytorch(y)
        total = fd.ops.add(a, b)
        fd.add_output(total, a if in_place else None)
    return fd


def _run(fd: FusionDefinition, inputs: list[torch.Tensor]) -> tuple[Any, str]:
    """The results by params that keep the inputs, and the kernel's text."""
    [kernel] = fd.kernels_for(inputs)
    kept = replace(kernel.params, keeps_inputs=True)
    outputs = fd.execute(inputs, schedules={0: kept})
    return outputs, fd.last_cuda_code()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("columns", [64, 63])
def test_a_load_of_any_width_is_marked(dtype: torch.dtype, columns: int, target: torch.device) -> None:
    x = torch.randint(-9, 9, (33, columns), device=target).to(dtype)
    fd = _add(x, x.flip(0).contiguous())
    outputs, text = _run(fd, [x, x.flip(0).contiguous()])
    torch.testing.assert_close(outputs[0].to(dtype), x + x.flip(0))
    assert text.count("fw::load_el") >= 2


def test_an_input_that_is_written_into_is_not_marked(target: torch.device) -> None:
    x, y = (torch.randn(8, 64, device=target) for _ in range(2))
    expected = x + y
    _, text = _run(_add(x, y, in_place=True), [x, y])
    torch.testing.assert_close(x, expected)
    assert text.count("fw::load_el") == 1


def test_rows_are_marked_and_the_schedule_replays(target: torch.device) -> None:
    x, weight = torch.randn(6, 256, device=target), torch.randn(256, device=target)
    with FusionDefinition() as fd:
        a, w = fd.from_pytorch(x), fd.from_pytorch(weight)
        e = fd.ops.exp(a - fd.ops.max(a, [1], keepdim=True))
        fd.add_output(e / fd.ops.sum(e, [1], keepdim=True) * w)
    outputs, text = _run(fd, [x, weight])
    torch.testing.assert_close(outputs[0], x.softmax(-1) * weight)
    assert "fw::load_el" in text and "fw::load<" in text  # the weight is for all rows
    assert "CacheOp.evict_last" in fd.last_schedule()


def test_copies_that_go_on_by_themselves_have_no_mark(target: torch.device) -> None:
    x = torch.randn(5, 512, device=target)
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.softmax(fd.from_pytorch(x), 1))
    [kernel] = fd.kernels_for([x])
    held = replace(kernel.params, project_persistent_buffers=True, persistent_in_shared_memory=True)
    [result] = fd.execute([x], schedules={0: replace(held, keeps_inputs=True)})
    torch.testing.assert_close(result, x.softmax(-1))
    text = fd.last_cuda_code()
    assert "fw::copy_async<" in text and "_el" not in text


def test_the_inputs_of_a_join_are_marked(target: torch.device) -> None:
    x, y = (torch.randn(4, 64, device=target) for _ in range(2))
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.cat([fd.from_pytorch(x), fd.from_pytorch(y)], 1))
    outputs, text = _run(fd, [x, y])
    torch.testing.assert_close(outputs[0], torch.cat([x, y], 1))
    assert text.count("fw::load_el") == 2 and text.count("fw::load") == 2


def test_an_input_is_marked_that_is_read_by_index_too(target: torch.device) -> None:
    x = torch.randn(4, 64, device=target)
    with FusionDefinition() as fd:
        a = fd.from_pytorch(x, static_sizes=True)
        low, high = fd.ops.slice(a, [0, 0], [4, 32]), fd.ops.slice(a, [0, 32], [4, 64])
        fd.add_output(fd.ops.cat([high, low], 1) * a)
    outputs, text = _run(fd, [x])
    torch.testing.assert_close(outputs[0], torch.cat([x[:, 32:], x[:, :32]], 1) * x)
    # One for both halves, of which a thread needs one, and one of the input as it is.
    assert text.count("fw::load_el") == text.count("fw::load") == 2


@pytest.mark.parametrize(
    "function, streams",
    [
        (lambda x: x.float().logsumexp(1), True),
        (lambda x: x.float().var(1), True),
        (lambda x: (x - x.mean(1, keepdim=True))[:, :1024], True),  # stores a quarter
        (lambda x: x - x.mean(1, keepdim=True), False),
    ],
)
def test_rows_that_are_held_and_of_which_little_is_stored_leave_the_cache_first(
    function: Callable[[torch.Tensor], torch.Tensor], streams: bool
) -> None:
    x = torch.empty(16384, 4096, dtype=torch.bfloat16, device="meta")
    [kernel] = p.definition(function, x).kernels_for([x], device="cuda")
    assert kernel.scheduler == "inner_persistent"
    assert (kernel.params.streams_inputs, kernel.params.keeps_inputs) == (streams, not streams)


def _moments(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    mean = x.mean((0, 2), keepdim=True)
    return mean, ((x - mean) ** 3).mean((0, 2))


def _third_moment(x: torch.Tensor) -> torch.Tensor:
    return ((x.float() - x.float().mean(1, keepdim=True)) ** 3).mean(1)


def _ratio_of_variances(x: torch.Tensor) -> torch.Tensor:
    return x.float().var(2).mean(1) / ((x.float() * 2).var(1).mean(1) + 1)


def _skew(x: torch.Tensor) -> torch.Tensor:
    return ((x - x.mean(0)) ** 3).mean(0)


@pytest.mark.parametrize(
    "function, shape, hints",
    [
        (_moments, (4096, 64, 127), [(False, False), (True, False)]),
        (lambda x: (x.sum((0, 2)), x.amax((0, 2))), (4096, 64, 127), [(True, False)]),  # one kernel for both
        # What another kernel reduces only meets the results.
        (_ratio_of_variances, (128, 512, 512), [(True, False)]),
        # The next kernel reads one element of each row.
        (
            lambda x: F.cross_entropy(x.float(), torch.arange(8192, device=x.device)),
            (8192, 8192),
            [(True, False)],
        ),
        # Loads that are to be issued first, of which the next kernel finds some in the cache.
        (_skew, (16384, 1025), [(False, True), (True, False)]),
    ],
)
def test_inputs_that_the_next_kernel_reads_do_not_leave_the_cache_first(
    function: Callable[[torch.Tensor], Any], shape: tuple[int, ...], hints: list[tuple[bool, bool]]
) -> None:
    x = torch.empty(shape, dtype=torch.bfloat16, device="meta")
    kernels = p.definition(function, x).kernels_for([x], device="cuda")
    found = [(each.params.streams_inputs, getattr(each.params, "keeps_inputs", False)) for each in kernels]
    assert found[: len(hints)] == hints, [each.scheduler for each in kernels]


@pytest.mark.parametrize(
    "function, shape, hints",
    [
        (lambda x: x - x.mean(1, keepdim=True), (16384, 1024, 8), (False, True)),
        (lambda x: x - x.mean(1, keepdim=True), (65539, 179, 7), (False, False)),  # one by one
        (_third_moment, (100, 333, 512), (True, False)),
        (_third_moment, (4, 333, 512), (False, False)),  # a small part of the cache
    ],
)
def test_columns_that_are_held_have_hints_as_rows_have(
    function: Callable[[torch.Tensor], Any], shape: tuple[int, ...], hints: tuple[bool, bool]
) -> None:
    x = torch.empty(shape, dtype=torch.bfloat16, device="meta")
    [kernel] = p.definition(function, x).kernels_for([x], device="cuda")
    assert kernel.scheduler == "outer_persistent"
    assert (kernel.params.streams_inputs, kernel.params.keeps_inputs) == hints


@pytest.mark.parametrize("share, streams", [(0.25, True), (0.15, False)])
def test_inputs_of_a_part_of_the_cache_that_are_summed_leave_it_first(share: float, streams: bool) -> None:
    fusion = p.reduced([1])
    rows = int(share * p.H200.l2_bytes / (8192 * 4))
    params, _ = p.propose(ReductionScheduler(), fusion, p.facts_of(fusion, [(rows, 8192)]))
    assert params.streams_inputs is streams


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.half], ids=str)
def test_words_that_leave_the_cache_first_are_all_loaded_before_the_first_is_used(dtype: torch.dtype) -> None:
    x = torch.zeros(300, 1025, dtype=dtype)
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.sum(fd.from_pytorch(x), [0]))
    [kernel] = fd.kernels_for([x])
    rows = kernel.params.unroll_factor_inner_reduction
    assert kernel.params.streams_inputs and rows > 8 and "fw::load_cs_word_or<1>" in kernel.cuda_text
    # What PTX does with words, in the guarded iteration as in those that need no guard.
    done = re.findall(r"\b(ld\.global\.cs|add\S*\.f32|bra)\b", kernel.code.ptx())
    runs = [(each, len(list(run))) for each, run in groupby(done)]
    loads = [count for each, count in runs if each == "ld.global.cs"]
    assert loads and set(loads) == {rows}, runs


def test_what_leaves_the_cache_first_does_not_leave_it_last() -> None:
    x = torch.randn(64, 64)
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.sum(fd.define_tensor([-1, -1], dtype=DataType.Float), [1]))
    [kernel] = fd.kernels_for([x])
    params = replace(kernel.params, streams_inputs=True)
    with pytest.raises(ParamsError, match=r"keeps_inputs.*streams_inputs"):
        fd.execute([x], schedules={0: replace(params, keeps_inputs=True)})
