"""Scans of all shapes of tensors: ranks, sizes, memory orders and what lies around them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fusewright import FusionDefinition
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
