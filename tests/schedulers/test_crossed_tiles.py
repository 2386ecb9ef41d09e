"""Reductions in tiles, of inputs and outputs that are contiguous along different dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch

from bench.plans import loop_of_one_thread
from fusewright import DataType, FusionDefinition, ParamsError
from fusewright.core.enums import MemoryType
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.kernel.text import kernel_text
from fusewright.ops.build_elementwise import apply_to_tensor, convert_tensor
from fusewright.ops.build_indexing import index_select
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_reduction import max_, sum_, welford
from fusewright.ops.build_resize import cat
from fusewright.ops.build_shape import broadcast, permute
from fusewright.schedule import Schedule, replay
from fusewright.schedulers import LaunchParams, ReductionParams, ReductionScheduler, apply
from tests.lower.running import lowered, run
from tests.schedulers import proposals as p
from tests.schedulers.test_crossed_loads import crossed

SCHEDULER = ReductionScheduler()
BY_ELEMENT = ReductionParams(
    tiles_in_shared_memory=True,
    unroll_factor_inner_reduction=2,
    lparams=LaunchParams(bdimx=8, bdimy=4),
)


def inputs(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(s, generator=generator).to(dtype) for s in ((columns, rows), (rows, columns))]


def scheduled(fusion: Fusion, params: ReductionParams) -> Schedule:
    schedule = Schedule(fusion)
    apply(SCHEDULER, schedule, params, p.H200)
    return schedule


def tiles_of(schedule: Schedule) -> list[TensorView]:
    return [tensor for tensor in schedule.tensors() if tensor.memory is MemoryType.shared]


def proposed(fusion: Fusion, rows: int, columns: int) -> ReductionParams:
    """The params for x of columns x rows and y of rows x columns."""
    params, launch = p.propose(SCHEDULER, fusion, p.facts_of(fusion, [(columns, rows), (rows, columns)]))
    assert launch.threads <= 1024
    return params


@pytest.mark.parametrize("dims", [(0,), (1,)], ids=["over_rows", "over_columns"])
@pytest.mark.parametrize(
    "given",
    [
        {"lparams": LaunchParams(bdimx=8, bdimy=4)},
        {"lparams": LaunchParams(bdimx=4, bdimy=2, gdimy=3)},
        {"lparams": LaunchParams(bdimx=16, bdimy=1)},
        {"blocks_per_cluster": 2},
        {"prefetches_steps": True},
    ],
    ids=["blocks", "grid", "one_row", "cluster", "prefetch"],
)
@pytest.mark.parametrize("sizes", [(19, 37), (1, 33), (33, 1), (8, 16)], ids=str)
@pytest.mark.sampled(0.5)
def test_by_element(dims: Sequence[int], given: dict[str, Any], sizes: tuple[int, int]) -> None:
    fusion, (x, y) = crossed(dims), inputs(*sizes)
    schedule = scheduled(fusion, replace(BY_ELEMENT, **given))
    assert len(tiles_of(schedule)) == 1
    (result,) = run(schedule, [x, y])
    torch.testing.assert_close(result, (x.t() + y).sum(dims), rtol=1e-5, atol=1e-5)
    again = replay(fusion, schedule.trace())
    assert kernel_text(lowered(again).kernel) == kernel_text(lowered(schedule).kernel)


@pytest.mark.parametrize(
    "given",
    [
        {"unroll_factor_iter_dom": 2, "vectorize_iter_dom": True},
        {"unroll_factor_iter_dom": 4},
        {"vector_down_columns": 4},
        {"unroll_factor_iter_dom": 4, "vectorize_iter_dom": True, "vector_down_columns": 2},
    ],
    ids=["along_rows", "columns_of_a_thread", "down_columns", "both"],
)
@pytest.mark.parametrize("dtype", [DataType.BFloat16, DataType.Float], ids=lambda dtype: dtype.name)
def test_vectors(given: dict[str, Any], dtype: DataType) -> None:
    """Of one dimension that they divide, and another that they need not divide."""
    rows = 20 if given.get("vectorize_iter_dom") else 21
    columns = 36 if "vector_down_columns" in given else 37
    x, y = inputs(rows, columns, dtype.torch)
    (result,) = run(scheduled(crossed((1,), dtype), replace(BY_ELEMENT, **given)), [x, y])
    torch.testing.assert_close(result, (x.t().float() + y.float()).sum(1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("dims", "tiles"), [((0,), 1), ((1,), 2)])
def test_outputs_of_every_element_leave_along_memory(dims: Sequence[int], tiles: int) -> None:
    """The output is contiguous as y is. Either it and y pass through tiles, or x does."""
    x, y = inputs(19, 37)
    schedule = scheduled(crossed(dims, with_all=True), BY_ELEMENT)
    assert len(tiles_of(schedule)) == tiles
    total, result = run(schedule, [x, y])
    torch.testing.assert_close(total, x.t() + y)
    torch.testing.assert_close(result, (x.t() + y).sum(dims), rtol=1e-5, atol=1e-5)


def test_several_reductions_of_several_inputs() -> None:
    """Two inputs are contiguous along columns, and two along rows."""
    (x, y), (z, w) = inputs(19, 37), [2 * each for each in inputs(19, 37)]

    def body(fusion: Fusion) -> TensorView:
        total = None
        for turned in (True, False, True, False):
            each = define_tensor(fusion, [-1, -1], True, DataType.Float)
            each = permute(fusion, each, [1, 0]) if turned else each
            total = each if total is None else apply_to_tensor(fusion, "add", total, each)
        assert total is not None
        add_output(fusion, max_(fusion, total, [1]))
        means, squares = welford(fusion, total, [1])[:2]
        add_output(fusion, means)
        add_output(fusion, squares)
        return sum_(fusion, total, [1])

    schedule = scheduled(p.built(body), BY_ELEMENT)
    assert len(tiles_of(schedule)) == 2
    highest, mean, squares, result = run(schedule, [x, y, z, w])
    total = x.t() + y + z.t() + w
    torch.testing.assert_close(highest, total.amax(1))
    torch.testing.assert_close(mean, total.mean(1))
    torch.testing.assert_close(squares, torch.var(total, 1, correction=0) * 37, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(result, total.sum(1), rtol=1e-5, atol=1e-5)


def test_only_elements_of_steps_are_prefetched() -> None:
    """Not those of a vector that all steps share."""
    (x, y), z = inputs(19, 37), torch.randn(19)

    def body(fusion: Fusion) -> TensorView:
        a, b = (define_tensor(fusion, [-1, -1], True, DataType.Float) for _ in range(2))
        c = broadcast(fusion, define_tensor(fusion, [-1], True, DataType.Float), [False, True])
        total = apply_to_tensor(fusion, "add", permute(fusion, a, [1, 0]), b)
        return sum_(fusion, apply_to_tensor(fusion, "mul", total, c), [1])

    schedule = scheduled(p.built(body), replace(BY_ELEMENT, prefetches_steps=True))
    assert sum(tensor.prefetched for tensor in schedule.tensors()) == 2
    (result,) = run(schedule, [x, y, z])
    torch.testing.assert_close(result, ((x.t() + y) * z[:, None]).sum(1), rtol=1e-5, atol=1e-5)


def test_more_dimensions() -> None:
    """Other dimensions are merged with the tiled ones."""
    x, y = torch.randn(3, 11, 2, 9), torch.randn(2, 9, 3, 11)

    def body(fusion: Fusion) -> TensorView:
        a, b = (define_tensor(fusion, [-1] * 4, True, DataType.Float) for _ in range(2))
        return sum_(fusion, apply_to_tensor(fusion, "add", permute(fusion, a, [2, 3, 0, 1]), b), [2, 3])

    schedule = scheduled(p.built(body), BY_ELEMENT)
    (result,) = run(schedule, [x, y])
    torch.testing.assert_close(result, (x.permute(2, 3, 0, 1) + y).sum((2, 3)), rtol=1e-5, atol=1e-5)


# ---- what the heuristic proposes ----


def test_tiles_where_vectors_do_not_divide_a_size() -> None:
    for rows, columns in ((4095, 8192), (4096, 8191), (4095, 8191)):
        params = proposed(crossed((1,), DataType.BFloat16), rows, columns)
        assert params.tiles_in_shared_memory
        assert params.tile == (64, 64)
    assert not proposed(crossed((1,), DataType.BFloat16), 4096, 8192).tiles_in_shared_memory


@pytest.mark.parametrize(
    ("rows", "columns", "tile"), [(9, 100001, (16, 256)), (100001, 9, (256, 16)), (13, 13, (16, 16))]
)
def test_small_dimensions_lengthen_the_other_side(rows: int, columns: int, tile: tuple[int, int]) -> None:
    params = proposed(crossed((1,), DataType.BFloat16), rows, columns)
    assert params.tiles_in_shared_memory
    assert params.tile == tile


def test_no_tiles_of_a_few_elements() -> None:
    assert not proposed(crossed((1,), DataType.BFloat16), 5, 100001).tiles_in_shared_memory
    assert not proposed(crossed((1,), DataType.BFloat16), 100001, 5).tiles_in_shared_memory


def test_no_tiles_for_a_column_that_is_read_next_to_rows() -> None:
    """Its neighbours lie along the kept dimension, but every row has one element of it for all points."""

    def body(fusion: Fusion) -> TensorView:
        column = define_tensor(fusion, [-1, 1], True, DataType.Float)
        return sum_(
            fusion, cat(fusion, [column, define_tensor(fusion, [-1, -1], True, DataType.Float)], 1), [1]
        )

    fusion = p.built(body)
    params, _ = p.propose(SCHEDULER, fusion, p.facts_of(fusion, [(256, 1), (256, 65536)]))
    assert not params.tiles_in_shared_memory


def test_no_tiles_of_rows_that_an_index_tensor_selects() -> None:
    """Threads that load into a tile would need the indices that others compute."""

    def body(fusion: Fusion) -> TensorView:
        table, other = define_tensor(fusion, [-1, -1], True), define_tensor(fusion, [-1, -1], True)
        index = define_tensor(fusion, [-1], True, DataType.Int)
        rows = index_select(fusion, table, index, 0)
        return sum_(fusion, apply_to_tensor(fusion, "mul", rows, permute(fusion, other, [1, 0])), [1])

    fusion = p.built(body)
    facts = p.facts_of(fusion, [(1023, 2048), (2048, 8191), (8191,)])
    params, _ = p.propose(SCHEDULER, fusion, facts)
    assert not params.tiles_in_shared_memory
    with pytest.raises(ParamsError, match=r"tiles_in_shared_memory.*an index tensor selects"):
        scheduled(fusion, BY_ELEMENT)


def test_no_tiles_where_all_is_read_from_the_caches_as_fast() -> None:
    """Of three inputs two lie along the reduced dimension."""

    def body(fusion: Fusion) -> TensorView:
        *others, turned = (define_tensor(fusion, [-1, -1], True, DataType.BFloat16) for _ in range(3))
        total = permute(fusion, turned, [1, 0])
        for other in others:
            total = apply_to_tensor(fusion, "add", total, other)
        return sum_(fusion, convert_tensor(fusion, total, DataType.Float), [1])

    fusion = p.built(body)
    params, _ = p.propose(SCHEDULER, fusion, p.facts_of(fusion, [(130, 65), (130, 65), (65, 130)]))
    assert params.fastest_dim and not params.tiles_in_shared_memory


def test_more_inputs_have_smaller_tiles() -> None:
    """Threads hold what they load of all inputs, and shared memory what lies along columns."""

    def body(fusion: Fusion) -> TensorView:
        total = None
        for turned in (True, False) * 3:
            each = define_tensor(fusion, [-1, -1], True, DataType.Float)
            each = permute(fusion, each, [1, 0]) if turned else each
            total = each if total is None else apply_to_tensor(fusion, "add", total, each)
        assert total is not None
        return sum_(fusion, total, [1])

    fusion = p.built(body)
    params, launch = p.propose(SCHEDULER, fusion, p.facts_of(fusion, [(1025, 1023), (1023, 1025)] * 3))
    assert params.tile == (64, 32)
    assert 3 * 64 * 32 * 4 < launch.shared_bytes < 32 * 1024


@pytest.mark.parametrize(
    ("dims", "dtype", "with_all"),
    [*product([(0,), (1,)], [torch.bfloat16, torch.float32], [False, True])],
    ids=str,
)
def test_one_kernel_reads_and_writes_everything(dims: list[int], dtype: torch.dtype, with_all: bool) -> None:
    """No tensor of the sum's operands passes through memory."""
    x, y = inputs(65, 130, dtype)
    with FusionDefinition() as fd:
        a, b = fd.from_pytorch(x), fd.from_pytorch(y)
        total = fd.ops.permute(a, [1, 0]) + b
        if with_all:
            fd.add_output(total)
        fd.add_output(fd.ops.sum(total, list(dims)))
    *_, result = fd.execute([x, y])
    assert len(fd.kernels_for([x, y])) == 1
    torch.testing.assert_close(result.float(), (x.t().float() + y.float()).sum(dims), rtol=1e-2, atol=2e-1)


