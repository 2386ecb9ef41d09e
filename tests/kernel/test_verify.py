"""The kernel verifier: well-formed kernels pass, each fault is named with its statement."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import pytest

from fusewright.core.dtype import DataType
from fusewright.core.enums import CacheOp, ParallelType
from fusewright.core.errors import VerifyError
from fusewright.kernel import verify as verifier
from fusewright.kernel.ir import (
    TRUE,
    Alloc,
    Barrier,
    BlockReduce,
    BlockScan,
    Buffer,
    ClusterReduce,
    Combine,
    Compute,
    Convert,
    Copy,
    For,
    GridReduce,
    GridScan,
    If,
    Imm,
    Init,
    Kernel,
    Let,
    LetMisalignment,
    LetValue,
    ScalarParam,
    ScalarRef,
    Scatter,
    Space,
    Stmt,
    TensorParam,
    Window,
    WorkspaceParam,
    index_symbol,
)
from fusewright.kernel.verify import verify
from fusewright.ops.reductions import PROD, SUM, WELFORD
from fusewright.sym import const, lt, symbol
from tests.kernel import builders
from tests.kernel.builders import ADD, EXP, at, local, shared, size, tensor

F = DataType.Float
BX, GX = ParallelType.block_x, ParallelType.grid_x
N, N_PARAM = size("n")
OUT = tensor("out", F, N, output=True)
X = tensor("x", DataType.Half, N)
SEMAPHORE = Buffer("semaphore", DataType.Int32, Space.GLOBAL, const(1))
EXCHANGE = builders.grid_exchange(8)
FOUND = Buffer("found", F, Space.GLOBAL, const(8))
T = index_symbol(BX, const(64))
A, B = local("a", F), local("b", F)
COUNT = local("count", DataType.Index)
H = local("h", DataType.Half)
WIDE = local("wide", F, 8)
BYTES = local("bytes", DataType.Float8_e4m3fn, 8)
FLAGS = local("flags", DataType.Bool, 8)
S = shared("s", F, 64)
ONE = Imm(1.0, F)
K = symbol("k", hi=3)
STORE = Copy(at(OUT.buffer, T), ONE)
GRID_SUM = GridReduce(SUM, (at(A),), (at(B),), (GX,), (BX,), TRUE, (S,), EXCHANGE, symbol("last", hi=1))
BLOCK_SUM = BlockReduce(SUM, (at(A),), (at(B),), (BX,), TRUE, (S,))


def _kernel(body: Sequence[Stmt]) -> Kernel:
    zeroed = [WorkspaceParam(buffer, zeroed=True) for buffer in (EXCHANGE, SEMAPHORE)]
    params = [OUT, X, N_PARAM, WorkspaceParam(FOUND), *zeroed]
    return builders.kernel("k", params, [*body, STORE], [8], [64], 256)


WELL_FORMED = {
    "pointwise": builders.pointwise,
    "row_softmax": builders.row_softmax,
    "column_sum": builders.column_sum,
    "grid_sum": builders.grid_sum,
    "grid_sums": builders.grid_sums,
    "grid_reverse": builders.grid_reverse,
    "cluster_rows": builders.cluster_rows,
    "row_welford": builders.row_welford,
    "row_welford_of_runs": lambda: builders.row_welford(run=4),
    "block_reverse": builders.block_reverse,
    "complex_product": builders.complex_product,
    "iota_select": builders.iota_select,
    "gathered_rows": builders.gathered_rows,
    "padded": builders.padded,
    "nothing": lambda: _kernel([]),
    "names reused one after the other": lambda: _kernel([For(K, const(4), ()), For(K, const(4), ())]),
    "collective under a condition of the block": lambda: _kernel(
        [If(lt(index_symbol(GX, const(8)), 4), (Barrier(),))]
    ),
}


@pytest.mark.parametrize("name", WELL_FORMED)
def test_well_formed(name: str) -> None:
    verify(WELL_FORMED[name]())


STRAY = ScalarParam("stray", F)
ROW = symbol("row", lo=-1, hi=N - 1)
TAINTED = symbol("tainted", hi=63)

FAULTS: dict[str, tuple[Sequence[Stmt], str]] = {
    "undeclared buffer": ([Copy(at(A), ONE)], "buffer a is not declared here"),
    "out of scope": ([If(TRUE, (Alloc(A),)), Copy(at(A), ONE)], "buffer a is not declared here"),
    "declared twice": ([Alloc(A), Alloc(A)], "the name a is already in use"),
    "shadowed": ([Let(K, T), For(K, const(4), ())], "the name k is already in use"),
    "CUDA's name": ([Let(symbol("threadIdx.x"), const(0))], "the name threadIdx.x is CUDA's"),
    "global Alloc": ([Alloc(SEMAPHORE)], "buffer semaphore is global"),
    "local of symbolic size": (
        [Alloc(Buffer("l", F, Space.LOCAL, N))],
        "has the size n, not a positive constant",
    ),
    "undefined symbol": ([Copy(at(OUT.buffer, K), ONE)], "k is not defined here"),
    "symbol with other bounds": (
        [Let(K, T), Copy(at(OUT.buffer, symbol("k", hi=7)), ONE)],
        "k has other bounds here",
    ),
    "scalar that is no parameter": ([Alloc(A), Copy(at(A), ScalarRef(STRAY))], "stray is not a parameter"),
    "dtypes of a copy": ([Alloc(A), Copy(at(A), at(X.buffer))], "x[0] is Half, its destination Float"),
    "odd width": ([Alloc(WIDE), Copy(at(OUT.buffer), at(WIDE), 3)], "the width 3 is not a power of two"),
    "too wide": (
        [Alloc(WIDE), Copy(at(OUT.buffer), at(WIDE), 8)],
        "8 elements of Float are more than 16 bytes",
    ),
    "vector of constants": ([Alloc(WIDE), Copy(at(WIDE), ONE, 4)], "only elements of a buffer"),
    "hint on registers": (
        [Alloc(A), Alloc(B), Copy(at(A), at(B), cache=CacheOp.streaming)],
        "a cache hint without global memory",
    ),
    "a fill without a predicate": ([Alloc(A), Copy(at(A), ONE, fill=ONE)], "a fill without a predicate"),
    "type of a fill": (
        [Alloc(A), Copy(at(A), ONE, pred=lt(T, 3), fill=Imm(1, DataType.Int))],
        "the fill 1:Int is Int, its destination Float",
    ),
    "a fill in memory": (
        [Alloc(A), Copy(at(A), ONE, pred=lt(T, 3), fill=at(OUT.buffer))],
        "buffer out is in global memory, not local",
    ),
    "a pad without a value": (
        [Alloc(A), Copy(at(A), ONE, pred=lt(T, 3), fill_is_value=True)],
        "a value of the program fills, but there is no fill",
    ),
    "predicate that is a number": ([Alloc(A), Copy(at(A), ONE, pred=N)], "the condition n is not boolean"),
    "scattered to a register": ([Alloc(A), Scatter(at(A), ONE)], "buffer a is in local memory, not global"),
    "scattered from memory": (
        [Scatter(at(FOUND), at(OUT.buffer))],
        "buffer out is in global memory, not local",
    ),
    "scattered in two ways": (
        [Scatter(at(FOUND), ONE), Scatter(at(FOUND), ONE, SUM)],
        f"{FOUND.name} is scattered to in another way, too",
    ),
    "an addition that no GPU does at once": (
        [Scatter(at(FOUND), ONE, PROD)],
        "prod of Float is not done at once",
    ),
    "an index that is no integer": ([Alloc(A), LetValue(ROW, at(A), N)], "a[0] is Float, no integer"),
    "an index in memory": (
        [LetValue(ROW, at(SEMAPHORE), N)],
        "buffer semaphore is in global memory, not local",
    ),
    "a loaded index that is declared as another": (
        [Alloc(COUNT), LetValue(K, at(COUNT), N)],
        "k is not declared to lie in [-1, n - 1]",
    ),
    "divergent by way of a loaded index": (
        [Alloc(COUNT), LetValue(ROW, at(COUNT), N), If(lt(ROW, 3), (Barrier(),))],
        "not all threads arrive here: `row < 3`",
    ),
    "arity": ([Alloc(A), Compute(ADD, at(A), (at(A),), F)], "add takes 2 operands, not 1"),
    "computed in half": (
        [Alloc(H), Compute(EXP, at(H), (at(H),), DataType.Half)],
        "nothing is computed in Half",
    ),
    "unsupported type": (
        [Alloc(A), Compute(EXP, at(A), (at(A),), DataType.Int)],
        "exp is not defined for Int",
    ),
    "number of states": ([Alloc(A), Init(WELFORD, (at(A),))], "welford has 3 states, but 1 accumulators"),
    "types of states": (
        [Alloc(A), Alloc(B), Alloc(H), Init(WELFORD, (at(A), at(B), at(H)))],
        "welford has no states of types Float, Float, Half",
    ),
    "operands of a combination": (
        [Alloc(A), Combine(SUM, (at(A),), (at(A), at(A)))],
        "sum takes one value or 1 states, not 2",
    ),
    "a run of an operation that has none": (
        [Alloc(A), Alloc(WIDE), Combine(SUM, (at(A),), (at(WIDE),), 4)],
        "sum combines no runs",
    ),
    "a run of constants": (
        [Alloc(A), Alloc(B), Alloc(COUNT), Combine(WELFORD, (at(A), at(B), at(COUNT)), (ONE,), 4)],
        "a run is of the elements of one local buffer",
    ),
    "shared accumulator": ([Alloc(S), Init(SUM, (at(S),))], "the accumulator s is not local"),
    "scan across blocks": (
        [Alloc(A), Alloc(B), BlockScan(SUM, (at(A),), (at(A),), (at(B),), GX, ())],
        "not an axis of the block: blockIdx.x",
    ),
    "scan of another type than its carry's": (
        [Alloc(A), Alloc(COUNT), BlockScan(SUM, (at(A),), (at(A),), (at(COUNT),), BX, ())],
        "a scan over states of Float and Index",
    ),
    "divergent scan": (
        [Alloc(A), Alloc(B), If(lt(T, 3), (BlockScan(SUM, (at(A),), (at(A),), (at(B),), BX, ()),))],
        "not all threads arrive here: `threadIdx.x < 3`",
    ),
    "scan of blocks along threads": (
        [Alloc(A), Alloc(B), GridScan(SUM, (at(A),), (at(A),), (at(B),), BX, BX, (), EXCHANGE)],
        "not axes of the grid: threadIdx.x",
    ),
    "scan of blocks without threads": (
        [Alloc(A), Alloc(B), GridScan(SUM, (at(A),), (at(A),), (at(B),), GX, GX, (), EXCHANGE)],
        "not an axis of the block: blockIdx.x",
    ),
    "divergent scan of blocks": (
        [
            Alloc(A),
            Alloc(B),
            If(lt(T, 3), (GridScan(SUM, (at(A),), (at(A),), (at(B),), GX, BX, (), EXCHANGE),)),
        ],
        "not all threads arrive here: `threadIdx.x < 3`",
    ),
    "misalignment of another range": (
        [LetMisalignment(symbol("beyond", lo=0, hi=8), OUT.buffer, 8)],
        "beyond is not declared to lie in [0, 7]",
    ),
    "window from a place that may lie beyond it": (
        [Alloc(WIDE), Window(at(WIDE), at(WIDE), T, 4)],
        "the offset threadIdx.x is not known to lie in [0, 3]",
    ),
    "conversion to a type of which none are made in pairs": (
        [Alloc(WIDE), Alloc(FLAGS), Convert(at(FLAGS), at(WIDE), 2)],
        "Float is not converted to Bool so",
    ),
    "conversion of memory": (
        [Alloc(S), Alloc(BYTES), Convert(at(BYTES), at(S), 2)],
        "buffer s is in shared memory, not local",
    ),
    "conversion of a vector of odd width": (
        [Alloc(WIDE), Alloc(BYTES), Convert(at(BYTES), at(WIDE), 3)],
        "3 elements are no pairs",
    ),
    "cluster reduction without clusters": (
        [Alloc(A), Alloc(B), Alloc(S), ClusterReduce(SUM, (at(A),), (at(B),), (BX,), TRUE, (), (S,))],
        "the kernel has no clusters",
    ),
    "varying extent": ([For(K, T, ())], "the extent threadIdx.x differs between threads"),
    "condition that is a number": ([If(N, ())], "the condition n is not boolean"),
    "divergent barrier": ([If(lt(T, 3), (Barrier(),))], "not all threads arrive here: `threadIdx.x < 3`"),
    "divergent by way of a name": (
        [Let(TAINTED, T), If(lt(TAINTED, 3), (For(K, const(4), (Barrier(),)),))],
        "not all threads arrive here: `tainted < 3`",
    ),
    "divergent reduction": (
        [Alloc(A), Alloc(B), Alloc(S), If(lt(T, 3), (BLOCK_SUM,))],
        "not all threads arrive here",
    ),
    "local workspace": (
        [Alloc(A), Alloc(B), Alloc(WIDE), BlockReduce(SUM, (at(A),), (at(B),), (BX,), TRUE, (WIDE,))],
        "buffer wide is in local memory, not shared",
    ),
    "axis of the grid in a block reduction": (
        [Alloc(A), Alloc(B), Alloc(S), BlockReduce(SUM, (at(A),), (at(B),), (GX,), TRUE, (S,))],
        "not axes of the block: blockIdx.x",
    ),
    "grid reduction in a loop": (
        [Alloc(A), Alloc(B), Alloc(S), For(K, const(4), (GRID_SUM,))],
        "a grid reduction inside the loop over k",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_named_with_its_statement(name: str) -> None:
    body, problem = FAULTS[name]
    with pytest.raises(VerifyError, match=re.escape(problem)) as raised:
        verify(_kernel(body), after="a pass")
    assert "kernel verifier, after a pass" in str(raised.value)
    assert f"in `{verifier.statement_text(raised.value.facts['node'])}`" in str(raised.value)


def test_what_blocks_of_a_cluster_exchange_has_memory_of_its_own() -> None:
    kernel = builders.cluster_rows()
    [reduction] = [stmt for stmt in kernel.body if isinstance(stmt, ClusterReduce)]
    block = BlockReduce(SUM, reduction.dst, reduction.src, reduction.axes, TRUE, reduction.exchange)
    for problem, statements in {
        "blocks reduce together through nothing": [replace(reduction, exchange=())],
        "exchange serves a cluster reduction along other axes, or": [reduction, replace(reduction, axes=())],
        "exchange is an exchange between blocks, and a workspace of one": [reduction, block],
    }.items():
        place = kernel.body.index(reduction)
        body = (*kernel.body[:place], *statements, *kernel.body[place + 1 :])
        with pytest.raises(VerifyError, match=problem):
            verify(replace(kernel, body=body))


def test_what_is_scattered_to_is_nothing_elses() -> None:
    with pytest.raises(VerifyError, match="out is scattered to, but other statements access it"):
        verify(_kernel([Scatter(at(OUT.buffer, T), ONE)]))
    for is_updated, body in ((True, [STORE]), (False, [Scatter(at(OUT.buffer, T), ONE)])):
        param = TensorParam(OUT.buffer, is_updated=is_updated)
        with pytest.raises(VerifyError, match=r"out is(?: not)? scattered to, against what is said"):
            verify(builders.kernel("k", [param, N_PARAM], body, [8], [64]))


def test_output_must_be_written() -> None:
    with pytest.raises(VerifyError, match="nothing writes the output out"):
        verify(builders.kernel("k", [OUT, N_PARAM], [], [1], [32]))


def test_tensors_have_the_same_elements_in_every_kernel() -> None:
    with pytest.raises(VerifyError, match="the tensor counts holds Index, whose width differs"):
        params = [tensor("counts", DataType.Index, N), N_PARAM]
        verify(builders.kernel("k", params, [], [1], [32]))


def test_scratch_memory_belongs_to_collectives() -> None:
    allocs = [Alloc(A), Alloc(B), Alloc(S)]
    verify(_kernel([*allocs, BLOCK_SUM, BLOCK_SUM]))
    for access in (Copy(at(A), at(S)), Copy(at(S), at(A))):
        with pytest.raises(VerifyError, match="s is a collective's scratch memory"):
            verify(_kernel([*allocs, BLOCK_SUM, access]))


def test_launch_depends_on_parameters_only() -> None:
    with pytest.raises(VerifyError, match="the launch n depends on n, no parameter"):
        verify(builders.kernel("k", [OUT], [STORE], [N], [32]))


def test_every_statement_has_its_rule() -> None:
    assert set(verifier.RULES) == set(get_args(Stmt))
