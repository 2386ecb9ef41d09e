"""Logarithms of exponentials, and divisions by roots, are computed directly, and no less accurately."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.ir import Fusion
from fusewright.ops.evaluate import evaluate_fusion
from fusewright.rewrite import simplified

Write = Callable[..., Any]


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
    assert labels.count("exp") <= 1 and "truediv" not in labels
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


def _log_of_quotient(fd: FusionDefinition, x: Any, y: Any) -> Any:
    return fd.ops.log(fd.ops.exp(x) / y)


def _softmax_without_maximum(fd: FusionDefinition, x: Any, y: Any) -> Any:
    return fd.ops.exp(x - fd.ops.log(fd.ops.sum(fd.ops.exp(x), 1, keepdim=True)))


def _log_of_that(fd: FusionDefinition, x: Any, y: Any) -> Any:
    e = fd.ops.exp(x)
    return fd.ops.log(e / fd.ops.sum(e, 1, keepdim=True))


def _less_any_shift(fd: FusionDefinition, x: Any, y: Any) -> Any:
    m = fd.ops.sum(y, 1, keepdim=True)
    return x - (m + fd.ops.log(fd.ops.sum(fd.ops.exp(x - m), 1, keepdim=True)))


def _log_softmax(x: torch.Tensor) -> torch.Tensor:
    return x.double().log_softmax(1)


#: What, and what it is exactly where doubles as written are not.
EXTREMES: dict[str, tuple[Write, Callable[[torch.Tensor], torch.Tensor] | None]] = {
    "log(exp(x) / y)": (_log_of_quotient, None),
    "exp(x - log(sum(exp(x))))": (_softmax_without_maximum, None),
    "log(exp(x) / sum(exp(x)))": (_log_of_that, None),
    "x - (m + log(sum(exp(x - m))))": (_less_any_shift, None),
    "x - logsumexp(x)": (lambda fd, x, y: x - fd.ops.logsumexp(x, [1], keepdim=True), _log_softmax),
    "log(softmax(x))": (lambda fd, x, y: fd.ops.log(fd.ops.softmax(x, 1)), _log_softmax),
    "x / sqrt(y)": (lambda fd, x, y: x / fd.ops.sqrt(y), None),
    "1 / sqrt(y)": (lambda fd, x, y: 1.0 / fd.ops.sqrt(y), None),
}
_LIMITS = [0.0, -0.0, 1e-45, -1e-40, 1e-20, 1.5, -5.0, 80.0, 88.0, 100.0, -104.0, 1e20, 3e38, -3e38]


@pytest.mark.parametrize("write, reference", EXTREMES.values(), ids=EXTREMES)
def test_what_a_formula_as_written_has_in_range_stays_in_range(write: Any, reference: Any) -> None:
    values = torch.tensor([*_LIMITS, torch.inf, -torch.inf, torch.nan])
    pairs = torch.cartesian_prod(values, values)

    def evaluated(dtype: DataType, rewritten: bool) -> torch.Tensor:
        with FusionDefinition() as fd:
            x, y = (fd.define_tensor([-1, -1], contiguity=True, dtype=dtype) for _ in range(2))
            fd.add_output(write(fd, x, y))
        fusion = fd._complete().fusion
        inputs = [pairs.to(dtype.torch), pairs.flip(1).to(dtype.torch)]
        return evaluate_fusion(simplified(fusion) if rewritten else fusion, inputs)[0].double()

    written, found = evaluated(DataType.Float, False), evaluated(DataType.Float, True)
    exact = evaluated(DataType.Double, False) if reference is None else reference(pairs)
    assert not bool((found.isnan() & ~written.isnan()).any())
    assert bool((found == written)[written.isinf() & (written == exact)].all())
    finite = written.isfinite() & exact.isfinite()
    # Of the formula as written: its own error, and a few more roundings, of 1 in a logarithm of a sum.
    rounded = exact.abs() + (2.0**-127 if reference is None else 1)
    allowed = (written - exact).abs() + 2.0**-22 * rounded
    assert bool(((found - exact).abs() <= allowed)[finite].all())


def test_a_row_with_positive_infinity_is_as_in_a_softmax() -> None:
    """Its other elements, 0 as written, may be NaN as softmax has them: no second exponential is needed."""
    x = torch.tensor([[100.0, torch.inf], [-torch.inf, 1.0], [3e38, -3e38]])
    [found] = evaluate_fusion(simplified(_fusion(_softmax_of_logsumexp)), [x])
    torch.testing.assert_close(found, x.softmax(1), equal_nan=True)