@pytest.mark.parametrize("beside", ["transposed", "of_one_input"])
def test_what_only_inputs_connect_with_the_sum_has_its_threads(target: torch.device, beside: str) -> None:
    """A result that is stored along the columns is computed apart from what is summed."""
    x, y = (torch.randn(*shape, device=target).bfloat16() for shape in ((130, 65), (65, 130)))

    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        total = x.float() + y.float().t()
        other = total.t().contiguous() if beside == "transposed" else (y.float() * 2).t().relu()
        return total.bfloat16(), other.bfloat16(), total.amax(0)

    large = [torch.empty(s, dtype=torch.bfloat16, device="meta") for s in ((8192, 4096), (4096, 8192))]
    for kernel in p.definition(function, *large).kernels_for(large, device="cuda"):
        assert loop_of_one_thread(kernel) is None
    for result, expected in zip(p.definition(function, x, y).execute([x, y]), function(x, y)):
        torch.testing.assert_close(result, expected)


def test_a_sum_of_all_elements_keeps_a_dimension_at_first(target: torch.device) -> None:
    """So that a kernel has tiles, whose results another one sums."""
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.BFloat16) for _ in range(2))
        fd.add_output(fd.ops.sum(fd.ops.exp(fd.ops.permute(x, [1, 0]) * y), [0, 1]))
    large = [
        torch.empty(*shape, dtype=torch.bfloat16, device="meta") for shape in ((4096, 8191), (8191, 4096))
    ]
    first, second = fd.kernels_for(large, device="cuda")
    assert first.params.tiles_in_shared_memory and second.bytes_read < 1 << 17
    a, b = torch.randn(521, 1027, device=target).bfloat16(), torch.randn(1027, 521, device=target).bfloat16()
    [result] = fd.execute([a, b])
    torch.testing.assert_close(
        result.double(), (a.double().t() * b.double()).exp().sum(), rtol=1e-4, atol=0.0
    )


