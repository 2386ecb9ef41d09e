"""Logarithms of exponentials, and divisions by roots, are computed directly, and no less accurately."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright import FusionDefinition
from fusewright.ir import Fusion
from fusewright.ops.evaluate import evaluate_fusion
from fusewright.rewrite import simplified

Write = Callable[[FusionDefinition, Any], Any]


def _powers(fd: FusionDefinition, x: Any) -> tuple[Any, Any]:
    """exp(x - max(x)) and its sum."""
    e = fd.ops.exp(x - fd.ops.max(x, 1, keepdim=True))
    return e, fd.ops.sum(e, 1, keepdim=True)


def _log_softmax_by_reciprocal(fd: FusionDefinition, x: Any) -> Any:
    e, s = _powers(fd, x)
    return fd.ops.log(fd.ops.reciprocal(s) * e)


def _softmax_of_logsumexp(fd: FusionDefinition, x: Any) -> Any:
    return fd.ops.exp(x - fd.ops.logsumexp(x, [1], keepdim=True))


def _softmax_of_log(fd: FusionDefinition, x: Any) -> Any:
    shape = fd.ops.shape(x)
    d = x - fd.ops.max(x, 1, keepdim=True)
    s = fd.ops.sum(fd.ops.exp(d), [1])
    return fd.ops.exp(d - fd.ops.broadcast_in_dim(fd.ops.log(s), shape=shape, broadcast_dims=[0]))


SOFTMAX: dict[str, tuple[Write, Callable[[torch.Tensor], torch.Tensor]]] = {
    "log(e / s)": (
        lambda fd, x: fd.ops.log(fd.ops.truediv(*_powers(fd, x))),
        lambda x: x.log_softmax(1),
    ),
    "log(1 / s * e)": (_log_softmax_by_reciprocal, lambda x: x.log_softmax(1)),
    "exp(x - logsumexp(x))": (_softmax_of_logsumexp, lambda x: x.softmax(1)),
    "exp(d - log(s))": (_softmax_of_log, lambda x: x.softmax(1)),
    "log(exp(x))": (lambda fd, x: fd.ops.log(fd.ops.exp(x)), lambda x: x),
}


def _fusion(write: Write) -> Fusion:
    with FusionDefinition() as fd:
        fd.add_output(write(fd, fd.define_tensor([-1, -1], contiguity=True)))
    return fd._complete().fusion


@pytest.mark.parametrize("write, reference", SOFTMAX.values(), ids=SOFTMAX)
def test_each_element_takes_one_exponential_and_no_error_is_added(write: Write, reference: Any) -> None:
    fusion = _fusion(write)
    new = simplified(fusion)
    labels = [node.label for node in new.nodes]
    assert labels.count("exp") <= 1
    # Differences of up to 400: many exponentials are 0, and their logarithms, as written, infinite.
    x = (torch.rand(8, 65, generator=torch.Generator().manual_seed(1)) - 0.5) * 400
    exact = reference(x.double())
    [found] = evaluate_fusion(new, [x])
    # The differences are rounded twice; the functions are off by a few units of the last place of 1.
    tolerance = 2.0**-23 * (4 + exact.abs())
    error = (found.double() - exact).abs()
    assert bool((error <= tolerance).all()), error.max()
    [written] = evaluate_fusion(fusion, [x])
    assert error.max() <= (written.double() - exact).abs().max()


def _sum_of_squares(fd: FusionDefinition, x: Any) -> Any:
    return fd.ops.sum(x * x, 1, keepdim=True) + 1e-5


ROOTS: dict[str, Write] = {
    "x / sqrt(v)": lambda fd, x: x / fd.ops.sqrt(_sum_of_squares(fd, x)),
    "x * (1 / sqrt(v))": lambda fd, x: x * (1.0 / fd.ops.sqrt(_sum_of_squares(fd, x))),
    "x * reciprocal(sqrt(v))": lambda fd, x: x * fd.ops.reciprocal(fd.ops.sqrt(_sum_of_squares(fd, x))),
    "x / expand(sqrt(v))": lambda fd, x: (
        x / fd.ops.expand(fd.ops.sqrt(_sum_of_squares(fd, x)), fd.ops.shape(x))
    ),
}


@pytest.mark.parametrize("write", ROOTS.values(), ids=ROOTS)
def test_what_a_root_divides_is_multiplied_by_a_reciprocal_root(write: Write) -> None:
    new = simplified(_fusion(write))
    labels = [node.label for node in new.nodes]
    assert "rsqrt" in labels and not {"sqrt", "truediv", "div", "reciprocal"}.intersection(labels)
    x = torch.randn(8, 65, generator=torch.Generator().manual_seed(1)) * torch.logspace(-15, 15, 8)[:, None]
    exact = x.double() / ((x.double() ** 2).sum(1, keepdim=True) + 1e-5).sqrt()
    [found] = evaluate_fusion(new, [x])
    # A reciprocal root of 2 ulp, a product, and the sum below the root, halved.
    torch.testing.assert_close(found.double(), exact, rtol=2.0**-24 * 8, atol=0)


def test_a_root_and_a_logarithm_that_are_results_stay() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        root = fd.ops.sqrt(x)
        for each in (root, fd.ops.reciprocal(root), fd.ops.exp(x), fd.ops.log(fd.ops.exp(x))):
            fd.add_output(each)
    x = torch.rand(3, 5) + 0.5
    found = evaluate_fusion(simplified(fd._complete().fusion), [x])
    for ours, exact in zip(found, (x.sqrt(), x.rsqrt(), x.exp(), x)):
        torch.testing.assert_close(ours, exact)
