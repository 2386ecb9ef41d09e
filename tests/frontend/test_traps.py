"""What reads like Python, numpy or torch and means something else here: taken as meant, or refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fusewright import DataType, FusionDefinition, PointwiseParams
from fusewright.core.errors import (
    ArgumentTypeError,
    DefinitionError,
    InputError,
    MissingDefinitionError,
    ParamsError,
)

REFUSED: dict[str, tuple[Callable[[Any, Any, Any], object], str]] = {
    "where(x == y)": (lambda fd, x, s: fd.ops.where(x == fd.ops.neg(x), x, 0.0), "the Python bool False"),
    "where(x == x)": (
        lambda fd, x, s: fd.ops.where(s == s, 1.0, x),
        "fd.ops.eq and fd.ops.ne compare values",
    ),
    "masked_fill(x == x)": (
        lambda fd, x, s: fd.ops.masked_fill(x, x == x, 0.0),
        "mask must be Tensor, not bool; `==` asks if two handles",
    ),
    "if x == 1.0": (lambda fd, x, s: bool(x == 1.0), "fd.ops.where chooses by value"),
    "and": (lambda fd, x, s: x > 0.0 and x < 1.0, "a < b < c is two operations"),
    "not": (lambda fd, x, s: not x, "a Tensor of a definition"),
    "len": (lambda fd, x, s: len(x), "size(0) is the size of its first dimension"),
    "iter": (lambda fd, x, s: list(x), "fd.ops.split and fd.ops.select"),
    "index": (lambda fd, x, s: x[0], "fd.ops.slice and fd.ops.select"),
    "in": (lambda fd, x, s: 1.0 in x, "fd.ops.any(fd.ops.eq(tensor, value))"),
    "float": (lambda fd, x, s: float(s), "a Scalar of a definition"),
    "int": (lambda fd, x, s: int(s), "fd.ops.cast converts values"),
    "range": (lambda fd, x, s: range(s), "a Scalar may be a size"),
    "array": (lambda fd, x, s: np.ones(2) * x, "fd.from_pytorch of torch.from_numpy(...)"),
    "array right": (lambda fd, x, s: x * np.ones(2), "b must be Tensor, Scalar or number, not numpy.ndarray"),
    "array ==": (lambda fd, x, s: x == np.ones(2), "fd.from_pytorch"),
    "tensor": (lambda fd, x, s: x + torch.ones(2), "fd.from_pytorch is an input like it"),
    "tensor left": (lambda fd, x, s: torch.tensor(2.0) * x, "its item() is a constant"),
    "tensor ==": (lambda fd, x, s: x == torch.tensor(2.0), "its item() is a constant"),
    "numpy dtype": (lambda fd, x, s: fd.ops.cast(x, np.float32), "torch.float32 is the torch dtype"),
    "dtype text": (lambda fd, x, s: fd.ops.cast(x, "float32"), "dtype must be DataType, not str"),
    "range for dims": (lambda fd, x, s: fd.ops.sum(x, range(1)), "list(range(0, 1))"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    call, says = REFUSED[case]
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        with pytest.raises(ArgumentTypeError, match=f"(?s).*{re.escape(says)}"):
            call(fd, x, fd.define_scalar())
        fd.add_output(x)


def test_numbers_of_numpy_are_numbers() -> None:
    x = torch.tensor([1.0, 2.0])
    with FusionDefinition() as fd:
        t = fd.define_tensor([np.int64(-1)])
        table = fd.define_tensor([np.int32(2)], [np.int64(1)])
        fd.add_output(np.float32(2) * t + np.int64(3) - np.float64(0.5))
        fd.add_output(t == np.float32(2))
        fd.add_output(fd.ops.mul(fd.define_scalar(np.float32(2)), fd.ops.sum(table, np.int64(0))))
        fd.add_output(fd.ops.logical_and(t, np.bool_(True)))
        assert fd.define_scalar(np.int8(3)).dtype is DataType.Int
    found = fd.execute([x, x])
    for actual, expected in zip(found, [2 * x + 2.5, x == 2.0, 2 * x.sum(), x != 0]):
        assert torch.equal(actual, expected)


def test_types_of_torch_and_python_are_data_types() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], dtype=float)
        assert x.dtype is DataType.Double  # as torch.zeros(1, dtype=float)
        for given, dtype in {
            torch.bfloat16: DataType.BFloat16,
            bool: DataType.Bool,
            int: DataType.Int,
            complex: DataType.ComplexDouble,
        }.items():
            assert fd.ops.cast(x, given).dtype is dtype
            assert fd.define_scalar(given).dtype is dtype
        fd.add_output(x)


def test_execution_within_the_block_is_refused_and_loses_nothing() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        for call in (lambda: fd.execute([torch.ones(2)]), lambda: fd.validate([torch.ones(2)]), fd.fusion_ir):
            with pytest.raises(DefinitionError, match="still being written, in its `with` block"):
                call()
        fd.add_output(x * 2.0)
    assert torch.equal(fd.execute([torch.ones(2)])[0], torch.full((2,), 2.0))


def test_a_block_that_ends_in_an_error_leaves_no_definition() -> None:
    fd = FusionDefinition()
    with pytest.raises(ZeroDivisionError), fd:
        fd.add_output(fd.define_tensor([-1]) * (1 / 0))
    with pytest.raises(MissingDefinitionError, match="a block that ended in an error leaves none"):
        fd.execute([torch.ones(2)])
    with fd:
        fd.add_output(fd.define_tensor([-1]) * 2.0)
    assert torch.equal(fd.execute([torch.ones(2)])[0], torch.full((2,), 2.0))


def test_numbers_of_numpy_are_numbers_in_calls() -> None:
    with FusionDefinition() as fd:
        x, factor = fd.define_tensor([-1], dtype=DataType.Float), fd.define_scalar(DataType.Double)
        fd.add_output(x * factor)
    for number in (np.float32(2), np.float64(2), np.int64(2), np.float16(2), np.bool_(True)):
        assert fd.execute([torch.ones(3), number])[0].tolist() == [float(number)] * 3


@pytest.mark.parametrize(
    "make, given",
    [
        (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), "a quantized tensor"),
        (lambda x: torch.nested.nested_tensor([x, x]), "a nested tensor"),
        (lambda x: torch.nested.nested_tensor([x, x], layout=torch.jagged), "a nested tensor"),
    ],
    ids=["quantized", "nested", "jagged"],
)
@pytest.mark.filterwarnings("ignore")
def test_tensors_that_are_not_dense_are_named(make: Any, given: str) -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([-1, -1]) + 1.0)
    with pytest.raises(InputError, match=f"to be a dense tensor but got {given}"):
        fd.execute([make(torch.ones(4, 3))])


@pytest.mark.filterwarnings("ignore")
def test_an_input_is_like_a_dense_tensor_only() -> None:
    x = torch.eye(3)
    others = {
        "layout torch.sparse_coo": x.to_sparse(),
        "layout torch.sparse_csr": x.to_sparse_csr(),
        "a nested tensor": torch.nested.nested_tensor([x, x]),
        "a nested tensor, jagged": torch.nested.nested_tensor([x, x], layout=torch.jagged),
        "a quantized tensor": torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
    }
    with FusionDefinition() as fd:
        for given, tensor in others.items():
            with pytest.raises(ArgumentTypeError, match=f"a dense tensor, got.*{given.partition(',')[0]}"):
                fd.from_pytorch(tensor)
        fd.add_output(fd.from_pytorch(x) + 1.0)
    assert torch.equal(fd.execute([x])[0], x + 1.0)


def test_what_is_no_schedule_is_named() -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([-1], contiguity=True) + 1.0)
    with pytest.raises(ParamsError, match=r"schedules\[0\]`: expected params of the segment's scheduler.*"):
        fd.execute([torch.ones(3)], schedules={0: PointwiseParams})
    fd.schedule = 3  # type: ignore[assignment, method-assign]
    with pytest.raises(ArgumentTypeError, match=r"fd.schedule\(\): .* Expected a function, got int"):
        fd.execute([torch.ones(3)])