# ---- params ----


def test_tiles_need_accesses_along_both_dimensions() -> None:
    with pytest.raises(
        ParamsError, match=r"tiles_in_shared_memory.*no input is contiguous along the columns"
    ):
        scheduled(p.reduced((0,)), BY_ELEMENT)
    with pytest.raises(ParamsError, match=r"tiles_in_shared_memory.*expected False unless"):
        replace(BY_ELEMENT, lanes_down_columns=True).validate(p.H200)


def test_vectors_divide_the_rows_of_a_tile() -> None:
    with pytest.raises(ParamsError, match=r"vector_down_columns.*a divisor of 12"):
        replace(
            BY_ELEMENT,
            unroll_factor_inner_reduction=3,
            vector_down_columns=8,
        ).validate(p.H200)


def test_tiles_fit_shared_memory() -> None:
    large = replace(BY_ELEMENT, unroll_factor_inner_reduction=128, lparams=LaunchParams(bdimx=64, bdimy=16))
    large.validate(p.H200)
    with pytest.raises(ParamsError, match="larger than shared memory"):
        replace(large, unroll_factor_iter_dom=2).validate(p.H200)


def test_no_tiles_for_reductions_that_only_a_tile_connects(caplog: pytest.LogCaptureFixture) -> None:
    """Loops go from one reduction to another through what both are computed with, not through a tile."""
    x = torch.randn(17, 17).half()
    with FusionDefinition() as fd:
        rows = fd.from_pytorch(x)
        columns = fd.ops.permute(rows, [1, 0])
        logarithms = fd.ops.logsumexp(rows, [0], keepdim=True)
        crossed_product = fd.ops.mul(columns, fd.ops.permute(fd.ops.neg(columns), [1, 0]))
        fd.add_output(fd.ops.prod(crossed_product, [1], keepdim=True))
        truths = fd.ops.logical_or(2, columns)
        fd.add_output(truths, stride_order=[0, 1])
        fd.add_output(logarithms)
        fd.add_output(truths)
    product, _, logarithm, _ = fd.execute([x])
    wide = x.double()
    torch.testing.assert_close(product.double(), (wide.t() * -wide).prod(1, True), rtol=0.02, atol=1e-4)
    torch.testing.assert_close(logarithm.double(), wide.logsumexp(0, True), rtol=2e-3, atol=2e-3)
    assert not caplog.records, caplog.text
