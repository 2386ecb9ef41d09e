"""Reductions along dimensions that show copies: of no copies at all, of infinities, of every type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.dtype import from_torch
from tests.integration.cases import DTYPES

INF, NAN = float("inf"), float("nan")
COPIES = (0, 1, 2, 3)
VALUES: dict[torch.dtype, list[Any]] = {
    torch.float32: [1.5, INF, -INF, NAN, -2.0, 0.0],
    torch.float64: [1.5, INF, -INF, NAN, -2.0, 0.0],
    torch.float16: [1.5, INF, -INF, NAN, -2.0, 0.0],
    torch.int64: [3, -4, 0, 2**62, -(2**63), 1],
    torch.int32: [3, -4, 0, 2**30, -(2**31), 1],
    torch.bool: [True, False, True, True, False, False],
    torch.complex64: [1 + 2j, complex(INF, 0), complex(0, -INF), complex(NAN, 1), 0j, -3j],
}


def _sum(x: torch.Tensor, dims: list[int]) -> torch.Tensor:
    return x.sum(dims, dtype=torch.int64 if not x.dtype.is_floating_point and not x.is_complex() else x.dtype)


def _prod(x: torch.Tensor, dims: list[int]) -> torch.Tensor:
    for dim in sorted(dims, reverse=True):
        x = x.prod(dim, dtype=torch.int64 if x.dtype in (torch.bool, torch.int32) else x.dtype)
    return x


def _extremum(reduce: Callable[..., torch.Tensor], empty: str) -> Callable[..., torch.Tensor]:
    def run(x: torch.Tensor, dims: list[int]) -> torch.Tensor:
        kept = [n for dim, n in enumerate(x.shape) if dim not in dims]
        if all(x.shape[dim] for dim in dims):
            return reduce(x, dims)
        return torch.full(kept, getattr(DTYPES[x.dtype], empty), dtype=x.dtype)

    return run


def _mean(x: torch.Tensor, dims: list[int]) -> torch.Tensor:
    """By parts: torch divides by n + 0i, which makes a NaN beside an infinity."""
    if x.is_complex():
        return torch.complex(x.real.mean(dims), x.imag.mean(dims))
    return x.float().mean(dims)


REFERENCES: dict[str, Callable[..., torch.Tensor]] = {
    "sum": _sum,
    "prod": _prod,
    "max": _extremum(torch.amax, "lowest"),
    "min": _extremum(torch.amin, "highest"),
    "mean": _mean,
}
CASES = [
    (name, dtype)
    for name in REFERENCES
    for dtype in VALUES
    if not (dtype.is_complex and name in ("max", "min"))
]


def _reduced(name: str, dtype: DataType) -> FusionDefinition:
    """A reduction of copies, of copies and elements, and of a value computed from copies."""
    with FusionDefinition() as fd:
        # Three dimensions: of elements, of copies, of elements.
        t = fd.define_tensor([-1, -1, -1], contiguity=[True, None, True], dtype=dtype)
        reduce = getattr(fd.ops, name)
        for y, dims in ((t, [1]), (t, [0, 1, 2]), (fd.ops.set(t), [0, 1])):
            fd.add_output(reduce(y, dims=dims))
    return fd


def _assert_same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    expected = expected.to(actual.dtype)
    torch.testing.assert_close(actual.cpu(), expected, rtol=2e-3, atol=0, equal_nan=True)


@pytest.mark.sampled(0.4, "name", "dtype")
@pytest.mark.parametrize("name, dtype", CASES, ids=lambda v: str(v).removeprefix("torch."))
def test_reduction_of_copies_is_torchs(target: torch.device, name: str, dtype: torch.dtype) -> None:
    x = torch.tensor(VALUES[dtype], dtype=dtype).reshape(2, 1, -1)
    fd = _reduced(name, DTYPES[dtype])
    for copies in COPIES:
        wide = x.expand(2, copies, -1).contiguous()
        expected = [REFERENCES[name](wide, dims) for dims in ([1], [0, 1, 2], [0, 1])]
        for actual, wanted in zip(fd.execute([x.to(target).expand(2, copies, -1)]), expected):
            _assert_same(actual, wanted)


@pytest.mark.parametrize("copies", COPIES)
def test_statistics_of_copies(target: torch.device, copies: int) -> None:
    x = torch.tensor([[1.0, 2.0, 4.0], [8.0, INF, 3.0]])
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, -1, -1], contiguity=[True, None, True])
        for out in (*fd.ops.welford(t, dims=[1]), *fd.ops.welford(t, dims=[0, 1])):
            fd.add_output(out)
        fd.add_output(fd.ops.var(t, dims=[0, 1], correction=0))
    wide = x[:, None].expand(2, copies, 3)
    # What `to` makes of an expanded tensor is dense.
    given = x.to(target)[:, None].expand(2, copies, 3)
    avg, m2, n, avg2, m22, n2, var = (o.cpu() for o in fd.execute([given]))
    assert n.tolist() == [[copies] * 3] * 2
    assert n2.tolist() == [2 * copies] * 3
    if not copies:
        for state in (avg, m2, avg2, m22):
            assert not state.any()
        assert var.isnan().all()
        return
    torch.testing.assert_close(avg, x)
    assert m2.isnan().tolist() == [[False] * 3, [False, True, False]]
    torch.testing.assert_close(var, wide.var((0, 1), correction=0), equal_nan=True)


@pytest.mark.parametrize("sizes", [(-1, -1), (4, 0)], ids=["symbolic", "static"])
@pytest.mark.parametrize("dims", [[0], [1], [0, 1]], ids=str)
def test_input_without_elements_is_not_read(
    target: torch.device, sizes: tuple[int, int], dims: list[int]
) -> None:
    """Its pointer is null on a GPU, and the simulator gives it no memory."""
    with FusionDefinition() as fd:
        t = fd.define_tensor(list(sizes), contiguity=[True, None])
        row = fd.define_tensor([-1], contiguity=True)
        fd.add_output(fd.ops.sum(fd.ops.log(t), dims=dims))
        fd.add_output(fd.ops.sum(fd.ops.exp(t) * 2.0, dims=dims, keepdim=True))
        fd.add_output(fd.ops.max(t, dims=dims))
        fd.add_output(fd.ops.sum(t, dims=[1]) + row)
    x = torch.rand(4, 1, device=target).expand(4, 0)
    logs, exps, greatest, rows = fd.execute([x, torch.arange(4.0, device=target)])
    kept = [n for dim, n in enumerate((4, 0)) if dim not in dims]
    assert logs.shape == greatest.shape == torch.Size(kept)
    assert not logs.any() and not exps.any()
    assert (greatest == -INF).all()
    assert rows.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_vectors_of_an_input_without_elements_are_not_read(target: torch.device) -> None:
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, -1], contiguity=[None, True], dtype=DataType.Half)
        fd.add_output(fd.ops.sum(t, dims=[0]))
        fd.add_output(fd.ops.sum(t, dims=[0, 1]))
    [columns, total] = fd.execute([torch.rand(1, 512, device=target).half().expand(0, 512)])
    assert columns.tolist() == [0.0] * 512
    assert total.item() == 0.0


def test_sign_of_a_product_of_many_copies(target: torch.device) -> None:
    """An odd number that Float does not hold."""
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, -1], contiguity=[True, None])
        fd.add_output(fd.ops.prod(t, dims=[1]))
    [product] = fd.execute([torch.tensor([[-1.0], [1.0]], device=target).expand(2, 2**24 + 1)])
    assert product.tolist() == [-1.0, 1.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64], ids=str)
def test_the_mean_of_no_values_is_no_number(dtype: torch.dtype, target: torch.device) -> None:
    x = torch.empty(2, 0, dtype=dtype, device=target)
    with FusionDefinition() as fd:
        variance, mean = fd.ops.var_mean(fd.define_tensor([-1, -1], True, from_torch(dtype)), [1], 0)
        fd.add_output(variance)
        fd.add_output(mean)
    assert all(value.isnan().all() for value in fd.execute([x]))
