"""Calls with new sizes that are decided as calls before them were: the same as what planners decide."""

import random

import pytest
import torch

from fusewright import FusionCache, FusionDefinition
from fusewright.core.dtype import DataType
from fusewright.core.errors import ScheduleError
from fusewright.core.recorded import Recorder
from fusewright.host.kernels.recall import Recall
from fusewright.host.reuse.recorded_calls import MAX_RECORDINGS
from fusewright.runtime.targets import SimulatedTarget
from fusewright.schedulers import Proposal
from fusewright.schedulers.pointwise.heuristic import PointwisePlanner


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch):
    monkeypatch.setattr(SimulatedTarget, "launcher", lambda *_: lambda *_: None)


@pytest.fixture
def recalled(monkeypatch):
    """Whether each call was found among recorded ones."""
    found = []
    recall = Recall.find

    def noted(*args):
        program = recall(*args)
        found.append(program is not None)
        return program

    monkeypatch.setattr(Recall, "find", noted)
    return found


def scaled(fd, rank=2):
    x, y = fd.define_tensor([-1] * rank), fd.define_tensor([-1])
    fd.add_output(fd.ops.relu(x) * fd.ops.broadcast_in_dim(y, [x.size(0), x.size(1)], [1]))


def softmax(fd):
    x = fd.define_tensor([-1, -1], dtype=DataType.BFloat16)
    fd.add_output(fd.ops.cast(fd.ops.softmax(fd.ops.cast(x, DataType.Float), 1), DataType.BFloat16))


def column_sums(fd):
    x = fd.define_tensor([-1, -1], contiguity=False)
    fd.add_output(fd.ops.sum(x, [0]))


def transposed(fd):
    x, y = fd.define_tensor([-1, -1]), fd.define_tensor([-1, -1])
    fd.add_output(fd.ops.permute(x, [1, 0]) + y)


def transposed_alone(fd):
    fd.add_output(fd.ops.neg(fd.ops.permute(fd.define_tensor([-1, -1]), [1, 0])))


def halves(fd):
    x = fd.define_tensor([-1, -1])
    half = x.size(1) / fd.define_scalar(2)
    fd.add_output(fd.ops.neg(x))
    fd.add_output(fd.ops.sum(fd.ops.slice(x, [0, 0], [8, 8]), [0, 1]) * half)


def written(fd):
    x, y = fd.define_tensor([-1, -1]), fd.define_tensor([-1, -1])
    fd.add_output(x + y, alias_input=x)
    fd.add_output(fd.ops.max(y, [1]))


def running_sums(fd):
    fd.add_output(fd.ops.cumsum(fd.define_tensor([-1, -1]), 1))


def normalized_running_sums(fd):
    fd.add_output(fd.ops.cumsum(fd.ops.softmax(fd.define_tensor([-1, -1]), 1), 1))


def few_rows_in_another_order(fd):
    """Whose stores, which lie apart, count as sectors in estimates that are compared."""
    x = fd.define_tensor([-1, -1], dtype=DataType.BFloat16, stride_order=[0, 1])
    fd.add_output(fd.ops.erf(fd.ops.softmax(x, 0)), stride_order=[1, 0])


def softmax_of_columns(fd):
    fd.add_output(fd.ops.softmax(fd.define_tensor([-1, -1]), 0))


def both_sums(fd):
    x = fd.define_tensor([-1, -1])
    fd.add_output(fd.ops.sum(x, [0]))
    fd.add_output(fd.ops.sum(x, [1]))


def gradients(fd):
    """Of rows that are centered, and of weights."""
    x, dy = fd.define_tensor([-1, -1]), fd.define_tensor([-1, -1])
    fd.add_output(dy - fd.ops.mean(dy * x, [1], True) * x)
    fd.add_output(fd.ops.sum(dy * x, [0]))


def rows(generator, *ranks):
    n, m = generator.choice([(100, 64), (7, 513), (300, 96)])
    n += generator.randrange(0, 20)
    return n, m + 8 * generator.randrange(0, 6) * (m % 2 == 0)


def of_matrix(*dtypes, transposed=False, vector=False):
    def make(generator):
        n, m = rows(generator)
        shapes = [(n, m)] * len(dtypes)
        shapes[0] = (m, n) if transposed else (n, m)
        tensors = [torch.empty(shape, dtype=dtype) for shape, dtype in zip(shapes, dtypes)]
        return [*tensors, torch.empty(m)] if vector else tensors

    return make


def in_rows(generator):
    """A matrix of every so many-th row of a longer one, or of the first columns of a wider one."""
    n, m = rows(generator)
    wide = torch.empty(2 * n, m + 24)
    return [generator.choice([wide[::2, :m], wide[:n, 8 : 8 + m], torch.empty(m, n).t()])]


def few_columns(generator):
    length = 8 * (60 + generator.randrange(0, 60))
    return [torch.empty(8 + generator.randrange(0, 4), length, dtype=torch.bfloat16).t()]


def odd_sizes(generator):
    """Of no vectors, and of so many tiles that the one with the least work is searched."""
    return [torch.empty(2 * generator.randrange(20000, 20300) + 1, 67)]


