"""Scans of all shapes of tensors: ranks, sizes, memory orders and what lies around them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.schedulers.params import ScanParams
from tests.integration.tolerance import assert_close

Layout = Callable[[torch.Tensor], torch.Tensor]
LAYOUTS: dict[str, tuple[tuple[int, ...], int, Layout]] = {
    "row": ((3001,), 0, lambda x: x),
    "no elements": ((0, 5), 1, lambda x: x),
    "no rows": ((5, 0), 1, lambda x: x),
    "no columns": ((5, 0), 0, lambda x: x),
    "one element": ((1, 1, 1), 1, lambda x: x),
    "eight dimensions": ((2, 3, 2, 2, 3, 2, 2, 3), 3, lambda x: x),
    "middle": ((4, 70, 40), 1, lambda x: x),
    "permuted": ((6, 30, 5), 2, lambda x: x.permute(2, 1, 0)),
    "permuted middle": ((33, 5, 18), 1, lambda x: x.permute(1, 0, 2)),
    "misaligned": ((5, 67), 1, lambda x: x[:, 1:65]),
    "every other": ((5, 66), 1, lambda x: x[:, ::2]),
    "expanded rows": ((1, 50), 1, lambda x: x.expand(6, 50)),
    "expanded": ((6, 1), 1, lambda x: x.expand(6, 50)),
    "expanded both": ((1, 1), 0, lambda x: x.expand(40, 7)),
}


def defined(x: torch.Tensor, dim: int, *, symbolic: bool = False) -> FusionDefinition:
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1] * x.ndim, True) if symbolic else fd.from_pytorch(x)
        fd.add_output(fd.ops.cumsum(t, dim))
        fd.add_output(fd.ops.cummax(fd.ops.sin(t), dim) * t)
    return fd


def check(fd: FusionDefinition, x: torch.Tensor, dim: int) -> None:
    wide = x.double()
    highest = wide.sin().cummax(dim).values if wide.numel() else wide
    for out, expected in zip(fd.execute([x]), (wide.cumsum(dim), highest * wide)):
        assert_close(out, expected, x.shape[dim])


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name: str, target: torch.device) -> None:
    shape, dim, layout = LAYOUTS[name]
    x = layout(torch.randn(shape, device=target))
    fd = defined(x, dim)
    check(fd, x, dim)
    if x.numel() > 1:
        assert "scan" in {kernel.scheduler for kernel in fd._last_kernels()}


@pytest.mark.parametrize("dim", [0, 1])
def test_one_definition_for_many_sizes(dim: int, target: torch.device) -> None:
    fd = defined(torch.ones(1, 1), dim, symbolic=True)
    for shape in ((4, 6), (1, 1), (0, 3), (3, 0), (300, 7), (7, 300)):
        check(fd, torch.randn(shape, device=target), dim)


def test_scans_along_two_dimensions_are_two_kernels(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True)
        fd.add_output(fd.ops.cumsum(fd.ops.cumsum(x, 0), 1))
    given = torch.randn(20, 30, device=target)
    [out] = fd.execute([given])
    assert_close(out, given.double().cumsum(0).cumsum(1), 600)
    assert [kernel.scheduler for kernel in fd._last_kernels()] == ["scan", "scan"]


def test_a_row_of_one_point_that_others_lack(target: torch.device) -> None:
    with FusionDefinition() as fd:
        total = fd.ops.cumsum(fd.define_tensor([1, -1], [None, True]), 1)
        fd.add_output(total)
        fd.add_output(fd.ops.squeeze(total, [0]))
        fd.add_output(fd.ops.broadcast(fd.ops.neg(total), [False, True, False, True]))
    given = torch.randn(1, 50, device=target)
    found = given.double().cumsum(1)
    for out, expected in zip(fd.execute([given]), (found, found[0], -found[:, None, :, None])):
        assert_close(out, expected, 50)
    assert [kernel.scheduler for kernel in fd._last_kernels()] == ["scan"]


def test_a_scan_beside_reductions_and_normalizations(target: torch.device) -> None:
    """A fusion that no kernel takes as a whole."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True)
        p = fd.ops.exp(x)
        share = p / fd.ops.sum(p, [1], keepdim=True)
        total = fd.ops.cumsum(share, 1)
        fd.add_output(total)
        fd.add_output(fd.ops.max(total, [0]))
    given = torch.randn(20, 33, device=target)
    expected = given.double().softmax(1).cumsum(1)
    for out, value in zip(fd.execute([given]), (expected, expected.amax(0))):
        assert_close(out, value, 33 * 33)


