"""Results that kernels read through windows: when another kernel stores them, and what is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
import torch.nn.functional as F

from fusewright.ir import Node
from fusewright.segment import decision
from fusewright.segment.state import State
from fusewright.segment.window_results import MAX_REPEATED, far_too_often_repeated
from tests.segment.test_few_elements import definition

Tensor = torch.Tensor

IMAGES = (16, 1024, 1024)


def largest(x: Tensor, size: int) -> Tensor:
    return F.max_pool2d(x[:, None], size, 1, size // 2)[:, 0]


def mean(x: Tensor, size: int) -> Tensor:
    return F.avg_pool2d(x[:, None], size, 1, size // 2)[:, 0]


def opened(size: int) -> Callable[[Tensor], Tensor]:
    return lambda x: x - largest(-largest(-x, size), size)


def pyramid(x: Tensor) -> Tensor:
    once = largest(x, 5)
    return torch.cat([x, once, largest(once, 5)], 1)


def relaxed(times: int) -> Callable[[Tensor], Tensor]:
    def step(x: Tensor) -> Tensor:
        p = F.pad(x, (1, 1, 1, 1))
        return 0.25 * (p[:, 1:-1, 2:] + p[:, 1:-1, :-2] + p[:, 2:, 1:-1] + p[:, :-2, 1:-1])

    def function(x: Tensor) -> Tensor:
        for _ in range(times):
            x = step(x)
        return x

    return function


def likely(x: Tensor) -> Tensor:
    p = torch.sigmoid(x)
    return torch.where(largest(p, 3) == p, p, 0.0)


def smoothed_twice(x: Tensor) -> Tensor:
    return mean(F.gelu(mean(x, 3)), 3)


def contrast(x: Tensor) -> Tensor:
    return mean((x - mean(x, 3)).square(), 3).sqrt()


def edges(x: Tensor) -> Tensor:
    """Gradients where these are greatest across the edge: the second kernel needs the direction, too."""
    p = F.pad(x, (1, 1, 1, 1))
    across = [p[:, i : p.shape[1] - 2 + i, 2:] - p[:, i : p.shape[1] - 2 + i, :-2] for i in range(3)]
    down = [p[:, 2:, i : p.shape[2] - 2 + i] - p[:, :-2, i : p.shape[2] - 2 + i] for i in range(3)]
    gx, gy = across[0] + 2 * across[1] + across[2], down[0] + 2 * down[1] + down[2]
    size = (gx * gx + gy * gy).sqrt()
    q = F.pad(size, (1, 1, 1, 1))
    before = torch.where(gx.abs() > gy.abs(), q[:, 1:-1, :-2], q[:, :-2, 1:-1])
    after = torch.where(gx.abs() > gy.abs(), q[:, 1:-1, 2:], q[:, 2:, 1:-1])
    return torch.where((size >= before) & (size >= after), size, 0.0)


def corners(x: Tensor) -> Tensor:
    """Cheap products of slopes, read through windows: the 32 loads of an element hold many registers."""
    p = F.pad(x, (1, 1, 1, 1))
    across, down = p[:, 1:-1, 2:] - p[:, 1:-1, :-2], p[:, 2:, 1:-1] - p[:, :-2, 1:-1]
    first, second, both = (mean(each, 3) for each in (across * across, down * down, across * down))
    return first * second - both * both


def slopes_of_slopes(x: Tensor) -> Tensor:
    def slopes(t: Tensor) -> Tensor:
        p = F.pad(t, (2, 2), mode="replicate")
        return p[..., 3:-1] - p[..., 1:-3] + 2 * (p[..., 4:] - p[..., :-4])

    first = slopes(x)
    return torch.cat([x, first, slopes(first)], 1)


def dilated(x: Tensor) -> Tensor:
    for step in (1, 2, 4):
        past = F.pad(x, (step, 0))[..., :-step]
        x = torch.tanh(past * 0.5 + x) * torch.sigmoid(past - x)
    return x


def kernels(function: Callable[..., Tensor], shape: tuple[int, ...]) -> list[str]:
    x = torch.empty(shape)
    return [kernel.scheduler for kernel in definition(function, x).kernels_for([x])]


@pytest.mark.parametrize(
    ("function", "shape", "count"),
    [
        (opened(3), IMAGES, 2),
        (likely, IMAGES, 2),
        (smoothed_twice, IMAGES, 2),
        (contrast, IMAGES, 2),
        (edges, IMAGES, 2),
        (corners, IMAGES, 2),
        (slopes_of_slopes, (256, 80, 1500), 2),
        (dilated, (32, 8, 16384), 2),
    ],
)
def test_what_takes_long_at_many_places_is_stored(
    function: Callable[..., Tensor], shape: tuple[int, ...], count: int
) -> None:
    assert kernels(function, shape) == ["pointwise"] * count


def other_colours(x: Tensor) -> Tensor:
    """Powers of three planes, and of their sums."""
    red, green, blue = (x.clamp(min=0) ** 2.4).unbind(1)
    first, second, third = ((red + weight * green + blue) ** (1 / 3) for weight in (1.5, 2, 3))
    return torch.stack([first, first - second, second - third], 1)


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (opened(3), (2, 32, 32)),  # a launch takes longer than the few elements
        (likely, (2, 32, 32)),
        (lambda x: mean(x * 2 + 1, 3), IMAGES),  # cheaper than a store and a read
        (lambda x: mean(x.relu(), 3), IMAGES),
        (relaxed(2), IMAGES),
        (lambda x: torch.sigmoid(largest(x, 3)), IMAGES),  # computed once for each element
        (lambda x: sum(F.pad(x, (3, 3))[..., i : i + 1024] * (i + 1) for i in range(7)), IMAGES),
        (lambda x: torch.stack([x.sigmoid(), x.tanh()], 1), IMAGES),  # read at one place each
        (other_colours, (32, 3, 512, 512)),  # a thread has all planes, which share what they are computed of
    ],
)
def test_what_is_cheap_is_computed_again(function: Callable[..., Tensor], shape: tuple[int, ...]) -> None:
    assert kernels(function, shape) == ["pointwise"]


def test_what_is_stored_follows_from_the_sizes_of_each_kernel() -> None:
    """Equal kernels of a large and of a small image."""
    large, small = torch.empty(16, 1024, 1024, device="meta"), torch.empty(2, 32, 32, device="meta")

    def both(x: Tensor, y: Tensor) -> list[Tensor]:
        return [likely(x), likely(y)]

    fd = definition(both, large, small)
    made = fd.kernels_for([large, small], device="cuda")
    assert sorted(kernel.bytes_written > 1e7 for kernel in made)[-2:] == [True, True]


@pytest.mark.parametrize("function", [opened(5), pyramid, relaxed(6)])
def test_no_kernel_repeats_hundreds_of_operations(function: Callable[[Tensor], Tensor]) -> None:
    """Whatever the sizes: such a kernel takes a minute to compile."""
    x = torch.empty(2, 24, 24)
    made = definition(function, x).kernels_for([x])
    assert 1 < len(made) <= 3
    assert all(len(kernel.cuda_text.splitlines()) < 1000 for kernel in made)


def graph(function: Callable[[Tensor], Tensor]) -> tuple[list[Node], Sequence[object]]:
    leaf = definition(function, torch.empty(2, 24, 24))._leaf
    assert leaf is not None
    nodes = [node for node in leaf.fusion.ordered_nodes() if not node.is_scalar]
    return nodes, leaf.fusion.output_tensors()


def far_too_often(function: Callable[[Tensor], Tensor]) -> list[str]:
    nodes, outputs = graph(function)
    found = far_too_often_repeated(nodes, outputs)  # type: ignore[arg-type]
    return [maker.label for each in found for maker in each.makers]


def test_windows_are_cut_where_they_multiply() -> None:
    assert far_too_often(opened(3)) == []
    assert len(far_too_often(opened(5))) == 1
    assert len(far_too_often(relaxed(3))) == 0
    assert 1 <= len(far_too_often(relaxed(6))) <= 2


def test_a_long_chain_that_is_read_at_two_places_is_no_window_of_windows() -> None:
    def differences(x: Tensor) -> Tensor:
        for _ in range(MAX_REPEATED + 10):
            x = x.sin()
        return x[:, 1:] - x[:, :-1]

    assert far_too_often(differences) == []


def test_joins_are_no_windows() -> None:
    """A circular pad is a join of slices of joins, of which a slice reads one part."""

    def spread(x: Tensor) -> Tensor:
        p = F.pad(x, (1, 1, 1, 1), mode="circular")
        return p[..., 1:-1, 2:] + p[..., 1:-1, :-2] + p[..., 2:, 1:-1] + p[..., :-2, 1:-1] - 4 * x

    assert far_too_often(spread) == []
    assert len(kernels(lambda x: spread(x)[:, :, :8], (2, 24, 24))) == 1


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[State]]:
    """Results are stored wherever that is tried, and for any sizes."""
    monkeypatch.setattr("fusewright.segment.window_results.copy_seconds", lambda *_: 0.0)
    monkeypatch.setattr("fusewright.segment.ideas.copy_seconds", lambda *_: 0.0)
    monkeypatch.setattr("fusewright.segment.ideas.LEAST_GAIN_OF_MORE_KERNELS", 0.0)
    monkeypatch.setattr("fusewright.segment.ideas.KERNEL_SECONDS", 0.0)
    kept: list[State] = []

    def more(before: State, after: State, *_: float) -> bool:
        is_more = len(after.segments) > len(before.segments)
        if is_more:
            kept.append(after)
        return is_more

    monkeypatch.setattr(decision, "is_better", more)
    yield kept


@pytest.mark.parametrize(
    ("function", "shape", "dtype"),
    [
        (opened(3), (2, 9, 11), torch.float32),
        (likely, (2, 9, 8), torch.float32),
        (smoothed_twice, (2, 9, 8), torch.bfloat16),
        (contrast, (2, 8, 8), torch.float32),
        (edges, (2, 9, 12), torch.float32),
        (dilated, (2, 3, 40), torch.float32),
        (corners, (2, 9, 12), torch.float32),
        (slopes_of_slopes, (2, 3, 40), torch.float32),
        (relaxed(2), (2, 7, 9), torch.float32),
        (lambda x: contrast(x) / contrast(x).mean((1, 2), keepdim=True), (2, 8, 8), torch.float32),
        (lambda x: (mean(x.exp(), 3), mean(x.exp().square(), 3), x.exp()), (2, 8, 8), torch.float32),
        (lambda x: mean(x.tanh(), 3), (2, 5, 7), torch.bfloat16),
    ],
)
@pytest.mark.sampled(0.5)
def test_stored_results_are_those_that_are_computed_again(
    function: Callable[..., object],
    shape: tuple[int, ...],
    dtype: torch.dtype,
    target: torch.device,
    stored: list[State],
) -> None:
    torch.manual_seed(1)
    x = torch.randn(shape, dtype=dtype, device=target)
    found = definition(function, x).execute([x])
    assert stored
    expected = function(x)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for own, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(own, theirs)


@pytest.mark.parametrize("function", [opened(5), pyramid, relaxed(6)])
def test_windows_that_are_cut(function: Callable[[Tensor], Tensor], target: torch.device) -> None:
    x = torch.randn(2, 9, 13, device=target)
    [found] = definition(function, x).execute([x])
    torch.testing.assert_close(found, function(x))
