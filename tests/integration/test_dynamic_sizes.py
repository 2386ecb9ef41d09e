"""One definition for many sizes, in sequences of calls: right results, and few kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.errors import ShapeError
from fusewright.runtime import compiler

Int = DataType.Int
#: Large, of one row or column, empty, and large again; the last three need no kernel that is not there.
SHAPES = [(512, 300), (1, 300), (512, 1), (1, 1), (0, 5), (5, 0), (640, 304), (512, 300), (1, 300)]


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every kernel that is compiled from now on."""
    kernels: list[Any] = []
    inner = compiler.print_kernel

    def print_kernel(kernel: Any) -> Any:
        kernels.append(kernel)
        return inner(kernel)

    monkeypatch.setattr(compiler, "print_kernel", print_kernel)
    return kernels


def _check(fd: FusionDefinition, inputs: Sequence[Any], expected: Sequence[torch.Tensor]) -> None:
    found = fd.execute(inputs)
    assert len(found) == len(expected)
    for actual, wanted in zip(found, expected):
        torch.testing.assert_close(actual, wanted, rtol=1e-4, atol=1e-5, check_dtype=False)


#: name -> (the operation, torch's, how many kernels all of SHAPES take at most)
BODIES: dict[str, tuple[Callable[..., Any], Callable[[torch.Tensor], torch.Tensor], int]] = {
    "pointwise": (lambda fd, x: fd.ops.exp(x), torch.exp, 2),
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
        t, a, b = fd.define_tensor([-1, 1]), fd.define_scalar(Int), fd.define_scalar(Int)
        fd.add_output(fd.ops.full([a, b], 2.0, DataType.Float))
        fd.add_output(fd.ops.iota(a, b, 3))
        fd.add_output(fd.ops.expand(t, [-1, a]) * 2.0)
        fd.add_output(fd.ops.broadcast_in_dim(t, [a, t.size(0), 1], [1, 2]) + 1.0)
        fd.add_output(fd.ops.ge(fd.ops.uniform(0.0, 1.0, [t.size(0), a], rng_seed=b, rng_offset=0 * b), 0.0))
    counts = []
    for rows, n, m in ((4, 5, 3), (1, 1, 7), (0, 3, 1), (4, 0, 0), (4, 300, 2), (4, 304, 9), (4, 5, 3)):
        x = torch.randn(rows, 1, device=target)
        expected = [
            torch.full((n, m), 2.0),
            torch.arange(n) * 3 + m,
            x.expand(-1, n) * 2,
            x.expand(n, -1, -1) + 1,
            torch.ones(rows, n, dtype=torch.bool),
        ]
        before = len(printed)
        _check(fd, [x, n, m], [e.to(target) for e in expected])
        counts.append(len(printed) - before)
    assert counts[-1] == 0 and sum(counts) < 12, counts


def test_arithmetic_of_sizes(target: torch.device) -> None:
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, -1])
        last, shape = t.size(1), fd.ops.shape(t)
        fd.add_output(fd.ops.sum(t, 1) / last)
        fd.add_output(t * (last + t.size(0) * 2) - shape[0])
        fd.add_output(fd.ops.full(shape, 3.0, DataType.Float))
        fd.add_output(fd.ops.full([t.size(0) * last, last / 2, fd.ops.maximum(last, 3), last % 4], 1, Int))
        fd.add_output(fd.ops.reshape(fd.ops.exp(t), [shape.at(0) * last]))
        fd.add_output(fd.ops.slice(t, [0, last / 2], [shape[0], last]) * 1.0)
    for rows, n in ((4, 6), (1, 6), (4, 1), (1, 1), (0, 3), (40, 61)):
        x = torch.randn(rows, n, device=target)
        expected = [
            x.mean(1),
            x * (n + 2 * rows) - rows,
            torch.full_like(x, 3.0),
            torch.ones(rows * n, n // 2, max(n, 3), n % 4, device=target),
            x.exp().reshape(-1),
            x[:, n // 2 :],
        ]
        _check(fd, [x], expected)
        fd.validate([x])


def test_a_negative_size_is_refused(target: torch.device) -> None:
    with FusionDefinition() as fd:
        n = fd.define_scalar(Int)
        fd.add_output(fd.ops.full([n - 5], 1.0, DataType.Float))
    for size in (7, 5, 4, 6):
        if size < 5:
            with pytest.raises(ShapeError, match="i0 - 5 is used as a size, and is negative"):
                fd.execute([size], device=target)
        else:
            (out,) = fd.execute([size], device=target)
            assert torch.equal(out, torch.ones(size - 5, device=target))
