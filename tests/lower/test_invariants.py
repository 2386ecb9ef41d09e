"""What is the same in all iterations is computed once, before the loop; what is not stays."""

from __future__ import annotations

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.kernel import ir as k
from fusewright.lower.passes.first_iterations import store_before_loops
from fusewright.lower.passes.invariants import hoist_invariants
from fusewright.lower.passes.repeated import read_repeated_registers
from fusewright.lower.passes.vector_invariants import hoist_vector_invariants
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.ops.reductions import SUM
from fusewright.sym import TRUE, Expr, const, eq, land, lt, symbol
from tests.kernel import builders as b
from tests.lower.statements import I, N, R, T, X, Y, kernel, lines, loop

J = symbol("j", lo=0)
A, B = b.local("A", DataType.Float), b.local("B", DataType.Float)
SMALL, ODD = lt(T, N), lt(T, 7)
ZERO = k.Imm(0.0, DataType.Float)


def compiled(rows: int, columns: int, define) -> tuple[k.Kernel, FusionDefinition, list[torch.Tensor]]:
    inputs = [torch.randn(rows, columns)]
    with FusionDefinition() as fd:
        for output in define(fd, fd.define_tensor([-1, -1], True)):
            fd.add_output(output)
    leaf = fd._leaf
    assert leaf is not None
    [kernel] = leaf.executor.compile(inputs).kernels
    return kernel.kernel, fd, inputs


def depth_of(body: tuple[k.Stmt, ...], name: str, depth: int = 0) -> list[int]:
    """How many loops stand around each computation of this operation."""
    found = []
    for stmt in body:
        if isinstance(stmt, k.Compute) and stmt.op.name == name:
            found.append(depth)
        found += depth_of(k.children(stmt), name, depth + isinstance(stmt, k.For))
    return found


def rms(fd: FusionDefinition, x):
    return [x * fd.ops.rsqrt(fd.ops.mean(x * x, [1], keepdim=True) + 1e-6)]


def test_a_rows_scale_is_computed_once_a_row() -> None:
    kernel, fd, inputs = compiled(5, 300, rms)
    assert depth_of(kernel.body, "rsqrt") == depth_of(kernel.body, "truediv") == [0]
    assert min(depth_of(kernel.body, "mul")) > 0
    [out] = fd.execute(inputs)
    torch.testing.assert_close(out, inputs[0] * inputs[0].square().mean(1, keepdim=True).add(1e-6).rsqrt())


def test_a_kernel_without_invariants_stays_as_it_is() -> None:
    kernel, _, _ = compiled(5, 300, lambda fd, x: [fd.ops.exp(x), fd.ops.sin(x)])
    assert hoist_invariants(kernel) is kernel


def test_what_one_block_alone_knows_stays_where_that_block_computes_it() -> None:
    kernel, fd, inputs = compiled(2, 600_000, lambda fd, x: [fd.ops.rsqrt(fd.ops.mean(x * x, [1]) + 1e-6)])
    assert any(isinstance(stmt, k.GridReduce) for stmt in k.walk(kernel.body))
    [out] = fd.execute(inputs)
    torch.testing.assert_close(out, inputs[0].square().mean(1).add(1e-6).rsqrt())


def test_a_vector_that_one_block_alone_knows_stays_where_that_block_computes_it() -> None:
    """It has a value in all blocks before it is reduced, and in the last one after that."""
    quotients = b.local("Q", DataType.Float)
    exchange = b.grid_exchange(1)
    last = symbol("last", hi=1)
    begin = k.Init(SUM, (b.at(R),), 8)
    reduce = k.GridReduce(SUM, (b.at(R),), (b.at(A),), (b.GX,), (), k.TRUE, (), exchange, last, 8)
    divide = k.Compute(ELEMENTWISE["truediv"], b.at(quotients), (b.at(R, J), b.at(A)), DataType.Float)
    columns = k.For(J, const(8), (divide, k.Copy(b.at(Y.buffer, I * 8 + J), b.at(quotients))), unroll=True)
    set_a = k.Copy(b.at(A), k.Imm(3.0, DataType.Float))
    for reduced, loops in (((), 2), ((reduce,), 1)):
        rows = loop(4, k.If(eq(last, 1) if reduced else TRUE, (columns,)))
        given = kernel(set_a, begin, *reduced, rows, allocs=(A, quotients, R))
        found = lines(hoist_vector_invariants(given))
        assert sum(line.startswith("for j") for line in found) == loops, found