f32 = torch.float32
CASES = {
    "pointwise": (scaled, of_matrix(f32, vector=True)),
    "rows": (softmax, of_matrix(torch.bfloat16)),
    "columns of any strides": (column_sums, in_rows),
    "transposes": (transposed, of_matrix(f32, f32, transposed=True)),
    "transposes by element": (transposed_alone, odd_sizes),
    "sizes that the host computes": (halves, of_matrix(f32)),
    "written in place": (written, of_matrix(f32, f32)),
    "scans": (running_sums, of_matrix(f32)),
    "scans of held rows": (normalized_running_sums, of_matrix(f32)),
    "rows in another order": (few_rows_in_another_order, few_columns),
    "held columns": (softmax_of_columns, of_matrix(f32)),
    "rows and columns": (both_sums, of_matrix(f32)),
    "gradients": (gradients, of_matrix(f32, f32)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.sampled(0.5)
def test_recorded_decisions_are_those_of_planners(case, recalled):
    define, inputs_of = CASES[case]
    with FusionDefinition() as fd:
        define(fd)
    executor = FusionCache.get().schedules(fd.id()).executor
    generator = random.Random(case)
    calls = 90
    for _ in range(calls):
        inputs, decided = inputs_of(generator), len(recalled)
        outputs = fd.execute(inputs)
        if (
            len(recalled) == decided
        ):  # an equal call has its program, made when its sizes may have been stable
            continue
        program, planned = executor.last_program, executor.planned(inputs)
        assert [launch.op.kernel.params for launch in program.launches] == [
            proposal.params for proposal in planned.proposals
        ]
        assert [launch.segment.index for launch in program.launches] == [s.index for s in planned.segments]
        binding = executor._binder.bind(inputs, None)
        assert vars(program.binding) == vars(binding)
        assert all(output.is_contiguous() for output in outputs)
    assert sum(recalled) > 0.25 * calls


def test_the_second_call_of_a_kind_is_recorded(recalled):
    with FusionDefinition() as fd:
        scaled(fd)
    for size in (300, 316, 332, 348, 364):
        fd.execute([torch.empty(size, 64), torch.empty(64)])
    # The first call of a kind is not recorded: many have no other.
    assert recalled == [False, False, True, True, True]
    fd.execute([torch.empty(700, 64), torch.empty(64)])  # of another magnitude
    fd.execute([torch.empty(305, 64)[1:].view(304, 64), torch.empty(65)[1:]])  # at other addresses
    fd.execute([torch.empty(310, 72), torch.empty(72)])  # a size that was stable
    assert recalled[5:] == [False] * 3
    fd.execute([torch.empty(310, 64), torch.empty(64)])
    assert recalled[-1] is False  # whose kernel is another now that no size is stable


def test_recordings_are_few(recalled, monkeypatch):
    """Decisions that depend on each size are made anew, and not recorded without end."""
    recorded = []

    def never(self, result):
        recorded.append(result)
        return lambda numbers: None

    monkeypatch.setattr(Recorder, "compiled", never)
    with FusionDefinition() as fd:
        scaled(fd)
    for size in range(300, 340):
        fd.execute([torch.empty(size, 64), torch.empty(64)])
    assert not any(recalled) and len(recorded) == MAX_RECORDINGS


@pytest.mark.faults
def test_planners_that_hash_sizes_are_a_fault_and_asked_at_each_call(recalled, monkeypatch, caplog):
    plan = PointwisePlanner.__call__
    seen = set()

    def by_size(self, facts, hardware):
        seen.update(facts.sizes.values())
        return plan(self, facts, hardware)

    monkeypatch.setattr(PointwisePlanner, "__call__", by_size)
    with FusionDefinition() as fd:
        scaled(fd)
    for size in range(300, 320):
        fd.execute([torch.empty(size, 64), torch.empty(64)])
    assert not any(recalled) and seen == {*range(300, 320), 64}
    [fault] = caplog.records
    assert "a call cannot be recorded: unhashable type: 'Number'" in fault.getMessage()


def test_heuristics_of_users_are_asked_at_each_call(recalled):
    from fusewright.schedulers import default_registry

    asked = []

    class Counting:
        type = "counting"

        def __init__(self, inner):
            self._inner = inner
            self.params_type = inner.params_type

        def prepare(self, fusion):
            planner = self._inner.prepare(fusion)
            if not callable(planner):
                return planner

            def counted(facts, hardware):
                asked.append(facts.sizes)
                answer = planner(facts, hardware)
                return Proposal(answer.params) if isinstance(answer, Proposal) else answer

            return counted

        def apply(self, schedule, params):
            self._inner.apply(schedule, params)

    registry = default_registry().copy()
    [pointwise] = [each for each in registry if each.type == "pointwise" or each.type.name == "pointwise"]
    registry = type(registry)([Counting(pointwise)])
    with FusionDefinition(registry=registry) as fd:
        scaled(fd)
    for size in range(300, 320):
        before = len(asked)
        fd.execute([torch.empty(size, 64), torch.empty(64)])
        assert len(asked) > before
    assert not any(recalled)


def test_a_kernel_that_cannot_be_launched_is_decided_anew(recalled, monkeypatch):
    """Whatever was recorded: the steps of a call whose launch is refused are found as if nothing had been."""
    with FusionDefinition() as fd:
        scaled(fd)
    for size in (300, 316, 332, 348):
        fd.execute([torch.empty(size, 64), torch.empty(64)])
    refused = []

    def once(self, *args):
        if not refused:
            refused.append(self)
            raise ScheduleError("does not fit")
        return lambda *_: None

    monkeypatch.setattr(SimulatedTarget, "launcher", once)
    [out] = fd.execute([torch.empty(364, 64), torch.empty(64)])
    assert out.shape == (364, 64) and recalled[-2:] == [True, False] and refused
