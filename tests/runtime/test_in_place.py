"""When a kernel may write over its input: the position must be the reader's own."""

from __future__ import annotations

import pytest

from fusewright.core.dtype import DataType
from fusewright.core.enums import ParallelType
from fusewright.kernel import ir as k
from fusewright.runtime.in_place import may_overwrite
from fusewright.sym import const, eq, lt, symbol

N = symbol("n", lo=0)
SIZES = {N: 100}
X = k.Buffer("x", DataType.Float, k.Space.GLOBAL, N)
Y = k.Buffer("y", DataType.Float, k.Space.GLOBAL, N)
R = k.Buffer("r", DataType.Float, k.Space.LOCAL, const(4))
TID = k.index_symbol(ParallelType.block_x, const(128))
J = symbol("j", lo=0, hi=3)
J2 = symbol("j2", lo=0, hi=3)


def kernel(*body: k.Stmt, block_y: int = 1) -> k.Kernel:
    one = const(1)
    return k.Kernel("k", (), body, (one, one, one), (const(128), const(block_y), one), const(0))


def load(index, width=1, register=0):
    return k.Copy(k.Ref(R, const(register)), k.Ref(X, index), width)


def store(index, width=1):
    return k.Copy(k.Ref(Y, index), k.Ref(R, const(0)), width)


ROW = symbol("row", lo=-1, hi=N - 1)
BOUND = lt(TID, N)
CASES = {
    "same position": (True, (k.If(BOUND, (load(TID), store(TID))),)),
    "never read": (True, (store(TID),)),
    "write before read": (False, (store(TID), load(TID))),
    "another position": (False, (load(TID + 1), store(TID))),
    "another width": (False, (load(TID * 4, 4), store(TID * 4, 2))),
    "read twice": (False, (load(TID), load(TID, register=1), store(TID))),
    "one position for all threads": (False, (load(const(0)), store(const(0)))),
    "one thread chosen": (False, (load(TID), k.If(eq(TID, 0), (store(TID),)))),
    "same loop": (
        True,
        (k.For(J, const(4), (load(TID * 4 + J), store(TID * 4 + J))),),
    ),
    "two loops alike": (
        True,
        (k.For(J, const(4), (load(TID * 4 + J),)), k.For(J2, const(4), (store(TID * 4 + J2),))),
    ),
    "under predicates": (
        True,
        (
            k.Copy(k.Ref(R, const(0)), k.Ref(X, TID), pred=BOUND, fill=k.Imm(0.0, DataType.Float)),
            k.Copy(k.Ref(Y, TID), k.Ref(R, const(0)), pred=BOUND),
        ),
    ),
    "one thread chosen by a predicate": (
        False,
        (load(TID), k.Copy(k.Ref(Y, TID), k.Ref(R, const(0)), pred=eq(TID, 0))),
    ),
    "a loaded index": (
        False,
        (k.LetValue(ROW, k.IndexValue(TID, DataType.Int), N), load(TID + ROW), store(TID + ROW)),
    ),
    "loop that does not move": (False, (k.For(J, const(4), (load(TID), store(TID))),)),
}


@pytest.mark.parametrize("name", CASES)
def test_may_overwrite(name):
    expected, body = CASES[name]
    assert may_overwrite(kernel(*body), X, Y, SIZES) is expected


def test_named_index_is_looked_through():
    a, b = symbol("a", lo=0), symbol("b", lo=0)
    body = (k.Let(a, TID), load(a), k.Let(b, TID), store(b))
    assert may_overwrite(kernel(*body), X, Y, SIZES)


def test_threads_that_the_position_leaves_out():
    assert not may_overwrite(kernel(load(TID), store(TID), block_y=2), X, Y, SIZES)
