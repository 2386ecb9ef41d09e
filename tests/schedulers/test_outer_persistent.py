"""Tiles of columns that a block holds: right, in vectors, and without bank conflicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from fusewright import DataType, FusionDefinition, ParamsError
from fusewright.core.hardware import KIB
from fusewright.ir import Fusion
from fusewright.kernel import ir as k
from fusewright.kernel.text import kernel_text
from fusewright.lower import SizeArgument
from fusewright.ops.evaluate import bind_sizes
from fusewright.rewrite import canonicalize
from fusewright.schedule import Schedule, replay
from fusewright.schedulers import (
    LaunchParams,
    OuterPersistentScheduler,
    ReductionParams,
    Reject,
    apply,
    prepare,
)
from fusewright.schedulers.persistent.column_tiles import ColumnsToHold, clustered_tile, register_tile
from fusewright.schedulers.persistent.held_rows import Held
from fusewright.sym import evaluate
from tests.lower.running import lowered, run
from tests.schedulers import proposals as p
from tests.schedulers.banks import shared_accesses

SCHEDULER = OuterPersistentScheduler()


def masked_columns(dims: Sequence[int], rank: int = 2) -> Fusion:
    """Columns of three element sizes, which two reductions and what follows them read."""
    with FusionDefinition() as fd:
        x, y, mask = (
            fd.define_tensor([-1] * rank, True, t) for t in (DataType.BFloat16, DataType.Float, DataType.Bool)
        )
        kept = fd.ops.where(mask, fd.ops.cast(x, DataType.Float), 0.0)
        total = fd.ops.sum(kept, list(dims), keepdim=True)
        weighted = fd.ops.sum(kept * y, list(dims), keepdim=True)
        fd.add_output(kept - y * weighted - total)
    fusion = fd._finished().fusion
    canonicalize(fusion)
    return fusion


def params_of(width: int, threads: int, shared: bool, sizes: tuple[int, ...] = ()) -> ReductionParams:
    """Three batches a thread, of `width` columns each."""
    return ReductionParams(
        persistent_kernel=True,
        project_persistent_buffers=shared,
        persistent_in_shared_memory=shared,
        batches_per_block_inner_reduction=3,
        vectorize_iter_dom=width > 1,
        unroll_factor_iter_dom=width,
        assumed_reduction_sizes=sizes,
        lparams=LaunchParams(bdimx=4, bdimy=threads),
    )


def inputs_of(*shape: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(sum(shape))
    x, y, mask = (torch.randn(shape, generator=generator) for _ in range(3))
    return [x.bfloat16(), y, mask > 0]


@pytest.mark.parametrize(
    "dims, shape, params",
    [
        ((0,), (22, 24), params_of(4, 8, shared=True)),
        ((0,), (70, 40), params_of(4, 24, shared=False)),
        ((0,), (62, 40), replace(params_of(4, 8, shared=False), blocks_per_cluster=3)),
        ((0,), (140, 40), replace(params_of(4, 16, shared=True, sizes=(140,)), blocks_per_cluster=3)),
        ((0,), (65, 21), params_of(1, 24, shared=False)),
        ((1,), (3, 22, 8), params_of(4, 8, shared=True, sizes=(22,))),
        ((0, 2), (5, 3, 6, 12), params_of(4, -1, shared=False)),
        ((0, 2), (5, 3, 6, 12), params_of(4, 16, shared=True, sizes=(5, 6))),
    ],
    ids=[
        "shared",
        "registers",
        "cluster",
        "cluster, shared",
        "odd",
        "middle",
        "two dimensions",
        "two constant dimensions",
    ],
)
def test_tiles(dims: Sequence[int], shape: tuple[int, ...], params: ReductionParams) -> None:
    fusion, inputs = masked_columns(dims, len(shape)), inputs_of(*shape)
    schedule = Schedule(fusion)
    apply(SCHEDULER, schedule, params, p.H200)
    (result,) = run(schedule, inputs)
    x, y, mask = (each.double() for each in inputs)
    kept = x * mask
    expected = kept - y * (kept * y).sum(dims, keepdim=True) - kept.sum(dims, keepdim=True)
    torch.testing.assert_close(result.double(), expected, rtol=1e-4, atol=1e-4)

    made = lowered(schedule)
    sizes = bind_sizes(schedule.fusion, inputs)
    known = {s: evaluate(a.extent, sizes) for s, a in made.symbols.items() if isinstance(a, SizeArgument)}
    accesses = shared_accesses(made.kernel, known)
    assert bool(accesses) == params.persistent_in_shared_memory
    assert {text: ways for text, ways in accesses if ways > 1} == {}
    again = lowered(replay(fusion, schedule.trace()))
    assert kernel_text(again.kernel) == kernel_text(made.kernel)


def test_what_follows_from_a_column_alone_is_computed_once_a_column() -> None:
    """Not for each row that a thread holds of it: a division that is rounded correctly, and a root."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Float)
        variance, mean = fd.ops.var_mean(x, [0], correction=0, keepdim=True)
        fd.add_output((x - mean) * fd.ops.rsqrt(variance + 1e-5))
    fusion = fd._finished().fusion
    canonicalize(fusion)
    schedule = Schedule(fusion)
    apply(SCHEDULER, schedule, params_of(4, 8, shared=True), p.H200)

    def inside_rows(body: Sequence[k.Stmt], rows: bool = False) -> set[str]:
        found: set[str] = set()
        for stmt in body:
            if isinstance(stmt, k.Compute) and rows:
                found.add(stmt.op.name)
            found |= inside_rows(k.children(stmt), rows or (isinstance(stmt, k.For) and not stmt.unroll))
        return found

    body = lowered(schedule).kernel.body
    computed = {stmt.op.name for stmt in k.walk(body) if isinstance(stmt, k.Compute)}
    assert {"truediv", "rsqrt"} <= computed and inside_rows(body) == {"sub", "mul"}


