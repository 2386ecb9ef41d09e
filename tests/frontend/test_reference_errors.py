"""Every error that the reference's tests ask for (api.md, section 9): its class, and what they match.

A row of an operation that is not there yet is skipped while its name is missing. Left out are rows of
nvFuser's direct interface alone (manual_execute, FusionExecutorCache), and slices with steps, which work.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition, ParallelType, SchedulerType
from fusewright.ops import OPS

D = DataType
BOUNDARY = "Tried to access out of boundary index {}. total index: {}"
NEITHER = "The value -2 at index {} was neither symbolic(-1), zero_element(0), broadcast(1), or static(>1)"


@dataclass(frozen=True)
class Row:
    """One row. `call` writes and runs a definition; `needs`: methods without which the row is skipped."""

    case: str
    error: type[Exception]
    pattern: str | None
    call: Callable[[], object]
    needs: tuple[str, ...] = ()


def _exactly(text: str) -> str:
    return re.escape(text)


def _check(row: Row) -> None:
    methods = {*OPS, *dir(FusionDefinition().sched)}
    missing = [name for name in row.needs if name not in methods]
    if missing:
        pytest.skip(f"there is no {missing[0]} yet")
    for _ in range(2):  # the second definition like it fails as the first did
        with pytest.raises(row.error, match=row.pattern):
            row.call()


# ---- definition --------------------------------------------------------------------------------------------


def _definition(write: Callable[[FusionDefinition], object]) -> Callable[[], object]:
    """Writes a definition, and completes it."""

    def call() -> FusionDefinition:
        with FusionDefinition() as fd:
            write(fd)
        return fd

    return call


class _Sum(FusionDefinition):
    """The sums over the last of three dimensions."""

    def definition(self) -> None:
        self.x = self.define_tensor([-1, -1, -1])
        self.total = self.ops.sum(self.x, -1)
        self.add_output(self.total)


def _completed(act: Callable[[_Sum], object]) -> Callable[[], object]:
    def call() -> None:
        fd = _Sum()
        fd.execute([torch.ones(2, 2, 2)])
        act(fd)

    return call


class _DefinesInSchedule(_Sum):
    def schedule(self) -> None:
        self.define_tensor([-1])


class _SchedulesInDefinition(FusionDefinition):
    def definition(self) -> None:
        x = self.define_tensor([-1, -1])
        self.sched.split(x, 0, 2)


def _nothing(fd: FusionDefinition) -> None:
    pass


_COMPLETED = _exactly("Attempting to add to a completed definition")
_DEFINE_TENSOR = _exactly("define_tensor(): incompatible function arguments")
DEFINITION = [
    Row("op later", RuntimeError, _COMPLETED, _completed(lambda fd: fd.ops.exp(fd.x))),
    Row("define later", RuntimeError, _COMPLETED, _completed(lambda fd: fd.define_scalar())),
    Row("output later", RuntimeError, _COMPLETED, _completed(lambda fd: fd.add_output(fd.x))),
    Row(
        "define in schedule",
        RuntimeError,
        _COMPLETED,
        lambda: _DefinesInSchedule().execute([torch.ones(2, 2, 2)]),
    ),
    Row(
        "sched in definition",
        RuntimeError,
        _exactly("Attempting to use a SchedOperators Op prior to definition!"),
        lambda: _SchedulesInDefinition().execute([torch.ones(2, 2)]),
    ),
    Row(
        "no definition",
        NotImplementedError,
        _exactly("Fusion does not exist! Use `with FusionDefinition() as fd: ...` to define a fusion."),
        lambda: FusionDefinition().execute([]),
    ),
    Row(
        "no outputs",
        NotImplementedError,
        _exactly("Fusion is empty!"),
        lambda: _definition(_nothing)().execute([]),  # type: ignore[attr-defined]
    ),
    Row(
        "from_pytorch",
        ValueError,
        _exactly("Found unsupported device meta, only scalar CPU or CUDA tensors are supported"),
        _definition(lambda fd: fd.from_pytorch(torch.ones(2, device="meta"))),
    ),
    Row(
        "is_cpu",
        RuntimeError,
        _exactly("CPU non-scalar tensor is not supported!"),
        _definition(lambda fd: fd.define_tensor([-1], is_cpu=True)),
    ),
    Row(
        "contiguity length",
        RuntimeError,
        _exactly("Length of contiguity argument (3) must match that of shape argument (2)"),
        _definition(lambda fd: fd.define_tensor([-1, -1], [True, True, True])),
    ),
    Row("size beyond int64", TypeError, _DEFINE_TENSOR, _definition(lambda fd: fd.define_tensor([1 << 63]))),
    Row("float size", TypeError, _DEFINE_TENSOR, _definition(lambda fd: fd.define_tensor([2.0]))),
    Row("size", RuntimeError, _exactly(NEITHER.format(0)), _definition(lambda fd: fd.define_tensor([-2]))),
    Row("vector", RuntimeError, _exactly(NEITHER.format(0)), _definition(lambda fd: fd.define_vector([-2]))),
    Row(
        "full",
        RuntimeError,
        _exactly(NEITHER.format(1)),
        _definition(lambda fd: fd.ops.full([2, -2], 1.0, D.Float)),
    ),
    Row(
        "stride_order twice",
        RuntimeError,
        _exactly("duplicated stride_order entries"),
        _definition(lambda fd: fd.define_tensor([-1, -1], stride_order=[0, 0])),
    ),
    Row(
        "stride_order range",
        RuntimeError,
        _exactly("stride_order argument is out of range"),
        _definition(lambda fd: fd.define_tensor([-1, -1], stride_order=[0, 2])),
    ),
]


# ---- execution ---------------------------------------------------------------------------------------------


def _scaled(inputs: Sequence[Any], **options: Any) -> Callable[[], object]:
    """Executes the product of a vector and a scalar."""

    def call() -> None:
        with FusionDefinition() as fd:
            x = fd.define_tensor([-1])
            fd.add_output(x * fd.define_scalar())
        fd.execute(inputs, **options)

    return call


def _too_many_threads() -> None:
    class Scheduled(_Sum):
        def schedule(self) -> None:
            self.total.merge(0)
            self.total.split(0, 1024)
            self.total.split(0, 10)
            self.total.parallelize(1, ParallelType.block_y)
            self.total.parallelize(2, ParallelType.block_x)
            self.sched.inline_most()

    Scheduled().execute([torch.ones(128, 128, 2)])


def _float_matmul() -> None:
    with FusionDefinition() as fd:
        a, b = fd.define_tensor([-1, -1]), fd.define_tensor([-1, -1])
        fd.add_output(fd.ops.matmul(a, b))
    options = {"_enable_options": ["fuse_matmul"], "_disable_options": ["matmul_expr_eval"]}
    fd.execute([torch.ones(4, 4), torch.ones(4, 4)], **options)


def _joined(*shapes: Sequence[int], dim: int = 0) -> Callable[[], object]:
    def call() -> None:
        with FusionDefinition() as fd:
            tensors = [fd.define_tensor([-1] * len(shape)) for shape in shapes]
            fd.add_output(fd.ops.cat(tensors, dim))
        fd.execute([torch.ones(shape) for shape in shapes])

    return call


_ONES = torch.ones(3)
EXECUTION = [
    Row(
        "scalar for tensor",
        Exception,
        "Expected input 0, .*, to be an at::Tensor but got scalar 2",
        _scaled([2.0, 2.0]),
    ),
    Row(
        "tensor for scalar",
        Exception,
        _exactly("Expected input 1, d2, to be a scalar but got float tensor of rank 1"),
        _scaled([_ONES, _ONES]),
    ),
    Row(
        "dtype",
        Exception,
        "Expected input 0, .*, to be bound to a tensor of dtype float, but got a tensor of dtype __half",
        _scaled([_ONES.half(), 2.0]),
    ),
    Row(
        "complex for double",
        Exception,
        _exactly("Scalar value (2,1) is not compatible with the expected data type: double."),
        _scaled([_ONES, 2 + 1j]),
    ),
    Row(
        "matmul",
        RuntimeError,
        _exactly("Can not find a scheduler to schedule fusion segment"),
        _float_matmul,
        ("matmul",),
    ),
    Row("threads", RuntimeError, None, _too_many_threads),
    Row(
        "no repro",
        AssertionError,
        _exactly(
            "fd.last_repro_script() cannot provide a repro because "
            "fd.execute(inputs, save_repro_inputs=True) was not executed!"
        ),
        _completed(lambda fd: fd.last_repro_script()),
    ),
    *(
        Row(
            name,
            RuntimeError,
            "(Invalid fusion definition!|never been executed)",
            lambda name=name: getattr(FusionDefinition(), name)(),
        )
        for name in ("last_cuda_code", "last_scheduled_fusion_ir")
    ),
    *(
        Row(
            name,
            RuntimeError,
            "(not compiled|never been executed)",
            _completed(lambda fd, name=name: getattr(fd, name)([torch.ones(1, 2, 2)])),
        )
        for name in ("cuda_code_for", "scheduled_fusion_ir_for")
    ),
    Row("no profile", ValueError, None, _completed(lambda fd: fd.profile())),
    *(
        Row(
            option,
            RuntimeError,
            f"Unrecognized {option}",
            _scaled([_ONES, 2.0], **{f"_{option}s": ["nothing"]}),
        )
        for option in ("enable_option", "disable_option")
    ),
    Row(
        "sizes",
        RuntimeError,
        _exactly("a conflict was found with 2 different sizes"),
        _joined([2, 3], [2, 4]),
        ("cat",),
    ),
]


# ---- operations --------------------------------------------------------------------------------------------


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
    return lambda: _definition(lambda fd: fd.add_output(getattr(fd.ops, name)(*args, **kwargs)))().execute([])


def _vector_of_indices(fd: FusionDefinition) -> Any:
    return fd.define_tensor([-1], dtype=D.Int)


def _table_of_indices(fd: FusionDefinition) -> Any:
    return fd.define_tensor([-1, -1], dtype=D.Int)


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
    return Row(f"{name} {case}", error, fragment, call, (name,))


_NO_MATCH = "{}(): incompatible function arguments"
_MATCH_DIMS = _exactly("The broadcast dimensions should match the input dimensions")
OPERATIONS = [
    *(
        _row(
            "broadcast",
            f"{flags}",
            _exactly("Invalid broadcast, number of false entries in is_broadcast_dim expected to be"),
            _op("broadcast", flags),
        )
        for flags in ([True, False], [True, False, False, False])
    ),
    _row("broadcast_in_dim", "too few", _MATCH_DIMS, _op("broadcast_in_dim", [2, 2, 2], [0])),
    _row(
        "broadcast_in_dim",
        "too few, symbolic",
        _MATCH_DIMS,
        _op("broadcast_in_dim", lambda fd: [fd.define_scalar(D.Int), 2], [0]),
    ),
    _row(
        "broadcast_in_dim",
        "rank",
        _exactly("The new shape is expected to be greater-then-or-equal to the input"),
        _op("broadcast_in_dim", [2], [0, 1]),
    ),
    _row(
        "broadcast_in_dim",
        "range",
        _exactly("Invalid broadcast_dims value"),
        _op("broadcast_in_dim", [2, 2, 2], [0, 3]),
    ),
    _row("cat", "nothing", _exactly("Attempting to concatenate empty list of tensors"), _make("cat", [])),
    _row("cat", "dim 2", _exactly("Invalid dimension to cat"), _joined([2, 2], [2, 2], dim=2)),
    _row("cat", "dim -3", _exactly("Invalid dimension to cat"), _joined([2, 2], [2, 2], dim=-3)),
    _row("cat", "ranks", _exactly("Unexpected number of dimensions"), _joined([2], [2, 2])),
    _row("cumsum", "dim 2", _exactly("Tried to access out of boundary index"), _op("cumsum", 2)),
    _row("cumsum", "dim -3", _exactly("Tried to access out of boundary index"), _op("cumsum", -3)),
    _row("cumsum", "rank 0", _exactly(BOUNDARY.format(0, 0)), _op("cumsum", 0, rank=0)),
    _row("cumsum", "dim 0.5", _exactly(_NO_MATCH.format("cumsum")), _op("cumsum", 0.5), TypeError),
    _row("index_select", "2", _exactly(BOUNDARY.format(2, 2)), _op("index_select", _vector_of_indices, 2)),
    _row("index_select", "-3", _exactly(BOUNDARY.format(-1, 2)), _op("index_select", _vector_of_indices, -3)),
    *(
        _row(
            name, f"dim {dim}", _exactly("Tensor arguments have dimension"), _op(name, _table_of_indices, dim)
        )
        for name in ("gather", "take_along_axis")
        for dim in (2, -3)
    ),
    _row("iota", "length", _exactly("length must be integer"), _make("iota", 2.0, 0, 1)),
    _row(
        "iota",
        "start",
        _exactly("iota: start dtype does not match specified dtype argument"),
        _make("iota", 2, 1.0, 1),
    ),
    _row("iota", "step", _exactly("iota: step dtype"), _make("iota", 2, 1, 1.0)),
    *(
        _row(
            "iota",
            f"inf {args}",
            _exactly("iota: length, start, step must be finite numbers."),
            _make("iota", 2, *args, D.Float),
        )
        for args in ((float("inf"), 1.0), (0.0, float("-inf")))
    ),
    _row("iota", "step 0", _exactly("iota: step value must not equal zero."), _make("iota", 2, 1, 0)),
    _row("linear", "bias", "The expanded size of the tensor .* must match the existing size", _linear),
    *(
        _row(
            name,
            dtype.name,
            _exactly("Random distributions only create floating point types"),
            _make(name, 0.0, 1.0, [2], dtype=dtype),
        )
        for name in ("normal", "uniform")
        for dtype in (D.Bool, D.Int, D.ComplexFloat)
    ),
    _row(
        "pad",
        "value",
        _exactly("Tensor arg and pad value must have the same dtype."),
        _op("pad", [1, 1], 1.0, dtype=D.Int),
    ),
    _row("pad", "cropped", _exactly("Invalid resized domain extent"), _op("pad", [-5, 0])),
    _row(
        "pad",
        "too many",
        _exactly("Number of pad widths must be at most twice the input dimension"),
        _op("pad", [1] * 6),
    ),
    _row("pad", "odd", _exactly("Invalid number of padding widths"), _op("pad", [1, 1, 1])),
    _row("permute", "floats", _exactly(_NO_MATCH.format("permute")), _op("permute", [0.0, 1.0]), TypeError),
    _row("permute", "duplicates", _exactly("duplicated dimension entries"), _op("permute", [0, 0])),
    _row("permute", "range", _exactly("dims argument is out of range, expects"), _op("permute", [0, 2])),
    _row("permute", "length", _exactly("argument to have the same length as input"), _op("permute", [0])),
    _row("reshape", "two", _exactly("A maximum of one value of -1"), _op("reshape", [-1, -1])),
    _row(
        "reshape",
        "elements",
        _exactly("Total element counts across view operation must match"),
        _op("reshape", [3, 5]),
    ),
    _row(
        "slice",
        "start",
        _exactly("Slice operation start_indices must be greater than or equal to 0."),
        _op("slice", [-1, 0], [2, 2]),
    ),
    _row(
        "slice",
        "end",
        _exactly("Slice operation end_indices must be greater than or equal to start_indices."),
        _op("slice", [3, 0], [2, 2]),
    ),
    _row(
        "slice",
        "rank",
        _exactly("Number of tensor dimensions does not match slice dimensions!"),
        _op("slice", [0], [2]),
    ),
    _row(
        "slice",
        "strides",
        _exactly("Slice start_indices and strides don't match!"),
        _op("slice", [0, 0], [2, 2], [1]),
    ),
    _row(
        "slice",
        "ends",
        _exactly("Slice indexing attribute dimensions don't match!"),
        _op("slice", [0, 0], [2]),
    ),
    _row(
        "slice",
        "order of checks",
        _exactly("Slice start_indices and strides don't match!"),
        _op("slice", [-1], [0, 0], [5, 5, 5]),
    ),
    _row("squeeze", "range", _exactly("Squeeze dim is outside of Tensor size!"), _op("squeeze", [2])),
    _row(
        "squeeze",
        "too many",
        _exactly("The dims to squeeze must be <= the number of dims of the input tensor"),
        _op("squeeze", [0, 1, 0]),
    ),
    _row("size", "range", _exactly(BOUNDARY.format(2, 2)), lambda: _sized(lambda fd, x: fd.ops.size(x, 2))),
    _row(
        "at", "range", _exactly(BOUNDARY.format(-1, 2)), lambda: _sized(lambda fd, x: fd.ops.shape(x).at(-3))
    ),
    _row("topk", "dim", _exactly("Tried to access out of boundary index"), _op("topk", _five, 2)),
    _row(
        "topk",
        "k = -5",
        _exactly("Invalid resized domain extent"),
        _op("topk", lambda fd: fd.define_scalar(-5), 0),
    ),
    _row("topk", "k", "k .* range", _op("topk", _five, 0)),
    _row(
        "triu",
        "rank",
        _exactly("input tensor for triu must have 2 or more dims, but got 1 dims"),
        _op("triu", rank=1),
    ),
    _row(
        "var_mean", "floats", _exactly(_NO_MATCH.format("var_mean") + "."), _op("var_mean", [0.5]), TypeError
    ),
    _row(
        "where",
        "condition",
        _exactly("Condition should be of DataType Bool"),
        lambda: _sized(lambda fd, x: fd.ops.where(x, x, x)),
    ),
]


def _sized(write: Callable[[FusionDefinition, Any], Any]) -> None:
    with FusionDefinition() as fd:
        write(fd, fd.define_tensor([-1, -1]))


# ---- scheduling --------------------------------------------------------------------------------------------


def _scheduled(act: Callable[[_Sum], object]) -> Callable[[], object]:
    def call() -> None:
        fd = _Sum()
        fd._setup_schedule([torch.ones(8, 8, 8)])
        act(fd)

    return call


def _sched(case: str, fragment: str, act: Callable[[_Sum], object]) -> Row:
    return Row(case, RuntimeError, _exactly(fragment), _scheduled(act))


def _rfactor(dims: Sequence[int]) -> Callable[[_Sum], object]:
    def act(fd: _Sum) -> None:
        fd.sched.split(fd.total, 2, 2)
        fd.sched.rfactor(fd.total, dims)

    return act


class _InnerOuter(FusionDefinition):
    """Sums over rows, and over columns of what they normalize."""

    def definition(self) -> None:
        x = self.define_tensor([-1, -1], contiguity=True)
        y = x - self.ops.broadcast(self.ops.sum(x, 1), [False, True])
        self.add_output(y)
        self.add_output(self.ops.sum(y, 0))

    def schedule(self) -> None:
        self.sched.schedule_hyperparameters().vectorize_factor = 3
        self.sched.schedule(SchedulerType.inner_outer_persistent)


_KINDS = "Merging IterDomains requires that their iteration types match"
_FACTOR = "Invalid factor for split. Factor must be greater than 0. Factor = {}"
_REORDER = "Reorder axes are not within the number of dimensions of the provided domain"
_NEGATIVE = 'Found "{}" position that\'s less than 0 even though already adjusted by nDims: -1'
SCHEDULING = [
    _sched("merge 1", _KINDS, lambda fd: fd.sched.merge(fd.total, 1)),
    _sched("merge -2", _KINDS, lambda fd: fd.sched.merge(fd.total, -2)),
    _sched("merge 2", BOUNDARY.format(3, 3), lambda fd: fd.sched.merge(fd.total, 2)),
    _sched("merge -4", BOUNDARY.format(-1, 3), lambda fd: fd.sched.merge(fd.total, -4)),
    _sched("split 3", BOUNDARY.format(3, 3), lambda fd: fd.sched.split(fd.total, 3, 2)),
    _sched("split -4", BOUNDARY.format(-1, 3), lambda fd: fd.sched.split(fd.total, -4, 2)),
    _sched("factor 0", _FACTOR.format(0), lambda fd: fd.sched.split(fd.total, 1, 0)),
    _sched("factor -1", _FACTOR.format(-1), lambda fd: fd.sched.split(fd.total, 1, -1)),
    _sched("reorder to 3", _REORDER, lambda fd: fd.sched.reorder(fd.total, {0: 3})),
    _sched("reorder 3", _REORDER, lambda fd: fd.sched.reorder(fd.total, {3: 0})),
    _sched("reorder -4", _NEGATIVE.format("old"), lambda fd: fd.sched.reorder(fd.total, {-4: 0})),
    _sched("reorder to -4", _NEGATIVE.format("new"), lambda fd: fd.sched.reorder(fd.total, {0: -4})),
    _sched("rfactor 1", "Cannot rfactor axes that are not reduction axes.", _rfactor([1])),
    _sched("rfactor -3", "Cannot rfactor axes that are not reduction axes.", _rfactor([-3])),
    _sched("rfactor all", "Must have at least one reduction axis not marked as rfactor.", _rfactor([2, 3])),
    Row(
        "vectorize_factor",
        RuntimeError,
        _exactly("Vectorization factor must be a power of 2"),
        lambda: _InnerOuter().execute([torch.ones(8, 8)]),
        ("schedule_hyperparameters",),
    ),
]


ROWS = [*DEFINITION, *EXECUTION, *OPERATIONS, *SCHEDULING]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.case)
def test_class_and_fragment(row: Row) -> None:
    _check(row)


def test_a_rejection_is_told() -> None:
    fd = _Sum()
    fd._setup_schedule([torch.ones(8, 8, 8)])
    possible, reason = fd.sched.can_schedule(SchedulerType.pointwise)
    assert not possible
    assert reason.strip() == "Scheduler _pointwise_ ***rejected*** because : cannot find reference tensor"
