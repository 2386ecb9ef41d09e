"""Positions of extrema in the order of the elements: where that is known, and what the simulator checks."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.errors import SimulationError
from fusewright.kernel import ir as k
from fusewright.kernel.verify import verify
from fusewright.lower.passes.in_order import combine_in_order
from fusewright.ops.reductions import ARGMAX
from fusewright.sim import SimOptions, simulate
from fusewright.sym import Expr, as_expr, symbol
from tests.kernel import builders as b
from tests.lower.statements import T, X, Y, copy, kernel, loop

TOP, AT = b.local("TOP", DataType.Float, 2), b.local("AT", DataType.Index, 2)
V, P = b.local("V", DataType.Float), b.local("P", DataType.Index)
I = symbol("i", lo=0, hi=3)  # noqa: E741
J = symbol("j", lo=0, hi=1)


def rows(position: Expr, into: Expr | int = 0) -> k.Kernel:
    """Two elements of a row in each of four steps, at this position."""
    states = b.at(TOP, into), b.at(AT, into)
    first = k.Init(ARGMAX, states)
    begun: list[k.Stmt] = [first if into == 0 else loop(2, first, index=J, unroll=True)]
    step = (
        copy(V, X.buffer, 0, position),
        k.Copy(b.at(P), k.IndexValue(position, DataType.Index)),
        k.Combine(ARGMAX, states, (b.at(V), b.at(P))),
    )
    body = loop(4, loop(2, *step, index=J, unroll=True), index=I)
    made = kernel(*begun, body, copy(Y.buffer, TOP, T), allocs=(TOP, AT, V, P))
    verify(made)
    return made


def is_in_order(made: k.Kernel) -> bool:
    changed = combine_in_order(made)
    verify(changed)
    [found] = [stmt for stmt in k.walk(changed.body) if isinstance(stmt, k.Combine)]
    return found.in_order


def test_what_is_in_order() -> None:
    assert is_in_order(rows(I * 2 + J))
    assert is_in_order(rows(I * 64 + J + T * 2))
    assert not is_in_order(rows(I + J * 4))  # a step goes back behind the second element
    assert not is_in_order(rows(8 - I * 2 + J))
    assert not is_in_order(rows(I * 2 - J + 1))
    # Two rows side by side, each with a result.
    assert is_in_order(rows(I * 4, into=J)) and not is_in_order(rows(8 - I, into=J))
    assert not is_in_order(rows(I * 4 + J, into=J))


def test_what_is_written_elsewhere_has_no_order() -> None:
    made = rows(I * 2 + J)
    assert not is_in_order(k.with_body(made, (*made.body, copy(TOP, X.buffer))))


def test_the_simulator_refuses_an_element_that_comes_before() -> None:
    made = rows(as_expr(7) - I * 2 - J)
    wrong = k.with_body(
        made,
        k.rewritten(
            made.body,
            lambda stmt: [dataclasses.replace(stmt, in_order=True) if isinstance(stmt, k.Combine) else stmt],
        ),
    )
    given = [torch.arange(1024.0), torch.zeros(1024), 1]
    simulate(made, given, options=SimOptions(outputs=False))
    with pytest.raises(SimulationError, match="in order that comes before another"):
        simulate(wrong, given, options=SimOptions(outputs=False))


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_the_first_of_equal_ones_and_of_nan_counts(target: torch.device, name: str, dim: int) -> None:
    """Also where all elements are what reductions begin with, and of rows that start anywhere."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-9, 9, (9, 515), generator=generator).float()
    x[1], x[2], x[3, 7:], x[4, ::5] = float("inf"), float("-inf"), float("-inf"), float("nan")
    x[5], x[6] = -0.0, torch.where(torch.arange(515) % 2 == 0, -0.0, 0.0)
    x = (x if dim else x.mT.contiguous()).to(target)
    with FusionDefinition() as fd:
        given = fd.from_pytorch(x, static_sizes=True)
        fd.add_output(getattr(fd.ops, name)(given, dim=dim))
    (found,) = fd.execute([x])
    kernels = fd.kernels_for([x])
    assert f"fw::{name}_next" in kernels[0].cuda_text
    assert torch.equal(found, getattr(x, name)(dim))
