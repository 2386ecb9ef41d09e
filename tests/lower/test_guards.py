"""Guards: which of them are necessary, what gathers them, and what is read where they do not hold."""

from __future__ import annotations

import itertools

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.dtype import Category
from fusewright.kernel import ir as k
from fusewright.kernel.text import statement_text
from fusewright.lower.guards import lanes_of, necessary
from fusewright.lower.passes.guards import gather_guards
from fusewright.ops.elementwise import CAST, ELEMENTWISE
from fusewright.ops.reductions import SUM
from fusewright.sym import Expr, as_int, ceildiv, evaluate, floordiv, land, le, lnot, lt, symbol
from tests.kernel import builders as b
from tests.lower.statements import N, R, S, T, X, Y, kernel, lines, loop

# ---- implication ---------------------------------------------------------------------------------

SIZE, FACTOR = symbol("size", hi=24), symbol("factor", lo=1, hi=6)
OUTER, MIDDLE, INNER = symbol("o", hi=6), symbol("m", hi=3), symbol("i", hi=2)
ENTRY = symbol("e", lo=-3, hi=24)
OFFSET = OUTER * 12 + MIDDLE * 3 + INNER

#: name -> (guards, how many are necessary)
LISTS: dict[str, tuple[list[Expr], int]] = {
    "outer results of two splits": (
        [lt(OUTER, ceildiv(ceildiv(SIZE, 3), 4)), lt(OUTER * 4 + MIDDLE, ceildiv(SIZE, 3)), lt(OFFSET, SIZE)],
        1,
    ),
    "a split by a symbol": (
        [lt(OUTER, ceildiv(SIZE, FACTOR)), lt(OUTER * FACTOR + MIDDLE, SIZE)],
        1,
    ),
    "the inner result of a split into so many parts": (
        [lt(MIDDLE, ceildiv(SIZE, 4)), lt(OUTER * ceildiv(SIZE, 4) + MIDDLE, SIZE)],
        2,
    ),
    "vectors": ([lt(OUTER, floordiv(SIZE, 4)), lt(OUTER * 4 + 3, SIZE)], 1),
    "vectors that fit are not elements": ([lt(OUTER * 4 + 2, SIZE), lt(OUTER, floordiv(SIZE, 4))], 1),
    "both bounds": ([le(0, ENTRY), lt(ENTRY, SIZE), le(-2, ENTRY), lt(ENTRY, SIZE + 1)], 2),
    "multiples, and what begins before the first": (
        [lt(OUTER, 4), le(OUTER * 8, INNER + 22), lt(MIDDLE, 2), le(MIDDLE * 8, INNER + 14)],
        3,
    ),
    "equal ones": ([lt(ENTRY, SIZE), lt(ENTRY * 2, SIZE * 2)], 1),
    "what ranges prove": ([lt(INNER, 3), le(0, MIDDLE), lt(MIDDLE * 3 + INNER, 12)], 0),
    "others stay": ([lnot(lt(ENTRY, SIZE)), symbol("flag", hi=1)], 2),
}


@pytest.mark.parametrize("name", LISTS)
def test_only_necessary_guards_stay(name: str) -> None:
    """For all values of the symbols those that stay say the same as all."""
    guards, count = LISTS[name]
    kept = necessary(guards)
    assert len(kept) == count and set(kept) <= set(guards)
    every, few = land(*guards), land(*kept)
    symbols = sorted(every.free_symbols | few.free_symbols, key=lambda s: s.name)
    for values in itertools.product(*(range(s.lo, int(str(s.hi)) + 1) for s in symbols)):
        env = dict(zip(symbols, values))
        assert evaluate(every, env) == evaluate(few, env), env


