"""One tensor read in several ways: along several dimensions, before and after a reduction, and as an output.

Each program once ended in a wrong result, or in an error although it is valid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.options import Options

Body = Callable[..., Sequence[Any]]


def outer(ops, x):
    columns = ops.broadcast(x, [False, True])
    return ops.sum(x * columns, [0, 1], keepdim=True), columns * 1.0


def pairwise_differences(ops, x):
    difference = ops.broadcast(x, [False, True]) - ops.broadcast(x, [True, False])
    return ops.sum(difference * difference, [1]), ops.exp(difference)


def row_after_its_sum(ops, x, w):
    y = x * w
    return [y + ops.sum(y, [1], keepdim=True)]


def columns_by_a_row(ops, x, w):
    return [ops.sum(x * w, [1], keepdim=True) * w]


def kept_rows_by_a_row(ops, x, w):
    return [ops.sum(x * w, [1]) * w]


def total_by_a_column(ops, x, c):
    return [ops.sum(x * c, [0, 1]) * c]


def weight_gradient(ops, x, w):
    return [ops.sum(x * w, [0]) + w]


def total_beside_a_bias(ops, x, v):
    w = ops.exp(v)
    return ops.sum(x, [0, 1]), w, x + w


def sum_of_a_broadcast(ops, x):
    y = ops.exp(x)
    return ops.sum(ops.broadcast(y, [False, True, False]), [2]), y


def minus_its_transpose(ops, x):
    y = ops.exp(x)
    return y, x - ops.permute(y, [1, 0])


def scaled_by_the_total(ops, x):
    total = ops.sum(x, [0, 1], keepdim=True)
    return total * ops.full([1, ops.size(x, 1)], 2.0, DataType.Float), total * x


def least_of_all_pairs(ops, x, y):
    """The load of most dimensions is a broadcast along the last one."""
    return [ops.min(ops.broadcast(y, [False, True]) + x * 1.0, [0, 1])]


def transposed_beside_a_product(ops, x, z):
    return x * z, ops.permute(x, [1, 0])


class Eager:
    """The operations that the programs use, by torch."""

    def broadcast(self, x, flags):
        for dim, is_new in enumerate(flags):
            x = x.unsqueeze(dim) if is_new else x
        return x

    def sum(self, x, dims, keepdim=False):
        return x.sum(dims, keepdim=keepdim)

    def min(self, x, dims):
        return x.amin(dims)

    def exp(self, x):
        return x.exp()

    def permute(self, x, dims):
        return x.permute(dims)

    def size(self, x, dim):
        return x.shape[dim]

    def full(self, shape, value, dtype):
        return torch.full(shape, value, dtype=dtype.torch)

    def stride_order(self, x, order):
        return x


F, B, C = torch.float32, torch.bfloat16, torch.complex64
CASES: list[tuple[Body, Sequence[tuple[Sequence[int], torch.dtype]]]] = [
    (outer, [((40,), F)]),
    (pairwise_differences, [((33,), F)]),
    (row_after_its_sum, [((2, 80000), B), ((2, 1), B)]),
    (row_after_its_sum, [((5, 300), F), ((5, 1), F)]),
    (columns_by_a_row, [((40, 3), F), ((1, 3), F)]),
    (kept_rows_by_a_row, [((3, 3), F), ((1, 3), F)]),
    (total_by_a_column, [((100, 3), F), ((100, 1), F)]),
    (weight_gradient, [((5000, 300), F), ((1, 300), F)]),
    (total_beside_a_bias, [((30, 40), F), ((40,), F)]),
    (sum_of_a_broadcast, [((30, 40), F)]),
    (minus_its_transpose, [((40, 40), F)]),
    (scaled_by_the_total, [((40, 50), F)]),
    (least_of_all_pairs, [((24,), F), ((24,), F)]),
    (transposed_beside_a_product, [((40, 50), C), ((40, 50), torch.complex128)]),
]


@pytest.mark.parametrize("static", [False, True], ids=["symbolic", "static"])
@pytest.mark.parametrize("body, inputs", CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_uses(
    body: Body,
    inputs: Sequence[tuple[Sequence[int], torch.dtype]],
    static: bool,
    target: torch.device,
) -> None:
    made = [torch.randn(shape).to(dtype) for shape, dtype in inputs]
    with FusionDefinition() as fd:
        handles = []
        for value in made:
            handles.append(
                fd.define_tensor(list(value.shape), list(value.stride()), DTYPES[value.dtype], static)
            )
        for out in body(fd.ops, *handles):
            fd.add_output(out)
    results = fd.execute([value.to(target) for value in made])
    wide = [value.to(torch.complex128 if value.is_complex() else torch.float64) for value in made]
    for result, expected in zip(results, body(Eager(), *wide)):
        tolerance = 2e-2 if result.dtype is B else 1e-4
        exact = expected.to(result.dtype)
        torch.testing.assert_close(result.cpu(), exact, rtol=tolerance, atol=tolerance * expected.abs().max())


DTYPES = {
    F: DataType.Float,
    B: DataType.BFloat16,
    C: DataType.ComplexFloat,
    torch.complex128: DataType.ComplexDouble,
}


def test_vectors_are_as_narrow_as_every_load_of_an_input_asks(target: torch.device) -> None:
    x = torch.randn(65, device=target)[1:]
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1], True)
        fd.add_output(fd.ops.broadcast(t, [False, True]) + fd.ops.broadcast(t, [True, False]))
    torch.testing.assert_close(fd.execute([x])[0], x[:, None] + x[None])


def test_vectors_of_a_copy_in_another_dtype(target: torch.device) -> None:
    x = torch.randn(1, 1, device=target).bfloat16().expand(8, 1)
    with FusionDefinition() as fd:
        t = fd.from_pytorch(x)
        fd.add_output(fd.ops.stride_order(t, [0, 1]))
        fd.add_output(fd.ops.stride_order(t, [0, 1]))
        fd.add_output(fd.ops.exp(t))
    first, second, third = fd.execute([x])
    assert torch.equal(first, x) and torch.equal(second, x)
    torch.testing.assert_close(third, x.exp(), check_dtype=False)


def test_a_fused_store_in_another_order_reads_its_input_once(target: torch.device) -> None:
    """An output and its transpose are two stores of one computation."""
    with FusionDefinition() as fd:
        narrow = fd.ops.cast(fd.define_tensor([-1, -1], True) * 0.5, DataType.BFloat16)
        fd.add_output(narrow)
        fd.add_output(fd.ops.permute(narrow, [1, 0]))
    x = torch.randn(64, 96, device=target)
    first, second = fd.execute([x])
    assert torch.equal(first, (x * 0.5).bfloat16()) and torch.equal(second, first.t())
    assert fd.last_cuda_code().count("0.5") == 1


@pytest.mark.parametrize("contiguity", [False, [False, True]], ids=str)
def test_the_stride_of_a_dimension_of_one_element_limits_no_vector(
    contiguity: Any, target: torch.device
) -> None:
    x = torch.randn(5, 9, device=target)[:1, :8]
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, -1], contiguity)
        fd.add_output(fd.ops.relu(t))
        fd.add_output(fd.ops.sum(t, [1]))
    for value in (x, torch.randn(4, 8, device=target), x):
        first, second = fd.execute([value])
        assert torch.equal(first, value.relu())
        torch.testing.assert_close(second, value.sum(1))


def test_vectors_run_along_the_memory_of_the_load_that_limits_them(target: torch.device) -> None:
    x, y = torch.randn(17, device=target)[1:], torch.randn(16, 1, device=target)
    with FusionDefinition() as fd:
        a, b = fd.define_tensor([-1], True), fd.define_tensor([-1, 1], [True, None])
        fd.add_output(fd.ops.min(fd.ops.lt(a, b), [0, 1]))
    assert torch.equal(fd.execute([x, y])[0], (x < y).all())


def test_statically_empty_dimensions_are_not_read(target: torch.device) -> None:
    x = torch.empty(0, 1, device=target)
    with FusionDefinition() as fd:
        t = fd.from_pytorch(x, static_sizes=True)
        total = fd.ops.sum(t, [0], keepdim=True)
        fd.add_output(fd.ops.addcmul(total, t, total, 0.5))
        fd.add_output(total)
        fd.add_output(fd.ops.sum(t, [0, 1], keepdim=True))
    first, second, third = fd.execute([x])
    assert first.shape == (0, 1) and second.tolist() == [[0.0]] and third.tolist() == [[0.0]]


def test_sizes_of_zero_divide_no_index(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1, -1], [False, True, None])
        y = fd.define_tensor([-1, 1, -1], [True, None, True], stride_order=[0, 1, 2])
        product = x * y
        variance, mean = fd.ops.var_mean(product, [0, 1, 2], 0, keepdim=True)
        fd.add_output(mean, stride_order=[2, 0, 1])
        fd.add_output(variance)
        fd.add_output(mean * product)
    for rows in (4, 0):
        a = torch.randn(8, rows, 1, device=target).expand(8, rows, 2)
        b = torch.randn(2, 1, 8, device=target).permute(2, 1, 0)
        mean, _, out = fd.execute([a, b])
        assert out.shape == (8, rows, 2)
        if rows:
            torch.testing.assert_close(mean, (a * b).mean((0, 1, 2), keepdim=True))


def test_a_product_of_one_copy_is_exact(target: torch.device) -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.prod(fd.define_tensor([-1, -1], [True, None], DataType.Double), [1]))
    x = torch.randn(500, 1, dtype=torch.float64, device=target)
    assert torch.equal(fd.execute([x])[0], x[:, 0])


def test_what_is_stored_once_a_row_is_stored_where_rows_are_empty(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], True, DataType.Bool)
        y = fd.define_tensor([1], True, DataType.Int32)
        fd.add_output(fd.ops.max(fd.ops.remainder(x, 2), [0], keepdim=True))
        fd.add_output(fd.ops.cast(y, DataType.Int))
        fd.add_output(fd.ops.ge(x, y))
    for count in (3, 0):
        given = torch.ones(count, device=target).bool(), torch.tensor([2], dtype=torch.int32, device=target)
        _, second, third = fd.execute(list(given))
        assert second.tolist() == [2] and third.shape == (count,)


@pytest.mark.parametrize(("shape", "dims"), [((5, 0), [1]), ((0, 7), [0]), ((4, 0, 3), [1, 2])], ids=str)
def test_rows_of_a_constant_length_of_0_are_centered(
    shape: tuple[int, ...], dims: list[int], target: torch.device
) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([*shape], contiguity=True)
        centered = x - fd.ops.mean(x, dims=dims, keepdim=True)
        fd.add_output(fd.ops.sum(centered, dims) / (fd.ops.sum(fd.ops.exp(x), dims) + 1.0))
        fd.add_output(centered)
    sums, rows = fd.execute([torch.empty(shape, device=target)])
    assert rows.shape == shape and sums.eq(0).all()


def test_two_reductions_of_a_tensor_that_meets_its_transpose_are_of_one_space(target: torch.device) -> None:
    """Which of them the kernel starts from decides how their axes correspond, and loads do not change it."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Float)
        at_least = fd.ops.ge(fd.ops.permute(x, [1, 0]), x)
        fd.add_output(fd.ops.any(at_least, [1]))
        fd.add_output(fd.ops.argmax(fd.ops.permute(at_least, [1, 0]), 0))
    t = torch.randn(64, 64, device=target)
    any_of_row, first = fd.execute([t])
    assert torch.equal(any_of_row, (t.t() >= t).any(1))
    assert torch.equal(first, (t.t() >= t).int().argmax(1))


def test_what_another_kernel_reduced_is_an_element_of_a_row_like_any_other() -> None:
    """A kernel that reads its row again computes the squares again, though they are of sums."""
    with FusionDefinition(options=Options(sim_device="l4")) as fd:
        x = fd.define_tensor([-1, -1, -1], True, DataType.Half)
        sums = fd.ops.sum(x * x, [2], keepdim=True)
        squares = sums * sums
        for out in (squares, sums * squares, fd.ops.logical_or(fd.ops.sum(squares, [0, 1]), squares)):
            fd.add_output(out)
    for t in (torch.randn(506, 1, 2).half(), torch.randn(506, 8, 1).half()):
        squares, cubes, either = fd.execute([t])
        expected = t.float().square().sum(2, keepdim=True)
        torch.testing.assert_close(squares, expected**2)
        torch.testing.assert_close(cubes, expected**3)
        assert bool(either.all())
