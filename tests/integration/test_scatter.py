"""Assignments and additions at indices, against torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.errors import DtypeError, OutOfBoundsError, RankError, ShapeError, UserError
from tests.integration.cases import random_tensor
from tests.integration.tolerance import assert_close

Tensor = torch.Tensor


def run(define: Callable[..., Any], *inputs: Tensor) -> list[Tensor]:
    with FusionDefinition() as fd:
        fd.add_output(define(fd.ops, *[fd.from_pytorch(x) for x in inputs]))
    return fd.execute(inputs)


def values(*shape: int, dtype: torch.dtype = torch.float32, device: torch.device) -> Tensor:
    return random_tensor(shape, dtype, torch.Generator().manual_seed(sum(shape))).to(device)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.bfloat16, torch.float32, torch.complex64])
@pytest.mark.parametrize("dim", [0, -1])
def test_scatter(dtype: torch.dtype, dim: int, target: torch.device) -> None:
    x, src = values(6, 5, dtype=dtype, device=target), values(4, 5, dtype=dtype, device=target)
    # Each place is named once: which of several elements it would get is not defined.
    index = torch.stack([torch.randperm(5)[:3] for _ in range(4)]).to(target)
    index = index.t().contiguous() if dim == 0 else index
    (out,) = run(lambda ops, x, i, s: ops.scatter(x, i, s, dim), x, index, src)
    assert torch.equal(out, x.scatter(dim, index, src))
    (out,) = run(lambda ops, x, i: ops.scatter(arg1=x, index=i, src=True, dim=dim), x, index.int())
    assert torch.equal(out, x.scatter(dim, index, 1))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("shape", [(7,), (7, 3, 2)], ids=str)
def test_index_put_accumulate(dtype: torch.dtype, shape: tuple[int, ...], target: torch.device) -> None:
    acc, value = values(*shape, dtype=dtype, device=target), values(9, *shape[1:], dtype=dtype, device=target)
    index = torch.tensor([1, 6, 1, 1, 0, 3, 6, 2, 1], device=target)
    (out,) = run(lambda ops, *args: ops.index_put_accumulate(*args), acc, index, value)
    # Reduced floats are added as floats, and rounded once.
    exact = acc.double().index_put((index,), value.double(), accumulate=True)
    expected = exact if dtype.is_floating_point else acc.index_put((index,), value, accumulate=True)
    assert_close(out, expected, 6)
    column = index.reshape(-1, *[1] * (len(shape) - 1))
    (again,) = run(lambda ops, *args: ops.index_put_accumulate(*args), acc, column, value)
    assert_close(again, expected, 6)


@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}, {"padding_idx": -1, "scale_grad_by_freq": True}])
def test_gradient_of_an_embedding(options: dict[str, Any], target: torch.device) -> None:
    grad = values(3, 4, 6, device=target)
    indices = torch.randint(5, (3, 4), device=target, dtype=torch.int32)
    # What follows is a kernel of its own.
    (out,) = run(lambda ops, g, i: ops.mul(ops.embedding_bwd(g, i, 5, **options), 2.0), grad, indices)
    padding, by_count = options.get("padding_idx", -1), options.get("scale_grad_by_freq", False)
    expected = torch.ops.aten.embedding_dense_backward(grad.double(), indices.long(), 5, padding, by_count)
    assert_close(out, 2 * expected, 12)


@pytest.mark.parametrize("wrong", [-1, 5, 2**40])
def test_what_is_out_of_range_is_reported_or_dropped(wrong: int, target: torch.device) -> None:
    acc, value = values(5, 3, device=target), values(4, 3, device=target)
    index = torch.tensor([1, wrong, 0, 1], device=target)
    wide, kept = index[:, None].expand(4, 3), [0, 2, 3]
    calls: list[tuple[Callable[..., Any], tuple[Tensor, ...], Tensor]] = [
        (
            lambda ops, *args: ops.scatter(*args, 0),
            (acc, wide[:3], value[:3]),
            acc.scatter(0, wide[[0, 2]], value[[0, 2]]),
        ),
        (
            lambda ops, *args: ops.index_put_accumulate(*args),
            (acc, index, value),
            acc.index_put((index[kept],), value[kept], accumulate=True),
        ),
        (
            lambda ops, *args: ops.embedding_bwd(*args, 5),
            (value, index),
            torch.zeros(5, 3, device=target).index_put((index[kept],), value[kept], accumulate=True),
        ),
    ]
    for define, inputs, expected in calls:
        if target.type == "cpu":
            with pytest.raises(OutOfBoundsError, match=f"index {wrong} is out of bounds"):
                run(define, *inputs)
        else:
            assert torch.equal(run(define, *inputs)[0], expected)


def test_refusals() -> None:
    def refused(error: type[UserError], match: str, define: Callable[..., Any]) -> None:
        with FusionDefinition() as fd:
            tensors = {
                "x": fd.define_tensor([4, 5]),
                "i": fd.define_tensor([3, 5], dtype=DataType.Int),
                "line": fd.define_tensor([4], dtype=DataType.Int),
                "rest": fd.define_tensor([2, 5]),
            }
            with pytest.raises(error, match=match):
                define(fd.ops, **tensors)

    refused(RankError, "dimension 2 and 1", lambda ops, x, line, **_: ops.scatter(x, line, x, 0))
    refused(RankError, "dimension 2 and 1", lambda ops, x, i, line, **_: ops.scatter(x, i, ops.sum(x, 1), 0))
    refused(ShapeError, "no dimension 2", lambda ops, x, i, **_: ops.scatter(x, i, x, 2))
    refused(DtypeError, "index of scatter", lambda ops, x, **_: ops.scatter(x, x, x, 0))
    refused(DtypeError, "src of scatter", lambda ops, x, i, **_: ops.scatter(x, i, i, 0))
    refused(DtypeError, "src of scatter", lambda ops, x, i, **_: ops.scatter(x, i, 1j, 0))
    refused(ShapeError, "the index, dimension 0", lambda ops, x, i, rest, **_: ops.scatter(x, i, rest, 0))
    refused(ShapeError, "the index, dimension 0", lambda ops, i, rest, **_: ops.scatter(rest, i, 1.0, 1))
    refused(RankError, "index of", lambda ops, x, i, **_: ops.index_put_accumulate(x, i, x))
    refused(ShapeError, "sizes", lambda ops, x, line, rest, **_: ops.index_put_accumulate(x, line, rest))
    refused(RankError, "grad_output of", lambda ops, x, i, **_: ops.embedding_bwd(x, i, 3))
    refused(DtypeError, "num_embeddings of", lambda ops, x, line, **_: ops.embedding_bwd(x, line, 3.0))
    refused(ShapeError, "num_embeddings", lambda ops, x, line, **_: ops.embedding_bwd(x, line, -3))
