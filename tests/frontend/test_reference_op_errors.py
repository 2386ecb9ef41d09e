"""Every error of an operation that the reference's tests ask for.

Left out are slices with steps, which work here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition
from tests.frontend.error_rows import BOUNDARY, Row, check, definition, exactly, joined

D = DataType


def _op(name: str, *args: Any, rank: int = 2, dtype: DataType = D.Float, **kwargs: Any) -> Callable[[], Any]:
    """fd.ops.<name>(a tensor of 4s, *args): what `args` has callables for, they make of the definition."""

    def call() -> None:
        with FusionDefinition() as fd:
            x = fd.define_tensor([-1] * rank, dtype=dtype)
            given = [a(fd) if callable(a) else a for a in args]
            fd.add_output(_first(getattr(fd.ops, name)(x, *given, **kwargs)))
        inputs = [torch.ones([4] * rank).to(dtype.torch)]
        inputs += [torch.zeros([4] * v.ndim, dtype=v.dtype.torch) for v in fd._leaf.fusion.inputs[1:]]
        fd.execute(inputs)

    return call


def _first(result: Any) -> Any:
    return result[0] if isinstance(result, (tuple, list)) else result


def _make(name: str, *args: Any, **kwargs: Any) -> Callable[[], Any]:
    """fd.ops.<name>(*args), without inputs."""
    return lambda: definition(lambda fd: fd.add_output(getattr(fd.ops, name)(*args, **kwargs)))().execute([])


def _vector_of_indices(fd: FusionDefinition) -> Any:
    return fd.define_tensor([-1], dtype=D.Int)


def _table_of_indices(fd: FusionDefinition) -> Any:
    return fd.define_tensor([-1, -1], dtype=D.Int)


def _symbolic(rank: int) -> Callable[[FusionDefinition], Any]:
    return lambda fd: [fd.define_scalar(D.Int) for _ in range(rank)]


def _five(fd: FusionDefinition) -> Any:
    return fd.define_scalar(5)


def _linear() -> None:
    with FusionDefinition() as fd:
        x, w, b = (fd.define_tensor([-1] * rank) for rank in (2, 2, 1))
        fd.add_output(fd.ops.linear(x, w, b))
    fd.execute([torch.ones(4, 8), torch.ones(1, 8), torch.ones(256)])


def _row(
    name: str, case: str, fragment: str, call: Callable[[], Any], error: type[Exception] = RuntimeError
) -> Row:
    return Row(f"{name} {case}", error, fragment, call)


_EXPANDED = "The expanded size of the tensor (1) must match the existing size (256)"
_NO_MATCH = "{}(): incompatible function arguments"
ROWS = [
    *(
        _row(
            "broadcast",
            f"{flags}",
            exactly("Invalid broadcast, number of false entries in is_broadcast_dim expected to be"),
            _op("broadcast", flags),
        )
        for flags in ([True, False], [True, False, False, False])
    ),
    *(
        _row("broadcast_in_dim", f"{case}, {kind}", exactly(text), _op("broadcast_in_dim", shape(n), dims))
        for case, n, dims, text in (
            ("too few", 3, [0], "The broadcast dimensions should match the input dimensions"),
            ("rank", 1, [0, 1], "The new shape is expected to be greater-then-or-equal to the input"),
            ("range", 3, [0, 3], "Invalid broadcast_dims value"),
        )
        for kind, shape in (("constant", lambda n: [4] * n), ("symbolic", _symbolic))
    ),
    _row("cat", "nothing", exactly("Attempting to concatenate empty list of tensors"), _make("cat", [])),
    _row("cat", "dim 2", exactly("Invalid dimension to cat"), joined([2, 2], [2, 2], dim=2)),
    _row("cat", "dim -3", exactly("Invalid dimension to cat"), joined([2, 2], [2, 2], dim=-3)),
    _row("cat", "ranks", exactly("Unexpected number of dimensions"), joined([2], [2, 2])),
    _row("cumsum", "dim 2", exactly("Tried to access out of boundary index"), _op("cumsum", 2)),
    _row("cumsum", "dim -3", exactly("Tried to access out of boundary index"), _op("cumsum", -3)),
    _row("cumsum", "rank 0", exactly(BOUNDARY.format(0, 0)), _op("cumsum", 0, rank=0)),
    _row("cumsum", "dim 0.5", exactly(_NO_MATCH.format("cumsum")), _op("cumsum", 0.5), TypeError),
    _row("index_select", "2", exactly(BOUNDARY.format(2, 2)), _op("index_select", _vector_of_indices, 2)),
    _row("index_select", "-3", exactly(BOUNDARY.format(-1, 2)), _op("index_select", _vector_of_indices, -3)),
    *(
        _row(
            name, f"dim {dim}", exactly("Tensor arguments have dimension"), _op(name, _table_of_indices, dim)
        )
        for name in ("gather", "take_along_axis")
        for dim in (2, -3)
    ),
    _row("iota", "length", exactly("length must be integer"), _make("iota", 2.0, 0, 1)),
    _row(
        "iota",
        "start",
        exactly("iota: start dtype does not match specified dtype argument"),
        _make("iota", 2, 1.0, 1),
    ),
    _row("iota", "step", exactly("iota: step dtype"), _make("iota", 2, 1, 1.0)),
    *(
        _row(
            "iota",
            f"inf {args}",
            exactly("iota: length, start, step must be finite numbers."),
            _make("iota", 2, *args, D.Float),
        )
        for args in ((float("inf"), 1.0), (0.0, float("-inf")))
    ),
    _row("iota", "step 0", exactly("iota: step value must not equal zero."), _make("iota", 2, 1, 0)),
    _row("linear", "bias", exactly(_EXPANDED), _linear),
    *(
        _row(
            name,
            dtype.name,
            exactly("Random distributions only create floating point types"),
            _make(name, 0.0, 1.0, [2], dtype=dtype),
        )
        for name in ("normal", "uniform")
        for dtype in (D.Bool, D.Int, D.ComplexFloat)
    ),
    _row(
        "pad",
        "value",
        exactly("Tensor arg and pad value must have the same dtype."),
        _op("pad", [1, 1], 1.0, dtype=D.Int),
    ),
    _row("pad", "cropped", exactly("Invalid resized domain extent"), _op("pad", [-5, 0])),
    _row(
        "pad",
        "too many",
        exactly("Number of pad widths must be at most twice the input dimension"),
        _op("pad", [1] * 6),
    ),
    _row("pad", "odd", exactly("Invalid number of padding widths"), _op("pad", [1, 1, 1])),
    _row("permute", "floats", exactly(_NO_MATCH.format("permute")), _op("permute", [0.0, 1.0]), TypeError),
    _row("permute", "duplicates", exactly("duplicated dimension entries"), _op("permute", [0, 0])),
    _row("permute", "range", exactly("dims argument is out of range, expects"), _op("permute", [0, 2])),
    _row("permute", "length", exactly("argument to have the same length as input"), _op("permute", [0])),
    _row("reshape", "two", exactly("A maximum of one value of -1"), _op("reshape", [-1, -1])),
    _row(
        "reshape",
        "elements",
        exactly("Total element counts across view operation must match"),
        _op("reshape", [3, 5]),
    ),
    _row(
        "slice",
        "start",
        exactly("Slice operation start_indices must be greater than or equal to 0."),
        _op("slice", [-1, 0], [2, 2]),
    ),
    _row(
        "slice",
        "end",
        exactly("Slice operation end_indices must be greater than or equal to start_indices."),
        _op("slice", [3, 0], [2, 2]),
    ),
    _row(
        "slice",
        "rank",
        exactly("Number of tensor dimensions does not match slice dimensions!"),
        _op("slice", [0], [2]),
    ),
    _row(
        "slice",
        "strides",
        exactly("Slice start_indices and strides don't match!"),
        _op("slice", [0, 0], [2, 2], [1]),
    ),
    _row(
        "slice",
        "ends",
        exactly("Slice indexing attribute dimensions don't match!"),
        _op("slice", [0, 0], [2]),
    ),
    _row(
        "slice",
        "order of checks",
        exactly("Slice start_indices and strides don't match!"),
        _op("slice", [-1], [0, 0], [5, 5, 5]),
    ),
    _row("squeeze", "range", exactly("Squeeze dim is outside of Tensor size!"), _op("squeeze", [2])),
    _row(
        "squeeze",
        "too many",
        exactly("The dims to squeeze must be <= the number of dims of the input tensor"),
        _op("squeeze", [0, 1, 0]),
    ),
    _row("size", "range", exactly(BOUNDARY.format(2, 2)), lambda: _sized(lambda fd, x: fd.ops.size(x, 2))),
    _row(
        "at", "range", exactly(BOUNDARY.format(-1, 2)), lambda: _sized(lambda fd, x: fd.ops.shape(x).at(-3))
    ),
    _row("topk", "dim", exactly("Tried to access out of boundary index"), _op("topk", _five, 2)),
    _row(
        "topk",
        "k = -5",
        exactly("Invalid resized domain extent"),
        _op("topk", lambda fd: fd.define_scalar(-5), 0),
    ),
    _row("topk", "k", "k .* range", _op("topk", _five, 0)),
    _row(
        "triu",
        "rank",
        exactly("input tensor for triu must have 2 or more dims, but got 1 dims"),
        _op("triu", rank=1),
    ),
    _row(
        "var_mean", "floats", exactly(_NO_MATCH.format("var_mean") + "."), _op("var_mean", [0.5]), TypeError
    ),
    _row(
        "where",
        "condition",
        exactly("Condition should be of DataType Bool"),
        lambda: _sized(lambda fd, x: fd.ops.where(x, x, x)),
    ),
]


def _sized(write: Callable[[FusionDefinition, Any], Any]) -> None:
    with FusionDefinition() as fd:
        write(fd, fd.define_tensor([-1, -1]))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.case)
def test_class_and_fragment(row: Row) -> None:
    check(row)
