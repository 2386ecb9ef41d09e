"""A fill stands for no value: it reaches no result, and where it would nothing is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fusewright.core.dtype import DataType
from fusewright.core.errors import SimulationError
from fusewright.kernel.ir import (
    TRUE,
    Alloc,
    BlockReduce,
    Combine,
    Compute,
    Copy,
    Imm,
    IndexValue,
    Init,
    LetValue,
    Stmt,
)
from fusewright.ops.reductions import SUM
from fusewright.sym import Expr, const, lt, symbol
from tests.kernel.builders import ADD, BX, at, local
from tests.sim.case import F32, LANE, LANES, Case, T

INSIDE = lt(LANE, LANES - 3)
ZERO = Imm(0.0, F32)


def _filled(case: Case, is_value: bool = False) -> Copy:
    return Copy(at(case.r), at(case.x.buffer, LANE), pred=INSIDE, fill=ZERO, fill_is_value=is_value)


@pytest.mark.parametrize(
    ("what", "end"),
    [
        ("stored to `y`", lambda case: Copy(at(case.y.buffer, LANE), at(case.r, 1))),
        ("reduced", lambda case: Combine(SUM, (at(case.r, 2),), (at(case.r, 1),))),
        (
            "reduced",
            lambda case: BlockReduce(SUM, (at(case.r, 2),), (at(case.r, 1),), (BX,), TRUE, (case.s,)),
        ),
    ],
)
def test_a_fill_reaches_no_result(case: Case, what: str, end: Callable[[Case], Stmt]) -> None:
    """Nor what is computed from it, unless it is a pad or the lane is kept out."""
    clear = Init(SUM, (at(case.r, 2),))
    computed = Compute(ADD, at(case.r, 1), (at(case.r), Imm(1.0, F32)), F32)
    case.run(clear, _filled(case, is_value=True), computed, end(case))
    last = end(case)
    if not isinstance(last, BlockReduce) or last.pred is TRUE:
        case.run(clear, _filled(case), computed, replace(last, pred=INSIDE))
    with pytest.raises(SimulationError, match=f"a fill, which stands for no value, is {what}") as caught:
        case.run(clear, _filled(case), computed, end(case))
    assert caught.value.facts["block"] == (1, 0, 0) and caught.value.facts["thread"] == (5, 0, 0)


def test_a_fill_in_shared_memory_is_one_until_a_value_takes_its_place(case: Case) -> None:
    through = (Copy(at(case.s, T), at(case.r)), Copy(at(case.r, 1), at(case.s, T)))
    end = Copy(at(case.y.buffer, LANE), at(case.r, 1))
    case.run(_filled(case), *through, replace(end, pred=INSIDE))
    with pytest.raises(
        SimulationError, match="a fill, which stands for no value, is stored to `y`"
    ) as caught:
        case.run(_filled(case), *through, end)
    assert caught.value.facts["block"] == (1, 0, 0) and caught.value.facts["thread"] == (5, 0, 0)
    case.run(_filled(case), *through, Copy(at(case.r), ZERO), *through, end)


def test_a_fill_is_no_index_and_a_new_value_is_no_fill(case: Case) -> None:
    row = symbol("row", lo=-1, hi=LANES - 1)
    index = local("index", DataType.Int)
    held = [
        Alloc(index),
        Copy(at(index), IndexValue(LANE, DataType.Int), pred=INSIDE, fill=Imm(0, DataType.Int)),
    ]
    with pytest.raises(SimulationError, match="is an index"):
        case.run(*held, LetValue(row, at(index), const(LANES)))
    case.run(*held, LetValue(row, at(index), const(LANES), INSIDE))
    case.run(_filled(case), case.load(), case.store())
    case.run(
        _filled(case),
        Copy(at(case.r, 1), at(case.r), pred=INSIDE, fill=Imm(2.0, F32), fill_is_value=True),
        Copy(at(case.y.buffer, LANE), at(case.r, 1)),
    )


@pytest.mark.parametrize("pred", [lt(LANE, LANES - 3), lt(LANE, 0)])
def test_memory_is_not_touched_where_a_predicate_does_not_hold(case: Case, pred: Expr) -> None:
    far = LANE + 3
    case.run(
        Init(SUM, (at(case.r, 2),)),
        Copy(at(case.r), at(case.x.buffer, far), pred=pred, fill=ZERO),
        Combine(SUM, (at(case.r, 2),), (at(case.x.buffer, far),), pred=pred),
        Copy(at(case.y.buffer, far), at(case.r), pred=pred),
    )
