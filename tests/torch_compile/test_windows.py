"""Pools, scaled images and their gradients compute what torch does, of sizes drawn with a fixed seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from fusewright import FusionDefinition, decompositions, from_fx
from fusewright.ops.evaluate import evaluate_fusion

DRAWN = 12
Drawn = tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Definitions are run by the evaluator, node by node: no kernel is made."""

    def run(fd: FusionDefinition, inputs: Any) -> list[torch.Tensor]:
        return evaluate_fusion(fd._finished().fusion, inputs, lambda: (1, 2))

    monkeypatch.setattr(FusionDefinition, "execute", run)


def image(r: random.Random, rank: int, least: int = 1, most: int = 12, dtype: Any = torch.float32) -> Any:
    """Small integers, many of them equal."""
    shape = [r.randint(1, 2), r.randint(1, 3), *(r.randint(least, most) for _ in range(rank))]
    generator = torch.Generator().manual_seed(r.randrange(1000))
    return torch.randint(-4, 5, shape, generator=generator).to(dtype)


def scaled(mode: str, rank: int) -> Callable[[random.Random], Drawn]:
    def draw(r: random.Random) -> Drawn:
        x = image(r, rank)
        options: dict[str, Any] = {"mode": mode}
        if "linear" in mode or mode == "bicubic":
            options["align_corners"] = r.random() < 0.5
        if r.random() < 0.5:
            options["size"] = [r.randint(1, min(4 * n, 25 if rank < 3 else 14)) for n in x.shape[2:]]
        else:
            options["scale_factor"] = [
                r.choice([0.3, 0.5, 0.75, 1, 1.3, 1.7, 2, 2.5, 3]) for _ in range(rank)
            ]
            made = [int(n * f) for n, f in zip(x.shape[2:], options["scale_factor"])]
            # Interpolating, torch takes a size that stays for no change in some cases, whatever the scale.
            if 0 in made or ("linear" in mode and any(n == m for n, m in zip(x.shape[2:], made))):
                options["scale_factor"] = 2.0
        return lambda x: F.interpolate(x, **options), x

    return draw


def pooled(kind: str, rank: int) -> Callable[[random.Random], Drawn]:
    pool = getattr(F, f"{kind}_pool{rank}d")

    def draw(r: random.Random) -> Drawn:
        x = image(r, rank, 5)
        window = [r.randint(1, 3 if rank < 3 else 2) for _ in range(rank)]
        step = [r.randint(1, 3) for _ in range(rank)]
        pad = [r.randint(0, n // 2) for n in window]
        options: dict[str, Any] = {"ceil_mode": r.random() < 0.5}
        if kind == "max":
            options["dilation"] = [r.randint(1, 2) for _ in range(rank)]
        else:
            options["count_include_pad"] = r.random() < 0.5
            if rank > 1 and r.random() < 0.3:
                options["divisor_override"] = 3
        return lambda x: pool(x, window, step, pad, **options), x

    return draw


def adaptive(kind: str, rank: int) -> Callable[[random.Random], Drawn]:
    pool = getattr(F, f"adaptive_{kind}_pool{rank}d")

    def draw(r: random.Random) -> Drawn:
        x = image(r, rank, 3, 9 if rank < 3 else 5)
        # Windows of at most three elements, each in at most three of them.
        made = [r.randint(-(-n // 2), 2 * n) for n in x.shape[2:]]
        return lambda x: pool(x, made if rank > 1 else made[0]), x

    return draw


def padded(rank: int) -> Callable[[random.Random], Drawn]:
    def draw(r: random.Random) -> Drawn:
        widths = [r.randint(0, 3 if rank < 3 else 1) for _ in range(2 * rank)]
        return lambda x: F.pad(x, widths, mode="replicate"), image(r, rank)

    return draw


KINDS = {
    **{f"{m} {n}d": scaled(m, n) for m in ("nearest", "nearest-exact") for n in (1, 2, 3)},
    **{f"{m} {n}d": scaled(m, n) for n, m in enumerate(("linear", "bilinear", "trilinear"), 1)},
    **{f"replicated {n}d": padded(n) for n in (1, 2, 3)},
    **{f"{k} pool {n}d": pooled(k, n) for k in ("max", "avg") for n in (1, 2, 3)},
    **{f"adaptive {k} {n}d": adaptive(k, n) for k in ("avg", "max") for n in (2, 3)},
}


def with_gradient(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    def both(x: torch.Tensor, grad: torch.Tensor) -> Any:
        given = x.detach().requires_grad_()
        made = function(given)
        return made, *torch.autograd.grad(made, given, grad)

    return both


def check(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> None:
    """Nothing is left to torch, and the results are torch's."""
    made = function(x)
    grad = torch.arange(made.numel(), dtype=x.dtype).reshape(made.shape) % 7 - 3
    both = with_gradient(function)
    graph = make_fx(both, tracing_mode="fake", decomposition_table=decompositions())(x, grad)
    converted = from_fx(graph)
    assert not converted.report().evaluated, converted.report()
    for ours, theirs in zip(converted(x, grad), both(x, grad), strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True, rtol=1e-5, atol=1e-5)


def draws(kind: str, count: int) -> Iterator[Drawn]:
    r = random.Random(kind)
    return (KINDS[kind](r) for _ in range(count))


@pytest.mark.usefixtures("evaluated")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sampled(0.4)
def test_drawn_sizes(kind: str) -> None:
    for function, x in draws(kind, DRAWN):
        check(function, x)


#: A kind, and which of its draws kernels are made of.
SIMULATED = [
    ("nearest 2d", 3),
    ("bilinear 2d", 2),
    ("max pool 2d", 2),
    ("avg pool 2d", 4),
    ("adaptive avg 2d", 1),
]


@pytest.mark.parametrize("kind, number", SIMULATED)
def test_kernels_of_drawn_sizes(kind: str, number: int) -> None:
    function, x = list(draws(kind, number + 1))[number]
    check(function, x)


@pytest.mark.usefixtures("evaluated")
def test_a_pool_takes_the_last_of_values_that_are_no_numbers_and_the_first_of_equal_ones() -> None:
    x = torch.tensor([[1.0, torch.nan, 2, 2], [torch.nan, 0, 2, 2], [3, 3, -torch.inf, 0], [3, 3, 0, 0]])[
        None, None
    ]
    check(lambda x: F.max_pool2d(x, 2), x)
    check(lambda x: F.max_pool2d(x, 3, 1, 1), x)
    check(lambda x: F.adaptive_max_pool2d(x, 3), x)


def test_an_image_of_half_its_odd_size_is_every_second_element() -> None:
    x = torch.arange(2 * 7 * 6.0).reshape(1, 2, 7, 6)
    graph = make_fx(lambda x: F.interpolate(x, scale_factor=0.5), tracing_mode="fake")(x)
    converted = from_fx(graph)
    assert not converted.report().evaluated
    assert torch.equal(converted(x), x[:, :, :6:2, ::2])
