"""Every error that the reference's tests ask for: its class, and what they match.

Those of operations are in test_reference_op_errors. A row of a method that is not there yet is skipped while
its name is missing. Left out are rows of nvFuser's direct interface alone (manual_execute,
FusionExecutorCache).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition, ParallelType, SchedulerType
from tests.frontend.error_rows import BOUNDARY, Row, check, definition, exactly, joined

D = DataType
NEITHER = "The value -2 at index {} was neither symbolic(-1), zero_element(0), broadcast(1), or static(>1)"


# ---- definition --------------------------------------------------------------------------------------------


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


_COMPLETED = exactly("Attempting to add to a completed definition")
_DEFINE_TENSOR = exactly("define_tensor(): incompatible function arguments")
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
        exactly("Attempting to use a SchedOperators Op prior to definition!"),
        lambda: _SchedulesInDefinition().execute([torch.ones(2, 2)]),
    ),
    Row(
        "no definition",
        NotImplementedError,
        exactly("Fusion does not exist! Use `with FusionDefinition() as fd: ...` to define a fusion."),
        lambda: FusionDefinition().execute([]),
    ),
    Row(
        "no outputs",
        NotImplementedError,
        exactly("Fusion is empty!"),
        lambda: definition(_nothing)().execute([]),  # type: ignore[attr-defined]
    ),
    Row(
        "from_pytorch",
        ValueError,
        exactly("Found unsupported device meta, only scalar CPU or CUDA tensors are supported"),
        definition(lambda fd: fd.from_pytorch(torch.ones(2, device="meta"))),
    ),
    Row(
        "is_cpu",
        RuntimeError,
        exactly("CPU non-scalar tensor is not supported!"),
        definition(lambda fd: fd.define_tensor([-1], is_cpu=True)),
    ),
    Row(
        "contiguity length",
        RuntimeError,
        exactly("Length of contiguity argument (3) must match that of shape argument (2)"),
        definition(lambda fd: fd.define_tensor([-1, -1], [True, True, True])),
    ),
    Row("size beyond int64", TypeError, _DEFINE_TENSOR, definition(lambda fd: fd.define_tensor([1 << 63]))),
    Row("float size", TypeError, _DEFINE_TENSOR, definition(lambda fd: fd.define_tensor([2.0]))),
    Row("size", RuntimeError, exactly(NEITHER.format(0)), definition(lambda fd: fd.define_tensor([-2]))),
    Row("vector", RuntimeError, exactly(NEITHER.format(0)), definition(lambda fd: fd.define_vector([-2]))),
    Row(
        "full",
        RuntimeError,
        exactly(NEITHER.format(1)),
        definition(lambda fd: fd.ops.full([2, -2], 1.0, D.Float)),
    ),
    Row(
        "stride_order twice",
        RuntimeError,
        exactly("duplicated stride_order entries"),
        definition(lambda fd: fd.define_tensor([-1, -1], stride_order=[0, 0])),
    ),
    Row(
        "stride_order range",
        RuntimeError,
        exactly("stride_order argument is out of range"),
        definition(lambda fd: fd.define_tensor([-1, -1], stride_order=[0, 2])),
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


def _written_to_the_host(fd: FusionDefinition) -> None:
    scalar, x = fd.define_tensor([], is_cpu=True), fd.define_tensor([-1])
    fd.add_output(scalar + fd.ops.sum(x), scalar)


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
        exactly("Expected input 1, S1, to be a scalar but got float tensor of rank 1"),
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
        exactly("Scalar value (2,1) is not compatible with the expected data type: double."),
        _scaled([_ONES, 2 + 1j]),
    ),
    Row(
        "matmul",
        RuntimeError,
        exactly("Can not find a scheduler to schedule fusion segment"),
        _float_matmul,
    ),
    Row(
        "output in host memory",
        RuntimeError,
        exactly("KernelExecutor does not support the Fusion provided."),
        definition(_written_to_the_host),
    ),
    Row("threads", RuntimeError, None, _too_many_threads),
    Row(
        "no repro",
        AssertionError,
        exactly(
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
        exactly("a conflict was found with 2 different sizes"),
        joined([2, 3], [2, 4]),
    ),
]


# ---- scheduling --------------------------------------------------------------------------------------------


def _scheduled(act: Callable[[_Sum], object]) -> Callable[[], object]:
    def call() -> None:
        fd = _Sum()
        fd._setup_schedule([torch.ones(8, 8, 8)])
        act(fd)

    return call


def _sched(case: str, fragment: str, act: Callable[[_Sum], object]) -> Row:
    return Row(case, RuntimeError, exactly(fragment), _scheduled(act))


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
        exactly("Vectorization factor must be a power of 2"),
        lambda: _InnerOuter().execute([torch.ones(8, 8)]),
        ("schedule_hyperparameters",),
    ),
]


ROWS = [*DEFINITION, *EXECUTION, *SCHEDULING]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.case)
def test_class_and_fragment(row: Row) -> None:
    check(row)


def test_a_rejection_is_told() -> None:
    fd = _Sum()
    fd._setup_schedule([torch.ones(8, 8, 8)])
    possible, reason = fd.sched.can_schedule(SchedulerType.pointwise)
    assert not possible
    assert reason.strip() == "Scheduler _pointwise_ ***rejected*** because : cannot find reference tensor"
