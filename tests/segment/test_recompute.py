"""Work at the borders of groups that is done again: by the group that reads it, or by each of its parts."""

from __future__ import annotations

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.host.executor import FusionExecutor
from fusewright.segment.recompute import recompute_borders
from tests.schedulers.proposals import definition
from tests.segment.graphs import Graph


def heads(batch: int, length: int, count: int, size: int) -> FusionDefinition:
    """Queries, transposed keys and values of a product."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([batch * length, 3 * count * size], True, DataType.BFloat16)
        split = fd.ops.permute(fd.ops.reshape(x, [batch, length, 3, count, size]), [2, 0, 3, 1, 4])
        for i in range(3):
            part = fd.ops.select(split, index=i, dim=0)
            fd.add_output(fd.ops.set(fd.ops.permute(part, [0, 1, 3, 2]) if i == 1 else part))
    return fd


def schedulers(executor: FusionExecutor) -> list[str]:
    return sorted(str(segment.scheduler.type.name) for segment in executor.segments().segments)


@pytest.mark.parametrize("sizes", [(2, 32, 2, 16), (2, 33, 3, 20)], ids=str)
def test_parts_of_a_group_compute_for_themselves_what_the_whole_cannot(sizes: tuple[int, ...]) -> None:
    """No scheduler takes all reads of the product as one kernel, and a copy of it would be read by one."""
    batch, length, count, size = sizes
    x = torch.randn(batch * length, 3 * count * size).bfloat16()
    executor = FusionExecutor(heads(*sizes)._finished().fusion)
    results = executor.execute([x])
    q, k, v = x.reshape(batch, length, 3, count, size).permute(2, 0, 3, 1, 4)
    assert all(map(torch.equal, results, (q, k.transpose(-1, -2), v)))
    assert schedulers(executor) == ["pointwise", "pointwise", "transpose"]


@pytest.mark.parametrize(
    "readers, shares, is_split",
    [(2, False, True), (3, False, True), (2, True, True), (3, True, False), (4, False, False)],
)
def test_parts_move_no_more_bytes_than_the_whole(readers: int, shares: bool, is_split: bool) -> None:
    """A tensor made by one group, and its readers in another; those that share an input read it once each."""
    g = Graph()
    shared, made = g.input(), g.op(g.input())
    results = [g.op(made, shared) if shares else g.op(made) for _ in range(readers)]
    fusion = g.output(*results)
    maker, *nodes = (tensor.definition for tensor in (made, *results))
    position = {node: i for i, node in enumerate([maker, *nodes])}
    found = recompute_borders(fusion, [[maker], nodes], position, lambda nodes, _: len(nodes) <= 2)
    assert found == ([[], [[maker, node] for node in nodes]] if is_split else [[[maker]], [nodes]])


@pytest.mark.parametrize("beside, kernels", [("vector", 2), ("row", 2), ("tensor", 3)])
def test_a_vector_beside_what_is_read_again_is_no_reason_to_store(beside: str, kernels: int) -> None:
    """Two kernels need what one input and a few elements of another make; not so of another whole input."""
    sizes = {"vector": (64, 1, 1), "row": (64, 1, 256), "tensor": (64, 256, 256)}[beside]

    def centred(x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        x = (x * factor.abs()).clamp(0, 1)
        return x - x[:, :200].mean((1, 2), keepdim=True)

    inputs = [torch.empty(shape, device="meta") for shape in ((64, 256, 256), sizes)]
    assert len(definition(centred, *inputs).kernels_for(inputs, device="cuda")) == kernels


def test_what_a_library_reads_is_read_again_in_its_own_type() -> None:
    """A residual that a product reads as bfloat16 is there for the next kernel: no Float of it is stored."""
    with FusionDefinition() as fd:
        x, w = (fd.define_tensor([16, 16], True, DataType.BFloat16) for _ in range(2))
        normed = fd.ops.cast(fd.ops.softmax(fd.ops.cast(x, DataType.Float), 1), DataType.BFloat16)
        fd.add_output(fd.ops.cast(normed + fd.ops.matmul(normed, w), DataType.BFloat16))
    executor = FusionExecutor(fd._finished().fusion)
    x, w = torch.randn(2, 16, 16).bfloat16()
    (result,) = executor.execute([x, w])
    normed = x.float().softmax(1).bfloat16()
    torch.testing.assert_close(result, normed + normed @ w, atol=2e-2, rtol=2e-2)
    segments = executor.segments().segments
    assert len(segments) == 3
    assert {v.dtype for segment in segments for v in (*segment.inputs, *segment.outputs)} == {
        DataType.BFloat16
    }


def test_the_sum_of_a_gradient_is_part_of_the_kernel_that_makes_it() -> None:
    """Products read the gradient as a matrix and transposed; its sum over rows needs no reshape."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([2, 8, 16], True, DataType.BFloat16)
        w, v = (fd.define_tensor([16, 16], True, DataType.BFloat16) for _ in range(2))
        matrix = fd.ops.reshape(fd.ops.cast(fd.ops.exp(x), DataType.BFloat16), [16, 16])
        fd.add_output(fd.ops.matmul(matrix, w))
        fd.add_output(fd.ops.matmul(fd.ops.permute(matrix, [1, 0]), v))
        fd.add_output(fd.ops.cast(fd.ops.sum(matrix, [0]), DataType.BFloat16))
    executor = FusionExecutor(fd._finished().fusion)
    x, w, v = (torch.randn(shape).bfloat16() for shape in ((2, 8, 16), (16, 16), (16, 16)))
    results = executor.execute([x, w, v])
    matrix = x.exp().reshape(16, 16)
    for made, wanted in zip(results, (matrix @ w, matrix.T @ v, matrix.sum(0)), strict=True):
        torch.testing.assert_close(made, wanted, atol=3e-2, rtol=3e-2)
    assert schedulers(executor) == ["expr_eval", "expr_eval", "reduction"]


def test_what_is_read_anyway_is_widened_by_its_reader() -> None:
    """Codes of a norm's results, two a byte: no kernel stores the Int32 that one of the two is shifted as."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([8, 4, 32], True, DataType.BFloat16)
        least, most = (reduce(x, dims=[2], keepdim=True) for reduce in (fd.ops.min, fd.ops.max))
        scale = fd.ops.maximum(most - least, 1e-5) / 15
        zero = fd.ops.clamp(fd.ops.neg(fd.ops.round(least / scale)), 0, 15)
        codes = fd.ops.cast(fd.ops.clamp(fd.ops.round(x / scale) + zero, 0, 15), DataType.UInt8)
        flat = fd.ops.reshape(codes, [8, 128])
        low, high = (fd.ops.slice(flat, [0, i], [8, 128], [1, 2]) for i in range(2))
        shifted = fd.ops.bitwise_left_shift(fd.ops.cast(high, DataType.Int32), 4)
        fd.add_output(fd.ops.cast(fd.ops.bitwise_or(low, shifted), DataType.UInt8))
    executor = FusionExecutor(fd._finished().fusion)
    x = torch.randn(8, 4, 32).bfloat16()
    (packed,) = executor.execute([x])
    scale = (x.float().amax(2, keepdim=True) - x.float().amin(2, keepdim=True)).clamp(min=1e-5) / 15
    zero = (-(x.float().amin(2, keepdim=True) / scale).round()).clamp(0, 15)
    codes = ((x / scale).round() + zero).clamp(0, 15).to(torch.uint8).view(8, 128)
    assert torch.equal(packed, codes[:, ::2] | codes[:, 1::2] << 4)
    first, _ = executor.segments().segments
    assert {v.dtype for v in first.outputs} == {DataType.UInt8}
