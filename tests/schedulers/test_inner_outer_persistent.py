"""Rows that are read again with their results, and columns summed meanwhile, in one kernel."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition, ParamsError
from fusewright.core.enums import ParallelType
from fusewright.core.errors import ScheduleError
from fusewright.core.hardware import described
from fusewright.cuda.nvrtc import NvrtcOptions, Resources, compile_cubin
from fusewright.cuda.printer import print_kernel
from fusewright.ir import Fusion
from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.kernel.text import kernel_text
from fusewright.rewrite import canonicalize
from fusewright.runtime.launch_sizes import LaunchShape, check_resident
from fusewright.schedule import Schedule, replay
from fusewright.schedulers import (
    Facts,
    InnerOuterPersistentParams,
    InnerOuterPersistentScheduler,
    LaunchParams,
    Reject,
    apply,
)
from fusewright.sym import as_int
from tests.lower.running import lowered, run
from tests.schedulers import proposals as p
from tests.ways.row_gradients import layer_norm_backward, rms_norm_backward

SCHEDULER = InnerOuterPersistentScheduler()


def backward(rank: int = 2, other: DataType = DataType.Float) -> Fusion:
    """Gradients like those of layer norm, of two types; that of the bias is added to an earlier one."""
    with FusionDefinition() as fd:
        dy, x = (fd.define_tensor([-1] * rank, True, t) for t in (DataType.BFloat16, other))
        mean, scale = (fd.define_tensor([-1] * (rank - 1), True) for _ in range(2))
        weight, before = (fd.define_tensor([-1], True, t) for t in (other, DataType.Float))
        last, rows = [False] * (rank - 1) + [True], list(range(rank - 1))
        normal = (x - fd.ops.broadcast(mean, last)) * fd.ops.broadcast(scale, last)
        scaled = fd.ops.cast(dy, DataType.Float) * fd.ops.broadcast(weight, [True] * (rank - 1) + [False])
        sums = (fd.ops.sum(t, [rank - 1], keepdim=True) for t in (scaled, scaled * normal))
        of_scaled, of_both = (total * 0.01 for total in sums)
        dx = fd.ops.broadcast(scale, last) * (scaled - of_scaled - normal * of_both)
        fd.add_output(fd.ops.cast(dx, other))
        fd.add_output(fd.ops.cast(fd.ops.sum(dy * normal, rows), DataType.BFloat16))
        fd.add_output(fd.ops.sum(fd.ops.cast(dy, DataType.Float), rows) + before)
    fusion = fd._finished().fusion
    canonicalize(fusion)
    return fusion


def inputs_of(*shape: int) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(sum(shape))
    shapes = (shape, shape, shape[:-1], shape[:-1], shape[-1:], shape[-1:])
    dy, *others = (torch.randn(each, generator=draw) for each in shapes)
    return [dy.bfloat16(), *others]


def expected(*inputs: torch.Tensor) -> list[torch.Tensor]:
    dy, x, mean, scale, weight, before = (each.double() for each in inputs)
    normal, rows = (x - mean[..., None]) * scale[..., None], tuple(range(x.dim() - 1))
    scaled = dy * weight
    of_scaled, of_both = (0.01 * t.sum(-1, keepdim=True) for t in (scaled, scaled * normal))
    dx = scaled - of_scaled - normal * of_both
    return [scale[..., None] * dx, (dy * normal).sum(rows), dy.sum(rows) + before]


def params_of(
    batches: int, width: int, blocks: int, y: int, z: int, **more: Any
) -> InnerOuterPersistentParams:
    launch = LaunchParams(gdimx=blocks, bdimx=32, bdimy=y, bdimz=z)
    return InnerOuterPersistentParams(
        lparams=launch, batches_per_block_inner_reduction=batches, vectorization_factor=width, **more
    )


_WEIGHTS_IN_SHARED_MEMORY: dict[str, Any] = {"columns_in_shared_memory": True, "columns_a_thread": 2}
_RING: dict[str, Any] = {"circular_stages": 2, "prefetch_rows": True, "project_persistent_buffers": True}
SHIFTED: dict[str, Any] = {"shift_rows": True, "unaligned_inputs": (4,), "project_persistent_buffers": True}


def _reads_weights_once(body: tuple[k.Stmt, ...]) -> bool:
    """Whether the rows' loop reads no weights, which are input 4, from global memory."""
    loops = [stmt for stmt in k.walk(body) if isinstance(stmt, k.For) and not stmt.unroll]
    reads = [ref.buffer for loop in loops for stmt in k.walk(loop.body) for ref in access.read_refs(stmt)]
    return not any(buffer.space is k.Space.GLOBAL and buffer.name == "T4" for buffer in reads)