def test_a_size_of_0_is_not_proved_away() -> None:
    """Of a block with as many threads as there are elements, one runs though there is none."""
    n = symbol("n")
    thread = symbol("threadIdx.x", hi=n - 1)
    nonempty = lt(0, n)
    assert necessary([nonempty, lt(thread // 2, n)]) == [nonempty]


LANE = symbol("lane", hi=3)


@pytest.mark.parametrize(
    "condition",
    [
        lt(MIDDLE * 4 + LANE, SIZE),
        land(le(INNER, MIDDLE * 4 + LANE), lt(MIDDLE * 4 + LANE, SIZE)),
        lt(OUTER + (MIDDLE * 4 + LANE) // 3, SIZE),
        lt(OUTER * 4 + (MIDDLE * 4 + LANE) // 3, 12),  # a block of rows ends where a vector does
    ],
    ids=str,
)
def test_which_lanes_of_a_vector_exist(condition: Expr) -> None:
    found = lanes_of(condition, LANE, 4)
    assert found is not None
    others = sorted(condition.free_symbols - {LANE}, key=lambda s: s.name)
    for values in itertools.product(*(range(as_int(s.hi) + 1) for s in others)):
        env = dict(zip(others, values))
        each = [evaluate(condition, {**env, LANE: lane}) for lane in range(4)]
        assert evaluate(found.all, env) == all(each), env
        assert evaluate(found.some, env) or not any(each), env


def test_an_access_has_one_guard_for_a_dimension_that_is_split_twice() -> None:
    """Rows of an outer sum: blocks, steps, unrolled and threads."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.Float)
        fd.add_output(fd.ops.sum(x, dims=[0]))
    fd.execute([torch.randn(700, 64)])
    kernel = fd._last_kernels()[0].kernel
    loads = [s for s in k.walk(kernel.body) if isinstance(s, k.Copy) and s.pred is not k.TRUE]
    assert loads and all(s.pred.kind != "and" for s in loads)


# ---- gathering -----------------------------------------------------------------------------------

SMALL, ODD = lt(T, N), lt(T, 7)
ZERO = k.Imm(0.0, DataType.Float)
A, B = b.local("A", DataType.Float), b.local("B", DataType.Float)


def load(dst: k.Ref, index: Expr, pred: Expr) -> k.Copy:
    return k.Copy(dst, b.at(X.buffer, index), pred=pred, fill=ZERO)


def store(src: k.Ref, index: Expr, pred: Expr) -> k.Copy:
    return k.Copy(b.at(Y.buffer, index), src, pred=pred)


def gathered(*body: k.Stmt) -> list[str]:
    return lines(gather_guards(kernel(*body, allocs=(S, R, A, B))))


EXP = k.Compute(b.EXP, b.at(B), (b.at(A),), DataType.Float)


def test_what_needs_one_condition_alone_stands_under_it() -> None:
    assert gathered(load(b.at(A), T, SMALL), EXP, store(b.at(B), T, SMALL)) == [
        "if threadIdx.x < n:",
        "A[0] = X[threadIdx.x]",
        "B[0] = exp.Float(A[0])",
        "Y[threadIdx.x] = B[0]",
    ]


def test_a_fill_that_others_read_stays() -> None:
    body = (load(b.at(A), T, SMALL), EXP, store(b.at(B), T, SMALL), store(b.at(A), T + 64, ODD))
    assert gathered(*body)[0] == "A[0] = X[threadIdx.x] if threadIdx.x < n else 0.0:Float"


def test_conditions_that_only_some_have_stay_with_them() -> None:
    both = land(SMALL, ODD)
    assert gathered(load(b.at(A), T, both), EXP, store(b.at(B), T, SMALL), store(b.at(A), T + 64, both)) == [
        "if threadIdx.x < n:",
        "A[0] = X[threadIdx.x] if threadIdx.x < 7 else 0.0:Float",
        "B[0] = exp.Float(A[0])",
        "Y[threadIdx.x] = B[0]",
        "Y[threadIdx.x + 64] = A[0] if threadIdx.x < 7",
    ]


def test_unrolled_loops_have_no_branches() -> None:
    j = symbol("j", hi=3)
    inside = lt(j * 32 + T, N)
    body = (load(b.at(A), j * 32 + T, inside), EXP, store(b.at(B), j * 32 + T, inside))
    assert gathered(loop(4, *body, index=j, unroll=True))[1].endswith(
        "if 32*j + threadIdx.x < n else 0.0:Float"
    )
    assert gathered(loop(4, *body, index=j))[1] == "if 32*j + threadIdx.x < n:"


def test_a_value_that_the_next_iteration_reads_is_not_lost() -> None:
    j = symbol("j", hi=3)
    inside = lt(j * 32 + T, N)
    body = (EXP, load(b.at(A), j * 32 + T, inside), store(b.at(B), j * 32 + T, inside))
    assert not any(line.startswith("if") for line in gathered(loop(4, *body, index=j)))


def test_phases_between_collectives_are_branches_of_their_own() -> None:
    total, work = b.local("total", DataType.Float), S
    reduce = k.BlockReduce(SUM, (b.at(total),), (b.at(A),), (b.BX,), SMALL, (work,))
    body = (load(b.at(A), T, SMALL), EXP, reduce, k.Compute(b.EXP, b.at(B), (b.at(A),), DataType.Float))
    found = gathered(k.Alloc(total), *body, store(b.at(B), T, SMALL))
    assert found[0].startswith("A[0] = X[threadIdx.x] if")  # alone, it keeps its predicate
    assert found[-3:] == ["if threadIdx.x < n:", "B[0] = exp.Float(A[0])", "Y[threadIdx.x] = B[0]"]


def test_a_loaded_index_stays_before_what_uses_it() -> None:
    row = symbol("row", lo=-1, hi=N - 1)
    named = k.LetValue(row, k.IndexValue(T, DataType.Int), N, SMALL)
    known = le(0, row)
    found = gathered(named, load(b.at(A), row, known), store(b.at(A), T, known))
    assert found[0].startswith("row = ") and found[1] == "if -1 < row:"


# ---- what is read where nothing is there ---------------------------------------------------------


def test_every_spelling_that_divides_integers_says_so() -> None:
    """A compiler takes for granted that a divisor is not 0, which a fill is."""
    own_loop = {"gcd"}  # stops at 0
    for op in ELEMENTWISE.values():
        spelling = op.spellings.get(Category.INT)
        if spelling is None or op.name in own_loop:
            continue
        divides = any(sign in spelling.cuda for sign in ("/", "%")) or "remainder" in spelling.cuda
        assert spelling.divides == divides, op.name
    assert not CAST.spellings[Category.INT].divides


def test_a_divisor_that_is_not_there_is_1() -> None:
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor(shape=[-1], contiguity=True, dtype=DataType.Int) for _ in range(2))
        total = fd.ops.sum(x / y, dims=[0])
        fd.add_output(total)
    dividends, divisors = torch.arange(50, 3051), torch.full((3001,), 3)
    torch.testing.assert_close(fd.execute([dividends, divisors])[0], (dividends // divisors).sum())
    texts = [statement_text(s) for s in k.walk(fd._last_kernels()[0].kernel.body)]
    assert any("else 1:Int" in text for text in texts), texts
