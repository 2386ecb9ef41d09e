"""Schedulers and heuristics that users add to the default registry, for good and for a block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import fusewright
from fusewright import FusionDefinition, PointwiseParams, SchedulerType
from fusewright.core.enums import ParallelType
from fusewright.core.errors import (
    ArgumentTypeError,
    OptionError,
    ParamsError,
    RegistrationError,
    SchedulerError,
)
from fusewright.core.hardware import HardwareInfo
from fusewright.core.options import Options
from fusewright.frontend.tuned.problems import load, problems_of
from fusewright.ir import Fusion, Reduction
from fusewright.runtime.identity import plugin_digest
from fusewright.schedule import Schedule
from fusewright.schedulers import (
    Facts,
    HeuristicParams,
    LaunchParams,
    PointwiseScheduler,
    Proposal,
    Registry,
    Reject,
    choice,
    counts,
    default_registry,
)
from fusewright.tune.worker import Planned, params_text


@dataclass(frozen=True, slots=True)
class RowParams(HeuristicParams):
    threads: int = choice(32, counts(1, 1024))


class Rows:
    """A block for each row of an output of two dimensions."""

    type = "rows"
    params_type: Any = RowParams
    proposed: Any = RowParams(lparams=LaunchParams(bdimx=32))

    def prepare(self, fusion: Fusion) -> Any:
        if any(isinstance(node, Reduction) for node in fusion.nodes):
            return Reject("there is a reduction")
        return lambda facts, hardware: Proposal(self.proposed)

    def apply(self, schedule: Schedule, params: RowParams) -> None:
        [output] = schedule.fusion.output_tensors()
        schedule.split(output, 1, params.threads)
        schedule.parallelize(output, 0, ParallelType.grid_x)
        schedule.parallelize(output, 2, ParallelType.block_x)
        schedule.transform_like(output)
        schedule.parallelize_like(output)


class Doubled(FusionDefinition):
    def definition(self) -> None:
        self.add_output(self.define_tensor([-1, -1], True) * 2.0)


def kernel(fd: FusionDefinition, columns: int = 64) -> str:
    """The CUDA text that a call runs, whose result is right."""
    value = torch.randn(4, columns)
    [out] = fd.execute([value])
    assert torch.equal(out, value * 2)
    return fd.last_cuda_code()


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = default_registry().current
    yield
    assert [type(s) for s in default_registry()] == [type(s) for s in before]


def test_a_registered_scheduler_takes_part_in_definitions_that_ran_before() -> None:
    fd, params = Doubled(), []
    assert "fusewright_pointwise_" in kernel(fd)
    assert fusewright.register_scheduler(before="pointwise")(Rows) is Rows
    try:
        assert "fusewright_rows_" in kernel(fd) and "fusewright_rows_" in kernel(Doubled())
        assert [s.type for s in default_registry()].index("rows") == 3
        with pytest.raises(
            RegistrationError, match="scheduler rows: there is one of this type, of class Rows"
        ):
            fusewright.register_scheduler(Rows)

        class Scheduled(Doubled):
            def schedule(self) -> None:
                found = self.sched.compute_heuristics("rows")
                found.threads = 64
                params.append(found.freeze())
                self.sched.schedule(found)

        kernel(Scheduled())
        assert params[0].threads == 64
    finally:
        fusewright.unregister_scheduler("rows")
    assert "fusewright_pointwise_" in kernel(fd)
    with pytest.raises(OptionError, match="unknown scheduler"):
        fusewright.unregister_scheduler("rows")


def test_a_block_registers_and_a_definition_with_a_registry_of_its_own_is_not_concerned() -> None:
    own = Doubled(registry=default_registry().copy())
    with fusewright.registered_scheduler(Rows) as rows:
        fd = Doubled()
        assert "fusewright_rows_" in kernel(fd)
        assert default_registry().current[0] is rows
        assert "fusewright_pointwise_" in kernel(own)
    assert "fusewright_rows_" in fd.last_cuda_code()  # what ran last
    assert "fusewright_pointwise_" in kernel(fd)


def test_a_plugin_is_a_scheduler_in_all_that_uses_one(tmp_path: Path) -> None:
    """It is not asked about what torch computes; its kernels replay, take dicts, are swept, and called."""

    def made() -> FusionDefinition:
        with FusionDefinition() as fd:
            x, w = fd.define_tensor([-1, -1], True), fd.define_tensor([-1, -1], True)
            fd.add_output(fd.ops.matmul(fd.ops.exp(x), w))
        return fd

    def unnamed(fd: FusionDefinition, **given: Any) -> str:
        kernel = fd.kernels_for(inputs, **given)[0]
        return kernel.cuda_text.replace(kernel.name, "")

    inputs = [torch.randn(4, 64), torch.randn(64, 8)]
    with fusewright.registered_scheduler(Rows):
        fd = made()
        expected = fd.execute(inputs)
        assert [kernel.scheduler for kernel in fd.kernels_for(inputs)] == ["rows", "expr_eval"]
        names: dict[str, Any] = {"ParallelType": ParallelType}
        exec(fd.last_schedule(), names)
        pasted = made()
        pasted.schedule = lambda: names["schedule"](pasted)  # type: ignore[method-assign]
        torch.testing.assert_close(pasted.execute(inputs), expected, rtol=0, atol=0)
        assert unnamed(pasted) == unnamed(fd) and pasted.last_schedule() == fd.last_schedule()
        wide = fd.kernels_for(inputs, schedules={0: {"scheduler": "rows", "threads": 64}})[0]
        assert wide.params == replace(Rows.proposed, threads=64)
        with pytest.raises(ParamsError, match=r"`schedules\[0\].threads`: expected int, got '64'"):
            fd.kernels_for(inputs, schedules={0: {"threads": "64"}})
        with FlopCounterMode(display=False):  # as one operation of torch
            torch.testing.assert_close(fd.execute(inputs), expected, rtol=0, atol=0)

        [problem] = problems_of(fd, inputs, None, "rows", tmp_path)
        assert problem.scheduler == "rows" and problem.modules == (__name__,)
        planned = Planned(problem, load, Options())
        assert planned.make(params_text(wide.params)).kernel == wide.name


class NoType(Rows):
    type: Any = ""


class NoParams(Rows):
    params_type = int


class NoApply(Rows):
    apply: Any = None


class Arguments(Rows):
    def __init__(self, threads: int) -> None:
        self.threads = threads


@pytest.mark.parametrize(
    "scheduler, text",
    [
        (NoType, "NoType as a scheduler: expected `type` to be its name"),
        (
            NoParams,
            "expected `params_type` to be a frozen dataclass that extends HeuristicParams, got <class 'int'>",
        ),
        (NoApply, r"expected `apply` to be a method \(schedule, params\), got None"),
        (Arguments, "the class Arguments: it cannot be made without arguments: TypeError"),
        (PointwiseScheduler, "the scheduler pointwise: there is one of this type"),
    ],
)
def test_what_cannot_be_registered(scheduler: Any, text: str) -> None:
    with pytest.raises(RegistrationError, match=text):
        fusewright.register_scheduler(scheduler)


def answering(step: str, answer: Any) -> Rows:
    """A scheduler whose step returns the answer, or raises it."""

    def give(*_: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    rows: Any = Rows()
    if step == "planner":
        rows.prepare = lambda fusion: give
    else:
        setattr(rows, step, give)
    return rows


@pytest.mark.parametrize(
    "step, answer, text",
    [
        ("prepare", None, "prepare: expected a planner or Reject, got None"),
        ("prepare", Reject, "prepare: expected a planner or Reject, got <class"),
        ("prepare", KeyError("x"), "prepare: KeyError: 'x'"),
        ("planner", None, "planner: expected Proposal or Reject, got None"),
        ("planner", ZeroDivisionError("x"), "planner: ZeroDivisionError: x"),
        ("planner", Proposal(HeuristicParams()), r"planner: expected params of type RowParams, got Heur"),
        (
            "planner",
            Proposal(RowParams(threads=0)),
            "planner: ParamsError: `threads`: expected 1 to 1024, got 0",
        ),
        ("planner", Proposal(RowParams(), lambda: 1.0), "estimate: expected a Cost, got 1.0"),  # type: ignore[arg-type,return-value]
        ("propose_redefinition", 3, "propose_redefinition: expected Rewrite or None, got 3"),
        ("apply", IndexError("x"), "apply: IndexError: x"),
    ],
)
def test_a_wrong_answer_or_an_error_names_the_scheduler_and_the_method(
    step: str, answer: Any, text: str
) -> None:
    with (
        fusewright.registered_scheduler(answering(step, answer)),
        pytest.raises(SchedulerError, match=f"Scheduler _rows_ failed in {text}"),
    ):
        Doubled().execute([torch.randn(4, 64)])


def test_an_error_of_apply_by_hand_names_the_scheduler_and_wrong_params_are_the_users() -> None:
    class Edited(Doubled):
        params: Any = None

        def schedule(self) -> None:
            self.sched.schedule(self.params)

    for scheduler, params, error, text in (
        (answering("apply", IndexError("x")), RowParams(), SchedulerError, "failed in apply: IndexError: x"),
        (answering("apply", ParamsError("mine")), RowParams(), ParamsError, "mine"),
        (Rows(), RowParams(threads=0), ParamsError, "`threads`: expected 1 to 1024, got 0"),
    ):
        fd = Edited()
        fd.params = params
        with fusewright.registered_scheduler(scheduler), pytest.raises(error, match=text):
            fd.execute([torch.randn(4, 64)])


def test_a_registry_is_a_registry() -> None:
    with pytest.raises(ArgumentTypeError, match="registry: Registry"):
        FusionDefinition(registry=[Rows()])  # type: ignore[arg-type]


def test_the_name_of_a_kernel_tells_the_sources_of_its_scheduler() -> None:
    def written(body: str) -> type:
        """As at a prompt: in no file."""
        names: dict[str, Any] = {"__name__": "nowhere"}
        exec(f"class Mine:\n    def apply(self): return {body}\n", names)
        return names["Mine"]  # type: ignore[no-any-return]

    first, same, other = (plugin_digest(written(body)) for body in ("1", "1", "2"))
    assert first == same != other
    assert plugin_digest(Rows) != plugin_digest(NoType)


# ---- heuristics --------------------------------------------------------------------------------------------


def narrow(facts: Facts, hardware: HardwareInfo, default: Any) -> Any:
    return {"vectorization_factor": 1, "lparams": {"bdimx": 64}}


def test_a_heuristic_changes_what_the_default_chooses_and_says_so() -> None:
    fd = Doubled()
    usual = kernel(fd)
    with fusewright.heuristics({SchedulerType.pointwise: narrow}):
        changed = kernel(fd)
        assert changed != usual and "fusewright_pointwise_" in changed
        [made] = fd._last_kernels()
        assert (made.params.vectorization_factor, made.params.lparams.bdimx) == (1, 64)
        assert made.reason.startswith("chosen by the heuristic narrow (changed lparams.bdimx ")
        assert "vectorization_factor 4 -> 1; without it: " in made.reason

        def wider(facts: Facts, hardware: HardwareInfo, default: Any) -> Any:
            params = default(facts, hardware)
            assert params.lparams.bdimx == 64  # the default is the heuristic before
            return replace(params, lparams=LaunchParams(bdimx=32), reason="a warp is enough")

        with fusewright.heuristics({"pointwise": wider}):
            kernel(fd)
            [made] = fd._last_kernels()
            assert made.params.lparams.bdimx == 32
            assert made.reason.startswith("chosen by the heuristic test_a_heuristic_changes_what")
            assert ": a warp is enough (changed lparams.bdimx 64 -> 32; without it: " in made.reason
        assert kernel(fd) == changed
    assert kernel(fd) == usual


def test_a_schedule_function_is_asked_again_with_other_heuristics_and_what_it_did_not_write_stays() -> None:
    class Scheduled(Doubled):
        def schedule(self) -> None:
            self.sched.schedule("pointwise")

    by_hand, written = Doubled(), Scheduled()
    inputs = [torch.randn(4, 64)]
    by_hand._setup_schedule(inputs)
    by_hand.sched.schedule("pointwise")
    by_hand._finalize_schedule(inputs)
    usual = kernel(written)
    assert kernel(by_hand) == usual
    with fusewright.heuristics({"pointwise": narrow}):
        assert kernel(written) != usual
        assert kernel(by_hand) == usual
    assert kernel(written) == usual


def test_a_heuristic_for_good_is_asked_by_hand_too() -> None:
    assert fusewright.heuristic("pointwise")(narrow) is narrow
    try:
        fd = Doubled()
        fd._setup_schedule([torch.randn(4, 64)])
        assert fd.sched.compute_pointwise_heuristics().vectorization_factor == 1
    finally:
        fusewright.remove_heuristic("pointwise", narrow)
    with pytest.raises(RegistrationError, match="is no heuristic of the scheduler pointwise"):
        fusewright.remove_heuristic("pointwise", narrow)
    with pytest.raises(OptionError, match="unknown scheduler"):
        fusewright.heuristic("matrix")
    with pytest.raises(OptionError, match="unknown scheduler"):
        fusewright.register_scheduler(before="matrix")
    with pytest.raises(RegistrationError, match="the name of a public method"):
        fusewright.register_op(name="1st")
    with pytest.raises(RegistrationError, match=r"a function of \(facts, hardware, default\), got 3"):
        fusewright.heuristic("pointwise")(3)  # type: ignore[type-var]


def test_a_registry_of_ones_own_has_heuristics_of_its_own() -> None:
    registry = Registry([PointwiseScheduler()])
    registry.add_heuristic("pointwise", narrow)
    fd = Doubled(registry=registry)
    own = kernel(fd)
    assert own != kernel(Doubled())
    registry.remove_heuristic("pointwise", narrow)
    assert kernel(fd) != own


@pytest.mark.parametrize(
    "answer, text",
    [
        (None, "narrow: expected PointwiseParams, a dict of its fields, Proposal or Reject, got None"),
        (HeuristicParams(), "narrow: expected PointwiseParams"),
        ({"vector": 2}, "narrow: ParamsError: `vector`"),
        ({"lparams": {"bdimx": "2"}}, "narrow: ParamsError: `lparams.bdimx`: expected `?int"),
        (PointwiseParams(vectorization_factor=3), "narrow: ParamsError: .*must be a power of 2"),
        (ValueError("x"), "narrow: ValueError: x"),
    ],
)
def test_a_wrong_heuristic_is_named(answer: Any, text: str) -> None:
    def wrong(*_: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    wrong.__qualname__ = "narrow"
    with (
        fusewright.heuristics({"pointwise": wrong}),
        pytest.raises(SchedulerError, match=f"Scheduler _pointwise_ failed in the heuristic {text}"),
    ):
        Doubled().execute([torch.randn(4, 64)])


def test_params_of_a_heuristic_that_a_fusion_cannot_take_name_it() -> None:
    def deep(*_: Any) -> Any:
        return {"break_point": 7}

    with (
        fusewright.heuristics({"pointwise": deep}),
        pytest.raises(
            SchedulerError, match=r"_pointwise_ failed in apply, with params of the heuristic .*deep: "
        ),
    ):
        Doubled().execute([torch.randn(4, 64)])
