"""Outputs beside their reference: what is close in float32 is not computed in a wider type."""

from __future__ import annotations

import pytest
import torch

from fusewright.frontend import comparison
from fusewright.frontend.comparison import check_outputs

X = torch.linspace(-3, 3, 1000)


def close(output: torch.Tensor, reference: torch.Tensor, tolerance: tuple[float, float]) -> bool:
    try:
        check_outputs([output], [reference], [tolerance])
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_it_says_what_isclose_says(dtype):
    x = X.to(dtype)
    for scale in (1.0, 1 + 5e-4, 1 + 0.9e-3, 1 + 0.995e-3, 1 + 1.1e-3, 1.5, float("inf"), float("nan")):
        for reference in (x, torch.where(X > 2.9, torch.inf, X).to(dtype)):
            other = (reference.double() * scale).to(dtype)
            expected = torch.isclose(
                other.double(), reference.double(), rtol=1e-3, atol=1e-6, equal_nan=True
            ).all()
            assert close(other, reference, (1e-6, 1e-3)) == bool(expected), (dtype, scale)
    finite = torch.where(X > 2.9, 1e30, X)
    assert not close(finite, torch.where(X > 2.9, torch.inf, X), (1e-6, 1e-3))
    nan = torch.where(X > 2.9, torch.nan, X)
    assert close(nan, nan, (1e-6, 1e-3)) and not close(X, nan, (1e-6, 1e-3))


def test_what_is_clearly_close_is_compared_in_float32(monkeypatch):
    def isclose(*arguments: object, **options: object) -> torch.Tensor:
        raise AssertionError("in a wider type")

    monkeypatch.setattr(comparison.torch, "isclose", isclose)
    check_outputs([X.bfloat16()], [X], [(1e-2, 1e-2)])
    with pytest.raises(AssertionError, match="in a wider type"):
        check_outputs([X.double()], [X], [(1e-2, 1e-2)])
