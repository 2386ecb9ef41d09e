"""What an element of a row costs: extrema, comparisons with classes, casts to eight bits, row values."""

from __future__ import annotations

import torch

from fusewright import DataType, FusionDefinition
from fusewright.kernel import ir as k
from fusewright.kernel.verify import verify
from fusewright.lower.passes.conversions import convert_in_pairs
from fusewright.lower.passes.first_iterations import store_before_loops
from fusewright.lower.passes.narrow import narrow_comparisons
from fusewright.lower.passes.packed_runs import combine_packed_runs
from fusewright.lower.passes.repeated import read_repeated_registers
from fusewright.ops.elementwise import CAST, ELEMENTWISE
from fusewright.ops.reductions import MAX, SUM
from fusewright.sym import Expr, const, eq, lt, symbol
from tests.kernel import builders as b
from tests.lower.statements import T, X, Y, copy, kernel, lines, loop

J = symbol("j", lo=0, hi=7)
A, B = b.local("A", DataType.Float), b.local("B", DataType.Float)
ROW, ODD = b.local("ROW", DataType.Float, 8), b.local("ODD", DataType.Float, 8)
BYTES = b.local("BYTES", DataType.Float8_e4m3fn, 8)
CLASS, PLACE = b.local("CLASS", DataType.Int), b.local("PLACE", DataType.Int)
HIT, HALVES = b.local("HIT", DataType.Bool), b.local("HALVES", DataType.Half, 8)
HALVES_OUT = b.shared("HALVES_OUT", DataType.Half, 256)
REGISTERS = (A, B, ROW, ODD, BYTES, CLASS, PLACE, HIT, HALVES)


def made_by(fd: FusionDefinition) -> list[k.Stmt]:
    """All statements of the kernels of the last call."""
    kernels = fd._finished().executor.last_program.kernels
    return [stmt for kernel in kernels for stmt in k.walk(kernel.kernel.body)]


def each(*body: k.Stmt) -> k.For:
    return loop(8, *body, index=J, unroll=True)


def statements(*body: k.Stmt) -> k.Kernel:
    return kernel(*body, allocs=REGISTERS)


# ---- comparisons


def compared(position: Expr, op: str = "eq", other: k.Operand | None = None) -> k.Kernel:
    place = k.Copy(b.at(PLACE), k.IndexValue(position, DataType.Int))
    args = (b.at(PLACE), other or b.at(CLASS))
    return statements(each(place, k.Compute(ELEMENTWISE[op], b.at(HIT), args, DataType.Int)))


def test_classes_are_compared_in_32_bits_whatever_they_are() -> None:
    """Labels that are no classes, above and below 32 bits too, hit nothing and order as they are."""
    labels = torch.tensor([3, 0, -1, 63, 64, 2**31, 2**32 + 3, -(2**32) + 3, -(2**63), 2**63 - 1])
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.BFloat16)
        target = fd.define_tensor([-1], contiguity=True, dtype=DataType.Int)
        where = fd.ops.broadcast(target, [False, True])
        classes = fd.ops.broadcast(fd.ops.iota(fd.ops.size(x, 1)), [True, False])
        total = fd.ops.sum(fd.ops.cast(x, DataType.Float), dims=[1], keepdim=True)
        for relation in (fd.ops.eq, fd.ops.lt, fd.ops.ge):
            fd.add_output(fd.ops.where(relation(classes, where), total, 0.0))
    x = torch.ones(len(labels), 64).bfloat16()
    found = fd.execute([x, labels])
    place = torch.arange(64)
    for out, relation in zip(found, (torch.eq, torch.lt, torch.ge)):
        torch.testing.assert_close(out, torch.where(relation(place, labels[:, None]), 64.0, 0.0))
    types = {s.dtype for s in made_by(fd) if isinstance(s, k.Compute) and s.op.name == "eq"}
    assert types == {DataType.Int32}