@pytest.mark.parametrize(
    "shape, params",
    [
        ((11, 120), params_of(1, 4, 3, 1, 2)),
        ((7, 300), params_of(2, 4, 3, 2, 1, project_persistent_buffers=True, prefetch_rows=True)),
        ((9, 201), params_of(2, 1, 2, -1, 4, prefetch_rows=True)),
        ((3, 5, 264), params_of(1, 4, 70, 3, 1, columns_in_shared_memory=True)),
        ((11, 200), params_of(1, 4, 2, 2, 2, columns_in_shared_memory=True, columns_a_thread=2)),
        ((3, 7, 203), params_of(1, 4, 4, 2, 2, **SHIFTED, assumed_reduction_sizes=(203,))),
        ((7, 600), params_of(1, 4, 3, 3, 1, blocks_per_cluster=2)),
        ((9, 500), params_of(1, 4, 2, 2, 2, blocks_per_cluster=2, **_WEIGHTS_IN_SHARED_MEMORY)),
        ((23, 904), params_of(2, 4, 2, 2, 1, blocks_per_cluster=2, **_RING)),
        (
            (3, 7, 603),
            params_of(1, 4, 4, 2, 1, blocks_per_cluster=3, **SHIFTED, assumed_reduction_sizes=(603,)),
        ),
    ],
    ids=[
        "rows at a time",
        "ahead",
        "odd",
        "more blocks than rows",
        "weights in shared memory",
        "shifted",
        "clusters",
        "clusters, weights in shared memory",
        "clusters, a ring",
        "clusters, shifted",
    ],
)
@pytest.mark.sampled(0.6)
def test_gradients(shape: tuple[int, ...], params: InnerOuterPersistentParams) -> None:
    """One kernel, in which blocks wait for each other once."""
    fusion, inputs = backward(len(shape)), inputs_of(*shape)
    schedule = Schedule(fusion)
    apply(SCHEDULER, schedule, params, p.H200)
    for found, wanted in zip(run(schedule, inputs), expected(*inputs), strict=True):
        tolerance = 1e-2 if found.dtype is torch.bfloat16 else 1e-4
        torch.testing.assert_close(found.double(), wanted, rtol=tolerance, atol=tolerance)
    kernel = lowered(schedule).kernel
    assert sum(isinstance(stmt, k.GridBarrier) for stmt in k.walk(kernel.body)) == 1
    once = params.columns_in_shared_memory or params.shift_rows  # then registers hold them
    assert _reads_weights_once(kernel.body) == once
    again = lowered(replay(fusion, schedule.trace()))
    assert kernel_text(again.kernel) == kernel_text(kernel)


def test_clusters_copy_shifted_rows_ahead() -> None:
    """Each block from the aligned address of its part on; all wait for each other in one place."""
    fusion, (dy, x, mean, scale, weight, before) = backward(other=DataType.BFloat16), inputs_of(35, 1803)
    inputs = [dy, x.bfloat16(), mean, scale, weight.bfloat16(), before]
    schedule = Schedule(fusion)
    params = params_of(
        1, 8, 8, 2, 1, blocks_per_cluster=4, **SHIFTED | _RING, assumed_reduction_sizes=(1803,)
    )
    apply(SCHEDULER, schedule, params, p.H200)
    for found, wanted in zip(run(schedule, inputs), expected(*inputs), strict=True):
        torch.testing.assert_close(found.double(), wanted, rtol=1e-2, atol=1e-2)
    statements = list(k.walk(lowered(schedule).kernel.body))
    assert [stmt.width for stmt in statements if isinstance(stmt, k.ClusterReduce)] == [2]  # both sums