def test_what_a_copy_reads_that_stays_is_kept_for_each_column() -> None:
    """The root of each column's variance is moved, and what the variance is stored as is a copy of it."""
    x = torch.randn(100, 4).bfloat16().t()
    with FusionDefinition() as fd:
        given = fd.define_tensor([-1, 100], contiguity=True, dtype=DataType.BFloat16, stride_order=[0, 1])
        wide = fd.ops.cast(given, DataType.Float)
        variance, mean = fd.ops.var_mean(wide, [1], 0, keepdim=True)
        shifted = fd.ops.add(variance, 1e-5)
        fd.add_output(fd.ops.expand(shifted, [-1, given.size(1)]), stride_order=[0, 1])
        fd.add_output(fd.ops.mul(fd.ops.sub(wide, mean), fd.ops.rsqrt(shifted)))
    [stored, _] = fd.execute([x])
    torch.testing.assert_close(stored, (x.float().var(1, correction=0, keepdim=True) + 1e-5).expand(4, 100))


def hoisted(*body: k.Stmt) -> list[str]:
    return lines(hoist_invariants(kernel(*body, allocs=(A, B))))


def load(pred: Expr, fill: k.Imm | None = None) -> k.Copy:
    return k.Copy(b.at(A), b.at(X.buffer, T), pred=pred, fill=fill)


def guarded_exp(pred: Expr) -> k.If:
    return k.If(pred, (k.Compute(b.EXP, b.at(B), (b.at(A),), DataType.Float), STORE))


STORE = k.Copy(b.at(Y.buffer, I * 32 + T), b.at(B))
EXP = "B[0] = exp.Float(A[0])"


def test_a_load_leaves_the_loop_whose_guards_its_index_does_not_need() -> None:
    """X has 1024 elements, and a block 32 threads: a load that a guard keeps inside of X stays under it."""
    guard = lt(I * 32 + T, N)
    for index, first in ((T, "A[0] = X[threadIdx.x]"), (T * 64, "for i in 4:"), (I + T, "for i in 4:")):
        body = (k.Copy(b.at(A), b.at(X.buffer, index)), k.Compute(b.EXP, b.at(B), (b.at(A),), DataType.Float))
        found = hoisted(loop(4, k.If(guard, (*body, STORE))))
        assert found[0] == first
        assert found.index(EXP) == (1 if index is T else 3)
        assert hoisted(k.If(SMALL, (*body, STORE)))[0] == "if threadIdx.x < n:"  # no loop


def test_what_reads_a_load_without_a_fill_stays_under_its_predicate() -> None:
    """Threads outside have no value there."""
    assert hoisted(load(SMALL), loop(4, guarded_exp(SMALL)))[1:] == [
        "for i in 4:",
        "if threadIdx.x < n:",
        EXP,
        "Y[32*i + threadIdx.x] = B[0]",
    ]
    assert hoisted(load(SMALL, ZERO), loop(4, guarded_exp(SMALL)))[1] == EXP
    assert hoisted(load(ODD), load(SMALL), loop(4, guarded_exp(land(SMALL, ODD))))[-2] == EXP


def test_a_load_without_a_fill_is_known_where_its_predicate_holds() -> None:
    both = land(SMALL, ODD)
    assert hoisted(load(both), k.If(SMALL, (k.If(ODD, (loop(4, guarded_exp(lt(I, N))),)),)))[1:5] == [
        "if threadIdx.x < n:",
        "if threadIdx.x < 7:",
        EXP,
        "for i in 4:",
    ]


def test_elements_beyond_the_end_are_not_read_before_a_guarded_reduction() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], contiguity=False, dtype=DataType.Int32)
        fd.add_output(fd.ops.argmin(fd.ops.remainder(x, 3), None))
    [out] = fd.execute([torch.arange(4, 12, dtype=torch.int32)])
    assert out.item() == 2


