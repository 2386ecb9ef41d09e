"""One definition for many sizes, in sequences of calls: right results, and few kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.errors import ShapeError
from fusewright.runtime import compiled_kernel

Int = DataType.Int
#: Large, of one row or column, empty, and large again; the last three need no kernel that is not there.
SHAPES = [(512, 300), (1, 300), (512, 1), (1, 1), (0, 5), (5, 0), (640, 304), (512, 300), (1, 300)]


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every kernel that is compiled from now on."""
    kernels: list[Any] = []
    inner = compiled_kernel.print_kernel

    def print_kernel(kernel: Any) -> Any:
        kernels.append(kernel)
        return inner(kernel)

    monkeypatch.setattr(compiled_kernel, "print_kernel", print_kernel)
    return kernels


def _check(fd: FusionDefinition, inputs: Sequence[Any], expected: Sequence[torch.Tensor]) -> None:
    found = fd.execute(inputs)
    assert len(found) == len(expected)
    for actual, wanted in zip(found, expected):
        torch.testing.assert_close(actual, wanted, rtol=1e-4, atol=1e-5, check_dtype=False)


#: name -> (the operation, torch's, how many kernels all of SHAPES take at most)
BODIES: dict[str, tuple[Callable[..., Any], Callable[[torch.Tensor], torch.Tensor], int]] = {
    "pointwise": (lambda fd, x: fd.ops.exp(x), torch.exp, 3),
    "rows": (lambda fd, x: fd.ops.sum(x, 1), lambda x: x.sum(1), 6),
    "columns": (lambda fd, x: fd.ops.sum(x, 0), lambda x: x.sum(0), 7),
    "softmax": (lambda fd, x: fd.ops.softmax(x, 1), lambda x: x.softmax(1), 5),
}


@pytest.mark.parametrize("name", BODIES)
def test_sizes_that_become_0_or_1(name: str, target: torch.device, printed: list[Any]) -> None:
    build, reference, most = BODIES[name]
    with FusionDefinition() as fd:
        fd.add_output(build(fd, fd.define_tensor([-1, -1], contiguity=True)))
    for i, shape in enumerate(SHAPES):
        x = torch.randn(shape, device=target)
        before = len(printed)
        _check(fd, [x], [reference(x)])
        assert len(printed) == before or SHAPES.index(shape) == i, "the same sizes, and another kernel"
    assert len(printed) <= most


def test_scalars_that_are_sizes(target: torch.device, printed: list[Any]) -> None:
    with FusionDefinition() as fd:
        x, n, m = fd.define_tensor([-1, 1]), fd.define_scalar(Int), fd.define_scalar(Int)
        fd.add_output(fd.ops.full([n, m], 2.0, DataType.Float))
        fd.add_output(fd.ops.iota(n, m, 3))
        fd.add_output(fd.ops.expand(x, [-1, n]) * 2.0)
        fd.add_output(fd.ops.broadcast_in_dim(x, [n, x.size(0), 1], [1, 2]) + 1.0)
        fd.add_output(fd.ops.ge(fd.ops.uniform(0.0, 1.0, [x.size(0), n], rng_seed=m, rng_offset=0 * m), 0.0))
    counts: list[int] = []
    for rows, width, start in (
        (4, 5, 3),
        (1, 1, 7),
        (0, 3, 1),
        (4, 0, 0),
        (4, 300, 2),
        (4, 304, 9),
        (4, 5, 3),
    ):
        given = torch.randn(rows, 1, device=target)
        expected = [
            torch.full((width, start), 2.0),
            torch.arange(width) * 3 + start,
            given.expand(-1, width) * 2,
            given.expand(width, -1, -1) + 1,
            torch.ones(rows, width, dtype=torch.bool),
        ]
        before = len(printed)
        _check(fd, [given, width, start], [e.to(target) for e in expected])
        counts.append(len(printed) - before)
    combined = sum("_horizontal_" in kernel.name for kernel in printed)
    assert counts[-1] == 0 and sum(counts) - combined < 12 and combined < len(counts), counts


