"""Work grows slowly with the number of dimensions.

It is counted in function calls, since no test may depend on time.
"""

from __future__ import annotations

import cProfile
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright import FusionDefinition
from fusewright.cuda.printer import print_kernel
from fusewright.frontend.recorded.cache import FusionCache
from fusewright.runtime import compiled_kernel
from tests.work import forget_proofs

Tensor = torch.Tensor
RANKS = (6, 12)
# Of the definition of one fusion, its schedule and its kernels' text. Rank 12 takes up to 380 thousand calls.
MOST_CALLS = 500_000
# A doubled rank may take so many times the calls: cubic growth.
MOST_GROWTH = 8


def _pointwise(fd: FusionDefinition, define: Callable[..., Any], rank: int) -> None:
    fd.add_output(define() * 2.0)


def _sum_of_the_last(fd: FusionDefinition, define: Callable[..., Any], rank: int) -> None:
    fd.add_output(fd.ops.sum(define(), [rank - 1]))


def _sum_of_the_first(fd: FusionDefinition, define: Callable[..., Any], rank: int) -> None:
    fd.add_output(fd.ops.sum(define(), [0]))


def _sum_of_every_other(fd: FusionDefinition, define: Callable[..., Any], rank: int) -> None:
    fd.add_output(fd.ops.sum(define(), list(range(0, rank, 2))))


def _sum_of_all(fd: FusionDefinition, define: Callable[..., Any], rank: int) -> None:
    fd.add_output(fd.ops.sum(define(), list(range(rank))))


def _reversed(fd: FusionDefinition, define: Callable[..., Any], rank: int) -> None:
    fd.add_output(fd.ops.permute(define(), list(reversed(range(rank)))) * 2.0)


def _transposed(fd: FusionDefinition, define: Callable[..., Any], rank: int) -> None:
    order = [*range(rank - 2), rank - 1, rank - 2]
    fd.add_output(fd.ops.permute(define(), order) * 2.0)


def _two_memory_orders(fd: FusionDefinition, define: Callable[..., Any], rank: int) -> None:
    fd.add_output(define() + define(stride_order=list(range(rank))))


def _broadcast(fd: FusionDefinition, define: Callable[..., Any], rank: int) -> None:
    row = define(every=2)
    fd.add_output(define() + fd.ops.broadcast(row, [bool(i % 2) for i in range(rank)]))


def _softmax(fd: FusionDefinition, define: Callable[..., Any], rank: int) -> None:
    x = define()
    e = fd.ops.exp(x - fd.ops.max(x, [rank - 1], keepdim=True))
    fd.add_output(e / fd.ops.sum(e, [rank - 1], keepdim=True))


def _sizes(rank: int) -> list[int]:
    """Few elements, and dimensions of two points among those of one."""
    return [2 if i % max(1, rank // 8) == 0 else 1 for i in range(rank)]


def _define(case: Callable[..., None], rank: int, static: bool, contiguous: bool) -> FusionDefinition:
    with FusionDefinition() as fd:

        def define(every: int = 1, stride_order: tuple[int, ...] = ()) -> Any:
            shape = _sizes(rank) if static else [-1] * rank
            return fd.define_tensor(shape[::every], contiguity=contiguous, stride_order=list(stride_order))

        case(fd, define, rank)
    return fd


def _inputs(fd: FusionDefinition, rank: int) -> list[Tensor]:
    inputs = []
    for tensor in fd._leaf.fusion.inputs:
        sizes = _sizes(rank)[:: 1 if tensor.ndim == rank else 2]
        order = [tensor.shape.index(axis) for axis in tensor.allocation]
        memory = torch.randn([sizes[i] for i in order])
        inputs.append(memory.permute([order.index(i) for i in range(tensor.ndim)]))
    return inputs


def _calls(work: Callable[[], object]) -> int:
    """How many Python functions `work` calls."""
    FusionCache.reset()
    forget_proofs()
    before = sys.getprofile()
    sys.setprofile(None)
    counter = cProfile.Profile(builtins=False)
    try:
        counter.runcall(work)
    finally:
        sys.setprofile(before)
    return sum(entry.callcount for entry in counter.getstats())


CASES = [
    _pointwise,
    _sum_of_the_last,
    _sum_of_the_first,
    _sum_of_every_other,
    _sum_of_all,
    _reversed,
    _transposed,
    _two_memory_orders,
    _broadcast,
    _softmax,
]


# The sizes of a tensor and its strides are the work of different code.
@pytest.mark.sampled(0.5, "case")
@pytest.mark.parametrize(
    "contiguous, static", [(True, False), (False, True)], ids=["contiguous-symbolic", "strided-static"]
)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__[1:])
def test_work_grows_slowly(
    case: Callable[..., None], contiguous: bool, static: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not collected for the check that kernels compile, which takes NVRTC long: those below stand for them.
    monkeypatch.setattr(compiled_kernel, "print_kernel", print_kernel)

    def compile_(rank: int) -> None:
        fd = _define(case, rank, static, contiguous)
        fd._leaf.executor.compile(_inputs(fd, rank))

    counts = [_calls(lambda rank=rank: compile_(rank)) for rank in RANKS]
    assert counts[1] < min(MOST_CALLS, MOST_GROWTH * counts[0]), counts


@pytest.mark.sampled(0.5, "case")
@pytest.mark.parametrize("contiguous, rank", [(True, 12), (False, 24)])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__[1:])
def test_results_of_many_dimensions(case: Callable[..., None], contiguous: bool, rank: int) -> None:
    fd = _define(case, rank, False, contiguous)
    fd.validate(_inputs(fd, rank))