def test_a_part_of_a_scan_is_stored_by_its_kernel(target: torch.device) -> None:
    """What is stored elsewhere than where it is computed is no measure of the loops."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([1, -1], [None, True])
        fd.add_output(fd.ops.slice(fd.ops.cumsum(x, 1), [0, 0], [1, 1 << 40]))
    for length in (50, 3):
        given = torch.randn(1, length, device=target)
        [out] = fd.execute([given])
        assert_close(out, given.double().cumsum(1), length)
        assert [kernel.scheduler for kernel in fd._last_kernels()] == ["scan"]


# ---- few long rows, which blocks share ---------------------------------------------------------------------


def shares(fd: FusionDefinition) -> list[bool]:
    """Of each kernel, whether blocks share its rows."""
    found = []
    for kernel in fd._last_kernels():
        assert isinstance(kernel.params, ScanParams)
        found.append(kernel.params.lparams.gdimy > 1)
    return found


def test_one_kernel_for_lengths_of_a_class(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.BFloat16)
        y = fd.define_tensor([-1, -1], True)
        fd.add_output(fd.ops.cumsum(fd.ops.cast(x, DataType.Float) * 2.0, 1) + y)
    made = []
    for length in (200_001, 262_143, 201_728):
        given = torch.randn(2, length, device=target)
        rounded = given.bfloat16()
        (out,) = fd.execute([rounded, given])
        expected = (2 * rounded.double()).cumsum(1) + given.double()
        assert_close(out, expected, length)
        assert shares(fd) == [True]
        made.append(fd._last_kernels())
    assert made[0] == made[1]  # the third one has vectors
    (out,) = fd.execute([rounded[:, :900].contiguous(), given[:, :900].contiguous()])
    assert_close(out, expected[:, :900], 900)
    assert shares(fd) == [False]


def test_every_scan_along_a_middle_dimension(target: torch.device) -> None:
    given = torch.randint(-3, 4, (2, 70_001, 3), device=target)
    with FusionDefinition() as fd:
        x, start = fd.from_pytorch(given), fd.define_scalar(DataType.Int)
        fd.add_output(fd.ops.cumsum(x, 1, init=start))
        fd.add_output(fd.ops.cumprod(fd.ops.add(fd.ops.abs(x), 1), 1))
        values = fd.ops.cast(x, DataType.Float)
        fd.add_output(fd.ops.cummax(fd.ops.log(values), 1))
    total, powers, most = fd.execute([given, 7])
    assert torch.equal(total, given.cumsum(1) + 7)
    assert torch.equal(powers, (given.abs() + 1).cumprod(1))
    expected = given.float().log().cummax(1).values
    assert most.isnan().any() and not most.isnan().all()
    assert_close(most, expected.double(), 1)
    assert shares(fd) == [True]


def test_a_scan_of_a_scan_of_one_row(target: torch.device) -> None:
    given = torch.randint(-2, 3, (180_001,), device=target)
    with FusionDefinition() as fd:
        first = fd.ops.cumsum(fd.from_pytorch(given), 0)
        fd.add_output(first)
        fd.add_output(fd.ops.cummin(first, 0))
    total, least = fd.execute([given])
    assert torch.equal(total, given.cumsum(0))
    assert torch.equal(least, given.cumsum(0).cummin(0).values)
    assert shares(fd) == [True]


@pytest.mark.parametrize("shape", [(3, 5000), (5000, 3), (40, 257), (2, 3, 7)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_logarithms_of_sums(shape: tuple[int, ...], dtype: torch.dtype, target: torch.device) -> None:
    """Far below what comes before, and from nothing on: a sum of exponentials would overflow or vanish."""
    given = 60 * torch.randn(shape, device=target).to(dtype)
    given[0] = -torch.inf
    for dim in range(given.ndim):
        with FusionDefinition() as fd:
            fd.add_output(fd.ops.logcumsumexp(fd.from_pytorch(given), dim))
        [out] = fd.execute([given])
        assert {kernel.scheduler for kernel in fd._last_kernels()} == {"scan"}
        expected = given.double().logcumsumexp(dim)
        torch.testing.assert_close(
            out, expected.to(dtype), rtol=1e-6 if dtype != torch.bfloat16 else 8e-3, atol=1e-5
        )
