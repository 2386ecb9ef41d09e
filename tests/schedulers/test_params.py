"""Params as users edit them: a right result or an error that names the mistake, whatever a field is set to;
no field changes nothing. And schedulers on fusions that they do not take.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, dataclass, fields, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fusewright import FusionCache, FusionDefinition, SchedulerType, to_dict
from fusewright.core.dtype import DataType
from fusewright.core.enums import MemoryType, ParallelType
from fusewright.core.errors import ArgumentTypeError, ParamsError, RejectedError, ScheduleError, UserError
from fusewright.schedule import Schedule
from fusewright.schedulers import (
    CompileParams,
    LaunchParams,
    PointwiseParams,
    PointwiseScheduler,
    ReductionParams,
    TransposeParams,
    apply,
    default_registry,
    propose,
)
from tests.integration.tolerance import assert_close
from tests.schedulers import proposals as p

Tensors = list[torch.Tensor]


@dataclass(frozen=True)
class Case:
    """A fusion, inputs, the reference in doubles, and the scheduler whose params are edited."""

    define: Callable[[FusionDefinition], None]
    inputs: Callable[[], Tensors]
    reference: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]
    scheduler: SchedulerType


def _matrix(fd: FusionDefinition, rank: int = 2, dtype: DataType = DataType.Float) -> Any:
    return fd.define_tensor([-1] * rank, contiguity=True, dtype=dtype)


def _bias(fd: FusionDefinition) -> None:
    fd.add_output(_matrix(fd) + fd.ops.broadcast(_matrix(fd, 1), [True, False]))


def _sum(dims: list[int], rank: int = 2) -> Callable[[FusionDefinition], None]:
    return lambda fd: fd.add_output(fd.ops.sum(_matrix(fd, rank), dims))


def _softmax(dims: list[int]) -> Callable[[FusionDefinition], None]:
    def define(fd: FusionDefinition) -> None:
        x = fd.ops.cast(_matrix(fd, dtype=DataType.Half), DataType.Float)
        e = fd.ops.exp(x - fd.ops.max(x, dims, keepdim=True))
        fd.add_output(e / fd.ops.sum(e, dims, keepdim=True))

    return define


def _turned(fd: FusionDefinition) -> None:
    x = _matrix(fd, 4)
    fd.add_output(fd.ops.permute(x, [0, 3, 2, 1]) * 2.0)


def _scan(dim: int, rank: int = 2) -> Callable[[FusionDefinition], None]:
    return lambda fd: fd.add_output(fd.ops.cumsum(_matrix(fd, rank), dim))


def _both(fd: FusionDefinition) -> None:
    x = _matrix(fd)
    fd.add_output(fd.ops.sum(x, [1]))
    fd.add_output(fd.ops.sum(x, [0]))


CASES = {
    "pointwise": Case(
        _bias, lambda: [torch.rand(6, 40), torch.rand(40)], lambda x, y: x + y, SchedulerType.pointwise
    ),
    "inner": Case(_sum([1]), lambda: [torch.rand(5, 136)], lambda x: x.sum(1), SchedulerType.reduction),
    "outer": Case(_sum([0]), lambda: [torch.rand(9, 40)], lambda x: x.sum(0), SchedulerType.reduction),
    "whole": Case(_sum([0, 1]), lambda: [torch.rand(3, 40)], lambda x: x.sum(), SchedulerType.reduction),
    "softmax": Case(
        _softmax([1]),
        lambda: [torch.rand(5, 136).half()],
        lambda x: x.softmax(1),
        SchedulerType.inner_persistent,
    ),
    "softmax_of_all": Case(
        _softmax([0, 1]),
        lambda: [torch.rand(3, 40).half()],
        lambda x: x.flatten().softmax(0).reshape(x.shape),
        SchedulerType.inner_persistent,
    ),
    "scan": Case(_scan(1), lambda: [torch.rand(5, 136)], lambda x: x.cumsum(1), SchedulerType.scan),
    "scan_of_columns": Case(
        _scan(0), lambda: [torch.rand(70, 40)], lambda x: x.cumsum(0), SchedulerType.scan
    ),
    "scan_of_all": Case(_scan(0, 1), lambda: [torch.rand(300)], lambda x: x.cumsum(0), SchedulerType.scan),
    "both_ways": Case(
        _both, lambda: [torch.rand(70, 136)], lambda x: (x.sum(1), x.sum(0)), SchedulerType.inner_outer
    ),
    "transpose": Case(
        _turned,
        lambda: [torch.rand(2, 8, 3, 16)],
        lambda x: x.permute(0, 3, 2, 1) * 2,
        SchedulerType.transpose,
    ),
}


def _opened(case: Case) -> tuple[FusionDefinition, Tensors]:
    FusionCache.reset()  # equal definitions share their schedules
    with FusionDefinition() as fd:
        case.define(fd)
    inputs = case.inputs()
    fd._setup_schedule(inputs)
    return fd, inputs


def _proposed(case: Case) -> Any:
    fd, _ = _opened(case)
    return fd.sched.compute_heuristics(case.scheduler).freeze()


def _run(case: Case, params: Any) -> str:
    """Schedules with `params` and checks the result; the CUDA text."""
    fd, inputs = _opened(case)
    fd.sched.schedule(params)
    fd._finalize_schedule(inputs)
    expected = case.reference(*(t.double() for t in inputs))
    outputs = fd.execute(inputs)
    for out, each in zip(outputs, expected if isinstance(expected, tuple) else (expected,), strict=True):
        assert_close(out, each, inputs[0].numel())
    return fd.last_cuda_code()


PROPOSED = {name: _proposed(case) for name, case in CASES.items()}


# ---- any value of any field

COUNTS = st.sampled_from([-(2**40), -3, -1, 0, 1, 2, 3, 4, 8, 16, 31, 32, 64, 128, 129, 1024, 2**31, 2**40])


def _values(hint: Any) -> st.SearchStrategy[Any]:
    if hint is bool:
        return st.booleans()
    if hint is int:
        return COUNTS
    if hint is ParallelType:
        return st.sampled_from(list(ParallelType))
    if hint is LaunchParams:
        return st.builds(LaunchParams, **{f.name: COUNTS | st.just(-1) for f in fields(LaunchParams)})
    if hint is CompileParams:
        types = st.sampled_from([None, DataType.Int, DataType.Int32, DataType.Float])
        return st.builds(CompileParams, index_type=types, maxrregcount=COUNTS)
    assert typing.get_origin(hint) is tuple, hint
    return st.lists(st.integers(-1, 4), max_size=3).map(tuple)


@st.composite
def edited(draw: st.DrawFn, params: Any) -> Any:
    """Params with some fields changed; perhaps the others made to agree with them, which reaches further."""
    hints = typing.get_type_hints(type(params))
    names = [f.name for f in fields(params) if f.name != "reason"]
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
    params = replace(params, **{name: draw(_values(hints[name])) for name in chosen})
    if draw(st.booleans()):
        extents = {f.name: draw(COUNTS) for f in fields(LaunchParams) if draw(st.booleans())}
        params = replace(params, lparams=replace(params.lparams, **extents))
    return params


@pytest.mark.sampled(0.6)
@pytest.mark.parametrize("name", CASES)
@settings(max_examples=20)
@given(data=st.data())
def test_any_edit_gives_the_right_result_or_says_what_is_wrong(name: str, data: st.DataObject) -> None:
    params = data.draw(edited(PROPOSED[name]))
    try:
        _run(CASES[name], params)
    except UserError as error:
        assert error.message


# ---- no field without effect

# The reference's compiler switches, which no scheduler has to do with.
COMPILER_FIELDS = {"cparams", "reason"}


def _single_edits(params: Any) -> Iterator[tuple[str, Any]]:
    """The params with one field set to another value, for every field and a few values."""
    for field in fields(params):
        value = getattr(params, field.name)
        if field.name == "lparams":
            for extent in fields(LaunchParams):
                if getattr(value, extent.name) != 2:
                    yield (
                        f"lparams.{extent.name}",
                        replace(params, lparams=replace(value, **{extent.name: 2})),
                    )
        elif isinstance(value, bool):
            yield field.name, replace(params, **{field.name: not value})
        elif isinstance(value, int):
            for other in {1, 2, 4} - {value}:
                yield field.name, replace(params, **{field.name: other})
        elif isinstance(value, ParallelType):
            yield field.name, replace(params, **{field.name: ParallelType.block_z})
        elif isinstance(value, tuple):
            for merged in {(), (0,), (1,), (2,), (3,)} - {value}:
                yield field.name, replace(params, **{field.name: merged})
        else:
            assert field.name in COMPILER_FIELDS, field.name


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(0.6)
def test_every_field_changes_the_kernel_or_is_refused(name: str) -> None:
    params = PROPOSED[name]
    kernel = _run(CASES[name], params)
    without_effect = []
    for field, edit in _single_edits(params):
        if field == "pad_inner_reduction_to_warp" and not params.persistent_kernel:
            continue  # asks for whole warps, which these are
        try:
            if _run(CASES[name], edit) == kernel:
                without_effect.append((field, edit))
        except UserError:
            pass
    assert without_effect == []


@pytest.mark.parametrize(
    "params, message",
    [
        (PointwiseParams(split_block=True), "`split_block`: expected False as lparams.bdimy says it"),
        (PointwiseParams(unroll_factor_outer=2), "`unroll_factor_outer`: expected 1 without rows"),
        (PointwiseParams(flip_grid_binding=True), "`flip_grid_binding`: expected False without rows"),
        (
            PointwiseParams(break_point=1, flip_grid_binding=True, split_grid_y_dim=True),
            "`split_grid_y_dim`: expected False where rows are on grid_x",
        ),
        (PointwiseParams(lparams=LaunchParams(gdimx=4)), "`lparams.gdimx`: expected -1, as it follows from"),
        (TransposeParams(lparams=LaunchParams(bdimy=4)), "`lparams.bdimy`: expected -1, as nothing is bound"),
        (
            replace(PROPOSED["inner"], project_persistent_buffers=True),
            "False in a kernel that is not persiste",
        ),
        (
            replace(PROPOSED["inner"], lparams=LaunchParams(bdimx=48)),
            "`lparams.bdimx`: expected a multiple of",
        ),
        (replace(PROPOSED["outer"], vectorize_inner_reduction=True), "False with fastest_dim False"),
        (replace(PROPOSED["softmax"], unroll_factor_top_of_vectorization=2), "1 where batches are held"),
    ],
)
def test_fields_that_would_change_nothing_are_refused(params: Any, message: str) -> None:
    with pytest.raises(ParamsError) as caught:
        params.validate(p.H200)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "name, edit, message",
    [
        ("pointwise", {"break_point": 2}, "`break_point`: expected 0 to 1 for T3, got 2"),
        (
            "whole",
            {"lparams": LaunchParams(bdimx=64, bdimy=2)},
            "`lparams.bdimy`: expected 1 where every dimension is reduced, got 2",
        ),
        ("scan_of_all", {"fastest_dim": False}, "True where there is no other dimension than the scanned"),
        (
            "softmax_of_all",
            {"lparams": LaunchParams(bdimx=32)},
            "-1, as it follows from i0*i1",
        ),
    ],
)
def test_params_that_contradict_the_fusion(name: str, edit: dict[str, Any], message: str) -> None:
    params = replace(PROPOSED[name], **edit)
    fd, _ = _opened(CASES[name])
    before = fd.sched.user_schedule_ir()
    with pytest.raises(ParamsError) as caught:
        fd.sched.schedule(params)
    assert message in str(caught.value)
    assert fd.sched.user_schedule_ir() == before


def test_threads_of_a_constant_row_are_those_that_it_needs() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([5, 136], contiguity=True)
        fd.add_output(x / fd.ops.sum(x, [1], keepdim=True))
    fd._setup_schedule([torch.rand(5, 136)])
    params = fd.sched.compute_heuristics(SchedulerType.inner_persistent)
    params.lparams.bdimx = 512
    with pytest.raises(ParamsError, match=r"`lparams.bdimx`: expected -1 or \d+, for rows of 136, got 512"):
        fd.sched.schedule()


def test_a_block_that_is_not_padded_is_assumed_to_be_just_covered() -> None:
    params = replace(PROPOSED["softmax"], pad_inner_reduction_to_warp=False)
    each = params.unroll_factor_inner_reduction * params.batches_per_block_inner_reduction
    threads = -(-136 // each)
    _run(CASES["softmax"], replace(params, lparams=LaunchParams(bdimx=threads)))
    with pytest.raises(ScheduleError, match="assumes the range of the size"):
        _run(CASES["softmax"], replace(params, lparams=LaunchParams(bdimx=threads + 1)))


# ---- fusions that a scheduler does not take, and schedules that it cannot start from

WRONG = [
    (SchedulerType.pointwise, "inner"),
    (SchedulerType.pointwise, "softmax"),
    (SchedulerType.reduction, "pointwise"),
    (SchedulerType.reduction, "softmax"),
    (SchedulerType.reduction, "transpose"),
    (SchedulerType.inner_persistent, "pointwise"),
    (SchedulerType.inner_persistent, "inner"),
    (SchedulerType.inner_persistent, "outer"),
    (SchedulerType.transpose, "pointwise"),
    (SchedulerType.scan, "softmax"),
    (SchedulerType.scan, "pointwise"),
    (SchedulerType.pointwise, "scan"),
    (SchedulerType.transpose, "softmax"),
    (SchedulerType.inner_outer, "softmax"),
    (SchedulerType.reduction, "both_ways"),
]
FITTING = {
    SchedulerType.pointwise: PROPOSED["pointwise"],
    SchedulerType.reduction: PROPOSED["inner"],
    SchedulerType.inner_persistent: PROPOSED["softmax"],
    SchedulerType.transpose: PROPOSED["transpose"],
    SchedulerType.scan: PROPOSED["scan"],
    SchedulerType.inner_outer: PROPOSED["both_ways"],
}


@pytest.mark.parametrize("type_, name", WRONG)
def test_a_wrong_fusion_is_rejected_with_the_reason(type_: SchedulerType, name: str) -> None:
    scheduler = default_registry().get(type_)
    fd, _ = _opened(CASES[name])
    user = fd._open_schedule
    assert user is not None
    accepted, text = fd.sched.can_schedule(type_)
    assert not accepted
    for call in (
        lambda: fd.sched.schedule(type_),
        lambda: fd.sched.schedule({"scheduler": type_.name}),
        lambda: fd.sched.compute_heuristics(type_),
        lambda: propose(scheduler, user.current.fusion, user.current.facts, user.hardware),
        lambda: apply(scheduler, user.current.schedule, FITTING[type_], user.hardware),
    ):
        with pytest.raises(RejectedError) as caught:
            call()
        assert text in str(caught.value)
    assert user.current.schedule.trace() == ()


def test_params_of_another_scheduler() -> None:
    with pytest.raises(ParamsError, match="`params`: expected PointwiseParams, got a TransposeParams"):
        apply(PointwiseScheduler(), Schedule(p.elementwise(2)), TransposeParams(), p.H200)


@pytest.mark.parametrize("first", ["split", "parallelize", "inline_most", "schedule"])
def test_an_automatic_schedule_starts_from_loops_as_they_were(first: str) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        y = fd.ops.exp(x)
        z = fd.ops.neg(y)
        fd.add_output(z)
    fd._setup_schedule([torch.rand(4, 8)], overwrite_existing_schedule=True)
    if first == "split":
        fd.sched.split(z, 0, 2)
    elif first == "parallelize":
        fd.sched.parallelize(z, 0, ParallelType.grid_x)
    elif first == "inline_most":
        fd.sched.inline_most()
    else:
        fd.sched.schedule(SchedulerType.pointwise)
    with pytest.raises(ScheduleError, match="scheduler pointwise starts from loops that nothing has changed"):
        fd.sched.schedule(SchedulerType.pointwise)


def test_caches_of_a_users_own_may_come_first() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        fd.add_output(fd.ops.exp(x))
    value = torch.rand(4, 64)
    fd._setup_schedule([value], overwrite_existing_schedule=True)
    fd.sched.set_memory_type(fd.sched.cache_after(x), MemoryType.shared)
    fd.sched.schedule(SchedulerType.pointwise)
    fd._finalize_schedule([value])
    [out] = fd.execute([value])
    assert_close(out, value.double().exp())
    assert "fw_smem" in fd.last_cuda_code()


# ---- what the compiler reads of params


def test_the_compiler_reads_edited_params() -> None:
    case = CASES["inner"]
    fd, inputs = _opened(case)
    params = fd.sched.compute_heuristics(case.scheduler)
    params.cparams.index_type = DataType.Int
    params.cparams.maxrregcount = 40
    fd.sched.schedule()
    fd._finalize_schedule(inputs)
    fd.execute(inputs)
    [kernel] = fd._last_kernels()
    assert kernel.index_dtype is DataType.Int
    assert kernel.params.cparams == CompileParams(DataType.Int, 40)
    assert kernel.register_limit == 40 and "__maxnreg__(40)" in kernel.cuda_text


def test_indices_too_narrow_for_the_inputs_are_refused() -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.exp(fd.define_tensor([-1, -1], contiguity=False)))
    fd._setup_schedule([torch.empty(1, 1).expand(2**16, 2**16 + 1)], overwrite_existing_schedule=True)
    params = fd.sched.compute_pointwise_heuristics()
    params.cparams.index_type = DataType.Int32
    with pytest.raises(ParamsError, match=r"`cparams\.index_type`: expected Int or None"):
        fd.sched.schedule()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: PointwiseParams(vectoriztion_factor=2), "unknown; did you mean vectorization_factor"),
        (lambda: PointwiseParams(bdimx=2), "unknown; did you mean lparams.bdimx"),
        (lambda: LaunchParams(blockdimx=2), "`blockdimx`: unknown; did you mean bdimx"),
        (lambda: PointwiseParams.space("h200"), "`hardware`: expected a HardwareInfo, got 'h200'"),
        (lambda: PointwiseParams().validate(3), "`hardware`: expected a HardwareInfo, got 3"),  # type: ignore[arg-type]
        (lambda: ReductionParams().validate(None), "`hardware`: expected a HardwareInfo, got None"),  # type: ignore[arg-type]
        (lambda: PointwiseParams.space(p.H200, points=-1), "`points`: expected 1 or more, or None, got -1"),
        (lambda: PointwiseParams.space(p.H200, base=3), "`base`: expected PointwiseParams or None, got 3"),
    ],
)
def test_wrong_arguments_of_params_are_named(make: Any, message: str) -> None:
    with pytest.raises(ParamsError) as caught:
        make()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "make, hint",
    [
        (lambda: LaunchParams(1, 2, 3, 4, 5, 6, 7), "too many positional arguments"),
        (lambda: LaunchParams(1, gdimx=2), "multiple values for argument 'gdimx'"),
    ],
)
def test_more_arguments_than_params_have_fields(make: Any, hint: str) -> None:
    with pytest.raises(ArgumentTypeError, match=rf"(?s)LaunchParams\(\).*\(gdimx, gdimy.*{hint}"):
        make()


@pytest.mark.parametrize(
    "params", [PointwiseParams(), ReductionParams(), LaunchParams()], ids=lambda p: type(p).__name__
)
def test_params_are_frozen(params: Any) -> None:
    """With slots, the method of a frozen dataclass fails in Python itself for an unknown name."""
    name = fields(params)[0].name
    before = to_dict(params)
    for change in (lambda: setattr(params, name, 2), lambda: delattr(params, name)):
        with pytest.raises(FrozenInstanceError) as caught:
            change()
        assert isinstance(caught.value, ParamsError) and "dataclasses.replace" in str(caught.value)
    for change in (lambda: setattr(params, name + "s", 2), lambda: delattr(params, name + "s")):
        with pytest.raises(ParamsError, match=f"`{name}s`: unknown; did you mean {name}"):
            change()
    assert to_dict(params) == before
