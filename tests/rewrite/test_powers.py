"""Powers by small constants are products or roots, and right."""

from __future__ import annotations

import math

import pytest
import torch

from fusewright import DataType, FusionDefinition


def definition(dtype: torch.dtype, exponent: float) -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.from_pytorch(torch.empty(4, 64, dtype=dtype))
        fd.add_output(fd.ops.pow(x, exponent))
    return fd


@pytest.mark.parametrize(
    "exponent, products",
    [(2, 1), (3, 2), (2.0, 1), (4, 2), (7, 4), (-3, 2), (2.5, 0), (9, 0), (-6, 0), (math.inf, 0)],
)
def test_small_powers_are_products(exponent: float, products: int, target: torch.device) -> None:
    fd = definition(torch.float32, exponent)
    x = torch.randn(4, 64, device=target).abs()
    torch.testing.assert_close(fd.execute([x])[0], x**exponent)
    code = fd.last_cuda_code()
    assert ("pow(" in code) == (products == 0)
    assert fd.last_scheduled_fusion_ir().count("\n   * ") == products


@pytest.mark.parametrize("exponent", [0.5, -0.5, -1, 1.0])
def test_roots_and_the_first_power_are_no_pow(exponent: float, target: torch.device) -> None:
    x = torch.rand(4, 64, device=target) + 0.5
    with FusionDefinition() as fd:
        given = fd.from_pytorch(x)
        fd.add_output(fd.ops.pow(given, exponent))
        fd.add_output(fd.ops.pow(given + 1.0, exponent) * 2.0)
    for found, base, scale in zip(fd.execute([x]), (x, x + 1), (1, 2)):
        torch.testing.assert_close(found, scale * base**exponent)
    assert "pow(" not in fd.last_cuda_code()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int32, torch.bool, torch.complex64])
def test_products_are_right_in_other_types(dtype: torch.dtype, target: torch.device) -> None:
    x = torch.randn(4, 64, device=target).mul(5).to(dtype)
    for exponent in (1, 2, 3):
        out = definition(dtype, exponent).execute([x])[0]
        # Reduced floats compute in Float, which is their result's type.
        torch.testing.assert_close(out, x.to(out.dtype) ** exponent)


@pytest.mark.parametrize("exponent", [1, 2, 3, 0.5])
def test_powers_of_a_number_in_a_tensor_of_the_host(exponent: float, target: torch.device) -> None:
    """A view that is lifted above the power leaves it with more dimensions than its base."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], contiguity=True, dtype=DataType.Float)
        base = fd.define_tensor([], dtype=DataType.Double, is_cpu=True)
        fd.add_output(fd.ops.lerp(fd.ops.pow(base, exponent), x, fd.ops.pow(base, exponent)))
    given, weight = torch.rand(3, device=target), torch.tensor(1.25, dtype=torch.float64) ** exponent
    found = fd.execute([given, torch.tensor(1.25, dtype=torch.float64)])[0]
    torch.testing.assert_close(found.double(), weight + weight * (given.double() - weight))