def test_threads_cover_the_columns() -> None:
    fusion = masked_columns([0])
    with pytest.raises(ParamsError, match=r"lparams.bdimy.*expected -1 or 24, for columns of 70"):
        apply(SCHEDULER, Schedule(fusion), params_of(4, 32, shared=True, sizes=(70,)), p.H200)
    with pytest.raises(ParamsError, match="batches_per_block_inner_reduction"):
        replace(params_of(4, 32, shared=False), batches_per_block_inner_reduction=0).validate(p.H200)


def test_proposals_hold_what_fits() -> None:
    """A column tile fits a block, whose rows in memory are whole sectors, and all SMs have blocks."""
    fusion = p.built(lambda f: p.softmax_of(f, [0]))
    for shape in ((1024, 32768), (4096, 16384), (33, 100_000), (8, 4096), (1000, 1001)):
        params, launch = p.propose(SCHEDULER, fusion, p.facts_of(fusion, [shape]))
        assert launch.threads <= 1024 and launch.shared_bytes <= p.H200.shared_memory_per_block_optin
        held = params.batches_per_block_inner_reduction * params.lparams.bdimy * params.blocks_per_cluster
        assert held >= shape[0]
        columns = params.lparams.bdimx * params.unroll_factor_iter_dom
        assert columns * 2 >= 32
    for shape in ((512, 64000), (1024, 32768), (4096, 16384), (16384, 4096), (777, 808)):
        facts = p.facts_of(fusion, [shape])
        params, launch = p.propose(SCHEDULER, fusion, replace(facts, stable=frozenset(facts.sizes)))
        assert params.persistent_in_shared_memory != (256 < shape[0] <= 2048 and shape[1] > 10_000)
        assert launch.shared_bytes <= 75 * KIB
        held = params.batches_per_block_inner_reduction * params.lparams.bdimy * params.blocks_per_cluster
        assert shape[0] <= held <= 1.25 * shape[0]
        assert params.lparams.bdimx * params.unroll_factor_iter_dom * 2 >= 64
    answer = prepare(SCHEDULER, fusion)
    assert not isinstance(answer, Reject)
    rejected = answer(p.facts_of(fusion, [(100_000, 100_000)]), p.H200)
    assert isinstance(rejected, Reject) and "do not fit in a block" in rejected.reason


