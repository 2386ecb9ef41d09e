"""Iterations of which more is known than of others have code of their own."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.enums import CacheOp
from fusewright.kernel import ir as k
from fusewright.kernel.verify import verify
from fusewright.lower.passes.iterations import separate_iterations
from fusewright.ops.reductions import SUM
from fusewright.sym import Expr, ceildiv, land, le, lor, lt, symbol
from tests.kernel import builders as b
from tests.lower.statements import N, T, X, Y, copy, kernel, lines, loop

# A row of 502 elements that starts at BEGIN, in 4 vectors of 4 for each of 32 threads.
LENGTH = 502
J, LANE, BEGIN = symbol("j", lo=0, hi=3), symbol("lane", lo=0, hi=3), symbol("begin", lo=0, hi=3)
ROW, TOTAL = b.local("ROW", DataType.Float, 16), b.local("TOTAL", DataType.Float)
HELD = b.shared("HELD", DataType.Float, 512)
FIRST, LAST = 128 * J + 4 * T, 128 * J + 4 * T + 3


def exists(first: Expr, last: Expr) -> Expr:
    return land(le(BEGIN, first), lt(last, BEGIN + LENGTH))


def load() -> k.Copy:
    fill = k.Imm(0.0, DataType.Float)
    return k.Copy(b.at(ROW, 4 * J), b.at(X.buffer, FIRST), 4, pred=exists(LAST, FIRST), fill=fill)


def total(pred: Expr = k.TRUE) -> k.For:
    add = k.Combine(SUM, (b.at(TOTAL),), (b.at(ROW, 4 * J + LANE),), pred=pred)
    return loop(4, add, index=LANE, unroll=True)


def over(*body: k.Stmt, unroll: bool = True) -> k.For:
    return loop(4, *body, index=J, unroll=unroll)


def statements(*body: k.Stmt) -> k.Kernel:
    begin = k.Let(BEGIN, N % 4)
    return kernel(begin, *body, allocs=(ROW, TOTAL, HELD))


def test_vectors_between_the_ends_of_a_row_have_no_guards() -> None:
    at_edge = lor(lt(FIRST, BEGIN), le(BEGIN + LENGTH, LAST))
    found = separate_iterations(
        statements(
            over(load()),
            over(
                k.If(exists(FIRST, LAST), (total(),)),
                k.If(at_edge, (total(exists(FIRST + LANE, FIRST + LANE)),)),
            ),
            copy(Y.buffer, TOTAL, T),
        )
    )
    verify(found, "separated")
    sums = "TOTAL[0] = sum(TOTAL[0]; ROW[4*j + lane + 4])"
    text = lines(found)
    assert text[1:4] == [
        "for j in 3 unrolled:",
        "ROW[4*j:+4] = X[128*j + 4*threadIdx.x:+4]",
        "ROW[12:+4] = X[4*threadIdx.x + 384:+4] if 4*threadIdx.x <= begin + 117 else 0.0:Float",
    ], text
    assert [line for line in text if line.startswith("if")] == [
        "if begin <= 4*threadIdx.x:",
        "if 4*threadIdx.x < begin:",
        "if 4*threadIdx.x <= begin + 114:",
        "if begin + 114 < 4*threadIdx.x:",
    ], text
    assert sums in text and sum("ROW[4*j" in line for line in text) == 2, text


@pytest.mark.parametrize(
    "body",
    [
        over(copy(X.buffer, ROW, FIRST, 4 * J)),  # no condition
        over(k.If(lt(4 * J + T, N), (total(),))),  # the same is known of all iterations: nothing
        over(k.If(lt(J % 2, 1), (total(),))),  # what is known changes too often
        over(k.If(lt(J, 2), (k.Combine(SUM, (b.at(TOTAL),), (b.at(ROW, J),)),))),  # the lanes of a vector
        over(k.If(lt(J, 2), (total(),)), unroll=False),  # a serial loop that moves no vectors
        over(k.If(lt(J, 2), (copy(HELD, ROW, FIRST, J), k.Barrier(), total()))),
    ],
)
def test_other_loops_stay(body: k.For) -> None:
    unchanged = statements(body)
    assert separate_iterations(unchanged) is unchanged


def test_serial_loops_over_vectors_in_shared_memory_are_parted() -> None:
    fill = k.Imm(0.0, DataType.Float)
    read = k.Copy(b.at(ROW), b.at(HELD, FIRST), 4, pred=lt(LAST, LENGTH), fill=fill)
    found = lines(separate_iterations(statements(over(read, unroll=False))))
    assert found[1:] == [
        "for j in 3:",
        "ROW[0:+4] = HELD[128*j + 4*threadIdx.x:+4]",
        "ROW[0:+4] = HELD[4*threadIdx.x + 384:+4] if threadIdx.x < 29 else 0.0:Float",
    ]


@pytest.mark.parametrize("rows", (1, 9))
@pytest.mark.parametrize("length", (4095, 4097, 6149))
def test_rows_of_a_constant_length_are_right_wherever_they_start(length: int, rows: int) -> None:
    """Its first and its last vectors, however far the aligned addresses are from the ends."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.BFloat16)
        wide = fd.ops.cast(x, DataType.Float)
        shifted = fd.ops.exp(wide - fd.ops.max(wide, dims=[1], keepdim=True))
        result = shifted / fd.ops.sum(shifted, dims=[1], keepdim=True)
        fd.add_output(fd.ops.cast(result, DataType.BFloat16))
    given = torch.randn(rows, length, generator=torch.Generator().manual_seed(length)).bfloat16()
    edit = {
        "shift_rows": True,
        "unroll_factor_inner_reduction": 8,
        "vectorize_inner_reduction": True,
        "blocks_per_cluster": 1,
        "batches_per_block_inner_reduction": 4,
        "persistent_in_shared_memory": False,
        "assumed_reduction_sizes": [length],
        "lparams": {"bdimx": -1, "bdimy": 1},
    }
    [out] = fd.execute([given], schedules={0: edit})
    torch.testing.assert_close(out.float(), given.float().softmax(1).bfloat16().float(), rtol=0.01, atol=1e-6)


