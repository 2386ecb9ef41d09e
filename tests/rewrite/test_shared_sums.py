"""Sums that differ in common factors are one, and factors of a row meet its elements as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.ir import Fusion
from fusewright.ops.evaluate import evaluate_fusion
from fusewright.rewrite import simplified

Write = Callable[..., Sequence[Any]]


def _of_channels(fd: FusionDefinition, t: Any) -> Any:
    return fd.ops.broadcast(t, [True, False, True])


def _fusion(write: Write, dtype: DataType) -> Fusion:
    """Of x, y of [N, C, L], and a, b of [C]."""
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([-1] * 3, contiguity=True, dtype=dtype) for _ in range(2))
        a, b = (fd.define_tensor([-1], contiguity=True, dtype=dtype) for _ in range(2))
        for result in write(fd, x, y, _of_channels(fd, a), _of_channels(fd, b)):
            fd.add_output(result)
    return fd._complete().fusion


def _sum(fd: FusionDefinition, t: Any) -> Any:
    return fd.ops.sum(t, [0, 2])


WAYS: dict[str, tuple[Write, int, int]] = {
    # what, sums, products of elements
    "a sum that is there": (lambda fd, x, y, a, b: (_sum(fd, x * y), _sum(fd, a * (x * y))), 1, 1),
    "factors of factors": (lambda fd, x, y, a, b: (_sum(fd, (x * a) * y), _sum(fd, (y * b) * (x * a))), 1, 1),
    "signs and constants": (lambda fd, x, y, a, b: (_sum(fd, fd.ops.neg(x)), _sum(fd, y * 2.0)), 2, 0),
    "a sum along other dimensions": (
        lambda fd, x, y, a, b: (_sum(fd, x), fd.ops.sum(x * a, [0, 1, 2]), fd.ops.sum(x * a, [2])),
        3,
        0,
    ),
    "a sum that goes on": (lambda fd, x, y, a, b: (_sum(fd, x * y), fd.ops.sum(y * a * x, [2])), 2, 1),
    "a sum of sums that each row scales": (
        lambda fd, x, y, a, b: (fd.ops.sum(x * y * a, [0, 1, 2]), fd.ops.sum(y * x * b, [2])),
        2,
        1,
    ),
    "constants that keep a sum finite": (lambda fd, x, y, a, b: (_sum(fd, x * 0.125), _sum(fd, x)), 2, 1),
    "factors of a row": (lambda fd, x, y, a, b: ((x + y) * a * b, _sum(fd, x)), 1, 1),
    "factors and numbers of a row": (lambda fd, x, y, a, b: ((x + y) * a * 3.0 / fd.ops.size(x, 2),), 0, 1),
    "a factor of one sum": (lambda fd, x, y, a, b: (_sum(fd, y * (x * a)), (x * a) * b), 1, 2),
    "a factor of what is needed besides": (lambda fd, x, y, a, b: (_sum(fd, y * (p := x * a)), p + y), 1, 2),
    "a factor that keeps a sum finite": (
        lambda fd, x, y, a, b: (_sum(fd, (x * _of_channels(fd, fd.ops.reciprocal(_sum(fd, x)))) * y),),
        2,
        2,
    ),
    "a product that is a result": (lambda fd, x, y, a, b: ((p := x * a), p * b), 0, 2),
}


@pytest.mark.parametrize("write, sums, products", WAYS.values(), ids=WAYS)
def test_sums_and_products_that_are_left(write: Write, sums: int, products: int) -> None:
    new = simplified(_fusion(write, DataType.Float))
    nodes = [node for node in new.nodes if not node.is_scalar]
    assert sum(node.label == "sum" for node in nodes) == sums
    shapes = [node.output.shape for node in nodes if node.label == "mul"]
    assert sum(len(axes) == 3 and not any(a.is_broadcast for a in axes) for axes in shapes) == products
    draw = torch.Generator().manual_seed(3)
    inputs = [torch.rand(shape, generator=draw) - 0.25 for shape in ((5, 4, 33), (5, 4, 33), (4,), (4,))]
    exact = evaluate_fusion(_fusion(write, DataType.Double), [t.double() for t in inputs])
    for found, right in zip(evaluate_fusion(new, inputs), exact, strict=True):
        torch.testing.assert_close(found.double(), right, rtol=2e-6, atol=2e-6)


def test_sums_and_products_of_factors_are_right_as_far_as_a_float_holds_them() -> None:
    """2^127 in the sum of elements; beyond, the sum is infinite whatever it is multiplied by then."""

    def write(fd: FusionDefinition, x: Any, y: Any, a: Any, b: Any) -> Sequence[Any]:
        return _sum(fd, x), _sum(fd, x * a), _sum(fd, x * b), y * a * b

    new = simplified(_fusion(write, DataType.Float))
    assert [node.label for node in new.nodes].count("sum") == 1
    large = torch.full((1, 4, 2), 2.0**126)
    a = torch.tensor([0.0, 2.0**-120, 1.0, -(2.0**-126)])
    b = torch.tensor([2.0**100, 2.0**-6, 2.0**-126, -1.0])
    inputs = [large, large, a, b]
    for found, exact in zip(
        evaluate_fusion(new, inputs),
        evaluate_fusion(_fusion(write, DataType.Double), [t.double() for t in inputs]),
    ):
        torch.testing.assert_close(found.double(), exact.float().double(), rtol=2.0**-22, atol=0)
    [total, scaled, *_] = evaluate_fusion(new, [2 * large, large, a, b])
    assert total.isinf().all() and not scaled.isfinite().any()
