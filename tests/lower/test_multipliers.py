"""Indices are divided by sizes of a call through a product with what the host computes from the size."""

from __future__ import annotations

import dataclasses
import random

import pytest
import torch

from fusewright import FusionDefinition
from fusewright.core.dtype import DataType
from fusewright.core.errors import SimulationError
from fusewright.cuda.printer import print_kernel
from fusewright.kernel import ir as k
from fusewright.lower.multipliers import with_multipliers
from fusewright.sim import SimOptions, simulate
from fusewright.sym import as_int, const, floordiv, maximum, mod
from tests.lower.statements import N, T, X, Y, copy, kernel


def test_products_give_the_quotients():
    """As snippets/quotient.cuh computes, for the largest dividends and those beside multiples of divisors."""
    rng = random.Random(1)
    top = 2**31 - 1
    divisors = [1, 2, 3, 7, 2**30, 2**30 + 1, top - 1, top, *(rng.randrange(1, top) for _ in range(200))]
    divisors += [rng.randrange(1, 2 ** rng.randrange(1, 31)) for _ in range(300)]
    for d in divisors:
        over = as_int(k.multiplier(const(d)))
        assert over is not None and over < 2**63
        near = {
            q * d + rest for q in (0, 1, top // d, rng.randrange(top // d + 1)) for rest in (-1, 0, d - 1)
        }
        for x in (top, *(x for x in near if 0 <= x <= top)):
            product = x * (over >> 32) + (x * (over & 0xFFFFFFFF) >> 32)
            assert product < 2**64 and product >> 30 == x // d, (x, d)


def test_sizes_that_divide_indices_bring_a_parameter():
    given = kernel(copy(Y.buffer, X.buffer, T, mod(T, maximum(N, 1)) + floordiv(T, 5)), allocs=())
    given = dataclasses.replace(given, index_dtype=DataType.Int32)
    made = with_multipliers(given, ())
    added = made.params[-1]
    assert isinstance(added, k.ScalarParam) and added.divisor is maximum(N, 1)
    assert "fw::rest(threadIdx_x, max(1, n), over0)" in print_kernel(made).kernel
    assert with_multipliers(given, (N,)) is given  # a stride is not the host's to compute with
    wide = dataclasses.replace(given, index_dtype=DataType.Int)
    assert with_multipliers(wide, ()) is wide
    x, y = torch.arange(1024.0), torch.zeros(1024)
    simulate(made, [x, y, 7, 2**62 // 7 + 1], options=SimOptions(outputs=False))
    assert y[:32].tolist() == [t % 7 + t // 5 for t in range(32)]
    with pytest.raises(SimulationError, match="for quotients by 7"):
        simulate(made, [x, y, 7, 2**62 // 7], options=SimOptions(outputs=False))


def test_a_call_passes_what_its_sizes_make():
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1, -1], contiguity=True)
        fd.add_output(fd.ops.permute(x, [1, 0, 2]) * 2.0)
    for shape in ((3, 5, 8), (7, 2, 12), (4, 9, 16)):
        given = torch.randn(shape)
        [result] = fd.execute([given])
        torch.testing.assert_close(result, given.permute(1, 0, 2) * 2)
    [made] = fd._finished().executor.last_program.kernels
    assert any(isinstance(p, k.ScalarParam) and p.divisor is not None for p in made.kernel.params)


def test_kernels_of_one_launch_bring_their_own() -> None:
    with FusionDefinition() as fd:
        given = [fd.define_tensor([-1, -1, -1], contiguity=True) for _ in range(2)]
        for x in given:
            fd.add_output(fd.ops.permute(x, [1, 0, 2]) * 2.0)
    for rows in (3, 4):  # sizes that have not changed are constants
        inputs = [torch.randn(rows, 5 * rows, 8 * rows), torch.randn(7 * rows, rows, 24 * rows)]
        for x, result in zip(inputs, fd.execute(inputs)):
            torch.testing.assert_close(result, x.permute(1, 0, 2) * 2)
    [made] = fd._finished().executor.last_program.kernels
    assert {p.name for p in made.kernel.params if isinstance(p, k.ScalarParam)} >= {"p0.over0", "p1.over0"}