def test_what_follows_from_a_broadcast_number_is_computed_once() -> None:
    """A vector's lanes share the value that is loaded once, and so what is computed with it alone."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([64, 64], dtype=DataType.BFloat16, contiguity=[True, True])
        step = fd.define_tensor([])
        fd.add_output(fd.ops.cast(fd.ops.truediv(x, 1.0 - fd.ops.pow(0.9, step)), DataType.BFloat16))
    inputs = [torch.randn(64, 64).bfloat16(), torch.tensor(3.0)]
    [out] = fd.execute(inputs)
    [kernel] = fd._finished().executor.last_program.kernels
    for once in ("pow", "sub", "reciprocal"):
        assert depth_of(kernel.kernel.body, once) == [0]
    assert depth_of(kernel.kernel.body, "mul") == [1]
    torch.testing.assert_close(out, (inputs[0].float() / (1 - 0.9**3)).bfloat16())


def test_a_vector_of_functions_of_positions_is_computed_once_for_all_rows() -> None:
    """And what is chosen of two by position; not what differs between the rows."""
    sines, cosines, angle = (b.local(name, DataType.Float) for name in ("S", "C", "P"))

    def of(position: Expr) -> list[str]:
        at = k.Copy(b.at(angle), k.IndexValue(position, DataType.Float))
        sine, cosine = (
            k.Compute(ELEMENTWISE[name], b.at(out), (b.at(angle),), DataType.Float)
            for name, out in (("sin", sines), ("cos", cosines))
        )
        chosen = k.Copy(b.at(A), b.at(sines), pred=ODD, fill=b.at(cosines), fill_is_value=True)
        use = k.Compute(ELEMENTWISE["add"], b.at(B), (b.at(R, I), b.at(A)), DataType.Float)
        row = loop(8, at, sine, cosine, chosen, use, STORE, unroll=True)
        allocs = (A, B, R, angle, sines, cosines)
        return lines(hoist_vector_invariants(kernel(loop(4, row, index=J), allocs=allocs)))

    once = of(I + T * 8)
    assert once.index("for j in 4:") > max(n for n, line in enumerate(once) if " ? " in line or "cos" in line)
    assert of(I + J * 8)[0] == "for j in 4:"


SET_ROW = k.Init(SUM, (b.at(R),), 8)


def test_an_array_of_results_is_computed_once_for_all_rows() -> None:
    """A scale of columns that is stored as a vector, too. What depends on the row stays."""
    scales = b.local("S", DataType.Float, 4)

    def of(divisor: k.Operand) -> list[str]:
        made = k.Compute(ELEMENTWISE["truediv"], b.at(scales, I), (b.at(R, I), divisor), DataType.Float)
        store = k.If(eq(J, 0), (k.Copy(b.at(Y.buffer, T * 4), b.at(scales), width=4),))
        use = k.Compute(ELEMENTWISE["mul"], b.at(B), (b.at(R, I), b.at(scales, I)), DataType.Float)
        rows = loop(2, loop(4, made, unroll=True), store, loop(4, use, STORE, unroll=True), index=J)
        return lines(hoist_vector_invariants(kernel(SET_ROW, rows, allocs=(A, B, R, scales))))

    once = of(k.Imm(127.0, DataType.Float))
    assert once.index("S[i] = truediv.Float(R[i], 127.0:Float)") < once.index("for j in 2:")
    each = of(k.IndexValue(J, DataType.Float))
    assert each.index("for j in 2:") < min(n for n, line in enumerate(each) if "truediv" in line)


def test_arrays_that_are_set_otherwise_stay() -> None:
    """At an element that the loop's index does not count, or by two statements."""
    scales = b.local("S", DataType.Float, 8)
    args = (b.at(R, I), k.Imm(127.0, DataType.Float))
    for index, again in ((I + 1, False), (I, True), (I, False)):
        made = k.Compute(ELEMENTWISE["truediv"], b.at(scales, index), args, DataType.Float)
        other = k.Copy(b.at(scales, 7), b.at(X.buffer, J))
        rows = loop(2, loop(4, made, unroll=True), *([other] if again else []), index=J)
        found = lines(hoist_vector_invariants(kernel(SET_ROW, rows, allocs=(R, scales))))
        stays = index is not I or again
        assert ("for j in 2:" in found[: found.index("for i in 4 unrolled:")]) is stays


