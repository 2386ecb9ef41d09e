"""Sums over pairs: what a thread has of them, and that it is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fusewright import FusionDefinition, ReductionParams
from fusewright.torch_compile import decompositions, from_fx

Tensor = torch.Tensor


def potential(points: Tensor, charges: Tensor) -> Tensor:
    squares = (points[:, None] - points[None]).square().sum(-1) + 0.1
    return (charges[None] * squares.rsqrt()).sum(1)


def forces(points: Tensor) -> Tensor:
    apart = points[:, None] - points[None]
    near = 1 / (apart.square().sum(-1) + 0.1)
    return (near[..., None] * apart).sum(1)


def definition(function: Callable[..., object], *inputs: Tensor) -> FusionDefinition:
    return from_fx(make_fx(function, decompositions(), tracing_mode="fake")(*inputs)).definitions[0]


def proposed(function: Callable[..., object], *shapes: tuple[int, ...]) -> ReductionParams:
    """For float inputs of these shapes, whose memory nothing touches."""
    inputs = [torch.empty(shape) for shape in shapes]
    (kernel,) = definition(function, *inputs).kernels_for(inputs)
    params = kernel.params
    assert isinstance(params, ReductionParams)
    return params


@pytest.mark.parametrize("count, rows", [(16384, 8), (4096, 4), (2048, 2), (1000, 1)])
def test_threads_have_several_rows_while_they_are_enough(count: int, rows: int) -> None:
    params = proposed(potential, (count, 3), (count,))
    assert params.fastest_dim
    assert params.unroll_factor_iter_dom == rows


def test_a_warp_has_the_rows_of_several_states() -> None:
    def nearest(a: Tensor, b: Tensor) -> Tensor:
        return (a[:, None] - b[None]).square().sum(-1).argmin(1)

    params = proposed(nearest, (16384, 3), (1024, 3))
    assert (params.lparams.bdimx, params.unroll_factor_iter_dom) == (32, 4)


def test_rows_of_vectors_share_one_operand() -> None:
    def distances(a: Tensor, b: Tensor) -> Tensor:
        return (a[:, None] - b[None]).square().sum(-1).sqrt()

    params = proposed(distances, (2048, 32), (2048, 32))
    assert params.unroll_factor_inner_reduction == 4
    assert (params.lparams.bdimx, params.unroll_factor_iter_dom) == (4, 8)


@pytest.mark.parametrize("components", [2, 3, 5])
def test_threads_have_all_of_a_short_innermost_dimension(components: int) -> None:
    """Vectors, where they can be; five components are no power of two either."""
    params = proposed(forces, (4096, components))
    assert not params.fastest_dim
    assert params.unroll_factor_iter_dom == components
    assert params.vectorize_iter_dom == (components == 2)


def test_rows_of_their_own_elements_are_as_before() -> None:
    """An element for each point comes from memory, which is what takes time."""

    def weighted(x: Tensor, weights: Tensor) -> Tensor:
        return (x * weights).sum(1)

    assert proposed(weighted, (4096, 4095), (4095,)).unroll_factor_iter_dom == 1


@pytest.mark.parametrize("rows", [2, 4])
def test_several_rows(rows: int, target: torch.device) -> None:
    """Of a count that neither rows nor threads divide."""
    torch.manual_seed(0)
    inputs = [torch.randn(41, 3, device=target), torch.randn(41, device=target)]
    fd = definition(potential, *inputs)
    plain = fd.kernels_for(inputs)[0].params
    assert isinstance(plain, ReductionParams)
    several = replace(
        plain,
        unroll_factor_iter_dom=rows,
        unroll_factor_top_of_vectorization=2,
        lparams=replace(plain.lparams, bdimx=32, bdimy=1),
    )
    (result,) = fd.execute(inputs, schedules={0: several})
    torch.testing.assert_close(result, potential(*inputs), rtol=1e-4, atol=1e-4)
