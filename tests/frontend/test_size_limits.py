"""Element counts and offsets beyond 64 bits are refused: fixed sizes at definition, others at the call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.errors import ArgumentTypeError, ShapeError

BEYOND = "beyond 64 bits"


def _full(fd: FusionDefinition, shape: Sequence[Any]) -> Any:
    return fd.ops.full(shape, 1.0, DataType.Float)


FIXED: dict[str, Callable[[FusionDefinition], Any]] = {
    "full": lambda fd: fd.ops.sum(_full(fd, [2**62, 8]), [0, 1]),
    "one_dimension": lambda fd: _full(fd, [2**61]),
    "bytes": lambda fd: fd.ops.zeros([2**60], DataType.ComplexDouble),
    "tensor": lambda fd: fd.define_tensor([2**40, 2**40]),
    "expanded_tensor": lambda fd: fd.define_tensor([2**40, 2**40], contiguity=[None, None]),
    "iota": lambda fd: fd.ops.iota(2**62),
    "product_of_two": lambda fd: (
        fd.ops.broadcast(_full(fd, [2**40]), [True, False])
        + fd.ops.broadcast(_full(fd, [2**40]), [False, True])
    ),
}


@pytest.mark.parametrize("case", FIXED)
def test_fixed_sizes_are_refused_where_they_are_written(case: str) -> None:
    with FusionDefinition() as fd:
        with pytest.raises(ShapeError, match=BEYOND) as caught:
            FIXED[case](fd)
        assert {"expected", "given"} <= caught.value.facts.keys()
        fd.add_output(_full(fd, [2, 3]))
    assert fd.execute([])[0].shape == (2, 3)


@pytest.mark.parametrize("size", [2**63, 2**200, -(2**63) - 1])
def test_one_size_beyond_64_bits_is_no_size(size: int) -> None:
    with FusionDefinition() as fd:
        for define in (lambda: fd.define_tensor([size]), lambda: _full(fd, [size])):
            with pytest.raises(ArgumentTypeError):
                define()
        fd.add_output(_full(fd, [1]))


def test_sizes_of_a_call() -> None:
    with FusionDefinition() as fd:
        shape = [fd.define_scalar(DataType.Int) for _ in range(3)]
        fd.add_output(fd.ops.sum(_full(fd, shape), [0, 1, 2]))
    for sizes in ([2**40, 2**40, 1], [2**31, 2**31, 2], [2**62, 2, 2]):
        with pytest.raises(ShapeError, match=BEYOND):
            fd.execute(sizes)
    assert fd.execute([0, 2**40, 2**40])[0] == 0.0
    assert fd.execute([2, 3, 4])[0] == 24.0


def test_an_outer_product_of_expanded_inputs() -> None:
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([-1, 1]), fd.define_tensor([1, -1])
        fd.add_output(fd.ops.sum(x + y, [0, 1]))
    column, row = torch.ones(1, 1).expand(2**33, 1), torch.ones(1, 1).expand(1, 2**32)
    with pytest.raises(ShapeError, match=BEYOND):
        fd.execute([column, row])
    torch.testing.assert_close(fd.execute([column[:3], row[:, :2]])[0], torch.tensor(12.0))


def test_an_output_that_no_gpu_holds_is_no_fault_of_a_scheduler() -> None:
    """Its grid would have more blocks than there can be."""
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.pad(fd.define_tensor([-1, -1], contiguity=True), [2**40, 0]))
    with pytest.raises(ShapeError, match="T4 does not fit in the memory of the GPU") as caught:
        fd.execute([torch.ones(4, 6)])
    assert caught.value.facts["given"] == "17,592,186,044,512 bytes"
