"""What is rounded between operators stays in wide registers, and is rounded no oftener than it has to be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition

ROUNDS, CONVERTS = "= fw::rounded_bfloat16(", "= fw::bfloat16("


def narrow(fd: FusionDefinition, x: Any) -> Any:
    return fd.ops.cast(x, DataType.BFloat16)


def text_of(
    build: Callable[..., Any], given: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]
) -> str:
    """The kernel's text; its results are torch's to the bit."""
    with FusionDefinition() as fd:
        made = build(fd, *(fd.from_pytorch(each, static_sizes=True) for each in given))
        for each in made if isinstance(made, tuple) else (made,):
            fd.add_output(each)
    for ours, torchs in zip(fd.execute(list(given)), expected):
        assert torch.equal(ours, torchs)  # type: ignore[arg-type]
    [kernel] = fd.kernels_for(list(given))
    return kernel.cuda_text


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(8, 32, generator=torch.Generator().manual_seed(5)).bfloat16()


@pytest.fixture
def y() -> torch.Tensor:
    return torch.randn(8, 32, generator=torch.Generator().manual_seed(6)).bfloat16()


def test_the_sign_and_the_largest_of_loaded_values_are_not_rounded(x: torch.Tensor, y: torch.Tensor) -> None:
    def build(fd, a, b):
        largest = narrow(
            fd, fd.ops.maximum(narrow(fd, -a), narrow(fd, fd.ops.abs(fd.ops.cast(b, DataType.Float))))
        )
        return narrow(fd, largest * b)

    text = text_of(build, [x, y], [torch.maximum(-x, y.abs()) * y])
    assert ROUNDS not in text and text.count(CONVERTS) == 1


def test_what_is_computed_of_them_is_rounded(x: torch.Tensor, y: torch.Tensor) -> None:
    def build(fd, a, b):
        return narrow(fd, narrow(fd, fd.ops.maximum(a * b, b)) + b)

    text = text_of(build, [x, y], [torch.maximum(x.float() * y, y.float()).bfloat16() + y])
    assert text.count(ROUNDS) == 1


def test_a_choice_that_goes_on_is_of_wide_registers(x: torch.Tensor, y: torch.Tensor) -> None:
    """A rotation of halves: the second with the other sign, then the first."""

    def build(fd, a, b):
        first, second = fd.ops.slice(a, [0, 0], [8, 16]), fd.ops.slice(a, [0, 16], [8, 32])
        turned = fd.ops.cat([narrow(fd, -second), first], dim=1)
        return narrow(fd, turned * b)

    text = text_of(build, [x, y], [torch.cat([-x[:, 16:], x[:, :16]], 1) * y])
    assert "?" in text and ROUNDS not in text and text.count(CONVERTS) == 1


def test_a_choice_that_is_stored_is_converted_once(x: torch.Tensor, y: torch.Tensor) -> None:
    def build(fd, a, b):
        return fd.ops.cat([narrow(fd, fd.ops.exp(a)), narrow(fd, a * b), b], dim=1)

    text = text_of(build, [x, y], [torch.cat([x.exp(), x * y, y], 1)])
    assert text.count("?") == 2 and ROUNDS not in text and text.count(CONVERTS) == 1


def test_pieces_in_common_registers_are_chosen_as_they_are() -> None:
    """Where a warp has elements of one piece only, its registers have no others."""
    given = [torch.randn(4, 1024, generator=torch.Generator().manual_seed(n)).bfloat16() for n in range(5)]

    def build(fd, *parts):
        joined = fd.ops.cat([*parts[:4], narrow(fd, parts[4] * 3.0)], dim=1)
        return narrow(fd, joined * 2.0)

    text_of(build, given, [torch.cat([*given[:4], given[4] * 3], 1) * 2])


def test_what_is_stored_besides_is_narrow(x: torch.Tensor, y: torch.Tensor) -> None:
    def build(fd, a, b):
        turned = narrow(fd, -a)
        return turned, narrow(fd, turned * b)

    text_of(build, [x, y], [-x, -x * y])


def test_quotients_of_short_rows_are_as_exact_as_what_they_are_rounded_to() -> None:
    """The largest of three is computed for each element, with what follows from it."""
    x = torch.rand(4, 3, 64, generator=torch.Generator().manual_seed(7)).bfloat16()

    def build(fd, a):
        largest, least = fd.ops.max(a, dims=[1]), fd.ops.min(a, dims=[1])
        return largest, narrow(fd, narrow(fd, largest - least) / narrow(fd, largest + 1.0))

    largest, least = x.amax(1), x.amin(1)
    text = text_of(build, [x], [largest, (largest - least) / (largest + 1)])
    assert "fw::divide(" not in text or "reduction" in text