@pytest.mark.parametrize("constant", [True, False])
def test_clusters_have_the_threads_that_columns_need(constant: bool) -> None:
    for length in (65, 300, 513, 700, 1000, 2100, 3136, 4097, 8191):
        for held in (Held(2, 2), Held(6, 7)):
            columns = ColumnsToHold(4096, length, 4096, 8, 2, held, constant, constant)
            tile = clustered_tile(columns, p.H200)
            if tile is None:
                assert length > 4096 and held.in_all > 2
                continue
            assert tile.shared == constant
            turn = tile.threads_y * tile.blocks
            assert turn * (tile.batches - 1) < length <= turn * tile.batches
            threads = tile.threads_x * tile.threads_y
            assert threads * tile.batches * 8 * (held.in_all if constant else held.at_once) <= 80 * KIB


@pytest.mark.parametrize("element_bytes", [2, 4])
def test_columns_in_registers_have_rows_of_128_bytes(element_bytes: int) -> None:
    for length in (256, 257, 600, 1024, 2048, 2049):
        width = 16 // element_bytes
        columns = ColumnsToHold(
            32768, length, 32768, width, element_bytes, Held(element_bytes, element_bytes), True, True
        )
        tile = register_tile(columns, p.H200)
        assert (tile is not None) == (256 < length <= 2048)
        if tile is not None:
            assert tile.threads_x * tile.width * element_bytes == 128 and not tile.shared
            assert tile.threads_x * tile.threads_y <= 256 and tile.batches * tile.width * element_bytes <= 128
            turn = tile.threads_y * tile.blocks
            assert turn * (tile.batches - 1) < length <= turn * tile.batches
        few = replace(columns, count=256)
        two = replace(columns, held=Held(2 * element_bytes, 2 * element_bytes))
        unknown = replace(columns, constant=False)
        assert [register_tile(each, p.H200) for each in (few, two, unknown)] == [None, None, None]


@pytest.mark.parametrize(
    "dims, reason", [([1], "the contiguous dimension of T0 is reduced"), ([0, 1], "the contiguous dimension")]
)
def test_what_it_does_not_take(dims: list[int], reason: str) -> None:
    verdict = SCHEDULER.prepare(p.built(lambda f: p.softmax_of(f, dims)))
    assert isinstance(verdict, Reject) and reason in verdict.reason


def test_held_rows_are_combined_in_runs_where_that_takes_less() -> None:
    def softmax(fd: FusionDefinition) -> None:
        x = fd.define_tensor([-1, -1], contiguity=True)
        top, total = (fd.ops.broadcast(each, [True, False]) for each in fd.ops.max_sum_exp(x, 0))
        fd.add_output(fd.ops.exp(x - top) / total)

    with FusionDefinition() as fd:
        softmax(fd)
    fusion = fd._finished().fusion
    canonicalize(fusion)
    for length in (4096, 1000, 333):
        facts = p.facts_of(fusion, [(length, 16384)])
        params, _ = p.propose(SCHEDULER, fusion, replace(facts, stable=frozenset(facts.sizes)))
        run = params.unroll_factor_inner_reduction
        assert params.batches_per_block_inner_reduction % run == 0
        assert run > 1 or params.batches_per_block_inner_reduction % 2
    params, _ = p.propose(SCHEDULER, p.built(lambda f: p.softmax_of(f, [0])), facts)
    assert params.unroll_factor_inner_reduction == 1