def test_nothing_is_left_where_all_of_a_branch_moved() -> None:
    scales = b.local("S", DataType.Float, 4)
    args = (b.at(R, I), k.Imm(127.0, DataType.Float))
    made = k.Compute(ELEMENTWISE["truediv"], b.at(scales, I), args, DataType.Float)
    rows = loop(2, k.If(SMALL, (loop(4, made, unroll=True),)), k.Copy(b.at(Y.buffer, J), b.at(R, J)), index=J)
    found = lines(hoist_vector_invariants(kernel(SET_ROW, rows, allocs=(R, scales))))
    assert not any(line.startswith("if") for line in found)
    assert sum(line.startswith("for") for line in found) == 2


def test_arrays_of_copies_move_with_what_is_computed_from_them() -> None:
    """A minimum that is an output, and a scale that is computed of it."""
    lowest, scales = (b.local(name, DataType.Float, 4) for name in ("L", "S"))
    least = loop(4, k.Copy(b.at(lowest, I), b.at(R, I)), unroll=True)
    made = k.Compute(ELEMENTWISE["truediv"], b.at(scales, I), (b.at(lowest, I), b.at(R, I)), DataType.Float)
    use = k.Compute(ELEMENTWISE["mul"], b.at(B), (b.at(lowest, I), b.at(scales, I)), DataType.Float)
    rows = loop(2, least, loop(4, made, unroll=True), loop(4, use, STORE, unroll=True), index=J)
    found = lines(hoist_vector_invariants(kernel(SET_ROW, rows, allocs=(A, B, R, lowest, scales))))
    assert found.index("L[i] = R[i]") < found.index("S[i] = truediv.Float(L[i], R[i])")
    assert found.index("S[i] = truediv.Float(L[i], R[i])") < found.index("for j in 2:")


@pytest.mark.parametrize("unroll", [True, False])
def test_what_the_first_row_stores_is_stored_before_the_rows(unroll: bool) -> None:
    store = k.If(eq(J + T, 0), (k.Copy(b.at(X.buffer, 0), b.at(R, 0)),))
    use = k.Compute(b.EXP, b.at(B), (b.at(R, J),), DataType.Float)
    found = lines(
        store_before_loops(kernel(loop(2, store, use, STORE, index=J, unroll=unroll), allocs=(B, R)))
    )
    assert found[:2] == ["if threadIdx.x == 0:", "X[0] = R[0]"] and found[2].startswith("for j in 2")


def repeated(*body: k.Stmt) -> list[str]:
    return lines(read_repeated_registers(kernel(*body, allocs=(A, B, R))))


def test_a_register_is_read_instead_of_an_array_of_it_only_where_both_are_of_one_iteration() -> None:
    value = k.Copy(b.at(A), b.at(X.buffer, T))
    fill = loop(8, k.Copy(b.at(R, I), b.at(A)), unroll=True)
    use = loop(8, k.Compute(b.EXP, b.at(B), (b.at(R, I),), DataType.Float), STORE, unroll=True)
    assert EXP in repeated(value, fill, use)
    for body in ([value, fill, use, value], [loop(4, value, fill, index=J), use], [fill, value, use]):
        assert EXP not in repeated(*body)
    vector = k.Copy(b.at(Y.buffer, T * 8), b.at(R), width=8)
    assert EXP not in repeated(value, fill, use, vector)


def test_a_scale_that_is_stored_in_pieces_of_a_vector_is_a_register_of_the_loop_around() -> None:
    """Scales beside rows of eight bits: a vector of floats is wider than a store, in a loop of its own."""
    x = torch.randn(80, 4096).bfloat16()  # rows of which a thread holds two vectors
    with FusionDefinition() as fd:
        row = fd.ops.cast(fd.from_pytorch(x, static_sizes=True), DataType.Float)
        scale = fd.ops.truediv(fd.ops.max(fd.ops.abs(row), dims=[-1], keepdim=True), 448.0)
        fd.add_output(scale)
        fd.add_output(fd.ops.cast(fd.ops.truediv(row, scale), DataType.Float8_e4m3fn))
    found, rounded = fd.execute([x])
    assert len(fd._finished().executor.last_program.kernels) == 1
    torch.testing.assert_close(found, x.float().abs().amax(1, keepdim=True) / 448)
    torch.testing.assert_close(rounded.float(), x.float() / found, rtol=0.07, atol=0.01)
