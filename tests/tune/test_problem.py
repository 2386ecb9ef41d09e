"""Problems: a kernel as data, from which a worker process makes the same kernel and checks its results."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.options import Options
from fusewright.frontend.tuned.problems import load, named_as_in_whole, problems_of
from fusewright.tune.journal import Status
from fusewright.tune.problem import Problem, TensorLike
from fusewright.tune.worker import Attempt, Best, Planned, Runner, params_text
from tests.tune.problems import CountingClock, column_sum

OPTIONS = Options()


def test_a_problem_is_the_same_after_json(tmp_path):
    problem = column_sum(tmp_path)
    again = Problem.from_dict(problem.to_dict())
    assert again.key == problem.key and again.bytes == problem.bytes == 8 * (12 * 8 + 8)
    assert dataclasses.replace(problem, name="other").key == problem.key
    assert column_sum(tmp_path, rows=13).key != problem.key


def test_a_tensor_like_another_has_its_strides_address_and_elements():
    memory = torch.arange(100)
    given = memory.as_strided((3, 4), (20, 2), 5)
    like = TensorLike.of(given)
    made = like.tensor(torch.device("cpu"), memory[5 : 5 + like.span])
    assert torch.equal(made, given) and made.stride() == given.stride()
    assert made.storage_offset() * 8 == like.offset == given.data_ptr() % 16


def test_each_segment_is_a_problem_with_its_own_inputs(tmp_path):
    index = torch.tensor([3, 0, 2])
    x = torch.rand(4, 64)
    with FusionDefinition() as fd:
        a, i = fd.from_pytorch(x), fd.from_pytorch(index)
        fd.add_output(fd.ops.sum(fd.ops.sum(a, dims=[0]), dims=[0]))
        fd.add_output(fd.ops.index_select(a, i, 0))
    problems = problems_of(fd, [x, index], None, "fusion 1", tmp_path)
    assert len(problems) > 1 and len({problem.key for problem in problems}) == len(problems)
    assert [problem.named("f").name for problem in problems] == [
        f"f, segment {i}" for i in range(len(problems))
    ]
    [gather] = [p for p in problems if any(isinstance(x, TensorLike) and x.values for x in p.inputs)]
    loaded = load(gather, torch.device("cpu"))
    assert any(torch.equal(x, index) for x in loaded.inputs)


def test_what_another_scheduler_computes_in_the_whole_is_another_problem(tmp_path):
    """Its params would not be those of the whole's kernel."""
    problem = column_sum(tmp_path)
    assert problem.facts is not None
    whole = dataclasses.replace(problem.facts, segment="of the whole")
    assert named_as_in_whole(problem, ("reduction", whole)).facts == whole
    assert named_as_in_whole(problem, ("inner_persistent", whole)) is problem


def test_finding_problems_changes_neither_inputs_nor_later_random_numbers(tmp_path):
    x = torch.rand(8 * 64 + 1)[1:].reshape(8, 64)
    before, start = x.clone(), torch.get_rng_state()
    with FusionDefinition() as fd:
        given = fd.from_pytorch(x)
        fd.add_output(fd.ops.sum(fd.ops.sum(fd.ops.dropout(given, 0.5)[0], dims=[0]), dims=[0]))
        fd.add_output(given * 2.0, given)
    problems = problems_of(fd, [x], None, "f", tmp_path)
    assert torch.equal(x, before) and torch.equal(torch.get_rng_state(), start)
    assert len(problems) == 2 and problems[0].inputs[0].offset == x.data_ptr() % 16 != 0


def test_a_configuration_is_refused_measured_or_wrong(tmp_path):
    problem = column_sum(tmp_path)
    planned = Planned(problem, load, OPTIONS)
    heuristic = planned.heuristic
    refused = planned.make(params_text(dataclasses.replace(heuristic, fastest_dim=not heuristic.fastest_dim)))
    assert refused.status is Status.REJECTED and "\n  at " not in refused.detail

    attempt = Attempt(problem, params_text(heuristic), "heuristic")
    runner = Runner(problem, load, OPTIONS, CountingClock())
    assert runner.run(attempt).seconds == 1.0
    assert runner.race([attempt.params]).copy_seconds == 1.0

    beside = dataclasses.replace(attempt, best=Best("{}", 1e-3), copy_seconds=3.0)
    clock = CountingClock()
    clock.beside = lambda call, copy, limit, *counts: 2.0 if limit == 1.5e-3 / 3.0 else 0.0
    ran = Runner(problem, load, OPTIONS, clock).run(beside)
    assert (ran.seconds, ran.copy_seconds) == (6.0, 3.0), (
        "by a copy that is the same for all, not by the best"
    )

    def misread(problem, device):
        """As if the kernel had computed something else: the reference has other inputs."""
        loaded = load(problem, device)
        if device.type != "meta":
            loaded.inputs[0].add_(1)
        return loaded

    wrong = Runner(problem, misread, OPTIONS, CountingClock()).run(attempt)
    assert wrong.status is Status.WRONG and "differs in 8 of 8 elements" in wrong.detail