def test_only_positions_are_compared_so() -> None:
    found = lines(narrow_comparisons(compared(16 * T + J)))
    assert any("narrow_2[0] = sub" in line for line in found), found
    for unchanged in (
        compared(16 * T + J - 1),  # may be below 0
        statements(each(k.Compute(ELEMENTWISE["eq"], b.at(HIT), (b.at(PLACE), b.at(CLASS)), DataType.Int))),
        compared(16 * T + J, "add", b.at(PLACE)),
    ):
        assert narrow_comparisons(unchanged) is unchanged


# ---- extrema


def test_extrema_are_found_before_values_are_widened() -> None:
    """In halves and bfloat16, infinities and NaN too; not where lanes are left out, or a sum is computed."""
    inf = float("inf")
    for dtype, extremum in ((DataType.BFloat16, "max"), (DataType.Half, "min")):
        with FusionDefinition() as fd:
            x = fd.define_tensor([-1, -1], contiguity=True, dtype=dtype)
            wide = fd.ops.cast(x, DataType.Float)
            found = getattr(fd.ops, extremum)(wide, dims=[1], keepdim=True)
            fd.add_output(fd.ops.where(fd.ops.isfinite(found), wide - found, found))
        x = torch.randn(6, 64, generator=torch.Generator().manual_seed(2)).to(dtype.torch)
        x[0, 3], x[1, 5], x[2], x[3, 0] = float("nan"), inf, -inf, -inf
        [out] = fd.execute([x])
        expected = getattr(x.float(), f"a{extremum}")(1, keepdim=True)
        expected = torch.where(expected.isfinite(), x.float() - expected, expected).expand(6, 64)
        torch.testing.assert_close(out, expected, equal_nan=True)
        assert any(isinstance(s, k.Combine) and s.width > 1 for s in made_by(fd)), extremum
    wide = k.Compute(CAST, b.at(A), (b.at(HALVES, J),), DataType.Float)
    assert (
        len(lines(combine_packed_runs(statements(each(wide, k.Combine(MAX, (b.at(B),), (b.at(A),))))))) == 1
    )
    for body in (
        [wide, k.Combine(MAX, (b.at(B),), (b.at(A),), pred=lt(J, T))],
        [wide, k.Combine(SUM, (b.at(B),), (b.at(A),))],
        [wide, k.Combine(MAX, (b.at(ROW, J),), (b.at(A),))],
        [wide, k.Combine(MAX, (b.at(B),), (b.at(A),)), copy(Y.buffer, A, T, 0)],
    ):
        unchanged = statements(each(*body))
        assert combine_packed_runs(unchanged) is unchanged


# ---- casts and values of rows


def test_rows_are_scaled_to_eight_bits_by_one_quotient_and_pairs() -> None:
    with FusionDefinition() as fd:
        given = fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.BFloat16)
        x = fd.ops.reshape(fd.ops.cast(given, DataType.Float), [fd.ops.size(given, 0), -1, 32])
        scale = fd.ops.max(fd.ops.abs(x), dims=[2], keepdim=True) / 448.0
        fd.add_output(fd.ops.cast(x / scale, DataType.Float8_e4m3fn))
        fd.add_output(fd.ops.squeeze(scale, [2]))
    x = torch.randn(4, 96, generator=torch.Generator().manual_seed(0)).bfloat16()
    scaled, scale = fd.execute([x])
    rows = x.float().reshape(4, 3, 32)
    torch.testing.assert_close(scale, rows.abs().amax(2) / 448)
    torch.testing.assert_close(scaled.float(), rows / scale[..., None], rtol=0.07, atol=0.01)
    body = made_by(fd)
    assert any(isinstance(stmt, k.Convert) for stmt in body)
    assert {s.op.name for s in body if isinstance(s, k.Compute)} >= {"reciprocal"}
    loops = [stmt for stmt in body if isinstance(stmt, k.For)]
    assert not any(isinstance(inner, k.If) for loop in loops for inner in k.walk(loop.body))


