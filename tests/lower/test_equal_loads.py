"""Vectors that several loads are chosen from: loaded once, each under a predicate of its own."""

from __future__ import annotations

import re

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.kernel import ir as k
from fusewright.lower.passes.equal_loads import share_equal_loads
from fusewright.sim import SimOptions, simulate
from fusewright.sym import Expr, as_int, const, eq, lt, substitute, symbol
from tests.kernel import builders as b
from tests.lower.statements import X, Y, loop

# ---- stencils ----------------------------------------------------------------------------------------------


def taps(given: torch.Tensor, reach: int) -> FusionDefinition:
    """The sum of the neighbours in a row, of zeros beyond its ends."""
    with FusionDefinition() as fd:
        x = fd.from_pytorch(given, static_sizes=True)
        wide = fd.ops.pad(x, [reach, reach])
        total = x
        for i in range(2 * reach + 1):
            if i != reach:
                total = total + fd.ops.slice(wide, [0, i], [given.shape[0], i + given.shape[1]])
        fd.add_output(total)
    return fd


def expected_taps(given: torch.Tensor, reach: int) -> torch.Tensor:
    wide = torch.nn.functional.pad(given, (reach, reach))
    return sum(wide[:, i : i + given.shape[1]] for i in range(2 * reach + 1))  # type: ignore[return-value]


@pytest.mark.parametrize(("columns", "reach"), [(64, 1), (64, 3), (4, 1), (8, 3), (30, 2), (31, 1)])
def test_neighbours_are_those_of_each_element(columns: int, reach: int) -> None:
    given = torch.randint(9, (7, columns)).float()
    (made,) = taps(given, reach).execute([given])
    assert torch.equal(made, expected_taps(given, reach))  # type: ignore[arg-type]


def test_an_aligned_vector_is_loaded_once() -> None:
    given = torch.randint(9, (64, 512)).to(torch.bfloat16)
    fd = taps(given, 2)
    (made,) = fd.execute([given])
    assert torch.equal(made, expected_taps(given, 2))  # type: ignore[arg-type]
    text = fd.kernels_for([given])[0].cuda_text
    assert len(re.findall(r"fw::load", text)) == 3  # its own vector and both beside it
    assert "misalignment" not in text and "lane" not in text  # no element is loaded by itself


def test_what_exists_in_part_is_loaded_by_element_at_the_edges() -> None:
    """The last vector of a row of 30 has neighbours that exist, and others that do not."""
    given = torch.randint(9, (64, 30)).float()
    fd = taps(given, 1)
    (made,) = fd.execute([given])
    assert torch.equal(made, expected_taps(given, 1))  # type: ignore[arg-type]


# ---- kernels -----------------------------------------------------------------------------------------------

A, B = b.local("A", DataType.Float, 8), b.local("B", DataType.Float, 8)
J, L, K = symbol("j", lo=0, hi=1), symbol("i", lo=0, hi=1), symbol("k", lo=0, hi=7)
ZERO = k.Imm(0.0, DataType.Float)
LANE = symbol("lane", lo=0, hi=3)


def load(
    to: k.Buffer, place: Expr | int, at: Expr | int, pred: Expr = k.TRUE, wanted: Expr | None = None
) -> k.Copy:
    covering = None if wanted is None else k.Covering(LANE, wanted)
    fill = None if pred is k.TRUE else ZERO
    src = b.at(X.buffer, at)
    return k.Copy(
        b.at(to, place), src, 4, pred=pred, fill=fill, fill_is_value=fill is not None, covering=covering
    )


def shared(*body: k.Stmt) -> tuple[list[k.Copy], list[float]]:
    """The loads that are left, and what is stored: 8 elements of A, then of B."""
    stores = [
        loop(8, k.Copy(b.at(Y.buffer, K + 8 * n), b.at(each, K)), index=K, unroll=True)
        for n, each in enumerate((A, B))
    ]
    before = b.kernel("k", [X, Y], [*map(k.Alloc, (A, B)), *body, *stores], [1], [1])
    after = share_equal_loads(before)
    results = []
    for each in (before, after):
        x, y = torch.arange(1024.0), torch.zeros(1024)
        simulate(each, [x, y], options=SimOptions(outputs=False))
        results.append(y[:16].tolist())
    assert results[0] == results[1]
    left = [
        s
        for s in k.walk(after.body)
        if isinstance(s, k.Copy) and isinstance(s.src, k.Ref) and s.src.buffer is X.buffer
    ]
    return left, results[1]


def test_equal_loads_of_two_loops_are_one() -> None:
    first = loop(2, load(A, J * 4, J * 8 + 16), index=J, unroll=True)
    second = loop(2, load(B, L * 4, L * 8 + 16), index=L, unroll=True)
    left, _ = shared(first, second)
    assert [s.dst.buffer for s in left] == [A]


def test_loads_of_other_vectors_and_under_other_predicates_stay() -> None:
    left, _ = shared(load(A, 0, 16), load(A, 4, 20), load(B, 0, 16, lt(const(2), J * 0 + 1)), load(B, 4, 24))
    assert len(left) == 4


def test_registers_that_were_loaded_anew_are_not_copied() -> None:
    left, _ = shared(load(A, 0, 16), load(A, 4, 32), load(A, 0, 20), load(B, 0, 16), load(B, 4, 32))
    assert [(s.dst.buffer, s.src.index) for s in left if s.dst.buffer is B] == [(B, const(16))]


def test_what_computes_between_loads_ends_them() -> None:
    writes = loop(8, k.Copy(b.at(A, K), ZERO), index=K, unroll=True)
    left, _ = shared(load(A, 0, 16), load(A, 4, 20), writes, load(B, 0, 16), load(B, 4, 20))
    assert len(left) == 4


@pytest.mark.parametrize("whole", [False, True])
def test_a_vector_is_loaded_for_what_either_wants(whole: bool) -> None:
    first, last = eq(LANE, 0), None if whole else eq(LANE, 3)
    made = load(A, 0, 16, wanted=first), load(B, 0, 16, wanted=last)
    before = b.kernel("k", [X, Y], [*map(k.Alloc, (A, B)), *made], [1], [1])
    [left] = [
        s
        for s in share_equal_loads(before).body
        if isinstance(s, k.Copy) and s.src.buffer is X.buffer  # type: ignore[union-attr]
    ]
    if whole:
        assert left.covering is None
    else:
        assert left.covering is not None
        assert {n for n in range(4) if _wants(left.covering, n)} == {0, 3}


def _wants(covering: k.Covering, lane: int) -> bool:
    return as_int(substitute(covering.wanted, {covering.lane: const(lane)})) == 1
