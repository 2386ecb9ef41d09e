"""Loads: what brings them forward, what their fills stand for, and what registers hold across a reduction."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.errors import SimulationError
from fusewright.kernel import ir as k
from fusewright.lower.passes.hold import MIN_ELEMENTS, hold_rows
from fusewright.lower.passes.loads import MAX_BYTES_IN_FLIGHT, bring_loads_forward
from fusewright.lower.passes.neutral import fill_with_neutral_elements
from fusewright.ops.elementwise import CAST
from fusewright.ops.reductions import MAX
from fusewright.sim import SimOptions, simulate
from fusewright.sym import Expr, const, lt, symbol
from tests.kernel import builders as b
from tests.lower.statements import N, R, S, T, X, Y, copy, kernel, lines, loop

J = symbol("j", hi=3)
INSIDE = lt(J * 32 + T, N)
ZERO = k.Imm(0.0, DataType.Float)
A, B = b.local("A", DataType.Float, 4), b.local("B", DataType.Float, 4)
C, D = b.local("C", DataType.Float), b.local("D", DataType.Float)
INDEX = b.local("INDEX", DataType.Int)
EXP = k.Compute(b.EXP, b.at(B, J), (b.at(A, J),), DataType.Float)


def load(dst: k.Ref, index: Expr, pred: Expr = INSIDE, fill: k.Imm = ZERO) -> k.Copy:
    return k.Copy(dst, b.at(X.buffer, index), pred=pred, fill=fill)


def each(*body: k.Stmt) -> k.For:
    return loop(4, *body, index=J, unroll=True)


def forward(*body: k.Stmt) -> list[str]:
    return lines(bring_loads_forward(kernel(*body, allocs=(S, R, A, B, C, D, INDEX))))


# ---- forward -------------------------------------------------------------------------------------


def test_loads_stand_before_computations() -> None:
    late = each(load(b.at(R, J), J * 32 + T))
    assert forward(each(load(b.at(A, J), J * 32 + T)), each(EXP), late) == forward(
        each(load(b.at(A, J), J * 32 + T)), late, each(EXP)
    )


@pytest.mark.parametrize(
    "between",
    [k.Barrier(), copy(Y.buffer, R, T, 0), each(k.Compute(b.EXP, b.at(R, J), (b.at(A, J),), DataType.Float))],
    ids=["a barrier", "a store", "another value of its register"],
)
def test_a_load_stays_after_what_it_depends_on(between: k.Stmt) -> None:
    body = (between, each(load(b.at(R, J), J * 32 + T)))
    assert forward(*body) == lines(kernel(*body, allocs=(S, R, A, B, C, D, INDEX)))


def test_a_row_is_loaded_before_what_waits_for_an_index() -> None:
    place = symbol("place", lo=-1, hi=N - 1)
    named = k.LetValue(place, b.at(INDEX), N)
    gather = k.Copy(b.at(C), b.at(X.buffer, place), pred=lt(-1, place), fill=ZERO)
    row = each(load(b.at(A, J), J * 32 + T))
    assert forward(named, gather, row) == forward(row, named, gather)
    assert forward(row, named, gather)[-1].startswith("C[0] = X[place]")


def test_no_more_is_loaded_at_once_than_registers_hold() -> None:
    many = [b.local(f"M{i}", DataType.Float, MAX_BYTES_IN_FLIGHT // 8) for i in range(3)]
    half = [loop(MAX_BYTES_IN_FLIGHT // 8, load(b.at(m, J), J * 32 + T), index=J, unroll=True) for m in many]
    body = (half[0], half[1], each(EXP), half[2])
    every = kernel(*body, allocs=(A, B, *many))
    assert lines(bring_loads_forward(every)) == lines(every)


def test_what_all_iterations_load_is_loaded_once() -> None:
    """Also under a predicate, where the CUDA compiler does not find that it is the same."""
    assert forward(each(load(b.at(A, J), T, lt(T, N)))) == [
        "A_once0[0] = X[threadIdx.x] if threadIdx.x < n else 0.0:Float",
        "for j in 4 unrolled:",
        "A[j] = A_once0[0]",
    ]


# ---- fills -----------------------------------------------------------------------------------------


def _masked(identity: float, pred: Expr = INSIDE, reader: Expr = J) -> k.Kernel:
    i = symbol("i2", hi=3)
    narrow, wide = b.local("NARROW", DataType.Float, 4), b.local("WIDE", DataType.Double)
    result = b.local("RESULT", DataType.Double, 4)
    at = k.Ref(narrow, reader if reader is not J else i)
    moved = k.Copy(
        b.at(result, i), b.at(wide), pred=lt(i * 32 + T, N), fill=k.Imm(identity, DataType.Double),
        fill_is_value=True,
    )  # fmt: skip
    body = (
        each(load(b.at(narrow, J), J * 32 + T, pred)),
        loop(4, k.Compute(CAST, b.at(wide), (at,), DataType.Float), moved, index=i, unroll=True),
    )
    return kernel(*body, allocs=(narrow, wide, result))


@pytest.mark.parametrize("identity", [0.0, float("-inf"), 1.0])
def test_a_load_for_one_use_is_filled_with_its_neutral_element(identity: float) -> None:
    loaded, moved = (
        s for s in k.walk(fill_with_neutral_elements(_masked(identity)).body) if isinstance(s, k.Copy)
    )
    assert loaded.fill == k.Imm(identity, DataType.Float) and loaded.fill_is_value
    assert moved.pred is k.TRUE and moved.fill is None


@pytest.mark.parametrize(
    "given",
    [_masked(0.1), _masked(0.0, lt(J * 32 + T, N - 1)), _masked(0.0, reader=const(0))],
    ids=["no float32 is that number", "another predicate", "another element"],
)
def test_other_fills_stay_what_they_are(given: k.Kernel) -> None:
    assert fill_with_neutral_elements(given) is given


# ---- held rows -------------------------------------------------------------------------------------


def test_a_row_that_is_read_on_both_sides_of_a_reduction_is_held() -> None:
    row, short = b.local("ROW", DataType.BFloat16, MIN_ELEMENTS), b.local("SHORT", DataType.BFloat16, 8)
    total, work = b.local("total", DataType.Float), S
    reduce = k.BlockReduce(MAX, (b.at(total),), (b.at(C),), (b.BX,), k.TRUE, (work,))
    reads = [k.Compute(CAST, b.at(C), (b.at(each, 0),), DataType.Float) for each in (row, short)]
    body = (*reads, reduce, *reads, reduce)
    held = lines(hold_rows(kernel(*body, allocs=(S, C, row, short, total))))
    assert [line for line in held if line.startswith("hold")] == ["hold ROW"]
    assert held.index("hold ROW") == 3


# ---- whole kernels -----------------------------------------------------------------------------------

# Enough that a thread holds several vectors of a row; where rows have an SM for themselves, it holds one.
MANY_ROWS = 80


def _kernel_of(define, *inputs: torch.Tensor) -> k.Kernel:
    with FusionDefinition() as fd:
        handles = [
            fd.define_tensor(shape=[-1] * t.dim(), contiguity=True, dtype=DataType.BFloat16) for t in inputs
        ]
        fd.add_output(define(fd, *handles))
    fd.execute(list(inputs))
    [compiled] = fd._last_kernels()
    return compiled.kernel


def _softmax(fd, x):
    x = fd.ops.cast(x, dtype=DataType.Float)
    e = fd.ops.exp(x - fd.ops.max(x, dims=[-1], keepdim=True))
    return fd.ops.cast(e / fd.ops.sum(e, dims=[-1], keepdim=True), dtype=DataType.BFloat16)


def test_loads_of_a_row_are_apart_from_its_work() -> None:
    """No branch between the loads, and one around the first work of each vector."""
    found = _kernel_of(_softmax, torch.randn(MANY_ROWS, 8 * 600, dtype=torch.bfloat16))
    loops = [s for s in k.walk(found.body) if isinstance(s, k.For) and s.unroll]
    [loading] = [s for s in loops if isinstance(s.body[0], k.Copy) and s.body[0].width == 8][:1]
    first = loops[loops.index(loading) + 1]
    assert isinstance(first.body[0], k.If) and any(isinstance(s, k.Combine) for s in k.walk(first.body))
    assert all(s.pred is k.TRUE for s in k.walk(first.body) if isinstance(s, k.Combine))


def test_a_lost_branch_is_found() -> None:
    """Without the branch, a reduction of registers that nothing was loaded into is reported."""
    x = torch.randn(MANY_ROWS, 8 * 265, dtype=torch.bfloat16)
    found = _kernel_of(_softmax, x)

    def without(body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
        result: list[k.Stmt] = []
        for stmt in body:
            stmt = k.with_children(stmt, without)
            inner = isinstance(stmt, k.If) and len(stmt.body) == 1
            result += stmt.body if inner and isinstance(stmt.body[0], k.Combine) else [stmt]
        return k.body_of(body, result)

    broken = dataclasses.replace(found, body=without(found.body))
    assert broken.body != found.body
    sizes = [x.shape[i] for i in range(2)]
    with pytest.raises(SimulationError):
        simulate(broken, [x, torch.empty_like(x), *sizes], options=SimOptions(outputs=False))


def test_a_load_that_never_happens_stays_away():
    never = load(b.at(A, J), J * 32 + T, pred=const(0))
    assert "if 0" in "\n".join(forward(each(never)))