def test_the_last_iteration_of_a_calls_length_is_apart_where_words_are_loaded() -> None:
    fill = k.Imm(0.0, DataType.Float)
    serial = symbol("j", lo=0, hi=ceildiv(N, 128) - 1)
    at = 128 * serial + 4 * T + LANE
    read = k.Copy(b.at(ROW, LANE), b.at(X.buffer, at), 1, CacheOp.streaming, lt(at, N), fill)
    whole = k.For(serial, ceildiv(N, 128), (loop(4, read, index=LANE, unroll=True),))
    found = separate_iterations(statements(whole, copy(Y.buffer, TOTAL, T)))
    verify(found, "separated")
    assert [line for line in lines(found) if line.startswith(("for j", "if "))] == [
        "for j in n // 128:",
        "if n // 128 < ceilDiv(n, 128):",
    ]
    copies = [stmt for stmt in k.walk(found.body) if isinstance(stmt, k.Copy)][:2]
    assert [stmt.pred is k.TRUE for stmt in copies] == [True, False]
    vectors = dataclasses.replace(read, width=4, dst=b.at(ROW), src=b.at(X.buffer, 128 * serial + 4 * T))
    unchanged = statements(k.For(serial, ceildiv(N, 128), (vectors,)))
    assert separate_iterations(unchanged) is unchanged


@pytest.mark.parametrize("length", (1, 63, 64, 65, 128, 150))
@pytest.mark.parametrize("dtype", (DataType.BFloat16, DataType.Float))
def test_columns_of_any_length_are_summed_by_single_elements(length: int, dtype: DataType) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=dtype)
        fd.add_output(fd.ops.sum(fd.ops.cast(x, DataType.Float), dims=[0]))
    given = torch.randn(length, 37, generator=torch.Generator().manual_seed(length)).to(dtype.torch)
    edit = {
        "lparams": {"bdimx": 32, "bdimy": 2, "gdimy": 4},
        "unroll_factor_inner_reduction": 8,
        "unroll_factor_iter_dom": 1,
        "vectorize_iter_dom": False,
        "streams_inputs": True,
    }
    [out] = fd.execute([given], schedules={0: edit})
    torch.testing.assert_close(out, given.float().sum(0))