def test_blocks_of_a_cluster_hold_their_part_of_the_weights() -> None:
    shared = []
    for cluster, y in ((1, 4), (4, 1)):
        schedule = Schedule(backward())
        params = params_of(1, 4, 2, y, 1, blocks_per_cluster=cluster, **_WEIGHTS_IN_SHARED_MEMORY)
        apply(SCHEDULER, schedule, dataclasses.replace(params, assumed_reduction_sizes=(512,)), p.H200)
        buffers = [s.buffer for s in k.walk(lowered(schedule).kernel.body) if isinstance(s, k.Alloc)]
        weights = [b for b in buffers if b.space is k.Space.SHARED and b.name.startswith("T4_")]
        shared.append([as_int(each.size) for each in weights])
    assert shared == [[512], [128]]


def test_weights_that_are_expanded_along_the_rows_are_held_in_shared_memory() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 512], contiguity=True)
        scaled = x * fd.define_tensor([-1, 512], contiguity=[None, True])
        fd.add_output(x * fd.ops.sum(scaled, [1], keepdim=True))
        fd.add_output(fd.ops.sum(scaled, [0]))
    fusion = fd._finished().fusion
    canonicalize(fusion)
    schedule = Schedule(fusion)
    params = params_of(1, 4, 2, 4, 1, **_WEIGHTS_IN_SHARED_MEMORY)
    apply(SCHEDULER, schedule, dataclasses.replace(params, assumed_reduction_sizes=(512,)), p.H200)
    values, weight = torch.randn(7, 512), torch.randn(512).expand(7, 512)
    rows, columns = run(schedule, [values, weight])
    both = values.double() * weight
    torch.testing.assert_close(rows.double(), values * both.sum(1, keepdim=True), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(columns.double(), both.sum(0), rtol=1e-4, atol=1e-4)


def test_threads_cover_the_row() -> None:
    fusion = backward(3)
    with pytest.raises(ParamsError, match=r"lparams.gdimx"):
        apply(SCHEDULER, Schedule(fusion), params_of(1, 4, -1, -1, 1), p.H200)


@pytest.mark.parametrize(
    "change, message",
    [
        (
            {"lparams": LaunchParams(gdimx=6, bdimx=32, bdimy=1, bdimz=1)},
            "a multiple of 4 where rows are shifted",
        ),
        ({"prefetch_rows": True}, "circular_stages"),
    ],
)
def test_shifted_rows_ask_for_turns(change: dict[str, Any], message: str) -> None:
    params = dataclasses.replace(
        params_of(2, 4, 4, 1, 1, **SHIFTED, assumed_reduction_sizes=(203,)), **change
    )
    with pytest.raises(ParamsError, match=message):
        apply(SCHEDULER, Schedule(backward()), params, p.H200)


def _meets_columns(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(x - fd.ops.mean(x, [1], keepdim=True) - fd.ops.sum(x, [0], keepdim=True))


def _sums(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.sum(x, [1]))
    fd.add_output(fd.ops.sum(x, [0]))


def _columns_normalized(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(x - fd.ops.mean(x, [0], keepdim=True))
    fd.add_output(fd.ops.sum(x, [1]))


@pytest.mark.parametrize(
    "body, reason",
    [
        (_meets_columns, "with the results of columns"),
        (_sums, "no row is read again"),
        (_columns_normalized, "with the results of columns"),
    ],
    ids=["meets columns", "sums", "columns normalized"],
)
def test_what_it_does_not_take(body: Callable[[FusionDefinition, Any], None], reason: str) -> None:
    with FusionDefinition() as fd:
        body(fd, fd.define_tensor([-1, -1], contiguity=True))
    verdict = SCHEDULER.prepare(fd._finished().fusion)
    assert isinstance(verdict, Reject) and reason in verdict.reason


def test_rows_that_share_a_table_load_their_part_of_it_ahead() -> None:
    """The angles of a position are the same for all its heads: a thread has those of its columns."""
    with FusionDefinition() as fd:
        grad, x = (fd.define_tensor([-1, -1, -1], contiguity=True) for _ in range(2))
        turned = grad * fd.define_tensor([-1, 1, -1], contiguity=[True, None, True])
        dot = fd.ops.sum(turned * x, [2], keepdim=True)
        fd.add_output(turned - x * dot)
        fd.add_output(fd.ops.sum(turned * x, [0, 1]))
    fusion = fd._finished().fusion
    canonicalize(fusion)
    given, values, table = torch.randn(7, 5, 200), torch.randn(7, 5, 200), torch.randn(7, 1, 200)
    schedule = Schedule(fusion)
    apply(SCHEDULER, schedule, params_of(1, 4, 5, 2, 2, prefetch_rows=True), p.H200)
    found = run(schedule, [given, values, table])
    both = (given.double() * table) * values
    torch.testing.assert_close(
        found[0].double(), given.double() * table - values * both.sum(2, keepdim=True), rtol=1e-4, atol=1e-4
    )
    torch.testing.assert_close(found[1].double(), both.sum((0, 1)), rtol=1e-4, atol=1e-4)
    statements = k.walk(lowered(schedule).kernel.body)
    read = {ref.buffer for stmt in statements for ref in access.read_refs(stmt)}
    assert max(as_int(b.size) or 0 for b in read if b.space is k.Space.LOCAL) <= 8  # a vector, and the next


def test_prefetch_stands_in_a_loop() -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([-1, -1], contiguity=True) + 1.0)
    schedule = Schedule(fd._finished().fusion)
    load = schedule.cache_after(schedule.tensor(0))
    with pytest.raises(ScheduleError, match="is not copied from an input"):
        schedule.prefetch(schedule.tensor(1))
    schedule.prefetch(load)
    for tensor in schedule.tensors():
        schedule.parallelize(tensor, 0, ParallelType.grid_x)
        schedule.parallelize(tensor, 1, ParallelType.block_x)
    with pytest.raises(ScheduleError, match="is inlined into no serial loop"):
        lowered(schedule)


def test_what_is_prefetched_is_held_for_all_of_an_unrolled_loop() -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([-1, -1], contiguity=True) + 1.0)
    schedule = Schedule(fd._finished().fusion)
    load, out = schedule.cache_after(schedule.tensor(0)), schedule.tensor(1)
    schedule.split(out, 1, 4)
    schedule.parallelize(out, 2, ParallelType.unroll)
    schedule.transform_like(out)
    schedule.parallelize_like(out)
    schedule.prefetch(load)
    schedule.inline_at(load, 2, selected=[load])
    x = torch.randn(3, 11)
    torch.testing.assert_close(run(schedule, [x])[0], x + 1.0)
    schedule.inline_most([load])
    with pytest.raises(ScheduleError, match=r"(?s)into an unrolled loop.*inlined at 2.*inlined at 3"):
        lowered(schedule)


@pytest.mark.parametrize(
    "params",
    [
        params_of(1, 4, 3, 2, 2, columns_a_thread=2),
        params_of(1, 4, 3, 2, 1, columns_a_thread=4),  # two accesses for so many counts
        params_of(2, 4, 5, 1, 1),
    ],
)
def test_reductions_of_several_states(params: InnerOuterPersistentParams) -> None:
    """Welford's of rows, of which nothing reads the count, and of columns."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        mean, squares, _ = fd.ops.welford(x, [1])
        fd.add_output((x - fd.ops.broadcast(mean, [False, True])) * fd.ops.broadcast(squares, [False, True]))
        for state in fd.ops.welford(x, [0]):
            fd.add_output(state)
    fusion, value = fd._finished().fusion, torch.randn(23, 200)
    canonicalize(fusion)
    schedule = Schedule(fusion)
    apply(SCHEDULER, schedule, params, p.H200)
    found, exact = run(schedule, [value]), value.double()
    squares_ = exact.var(1, correction=0, keepdim=True) * 200
    torch.testing.assert_close(
        found[0].double(), (exact - exact.mean(1, keepdim=True)) * squares_, rtol=1e-4, atol=1e-3
    )
    torch.testing.assert_close(found[1].double(), exact.mean(0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[2].double(), exact.var(0, correction=0) * 23, rtol=1e-4, atol=1e-4)


def test_a_position_and_what_it_was_found_in() -> None:
    """argmax reduces values, which nothing reads, with their positions; the row is held across it."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        y = x * fd.ops.argmax(fd.ops.sin(x), 1, keepdim=True)
        fd.add_output(fd.ops.sum(y, [0]))
        fd.add_output(y - fd.ops.sum(y, [1], keepdim=True))
    value = torch.randn(23, 200)
    found = fd.execute([value])
    assert [kernel.scheduler for kernel in fd.kernels_for([value])] == ["inner_outer_persistent"]
    exact = value.double() * value.sin().argmax(1, keepdim=True)
    torch.testing.assert_close(found[0].double(), exact.sum(0), rtol=1e-4, atol=1e-2)
    torch.testing.assert_close(found[1].double(), exact - exact.sum(1, keepdim=True), rtol=1e-4, atol=1e-1)


@pytest.mark.parametrize("name", ["h200", "l4"])
def test_proposals_fit_the_gpu(name: str) -> None:
    """All blocks are resident at once, whatever the sizes, with all registers that the params allow."""
    fusion, hardware = backward(), described(name)
    planner = SCHEDULER.prepare(fusion)
    assert not isinstance(planner, Reject)
    for rows, columns in product((1, 300, 16384, 100_000), (1, 3, 100, 1152, 4095, 4096, 6144, 8192, 32768)):
        shapes = ((rows, columns),) * 2 + ((rows,),) * 2 + ((columns,),) * 2
        proposal = planner(p.facts_of(fusion, shapes), hardware)
        assert not isinstance(proposal, Reject) or columns > 4096, proposal
        if isinstance(proposal, Reject):
            continue
        extents, registers = proposal.params.lparams, proposal.params.cparams.maxrregcount
        block = (extents.bdimx, extents.bdimy, extents.bdimz)
        most = registers if registers < 255 else hardware.registers_a_thread(math.prod(block))
        blocks = extents.gdimx * proposal.params.blocks_per_cluster
        check_resident(LaunchShape((blocks, 1, 1), block, 0), Resources(registers=most), hardware)


@pytest.mark.parametrize("columns, blocks", [(4096, 0), (8192, 0), (16384, 1)])
def test_rings_hold_rows_that_registers_do_not(columns: int, blocks: int) -> None:
    """Rows of which registers hold none ahead wait in shared memory, of as many blocks as have room."""
    _, fusion = rms_norm_backward.fusion("textbook")
    canonicalize(fusion)
    shapes = ((16384, columns),) * 2 + ((16384,), (columns,))
    params, _ = p.propose(SCHEDULER, fusion, p.facts_of(fusion, shapes))
    assert bool(params.circular_stages) == bool(blocks), params.reason
    if blocks:
        assert params.lparams.gdimx == blocks * p.H200.sm_count
        schedule = Schedule(fusion)
        apply(SCHEDULER, schedule, params, p.H200)
        shared = as_int(lowered(schedule).kernel.shared_bytes)
        assert shared is not None
        assert blocks * (shared + p.H200.shared_memory_reserved) <= p.H200.shared_memory_per_sm


def test_threads_have_the_registers_that_rows_of_any_length_take() -> None:
    fusion = layer_norm_backward.fusion("aten")[1]
    canonicalize(fusion)
    shapes = ((16384, 4096),) * 2 + ((16384,),) * 2 + ((4096,),)
    params, _ = p.propose(SCHEDULER, fusion, p.facts_of(fusion, shapes))
    schedule = Schedule(fusion)
    apply(SCHEDULER, schedule, params, p.H200)
    options = NvrtcOptions("sm_90a", max_registers=params.cparams.maxrregcount)
    (used,) = compile_cubin(print_kernel(lowered(schedule).kernel).text, options).resources.values()
    assert used.spill_stores == 0, params.reason


def _spilled(fusion: Fusion, params: InnerOuterPersistentParams) -> int:
    """Bytes that threads spill, as compiled for an H200."""
    schedule = Schedule(fusion)
    apply(SCHEDULER, schedule, params, p.H200)
    options = NvrtcOptions("sm_90a", max_registers=params.cparams.maxrregcount)
    (used,) = compile_cubin(print_kernel(lowered(schedule).kernel).text, options).resources.values()
    return used.spill_stores


@pytest.mark.sampled(0.5)
@pytest.mark.parametrize("columns", [1600, 2560, 3328])
def test_threads_have_the_registers_that_vectors_of_some_take(columns: int) -> None:
    """Where the last vectors of a row are fewer than its threads: each has a guard."""
    fusion = layer_norm_backward.fusion("aten")[1]
    canonicalize(fusion)
    shapes = ((8000, columns),) * 2 + ((8000,),) * 2 + ((columns,),)
    params, _ = p.propose(SCHEDULER, fusion, _stable(p.facts_of(fusion, shapes)))
    assert params.prefetch_rows and not _spilled(fusion, params), params.reason


@pytest.mark.parametrize("columns, blocks", [(8192, 1), (16384, 2)])
def test_clusters_load_rows_ahead_that_blocks_do_not(columns: int, blocks: int) -> None:
    fusion = backward()
    shapes = ((4096, columns),) * 2 + ((4096,),) * 2 + ((columns,),) * 2
    facts = _stable(p.facts_of(fusion, shapes))
    params, launch = p.propose(SCHEDULER, fusion, facts)
    assert params.blocks_per_cluster == blocks, params.reason
    assert params.prefetch_rows and launch.grid[0] == blocks * params.lparams.gdimx <= p.H200.sm_count
    assert launch.shared_bytes <= p.H200.shared_memory_per_block_optin
    assert not _spilled(fusion, params)


@pytest.mark.sampled(0.5, "cluster")
@pytest.mark.parametrize(
    "rows, columns, cluster, clusters, on_an_sm, spilled",
    [
        (1024, 65536, 8, 28, 2, 0),
        (1024, 131072, 16, 14, 2, 0),
        (1024, 50257, 8, 24, 2, 80),
        (1024, 65537, 4, 24, 1, 160),
    ],
)
def test_long_rows_are_held_by_clusters(
    rows: int, columns: int, cluster: int, clusters: int, on_an_sm: int, spilled: int
) -> None:
    """Two blocks an SM where these have room; shifted rows take turns. All are resident at once."""
    fusion = rms_norm_backward.fusion("textbook")[1]
    canonicalize(fusion)
    shapes = ((rows, columns),) * 2 + ((rows,), (columns,))
    params, launch = p.propose(SCHEDULER, fusion, _stable(p.facts_of(fusion, shapes)))
    assert (params.blocks_per_cluster, params.lparams.gdimx) == (cluster, clusters), params.reason
    assert params.circular_stages == 3 and params.shift_rows is bool(columns % 2)
    assert _spilled(fusion, params) <= spilled
    assert on_an_sm * (launch.shared_bytes + p.H200.shared_memory_reserved) <= p.H200.shared_memory_per_sm
    assert clusters <= p.H200.resident_clusters(cluster, on_an_sm)


def test_vectors_of_odd_rows_begin_at_aligned_addresses() -> None:
    """Where blocks take several rows in turns, and what all rows read is of columns."""
    fusion = rms_norm_backward.fusion("textbook")[1]
    canonicalize(fusion)

    def proposed(rows: int, columns: int, stable: bool = True) -> InnerOuterPersistentParams:
        shapes = ((rows, columns),) * 2 + ((rows,), (columns,))
        facts = p.facts_of(fusion, shapes)
        return p.propose(SCHEDULER, fusion, _stable(facts) if stable else facts)[0]

    layer_norm = layer_norm_backward.fusion("textbook")[1]
    canonicalize(layer_norm)
    facts = p.facts_of(layer_norm, ((8191, 4097),) * 2 + ((8191,), (8191,), (4097,)))
    assert not p.propose(SCHEDULER, layer_norm, _stable(facts))[0].shift_rows  # two sums of columns
    params = proposed(8191, 4097)
    assert params.batches_per_block_inner_reduction == 3 and params.lparams.gdimx == 264
    assert not _spilled(fusion, params), params.reason
    params = proposed(8191, 10001)
    assert params.shift_rows and params.unaligned_inputs == (3,) and params.vectorization_factor == 8
    assert not _spilled(fusion, params), params.reason
    assert not proposed(8191, 10000).shift_rows
    assert not proposed(500, 10001).shift_rows  # blocks have too few rows each
    assert not proposed(12730, 2107).shift_rows  # registers take the next rows by element
    assert not proposed(8191, 10001, stable=False).shift_rows


def _stable(facts: Facts) -> Facts:
    """Of a call whose sizes were the same in all calls."""
    return dataclasses.replace(facts, stable=frozenset(facts.sizes))


@pytest.mark.parametrize(
    "rows, columns, threads, vectors, blocks",
    [(33, 4096, 256, 4, 40), (33, 1024, 256, 1, 40), (33, 2048, 256, 2, 40), (200, 1000, 64, 4, 112)],
)
def test_few_rows_have_many_threads(rows: int, columns: int, threads: int, vectors: int, blocks: int) -> None:
    """A thread has few vectors of its row."""
    _, fusion = rms_norm_backward.fusion("textbook")
    canonicalize(fusion)
    shapes = ((rows, columns),) * 2 + ((rows,), (columns,))
    params, _ = p.propose(SCHEDULER, fusion, _stable(p.facts_of(fusion, shapes)))
    extents = params.lparams
    assert (extents.bdimx * extents.bdimy, extents.gdimx) == (threads, blocks), params.reason
    assert params.batches_per_block_inner_reduction == vectors and params.blocks_per_cluster == 1
    assert not params.prefetch_rows and not _spilled(fusion, params)


def test_calls_with_a_few_rows_more_have_the_same_kernel() -> None:
    """Where there are fewer rows than the GPU takes at once."""
    _, fusion = rms_norm_backward.fusion("textbook")
    canonicalize(fusion)

    def params_of(rows: int) -> object:
        shapes = ((rows, 1024),) * 2 + ((rows,), (1024,))
        return dataclasses.replace(p.propose(SCHEDULER, fusion, p.facts_of(fusion, shapes))[0], reason="")

    assert len({params_of(rows) for rows in range(97, 133, 3)}) <= 3


def test_few_long_rows_are_left_to_two_kernels() -> None:
    """Of which none passes on what it finds in its columns."""
    _, fusion = rms_norm_backward.fusion("textbook")
    canonicalize(fusion)
    planner = SCHEDULER.prepare(fusion)
    assert not isinstance(planner, Reject)
    for rows, is_one_kernel in ((33, False), (132, False), (200, True)):
        shapes = ((rows, 16384),) * 2 + ((rows,), (16384,))
        found = planner(_stable(p.facts_of(fusion, shapes)), p.H200)
        assert isinstance(found, Reject) is not is_one_kernel


@pytest.mark.parametrize("columns, lanes", [(65, 16), (33, 16), (257, 32), (64, 8)])
def test_half_a_warp_has_a_row_that_leaves_much_of_a_warp_idle(columns: int, lanes: int) -> None:
    _, fusion = rms_norm_backward.fusion("textbook")
    canonicalize(fusion)
    shapes = ((131072, columns),) * 2 + ((131072,), (columns,))
    params, _ = p.propose(SCHEDULER, fusion, _stable(p.facts_of(fusion, shapes)))
    assert params.lparams.bdimx == lanes, params.reason
    assert not _spilled(fusion, params)


@pytest.mark.parametrize(
    "rows, columns, elements, threads",
    [
        (2048, 4096, 16, 256),
        (4096, 2048, 16, 128),
        (16384, 4096, 32, 128),
        (8191, 4097, 9, 480),  # by element
        (12730, 2107, 9, 256),
        (4390, 10360, 18, 288),  # by clusters
    ],
)
@pytest.mark.sampled(0.5)
def test_rows_of_few_turns_and_by_element_have_more_threads(
    rows: int, columns: int, elements: int, threads: int
) -> None:
    vectors, line = ((rows, columns),) * 2, (columns,)
    if columns % 16:
        fusion, shapes = backward(), (*vectors, (rows,), (rows,), line, line)
    else:
        (_, fusion), shapes = rms_norm_backward.fusion("textbook"), (*vectors, (rows,), line)
        canonicalize(fusion)
    params, _ = p.propose(SCHEDULER, fusion, _stable(p.facts_of(fusion, shapes)))
    extents = params.lparams
    held = params.batches_per_block_inner_reduction * params.vectorization_factor
    assert (held, extents.bdimx * extents.bdimy) == (elements, threads), params.reason
    assert params.prefetch_rows and not params.circular_stages and not _spilled(fusion, params)


@pytest.mark.parametrize("rows, ahead", [(7814, False), (131072, True)])
def test_rows_by_element_are_ahead_where_turns_are_many(rows: int, ahead: bool) -> None:
    _, fusion = rms_norm_backward.fusion("textbook")
    canonicalize(fusion)
    shapes = ((rows, 749),) * 2 + ((rows,), (749,))
    params, _ = p.propose(SCHEDULER, fusion, _stable(p.facts_of(fusion, shapes)))
    assert params.vectorization_factor == 1 and params.prefetch_rows == ahead, params.reason
    assert params.project_persistent_buffers != ahead