def test_results_of_floats_may_be_those_of_sums_in_another_order(tmp_path):
    x = torch.rand(4096, 4)
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.sum(fd.from_pytorch(x), dims=[0]))
    [problem] = problems_of(fd, [x], None, "f", tmp_path)
    loaded = load(problem, torch.device("cpu"))
    [(absolute, relative)] = fd.getValTolerances([x])
    exact = loaded.inputs[0].double().sum(0)
    error = absolute + relative * exact.abs()
    loaded.check(lambda: [(exact + 4 * error).float()])
    with pytest.raises(AssertionError, match="differs in 4 of 4 elements"):
        loaded.check(lambda: [(exact + 20 * error).float()])


@pytest.mark.parametrize("dtype", [DataType.Float8_e4m3fn, DataType.Float8_e5m2])
def test_results_may_round_the_other_way(dtype, tmp_path):
    x = torch.rand(64, 64)
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.cast(fd.ops.abs(fd.from_pytorch(x)) * 100.0, dtype))
    [problem] = problems_of(fd, [x], None, "f", tmp_path)
    loaded = load(problem, torch.device("cpu"))
    right = (loaded.inputs[0].abs() * 100.0).to(dtype.torch)

    def steps_away(count: int) -> torch.Tensor:
        return (right.view(torch.uint8) + count).view(dtype.torch)

    loaded.check(lambda: [steps_away(1)])
    with pytest.raises(AssertionError, match="output 0 differs"):
        loaded.check(lambda: [steps_away(3)])
    with pytest.raises(AssertionError, match="output 0 differs"):  # for a definition's own results
        fd.validate(loaded.inputs, [steps_away(1)])


def test_a_few_integers_that_follow_from_floats_may_differ(tmp_path):
    x, y = torch.randn(64, 64), torch.randint(9, (64, 64))
    with FusionDefinition() as fd:
        given, whole = fd.from_pytorch(x), fd.from_pytorch(y)
        fd.add_output(fd.ops.cast(fd.ops.round(given * fd.ops.cast(whole, DataType.Float)), DataType.Int32))
        fd.add_output(given > 0.0)
        fd.add_output(whole + 1)
    problem = problems_of(fd, [x, y], None, "f", tmp_path)[0]
    loaded = load(problem, torch.device("cpu"))
    given, whole = loaded.inputs
    right = [(given * whole).round().int(), given > 0.0, whole + 1]

    def check(output: int, count: int) -> None:
        results = [each.clone() for each in right]
        flat = results[output].view(-1)
        flat[:count] = ~flat[:count] if flat.dtype == torch.bool else flat[:count] + 1
        loaded.check(lambda: results)

    check(0, 4)
    check(1, 4)
    for output, count in ((0, 5), (1, 5), (2, 1)):
        with pytest.raises(AssertionError, match=f"output {output} differs in {count} of 4096 elements"):
            check(output, count)


def test_results_are_right_where_calls_change_inputs_draw_numbers_and_start_anywhere(tmp_path):
    memory = torch.rand(8 * 64 + 1)
    x = memory[1:].reshape(8, 64)  # no vectors fit there
    with FusionDefinition() as fd:
        given, factor = fd.from_pytorch(x), fd.define_scalar(dtype=DataType.Double)
        doubled = fd.ops.dropout(given * factor, 0.5)[0]
        fd.add_output(doubled, given)
        fd.add_output(given + 1.0)
    [problem] = problems_of(fd, [x, 2.5], None, "f", tmp_path)
    planned = Planned(problem, load, OPTIONS)
    assert planned.heuristic.vectorization_factor == 1
    attempt = Attempt(problem, params_text(planned.heuristic), "heuristic")
    runner = Runner(problem, load, OPTIONS, CountingClock())
    for _ in range(2):  # the first call has changed the input
        assert runner.run(attempt).status is Status.MEASURED


@pytest.mark.gpu
def test_elements_that_are_not_stored_are_no_earlier_results(tmp_path):
    x = torch.rand(4096, 4096, device="cuda")
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.relu(fd.from_pytorch(x)))
    [problem] = problems_of(fd, [x], None, "relu", tmp_path)
    loaded = load(problem, torch.device("cuda", 0))
    loaded.check(lambda: [loaded.inputs[0].relu()])
    with pytest.raises(AssertionError, match="output 0 differs"):
        loaded.check(lambda: [torch.empty_like(loaded.inputs[0])])


@pytest.mark.gpu
def test_a_kernel_that_is_measured_on_the_gpu(tmp_path):
    from fusewright.tune.measure import Clock

    x = torch.rand(4096, 4096, device="cuda")
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.relu(fd.from_pytorch(x)))
    [problem] = problems_of(fd, [x], None, "relu", tmp_path)
    clock = Clock(torch.device("cuda", 0))
    heuristic = params_text(Planned(problem, load, OPTIONS).heuristic)
    ran = Runner(problem, load, OPTIONS, clock).run(Attempt(problem, heuristic, "heuristic"))
    assert ran.status is Status.MEASURED
    assert 0 < ran.seconds < 10 * clock.copy_seconds(problem.bytes)
