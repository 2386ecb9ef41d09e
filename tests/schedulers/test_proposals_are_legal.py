"""Planners propose params that their own classes accept, whatever the sizes, the types and the GPU."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import prod

import pytest

from fusewright import DataType
from fusewright.core.hardware import DESCRIBED
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.ops.build_elementwise import apply_to_tensor, convert_tensor
from fusewright.ops.build_indexing import select
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_reduction import max_, sum_, var_mean
from fusewright.ops.build_resize import stack
from fusewright.schedulers import (
    InnerPersistentScheduler,
    OuterPersistentScheduler,
    Proposal,
    ReductionScheduler,
    Reject,
    Scheduler,
)
from fusewright.schedulers.base import plan, prepare
from tests.schedulers import proposals as p

SCHEDULERS: tuple[Scheduler, ...] = (
    ReductionScheduler(),
    InnerPersistentScheduler(),
    OuterPersistentScheduler(),
)
DTYPES = (DataType.UInt8, DataType.BFloat16, DataType.Float, DataType.Double)
# Elements of all inputs at most: planning takes no memory, but indices stay within 32 bits.
MOST_ELEMENTS = 1 << 30
CALLS = 60


def floats(fusion: Fusion, rank: int, dtype: DataType) -> TensorView:
    x = define_tensor(fusion, [-1] * rank, True, dtype)
    return x if dtype is DataType.Double else convert_tensor(fusion, x, DataType.Float)


def channels(fusion: Fusion, rank: int, dtype: DataType) -> TensorView:
    """The sum and the difference of the two channels of an image, or of more dimensions before the last."""
    x = define_tensor(fusion, [-1, 2, *[-1] * (rank - 1)], True, dtype)
    wide = x if dtype is DataType.Double else convert_tensor(fusion, x, DataType.Float)
    a, b = (select(fusion, wide, index, 1) for index in range(2))
    both = [apply_to_tensor(fusion, name, a, b) for name in ("add", "sub")]
    return stack(fusion, both, 1)


def softmax(fusion: Fusion, x: TensorView, dim: int) -> TensorView:
    e = apply_to_tensor(fusion, "exp", apply_to_tensor(fusion, "sub", x, max_(fusion, x, [dim], True)))
    return apply_to_tensor(fusion, "div", e, sum_(fusion, e, [dim], True))


def centred(fusion: Fusion, x: TensorView, dim: int) -> TensorView:
    variance, mean = var_mean(fusion, x, [dim], 0, True)
    return apply_to_tensor(fusion, "div", apply_to_tensor(fusion, "sub", x, mean), variance)


def summed(fusion: Fusion, x: TensorView, dim: int) -> TensorView:
    return sum_(fusion, x, [dim])


def several(fusion: Fusion, x: TensorView, dim: int) -> TensorView:
    add_output(fusion, max_(fusion, x, [dim]))
    return sum_(fusion, apply_to_tensor(fusion, "mul", x, x), [dim])


def spread(random_: random.Random, most: int) -> int:
    """A size, of any magnitude alike, and as often a multiple of 16 as not."""
    size = max(1, int(2 ** random_.uniform(0, most)))
    return size * 16 if random_.random() < 0.5 else size


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("made", [floats, channels], ids=lambda made: made.__name__)
@pytest.mark.parametrize("function", [softmax, centred, summed, several], ids=lambda f: f.__name__)
def test_proposals_are_legal(
    function: Callable[[Fusion, TensorView, int], TensorView],
    made: Callable[[Fusion, int, DataType], TensorView],
    dtype: DataType,
) -> None:
    random_ = random.Random(f"{function.__name__} {made.__name__} {dtype}")
    asked = 0
    extra = made is channels

    def fusion_of(rank: int) -> Fusion:
        return p.built(lambda fusion: function(fusion, made(fusion, rank, dtype), 1 + extra))

    for rank in (2, 3):
        fusion = fusion_of(rank)
        for scheduler in SCHEDULERS:
            planner = prepare(scheduler, fusion)
            if isinstance(planner, Reject):
                continue
            for _ in range(CALLS):
                shape = [spread(random_, 20) for _ in range(rank)]
                if rank == 3:
                    shape[2] = random_.choice([1, 2, 3, 5, 6, 7, 8, 9, 33, 100, 1024])
                if extra:
                    shape.insert(1, 2)
                if prod(shape) > MOST_ELEMENTS:
                    continue
                alignment = random_.choice([dtype.size, 16, 256])
                facts = p.facts_of(fusion, [shape], alignment=alignment)
                for hardware in DESCRIBED.values():
                    answer = plan(scheduler, planner, facts, hardware)
                    if isinstance(answer, Proposal):
                        answer.params.validate(hardware)
                        asked += 1
    assert asked >= CALLS


@pytest.mark.parametrize("length", [131_073, 199_999, 220_001])
def test_bytes_one_by_one_are_swept_once_code_is_not_unrolled_for_all_of_them(length: int) -> None:
    """A block has the shared memory for them, by 196 elements a thread."""
    fusion = p.built(
        lambda f: softmax(
            f, convert_tensor(f, define_tensor(f, [-1, -1], True, DataType.UInt8), DataType.Float), 1
        )
    )
    params, _ = p.propose(
        InnerPersistentScheduler(), fusion, p.facts_of(fusion, [(4096, length)], alignment=1)
    )
    assert params.batches_per_block_inner_reduction <= 128
