"""Of two loads that exclude each other, a thread makes one access."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from fusewright import FusionDefinition


def text_of(build: Callable[..., Any], given: Sequence[torch.Tensor], expected: torch.Tensor) -> str:
    """The kernel's text; its result is torch's to the bit."""
    with FusionDefinition() as fd:
        fd.add_output(build(fd, *(fd.from_pytorch(each, static_sizes=True) for each in given)))
    (made,) = fd.execute(list(given))
    assert torch.equal(made, expected)  # type: ignore[arg-type]
    [kernel] = fd.kernels_for(list(given))
    return kernel.cuda_text


def loads_of(text: str, tensor: str) -> list[str]:
    return [line for line in text.splitlines() if "fw::load" in line and f"&{tensor}[" in line]


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(6, 64, generator=torch.Generator().manual_seed(5))


@pytest.fixture
def y() -> torch.Tensor:
    return torch.randn(6, 64, generator=torch.Generator().manual_seed(6))


def test_halves_that_change_places_are_one_load(x: torch.Tensor, y: torch.Tensor) -> None:
    def build(fd, a, b):
        first, second = fd.ops.slice(a, [0, 0], [6, 32]), fd.ops.slice(a, [0, 32], [6, 64])
        return a * b + fd.ops.cat([-second, first], dim=1)

    text = text_of(build, [x, y], x * y + torch.cat([-x[:, 32:], x[:, :32]], 1))
    turned, plain = loads_of(text, "T0")
    assert "int(" in turned and "load_or" not in turned + plain


def test_what_stays_beside_what_is_computed_of_a_part_is_one_load(x: torch.Tensor) -> None:
    def build(fd, a):
        part, rest = fd.ops.slice(a, [0, 0], [6, 32]), fd.ops.slice(a, [0, 32], [6, 64])
        return fd.ops.cat([fd.ops.exp2(part), rest], dim=1)

    (load,) = loads_of(text_of(build, [x], torch.cat([x[:, :32].exp2(), x[:, 32:]], 1)), "T0")
    assert "int(" not in load and "load_or" not in load


def test_a_pad_that_reaches_the_result_stays(x: torch.Tensor) -> None:
    """Each half is wanted where it is not loaded, too: there it is 0."""

    def build(fd, a):
        first, second = fd.ops.slice(a, [0, 0], [6, 32]), fd.ops.slice(a, [0, 32], [6, 64])
        return fd.ops.pad(second, [0, 32]) + fd.ops.pad(first, [32, 0]) * 2.0

    zeros = torch.zeros(6, 32)
    expected = torch.cat([x[:, 32:], zeros], 1) + torch.cat([zeros, x[:, :32]], 1) * 2
    loads = loads_of(text_of(build, [x], expected), "T0")
    assert len(loads) == 2 and all("load_or" in load for load in loads)


def test_parts_of_two_tensors_are_two_loads(x: torch.Tensor, y: torch.Tensor) -> None:
    text = text_of(lambda fd, a, b: fd.ops.cat([a, b], dim=1), [x, y], torch.cat([x, y], 1))
    assert len(loads_of(text, "T0")) == len(loads_of(text, "T1")) == 1


def test_what_a_condition_inside_of_another_chooses(x: torch.Tensor, y: torch.Tensor) -> None:
    """A rotation of the first half of each row, beside the second as it is."""

    def build(fd, a, b):
        one, two = fd.ops.slice(a, [0, 0], [6, 16]), fd.ops.slice(a, [0, 16], [6, 32])
        turned = fd.ops.cat([-two, one], dim=1) * fd.ops.slice(b, [0, 0], [6, 32])
        return fd.ops.cat([turned, fd.ops.slice(a, [0, 32], [6, 64])], dim=1)

    turned = torch.cat([-x[:, 16:32], x[:, :16]], 1) * y[:, :32]
    text = text_of(build, [x, y], torch.cat([turned, x[:, 32:]], 1))
    assert len(loads_of(text, "T0")) == 2


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.int8))
def test_rolled_rows_of_other_types(dtype: torch.dtype) -> None:
    x = torch.arange(128).reshape(2, 64).to(dtype)

    def build(fd, a):
        first, second = fd.ops.slice(a, [0, 0], [2, 32]), fd.ops.slice(a, [0, 32], [2, 64])
        return fd.ops.cat([second, first], dim=1)

    text_of(build, [x], x.roll(32, 1))