def test_arithmetic_of_sizes(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        n, shape = x.size(1), fd.ops.shape(x)
        fd.add_output(fd.ops.sum(x, 1) / n)
        fd.add_output(x * (n + x.size(0) * 2) - shape[0])
        fd.add_output(fd.ops.full(shape, 3.0, DataType.Float))
        fd.add_output(fd.ops.full([x.size(0) * n, n / 2, fd.ops.maximum(n, 3), n % 4], 1, Int))
        fd.add_output(fd.ops.reshape(fd.ops.exp(x), [shape.at(0) * n]))
        fd.add_output(fd.ops.slice(x, [0, n / 2], [shape[0], n]) * 1.0)
    for rows, width in ((4, 6), (1, 6), (4, 1), (1, 1), (0, 3), (40, 61)):
        given = torch.randn(rows, width, device=target)
        expected = [
            given.mean(1),
            given * (width + 2 * rows) - rows,
            torch.full_like(given, 3.0),
            torch.ones(rows * width, width // 2, max(width, 3), width % 4, device=target),
            given.exp().reshape(-1),
            given[:, width // 2 :],
        ]
        _check(fd, [given], expected)
        fd.validate([given])


def test_a_negative_size_is_refused(target: torch.device) -> None:
    with FusionDefinition() as fd:
        n = fd.define_scalar(Int)
        fd.add_output(fd.ops.full([n - 5], 1.0, DataType.Float))
    for size in (7, 5, 4, 6):
        if size < 5:
            with pytest.raises(ShapeError, match="S0 - 5 is used as a size, and is negative"):
                fd.execute([size], device=target)
        else:
            (out,) = fd.execute([size], device=target)
            assert torch.equal(out, torch.ones(size - 5, device=target))


def test_scalars_that_are_offsets_may_be_negative(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x, k = fd.define_tensor([-1, -1], contiguity=True), fd.define_scalar(Int)
        fd.add_output(fd.ops.triu(x, k))
        fd.add_output(fd.ops.pad(x, [k, -k, k + 1, 0]) * 2.0)
        fd.add_output(fd.ops.exp(fd.ops.select(x, k, 1)))
    given = torch.randn(9, 7, device=target)
    for offset in (2, -1, 0, -7):
        padded = torch.nn.functional.pad(given, [offset, -offset, offset + 1, 0])
        _check(fd, [given, offset], [given.triu(offset), padded * 2, given[:, offset].exp()])
        fd.validate([given, offset])
    for offset, match in (
        (7, "select: index .* is out of range for dimension 1"),
        (-10, "out of range|resized"),
    ):
        with pytest.raises(ShapeError, match=match):
            fd.execute([given, offset])


def test_steps_of_slices_are_positive(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x, step = fd.define_tensor([-1]), fd.define_scalar(Int)
        fd.add_output(fd.ops.slice(x, [1], [8], [step]) * 2.0)
    given = torch.randn(9, device=target)
    for count in (1, 3, 100):
        _check(fd, [given, count], [2 * given[1:8:count]])
    with pytest.raises(ShapeError, match="Slice operation strides must be positive"):
        fd.execute([given, 0])


def test_indices_of_nothing_divide_by_no_size(target: torch.device) -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.roll(fd.define_tensor([-1, -1]), [100], [1]) * 2.0)
    for shape in ((3, 7), (3, 0), (0, 4), (1, 1)):
        x = torch.randn(shape, device=target)
        _check(fd, [x], [2 * x.roll(100, 1)])
        fd.validate([x])


def test_a_mean_counts_a_product_of_which_an_inferred_size_is_a_part(target: torch.device) -> None:
    """The count is i0 * i1 * (i2 // 2); its part that is no product has a name of its own."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1, -1], contiguity=True)
        halves = fd.ops.reshape(x, [2, -1, x.size(1), x.size(0)])
        fd.add_output(fd.ops.mean(halves, [1, 2, 3]))
    for sizes in ((2, 1, 2), (3, 5, 8)):
        t = torch.randn(sizes, device=target)
        torch.testing.assert_close(fd.execute([t])[0], t.reshape(2, -1).mean(1))
