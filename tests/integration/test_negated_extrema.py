"""Extrema of negated integers, whose signs ptxas (13.0 at least) loses in an extremum of three operands."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition

Tensor = torch.Tensor

OF_TWO_REGISTERS = re.compile(r"\b(min|max)\.s32\s+%\w+, %\w+, %")
NEGATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "neg": lambda o, x: o.neg(x),
    "product": lambda o, x: x * -1,
    "difference": lambda o, x: o.sub(0, x),
    "complement": lambda o, x: o.bitwise_not(x) + 1,
}


def extrema(o: Any, x: Any, negate: Callable[[Any, Any], Any]) -> list[Any]:
    """Of x [.., 3, n]: over rows, of three elements, and clamped."""
    a, b, c = (negate(o, o.select(x, i, 1)) for i in range(3))
    return [
        o.min(negate(o, x), [2]),
        o.max(negate(o, x), [2]),
        o.min(negate(o, x), [1]),
        o.minimum(o.minimum(a, b), c),
        o.maximum(o.maximum(a, b), c),
        o.minimum(a, o.minimum(b, c)),
        o.clamp(a, -20, -3),
    ]


def of_torch(x: Tensor) -> list[Tensor]:
    y = -x.int()
    a, b, c = y.unbind(1)
    small, large = torch.minimum(torch.minimum(a, b), c), torch.maximum(torch.maximum(a, b), c)
    return [y.amin(2), y.amax(2), y.amin(1), small, large, small, a.clamp(-20, -3)]


def defined(x: Tensor, negation: str) -> FusionDefinition:
    with FusionDefinition() as fd:
        wide = fd.ops.cast(fd.from_pytorch(x), DataType.Int32)
        for result in extrema(fd.ops, wide, NEGATIONS[negation]):
            fd.add_output(result)
    return fd


@pytest.mark.parametrize("length", [5, 64])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8], ids=str)
@pytest.mark.parametrize("negation", NEGATIONS)
@pytest.mark.sampled(0.4)
def test_extrema_of_negated_integers(
    negation: str, dtype: torch.dtype, length: int, target: torch.device
) -> None:
    x = torch.randint(0, 100, (7, 3, length), generator=torch.Generator().manual_seed(length)).to(dtype)
    x = x.to(target)
    for made, expected in zip(defined(x, negation).execute([x]), of_torch(x), strict=True):
        assert torch.equal(made.int(), expected)


@pytest.mark.parametrize("negation", NEGATIONS)
def test_ptxas_is_given_no_signed_extrema(negation: str) -> None:
    x = torch.empty(7, 3, 64, dtype=torch.int32)
    kernels = defined(x, negation).kernels_for([x.to("meta")], device="cuda")
    texts = [kernel.code.ptx() for kernel in kernels if kernel.code is not None]
    assert texts
    assert not any(OF_TWO_REGISTERS.search(text) for text in texts)  # indices have a constant for one
