"""Assignments and additions at indices, against torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.errors import DtypeError, OutOfBoundsError, RankError, ShapeError, UserError
from fusewright.ops.build_scatter import MANY_ROWS
from tests.integration.cases import random_tensor
from tests.integration.tolerance import assert_close

Tensor = torch.Tensor


def run(define: Callable[..., Any], *inputs: Tensor) -> list[Tensor]:
    with FusionDefinition() as fd:
        fd.add_output(define(fd.ops, *[fd.from_pytorch(x) for x in inputs]))
    return fd.execute(inputs)


def values(*shape: int, dtype: torch.dtype = torch.float32, device: torch.device) -> Tensor:
    return random_tensor(shape, dtype, torch.Generator().manual_seed(sum(shape))).to(device)


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int32, torch.bfloat16, torch.float32, torch.complex64]
)
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


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_scaled_rows_of_a_cache_are_stored_by_a_kernel(dtype: torch.dtype, target: torch.device) -> None:
    cache = values(12, 3, 16, device=target).to(dtype)
    rows, slots = values(4, 3, 16, device=target), torch.tensor([7, 0, 11, 3], device=target)
    with FusionDefinition() as fd:
        x, new, at = (fd.from_pytorch(t) for t in (cache, rows, slots))
        wide = fd.ops.expand(fd.ops.broadcast(at, [False, True, True]), [4, 3, 16])
        scaled = fd.ops.cast(fd.ops.mul(new, 2.0), dtype=x.dtype)
        fd.add_output(fd.ops.scatter(x, wide, scaled, 0))
    inputs = [cache, rows, slots]
    (out,) = fd.execute(inputs)
    expected = cache.float().index_put((slots,), rows * 2).to(dtype)
    assert torch.equal(out.float(), expected.float())
    assert [kernel.scheduler for kernel in fd.kernels_for(inputs)] == ["pointwise"] * 2


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.bfloat16, torch.float32, torch.complex64])
@pytest.mark.parametrize("shape", [(7,), (7, 3, 2)], ids=str)
def test_index_put_accumulate(dtype: torch.dtype, shape: tuple[int, ...], target: torch.device) -> None:
    acc, value = values(*shape, dtype=dtype, device=target), values(9, *shape[1:], dtype=dtype, device=target)
    index = torch.tensor([1, 6, 1, 1, 0, 3, 6, 2, 1], device=target)
    (out,) = run(lambda ops, *args: ops.index_put_accumulate(*args), acc, index, value)
    # Reduced floats are added as floats, and rounded once.
    wide = torch.float64 if dtype.is_floating_point else torch.complex128 if dtype.is_complex else dtype
    expected = acc.to(wide).index_put((index,), value.to(wide), accumulate=True)
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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("options", [{}, {"padding_idx": 3}, {"scale_grad_by_freq": True}])
def test_gradient_of_a_large_vocabulary(
    options: dict[str, Any], dtype: torch.dtype, target: torch.device
) -> None:
    """Sums lie in memory that has a row for each index that occurs, where most do not."""
    vocabulary = MANY_ROWS + 3
    grad = values(3, 5, 6, dtype=dtype, device=target)
    indices = torch.tensor([3, 0, vocabulary - 1, 7, 3] * 3, device=target).reshape(3, 5)
    (out,) = run(lambda ops, g, i: ops.embedding_bwd(g, i, vocabulary, **options), grad, indices)
    padding, by_count = options.get("padding_idx", -1), options.get("scale_grad_by_freq", False)
    expected = torch.ops.aten.embedding_dense_backward(grad.double(), indices, vocabulary, padding, by_count)
    assert out.dtype is dtype
    assert_close(out, expected, 12)


def kernels(define: Callable[..., Any], *inputs: Tensor) -> tuple[list[Tensor], int]:
    """The outputs of a definition that adds them itself, and how many kernels made them."""
    with FusionDefinition() as fd:
        define(fd, *[fd.from_pytorch(x) for x in inputs])
    outputs = fd.execute(inputs)
    return outputs, fd.last_cuda_code().count("__global__")


def test_what_comes_before_and_after_is_fused(target: torch.device) -> None:
    """One kernel writes the base, one adds computed rows at computed places, one works on the result."""
    table, rows = values(7, 8, device=target), values(3, 4, 8, device=target)
    index = torch.randint(6, (3, 4), device=target)

    def define(fd: FusionDefinition, table: Any, rows: Any, index: Any) -> None:
        lines = fd.ops.reshape(fd.ops.sin(rows), [12, 8])
        places = fd.ops.reshape(fd.ops.add(index, 1), [12])
        out = fd.ops.index_put_accumulate(fd.ops.exp(table), places, lines)
        fd.add_output(fd.ops.mul(fd.ops.permute(out, [1, 0]), 2.0))

    (out,), count = kernels(define, table, rows, index)
    places = (index + 1).reshape(-1)
    exact = table.double().exp().index_put((places,), rows.double().sin().reshape(12, 8), accumulate=True)
    assert_close(out, 2 * exact.t(), 12)
    assert count == 3


def test_rows_are_changed_in_vectors(target: torch.device) -> None:
    """Along a dimension that the index does not touch, also where it is expanded along it."""
    x, rows = values(9, 64, device=target), values(4, 64, device=target)
    index = torch.tensor([3, 0, 8, 5], device=target)
    with FusionDefinition() as fd:
        t0, t1, t2 = (fd.from_pytorch(each) for each in (x, index, rows))
        wide = fd.ops.expand(fd.ops.broadcast(t1, [False, True]), [4, 64])
        fd.add_output(fd.ops.scatter(t0, wide, t2, 0))
        fd.add_output(fd.ops.index_put_accumulate(t0, t1, t2))
    stored, added = fd.execute([x, index, rows])
    assert torch.equal(stored, x.scatter(0, index[:, None].expand(4, 64), rows))
    assert torch.equal(added, x.index_put((index,), rows, accumulate=True))
    code = fd.last_cuda_code()
    assert "fw::atomic_sum<4>" in code and code.count("fw::store<4>") >= 2


def test_results_in_the_memory_of_an_input(target: torch.device) -> None:
    """What is changed lies there already, so nothing is copied, unless the input is needed later."""
    acc, value = values(7, 8, device=target), values(9, 8, device=target)
    index = torch.tensor([1, 6, 1, 1, 0, 3, 6, 2, 1], device=target)
    expected = acc.index_put((index,), value, accumulate=True)

    def in_place(fd: FusionDefinition, acc: Any, index: Any, value: Any) -> None:
        fd.add_output(fd.ops.index_put_accumulate(acc, index, value), acc)

    def read_later(fd: FusionDefinition, acc: Any, index: Any, value: Any) -> None:
        out = fd.ops.index_put_accumulate(acc, index, value)
        fd.add_output(out, acc)
        fd.add_output(fd.ops.sub(out, acc))

    columns = torch.empty(8, 7, device=target).t().copy_(acc)
    for define, into, wanted in (
        (in_place, acc.clone(), 1),
        (in_place, columns, 1),
        (read_later, acc.clone(), 3),
    ):
        outputs, count = kernels(define, into, index, value)
        assert_close(into, expected, 6)
        assert count == wanted
        for out in outputs:
            assert_close(out, expected.double() - acc.double(), 6)


@pytest.mark.parametrize("enabled", [False, True])
def test_deterministic_algorithms_are_torchs(enabled: bool, target: torch.device) -> None:
    """The mode is asked for at each call."""
    grad, index = values(40, 8, device=target), torch.randint(5, (40,), device=target)

    def define(fd: FusionDefinition, grad: Any, index: Any) -> None:
        fd.add_output(fd.ops.embedding_bwd(fd.ops.neg(grad), index, 5, scale_grad_by_freq=True))

    with FusionDefinition() as fd:
        define(fd, *[fd.from_pytorch(x) for x in (grad, index)])
    (usual,) = fd.execute([grad, index])
    generated = fd.last_cuda_code().count("fw::atomic_sum")
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(enabled)
    try:
        (out,), (again,) = fd.execute([grad, index]), fd.execute([grad, index])
        assert fd.last_cuda_code().count("fw::atomic_sum") == (0 if enabled else generated)
    finally:
        torch.use_deterministic_algorithms(before)
    expected = torch.ops.aten.embedding_dense_backward(-grad.double(), index, 5, -1, True)
    for each in (usual, out, again):
        assert_close(each, expected, 40)
    assert not enabled or torch.equal(out, again)


def test_shapes_at_the_edge(target: torch.device) -> None:
    """Nothing to store, nothing to store in, copies of one element, numbers that a call gives."""
    acc, none = values(5, 3, device=target), values(0, 3, device=target)
    places = torch.empty(0, dtype=torch.int64, device=target)
    (out,) = run(lambda ops, *args: ops.index_put_accumulate(*args), acc, places, none)
    assert torch.equal(out, acc)
    (out,) = run(lambda ops, *args: ops.index_put_accumulate(*args), none, places, none)
    assert out.shape == (0, 3)
    (out,) = run(lambda ops, *args: ops.embedding_bwd(*args, 5), acc[0], places.new_tensor(3))
    assert torch.equal(out, torch.zeros_like(acc).index_put((places.new_tensor([3]),), acc[0]))
    one = values(1, 3, device=target)
    wide, index = one.expand(4, 3), torch.tensor([1, 0, 3, 1], device=target)
    (out,) = run(lambda ops, *args: ops.index_put_accumulate(*args), wide, index, wide)
    assert_close(out, wide.double().index_put((index,), wide.double(), accumulate=True), 4)
    line = index[:3, None].expand(3, 3)
    (out,) = run(
        lambda ops, *args: ops.scatter(*args, 0),
        acc[::2].t().contiguous().t()[:, :3],
        line[:2, :2] % 3,
        one.expand(2, 3),
    )
    assert torch.equal(out, acc[::2].scatter(0, line[:2, :2] % 3, one.expand(2, 3)))
    with FusionDefinition() as fd:
        t0, t1 = fd.from_pytorch(acc), fd.from_pytorch(index.new_tensor([2, 0, 2, 1, 4]))
        count, padding = fd.define_scalar(DataType.Int), fd.define_scalar(DataType.Int)
        fd.add_output(fd.ops.embedding_bwd(t0, t1, count, padding))
    for padding_idx in (2, -1):
        (out,) = fd.execute([acc, index.new_tensor([2, 0, 2, 1, 4]), 6, padding_idx])
        indices = index.new_tensor([2, 0, 2, 1, 4])
        assert_close(
            out, torch.ops.aten.embedding_dense_backward(acc.double(), indices, 6, padding_idx, False), 2
        )


def test_a_call_with_too_many_indices_is_refused(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x, i, s = (
            fd.define_tensor([-1, -1]),
            fd.define_tensor([-1, -1], dtype=DataType.Int),
            fd.define_tensor([-1, -1]),
        )
        fd.add_output(fd.ops.scatter(x, i, s, 0))
    small, index = torch.zeros(4, 3, device=target), torch.zeros(2, 4, dtype=torch.int64, device=target)
    with pytest.raises(ShapeError, match="scatter: the index, dimension 1"):
        fd.execute([small, index, torch.zeros(2, 4, device=target)])


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
            assert_close(run(define, *inputs)[0], expected, 4)


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
