"""Tensors of Index, such as counts: int64 outside kernels, however wide the indices inside are."""

from __future__ import annotations

import pytest
import torch

from fusewright import DataType, FusionDefinition


@pytest.mark.parametrize("shape, dim", [((6, 256), 0), ((256, 6), 1), ((5, 7), 1), ((3, 4096), 0)], ids=str)
def test_counts_are_int64(target: torch.device, shape: tuple[int, int], dim: int) -> None:
    """Stored in vectors, singly, and beside what is computed from them."""
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, -1], contiguity=True)
        avg, m2, n = fd.ops.welford(t, dims=[dim])
        for out in (avg, m2, n, n + n):
            fd.add_output(out)
    x = torch.randn(shape, device=target)
    avg, _, n, twice = fd.execute([x])
    torch.testing.assert_close(avg, x.mean(dim))
    assert n.dtype == twice.dtype == torch.int64
    assert n.tolist() == [shape[dim]] * shape[1 - dim]
    assert twice.tolist() == [2 * shape[dim]] * shape[1 - dim]


def test_counts_between_kernels(target: torch.device) -> None:
    """One kernel writes them, another reads them."""
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, -1], contiguity=True)
        _, _, n = fd.ops.welford(t, dims=[0])
        fd.add_output(n)
        wide = fd.ops.broadcast_in_dim(fd.ops.sum(n, [0]), [1], [])
        fd.add_output(n + wide)
    n, total = fd.execute([torch.randn(6, 256, device=target)])
    assert n.tolist() == [6] * 256
    assert total.tolist() == [6 + 6 * 256] * 256


@pytest.mark.parametrize("sizes", [(4, 512), (3, 5)], ids=str)
def test_tensors_of_index(target: torch.device, sizes: tuple[int, int]) -> None:
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.Index)
        fd.add_output(fd.ops.set(t))
        fd.add_output(fd.ops.permute(t, [1, 0]))
        fd.add_output(t * 3)
        fd.add_output(fd.ops.cast(fd.ops.cast(t, DataType.Float), DataType.Index))
        fd.add_output(fd.ops.full(list(sizes), 7, DataType.Index))
        fd.add_output(fd.ops.sum(t, [0]))
    x = torch.randint(-1000, 1000, sizes, device=target)
    expected = [x, x.T, x * 3, x, torch.full_like(x, 7), x.sum(0)]
    for actual, wanted in zip(fd.execute([x]), expected):
        assert torch.equal(actual, wanted)


def test_copies_are_counted_in_64_bits(target: torch.device) -> None:
    """More copies than 32-bit indices count, of a tensor that these reach all of."""
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, -1], contiguity=[True, None])
        for out in (fd.ops.welford(t, dims=[1])[2], fd.ops.welford(t, dims=[0, 1])[2]):
            fd.add_output(out)
    n, total = fd.execute([torch.randn(3, 1, device=target).expand(3, 2**33)])
    assert n.tolist() == [2**33] * 3
    assert total.item() == 3 * 2**33