def test_neighbours_alone_are_converted_together() -> None:
    cast = k.Compute(CAST, b.at(BYTES, J), (b.at(A),), DataType.Float)
    use = copy(BYTES, BYTES, 0, 1)
    assert any(
        "BYTES[0:+8] = Float8_e4m3fn" in line for line in lines(convert_in_pairs(statements(each(cast))))
    )
    strided = k.Compute(CAST, b.at(BYTES, 7 - J), (b.at(A),), DataType.Float)
    for body in (
        [each(strided)],
        [each(cast, use)],
        [each(cast), each(cast)],
        [each(k.If(lt(T, J), (cast,)))],
    ):
        unchanged = statements(*body)
        assert convert_in_pairs(unchanged) is unchanged


def test_halves_are_converted_together_where_edges_store_them_one_by_one() -> None:
    """Else the CUDA compiler makes pairs of them by itself."""
    made = each(k.Compute(CAST, b.at(HALVES, J), (b.at(A),), DataType.Float))
    stored = k.Copy(b.at(HALVES_OUT, T * 8), b.at(HALVES), 8)
    at_edge = each(k.If(lt(J, T), (copy(HALVES_OUT, HALVES, T * 8 + J, J),)))
    alone = statements(made, stored)
    assert convert_in_pairs(alone) is alone
    assert any("HALVES[0:+8] = Half" in line for line in lines(convert_in_pairs(statements(made, at_edge))))


def test_an_array_of_one_value_is_computed_once() -> None:
    value = k.Copy(b.at(A), b.at(X.buffer, T))
    fill = each(k.Compute(b.EXP, b.at(ROW, J), (b.at(A),), DataType.Float))
    read = each(k.Compute(b.EXP, b.at(ODD, J), (b.at(ROW, J),), DataType.Float))
    use = copy(Y.buffer, ROW, T, 0)
    found = lines(read_repeated_registers(statements(value, fill, read, use)))
    assert found.count("ROW[0] = exp.Float(A[0])") == 1 and "Y[threadIdx.x] = ROW[0]" in found
    again = each(k.Copy(b.at(ODD, J), b.at(ROW, J)))
    result = read_repeated_registers(statements(value, fill, again, copy(Y.buffer, ODD, T, 0)))
    verify(result, "read repeated registers")
    assert lines(result)[-1] == "Y[threadIdx.x] = ROW[0]"
    for body in ([value, fill, read, use, value], [fill, value, read, use], [value, use, fill]):
        unchanged = statements(*body)
        assert read_repeated_registers(unchanged) is unchanged


def test_what_the_first_iteration_stores_is_stored_before_the_loop() -> None:
    first = k.If(eq(J + T, 0), (copy(Y.buffer, A, 0, 0),))
    work = k.Compute(b.EXP, b.at(ROW, J), (b.at(ODD, J),), DataType.Float)
    found = lines(store_before_loops(statements(each(first, work))))
    assert found[:2] == ["if threadIdx.x == 0:", "Y[0] = A[0]"], found
    by_all = k.If(eq(J, 0), (copy(Y.buffer, A, T, 0),))
    assert lines(store_before_loops(statements(each(by_all, work))))[0] == "Y[threadIdx.x] = A[0]"
    for inner in (
        [k.If(eq(J - T, 0), (copy(Y.buffer, A, 0, 0),)), work],  # may be of any iteration
        [first, k.Compute(b.EXP, b.at(A), (b.at(ODD, J),), DataType.Float)],  # stores what the loop computes
        [first, copy(Y.buffer, ROW, T, J)],  # and so does another statement
        [k.If(eq(J, const(1)), (copy(Y.buffer, A, 0, 0),)), work],
    ):
        unchanged = statements(each(*inner))
        assert store_before_loops(unchanged) is unchanged
