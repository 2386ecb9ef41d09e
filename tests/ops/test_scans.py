"""Builders of scans: types, where they start, broadcast dimensions, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fusewright.core.dtype import DataType
from fusewright.core.errors import ArgumentTypeError, DtypeError, ShapeError
from fusewright.ir import Scan
from tests.ops.definition import Definition, tensor_of

NAMES = ("cumsum", "cumprod", "cummax", "cummin")
TORCH: dict[str, Any] = {
    "cumsum": torch.cumsum,
    "cumprod": torch.cumprod,
    "cummax": lambda x, dim: torch.cummax(x, dim).values,
    "cummin": lambda x, dim: torch.cummin(x, dim).values,
}
ONTO: dict[str, Any] = {
    "cumsum": torch.add,
    "cumprod": torch.mul,
    "cummax": torch.maximum,
    "cummin": torch.minimum,
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dim", [0, -1])
def test_scans_keep_the_type(name: str, dim: int) -> None:
    for dtype in (DataType.Float, DataType.BFloat16, DataType.Int32, DataType.Bool, DataType.ComplexFloat):
        d, x = Definition(), tensor_of(dtype, -2.0, 2.0)
        if dtype is DataType.ComplexFloat and name in ("cummax", "cummin"):
            with pytest.raises(DtypeError, match=name[3:]):
                getattr(d, name)(d.input(x), dim)
            continue
        [found] = d.run(getattr(d, name)(d.input(x), dim))
        expected = TORCH[name](x.float() if dtype.is_reduced_float else x, dim)
        torch.testing.assert_close(found, expected.to(x.dtype))


@pytest.mark.parametrize("name", NAMES)
def test_a_scan_starts_from_a_number_or_a_scalar(name: str) -> None:
    x, start = tensor_of(DataType.Float), torch.tensor(0.75)
    for value in (0.75, None):
        d = Definition()
        handle = d.input(x)
        [found] = d.run(getattr(d, name)(handle, 1, init=d.input(0.75) if value is None else value))
        torch.testing.assert_close(found, ONTO[name](start, TORCH[name](x, 1)))


def test_nan_stays_from_where_it_is() -> None:
    x = torch.tensor([1.0, 3.0, float("nan"), 2.0])
    for name, before in (("cummax", [1.0, 3.0]), ("cummin", [1.0, 1.0])):
        d = Definition()
        [found] = d.run(getattr(d, name)(d.input(x), 0))
        assert found[:2].tolist() == before and found[2:].isnan().all()


def test_a_dimension_of_one_point_is_no_scan_and_an_expanded_one_is() -> None:
    d, x = Definition(), tensor_of(DataType.Float, shape=(3, 1))
    t = d.input(x)
    copied, started = d.cumsum(t, 1), d.cumsum(t, 1, 2.0)
    wide = d.cumsum(d.expand(t, [3, 5]), 1)
    rows = d.cumprod(d.expand(t, [3, 5]), 0)
    assert [type(out.definition) is Scan for out in (copied, started, wide, rows)] == [
        False,
        False,
        True,
        True,
    ]
    found = d.run(copied, started, wide, rows)
    for out, expected in zip(found, (x, x + 2, x.expand(3, 5).cumsum(1), x.expand(3, 5).cumprod(0))):
        torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("dim", [0, -1])
def test_logarithms_of_sums_are_of_floats(dim: int) -> None:
    for dtype in (DataType.Float, DataType.Double, DataType.BFloat16):
        d, x = Definition(), tensor_of(dtype, -2.0, 2.0)
        [found] = d.run(d.logcumsumexp(d.input(x), dim))
        torch.testing.assert_close(found, torch.logcumsumexp(x.double(), dim).to(x.dtype))
    d = Definition()
    with pytest.raises(DtypeError, match="logsumexp"):
        d.logcumsumexp(d.input(tensor_of(DataType.Int32)), dim)


def test_logarithms_of_sums_hand_on_nan_and_infinity() -> None:
    inf, nan = float("inf"), float("nan")
    for given, expected in (
        ([-inf, -inf, 1.0], [-inf, -inf, 1.0]),
        ([inf, inf, 1.0], [inf, inf, inf]),
        ([1.0, nan, inf], [1.0, nan, nan]),
        ([-inf, inf, -inf], [-inf, inf, inf]),
    ):
        d = Definition()
        [found] = d.run(d.logcumsumexp(d.input(torch.tensor(given)), 0))
        torch.testing.assert_close(found, torch.tensor(expected), equal_nan=True)


@pytest.mark.parametrize("dim", [2, -3])
def test_dimensions_out_of_range(dim: int) -> None:
    d = Definition()
    with pytest.raises(ShapeError, match="Tried to access out of boundary index"):
        d.cumsum(d.input(torch.ones(2, 3)), dim)


def test_scans_refuse() -> None:
    d = Definition()
    scalar, x, whole = d.input(torch.tensor(1.0)), d.input(torch.ones(2, 3)), d.input(torch.ones(3).long())
    with pytest.raises(ShapeError, match=r"Tried to access out of boundary index 0\. total index: 0"):
        d.cumsum(scalar, 0)
    with pytest.raises(ArgumentTypeError, match=r"cumsum\(\): incompatible function arguments"):
        d.cumsum(x, 0.5)
    with pytest.raises(DtypeError, match="init of cumsum"):
        d.cumsum(whole, 0, 1.5)
