"""The partition for the sizes of a call: changes that lower its cost stay, all others are undone exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from fusewright.core.dtype import DataType
from fusewright.core.enums import SchedulerType
from fusewright.core.errors import RejectedError, SchedulerError
from fusewright.core.hardware import described
from fusewright.core.tracing import Tracer
from fusewright.ir import Fusion, Pointwise, Reduction, TensorView
from fusewright.ir.text import fusion_text
from fusewright.ops.build_elementwise import apply_to_tensor
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_reduction import sum_, var_mean
from fusewright.ops.build_shape import permute
from fusewright.ops.build_softmax import softmax
from fusewright.schedulers import (
    Cost,
    Facts,
    HeuristicParams,
    Proposal,
    Registry,
    Reject,
    Rewrite,
    default_registry,
)
from fusewright.segment import NO_EXCLUSIONS, Call, Partitions, Planned
from tests.segment.graphs import NEG, Graph, Rules, at_most, one_reduction

H200 = described("h200")


def call(size: int = 64, size_class: object = None) -> Call:
    """Of a fusion whose sizes are all equal."""
    sizes: dict = {}

    def facts(segment) -> Facts:
        sizes.update((symbol, size) for symbol in segment.fusion.size_symbols())
        return Facts(sizes, tuple((size, 1) for _ in segment.inputs), tuple(256 for _ in segment.inputs))

    return Call(size_class or size, lambda segments: None, facts, H200)


class Costed(Rules):
    """A scheduler by rule whose kernels take `seconds(fusion)`, and that proposes `rewrites`."""

    def __init__(
        self,
        rule: Callable[[Fusion], str],
        seconds: Callable[[Fusion], float],
        rewrites: Sequence[Callable] = (),
        type: SchedulerType = SchedulerType.pointwise,
        least: float = 0.0,
    ) -> None:
        super().__init__(rule, type)
        self.seconds = seconds
        self.rewrites = rewrites
        self.least = least

    def prepare(self, fusion: Fusion):
        answer = super().prepare(fusion)
        if isinstance(answer, Reject):
            return answer
        seconds = self.seconds(fusion)
        return lambda facts, hardware: Proposal(
            HeuristicParams(), lambda: Cost(0, seconds, self.least or seconds)
        )

    def propose_redefinition(self, part, facts, hardware) -> Rewrite | None:
        assert set(part.nodes) <= set(part.graph.nodes)
        return next((r for rewrite in self.rewrites if (r := rewrite(part)) is not None), None)


def labels(planned: Planned) -> list[list[str]]:
    return [[node.label for node in segment.fusion.nodes] for segment in planned.partition.segments]


def select(fusion: Fusion, *schedulers, size: int = 64) -> tuple[Planned, Partitions]:
    partitions = Partitions(fusion, Registry(list(schedulers)))
    before = fusion_text(fusion), fusion.numbering, fusion.edits
    planned = partitions.select(call(size), Tracer())
    assert (fusion_text(fusion), fusion.numbering, fusion.edits) == before
    return planned, partitions


def sum_first(name: str, label: str, then: Sequence[str]) -> Callable:
    """A rewrite of a pointwise node `label` to a chain of negations, as many as `then` has labels."""

    def propose(part) -> Rewrite | None:
        found = [node for node in part.nodes if node.label == label]
        if not found:
            return None

        def replace(graph: Fusion) -> dict[TensorView, TensorView]:
            node = found[0]
            value = node.inputs[0]
            for each in then:
                row = NEG.__class__(each, 1, NEG.rule, NEG.spellings)
                out = graph.new_tensor([graph.copy_axis(a) for a in node.output.shape], node.output.dtype)
                graph.add_node(Pointwise(row, (value,), out))
                value = out
            return {node.output: value}

        return Rewrite(name, replace, f"{label} is slow")

    return propose


def slow(*names: str) -> Callable[[Fusion], float]:
    """Ten seconds a node of these labels, one for any other, and one a kernel."""
    return lambda fusion: 1.0 + sum(10.0 if node.label in names else 1.0 for node in fusion.nodes)


def chain(length: int) -> Fusion:
    g = Graph()
    value = g.input()
    for _ in range(length):
        value = g.op(value)
    return g.output(value)


def test_a_rewrite_that_lowers_the_cost_stays():
    scheduler = Costed(lambda f: "", slow("neg"), [sum_first("faster", "neg", ["fast"])])
    planned, _ = select(chain(1), scheduler)
    assert labels(planned) == [["fast"]]
    [segment] = planned.partition.segments
    assert list(segment.inputs) == planned.partition.fusion.inputs
    assert planned.partition.trials[0].kept and "faster, as neg is slow" in str(planned.partition.trials[0])
    # Its result stands for the definition's.
    assert list(segment.outputs) == planned.partition.fusion.output_tensors()


def test_a_rewrite_that_does_not_is_undone_exactly():
    scheduler = Costed(lambda f: "", slow("slower"), [sum_first("slower", "neg", ["slower"])])
    fusion = chain(3)
    partitions = Partitions(fusion, Registry([scheduler]))
    before = partitions.structural(Tracer())
    draft = partitions._draft
    text, numbering = fusion_text(draft.graph), draft.graph.numbering
    planned = partitions.select(call(), Tracer())
    assert [trial.kept for trial in planned.partition.trials] == [False]
    assert (fusion_text(draft.graph), draft.graph.numbering) == (text, numbering)
    assert planned.partition.segments == before.segments


def test_what_stays_for_one_class_is_gone_for_the_next():
    scheduler = Costed(lambda f: "", slow("neg"), [sum_first("faster", "neg", ["fast"])])
    partitions = Partitions(chain(1), Registry([scheduler]))
    partitions.structural(Tracer())
    draft = partitions._draft
    text = fusion_text(draft.graph)
    for size in (64, 1024):
        assert labels(partitions.select(call(size), Tracer())) == [["fast"]]
        assert fusion_text(draft.graph) == text and not draft.made_by


def test_rewrites_that_enable_each_other_end():
    """neg -> a -> b -> a would go on for ever: no rewrite is applied to what one of its name made."""
    costs = {"neg": 9.0, "a": 8.0, "b": 7.0}
    scheduler = Costed(
        lambda f: "",
        lambda f: sum(costs[node.label] for node in f.nodes) + 2.0 * len(f.nodes),
        [sum_first("b to a", "b", ["a"]), sum_first("a to b", "a", ["b"]), sum_first("to a", "neg", ["a"])],
    )
    planned, _ = select(chain(1), scheduler)
    assert labels(planned) == [["b"]]
    assert [trial.kept for trial in planned.partition.trials] == [True, True, False]


def test_a_kernel_between_two_that_gains_nothing_is_not_made():
    """A -> B would become A -> C -> B, which costs one more kernel than C saves."""
    by_two = Costed(at_most(1), slow("neg"), [sum_first("two", "neg", ["a", "c"])])
    cheaper = Costed(at_most(1), lambda f: {"neg": 3.0, "a": 2.0, "c": 2.0}[next(iter(f.nodes)).label])
    cheaper.rewrites = by_two.rewrites
    planned, _ = select(chain(2), cheaper)
    assert labels(planned) == [["neg"], ["neg"]]
    [trial] = planned.partition.trials  # of one: what is no gain for it is none for its equal
    assert not trial.kept and trial.after == trial.before + 1.0


def test_neighbours_fuse_with_what_a_rewrite_made():
    """Apart while one of them is slow; a rewrite of it lets one kernel take both."""

    def rule(fusion: Fusion) -> str:
        return (
            "neg by itself" if len(fusion.nodes) > 1 and any(n.label == "neg" for n in fusion.nodes) else ""
        )

    g = Graph()
    a = g.op(g.input(), g.input())
    fusion = g.output(g.op(g.op(a), a))
    planned, _ = select(fusion, Costed(rule, slow("neg"), [sum_first("faster", "neg", ["fast"])]))
    assert labels(planned) == [["add", "fast", "add"]]


@pytest.mark.parametrize("kind", ["of another node", "of another type", "by what reads it"])
def test_a_rewrite_that_replaces_wrongly_is_an_error_of_its_scheduler(kind):
    def propose(part) -> Rewrite:
        def replace(graph: Fusion) -> dict:
            node = next(iter(part.nodes))
            if kind == "of another node":
                return {node.inputs[0]: node.output}
            if kind == "by what reads it":
                return {node.output: apply_to_tensor(graph, "neg", node.output)}
            return {node.output: graph.new_tensor([], node.output.dtype)}

        return Rewrite("wrong", replace, "it is")

    with pytest.raises(SchedulerError, match="_pointwise_ failed in propose_redefinition: wrong replaces"):
        select(chain(2), Costed(lambda f: "", slow("neg"), [propose]))


@pytest.mark.parametrize("where", ["replace", "planner"])
def test_an_error_in_the_middle_of_a_trial_leaves_the_graph_as_it_was(where):
    """Of a rewrite after one that was kept, and of whoever plans what it made."""
    calls: list[int] = []

    def propose(part) -> Rewrite | None:
        node = next((node for node in part.nodes if node.label == "neg"), None)
        if node is None:
            return None

        def replace(graph: Fusion) -> dict:
            calls.append(1)
            made = faster(part).replace(graph)
            if where == "replace" and len(calls) == 2:
                raise ValueError("half way")
            return made

        return Rewrite("faster", replace, "it is")

    def seconds(fusion: Fusion) -> float:
        if where == "planner" and any(node.label == "fast" for node in fusion.nodes):
            raise ValueError("half way")
        return 0.5 if any(node.label == "fast" for node in fusion.nodes) else 2.0

    faster = sum_first("faster", "neg", ["fast"])
    partitions = Partitions(chain(3), Registry([Costed(at_most(1), seconds, [propose])]))
    partitions.structural(Tracer())
    draft = partitions._draft
    before = fusion_text(draft.graph), draft.graph.numbering, list(draft.nodes)
    with pytest.raises(SchedulerError, match="ValueError: half way"):
        partitions.select(call(), Tracer())
    assert (fusion_text(draft.graph), draft.graph.numbering, list(draft.nodes)) == before
    assert not draft.made_by


def test_a_slow_segment_is_cut_up_where_nothing_may_be_rewritten():
    fast = Costed(at_most(1), lambda f: 2.0)
    whole = Costed(lambda f: "", lambda f: 100.0, type=SchedulerType.reduction, least=2.5)
    partitions = Partitions(chain(4), Registry([whole, fast]))
    planned = partitions.select(call(), Tracer(), NO_EXCLUSIONS.without_redefinition())
    assert len(planned.partition.segments) == 4


def test_what_an_undone_trial_made_is_kept_nowhere():
    scheduler = Costed(lambda f: "", slow("neg"), [sum_first("faster", "neg", ["fast"])])
    partitions = Partitions(chain(2), Registry([scheduler]))
    sizes = []
    for size in (64, 1024, 4096):
        partitions.select(call(size), Tracer())
        draft = partitions._draft
        sizes.append([len(kept) for kept in (draft._asked, draft._segments, draft._placed)])
    assert sizes[1] == sizes[2]


def test_a_segment_that_is_slow_is_cut_up_where_that_costs_less():
    fast = Costed(at_most(1), lambda f: 2.0)
    whole = Costed(
        lambda f: "",
        lambda f: 100.0 if len(f.nodes) > 3 else 2.5,
        type=SchedulerType.reduction,
        least=2.5,
    )
    assert len(select(chain(3), whole, fast)[0].partition.segments) == 1
    planned, _ = select(chain(4), whole, fast)
    assert len(planned.partition.segments) == 4


def two_sums(fusion: Fusion) -> bool:
    return sum(isinstance(node, Reduction) for node in fusion.nodes) == 2


@pytest.mark.parametrize("rows, length, two_passes", [(16384, 4096, True), (256, 4194304, False)])
def test_variance_takes_two_passes_where_the_row_is_held(rows, length, two_passes):
    fusion = Fusion()
    x = define_tensor(fusion, [-1, -1], True, DataType.Float)
    var, mean = var_mean(fusion, x, [1], 0, True)
    centred = apply_to_tensor(fusion, "sub", x, mean)
    add_output(fusion, apply_to_tensor(fusion, "mul", centred, apply_to_tensor(fusion, "rsqrt", var)))
    fusion.unify_extents()
    symbols = [axis.extent for axis in x.logical]
    sizes = dict(zip(symbols, (rows, length)))

    def facts(segment) -> Facts:
        ranks = [len(value.shape) if isinstance(value, TensorView) else 0 for value in segment.inputs]
        strides = tuple((length, 1)[2 - rank :] for rank in ranks)
        return Facts(sizes, strides, tuple(256 for _ in segment.inputs))

    of_call = Call((rows, length), lambda segments: None, facts, H200)
    planned = Partitions(fusion, default_registry()).select(of_call, Tracer())
    trials = [trial for trial in planned.partition.trials if "variance in two passes" in trial.change]
    assert trials and trials[0].kept == two_passes
    assert any(two_sums(segment.fusion) for segment in planned.partition.segments) == two_passes


def test_unused_rule_of_one_reduction_holds_after_changes():
    """What schedulers refused before a change they are asked about again where it concerns them, alone."""
    g = Graph()
    x = g.input()
    fusion = g.output(g.op(g.sum(g.op(x))), g.op(x))
    scheduler = Costed(one_reduction, slow("neg"), [sum_first("faster", "neg", ["fast"])])
    planned, _ = select(fusion, scheduler)
    assert all(not one_reduction(segment.fusion) for segment in planned.partition.segments)


def large_call(fusion: Fusion, size: int = 4096) -> Call:
    """Of a fusion of constant sizes, all of whose inputs are dense matrices with rows of `size`."""

    def facts(segment) -> Facts:
        inputs = [v for v in segment.inputs if isinstance(v, TensorView)]
        return Facts({}, tuple((size, 1)[-v.ndim :] for v in inputs), tuple(256 for _ in inputs))

    return Call("large", lambda segments: None, facts, H200)


def test_a_sum_reads_what_another_kernel_transposed():
    """By itself it would store it along the wrong dimension, an element a sector."""
    fusion = Fusion()
    x = define_tensor(fusion, [4096, 4096], True, DataType.BFloat16)
    value = apply_to_tensor(fusion, "neg", permute(fusion, x, [1, 0]))
    add_output(fusion, value)
    add_output(fusion, sum_(fusion, value, [0]))
    planned = Partitions(fusion, default_registry()).select(large_call(fusion), Tracer())
    schedulers = [segment.scheduler.type for segment in planned.partition.segments]
    assert schedulers == [SchedulerType.transpose, SchedulerType.reduction]


def test_what_lies_across_memory_is_stored_by_no_reduction():
    """A gradient as it is and transposed, beside its sums of columns, and of all: tiles turn it."""
    fusion = Fusion()
    x = define_tensor(fusion, [4096, 4096], True, DataType.BFloat16)
    turned = apply_to_tensor(fusion, "neg", x)
    for value in (turned, permute(fusion, turned, [1, 0]), sum_(fusion, x, [0]), sum_(fusion, x, [0, 1])):
        add_output(fusion, value)
    planned = Partitions(fusion, default_registry()).select(large_call(fusion), Tracer())
    schedulers = [segment.scheduler.type for segment in planned.partition.segments]
    assert schedulers == [SchedulerType.transpose, SchedulerType.inner_outer]


def test_rows_are_held_once_their_operands_lie_along_them():
    """A softmax of x + y.t(). Each reduction could read both inputs again, but one kernel holds rows of the
    stored sum.
    """
    fusion = Fusion()
    x, y = (define_tensor(fusion, [4096, 4096], True, DataType.BFloat16) for _ in range(2))
    total = apply_to_tensor(fusion, "add", x, permute(fusion, y, [1, 0]))
    add_output(fusion, softmax(fusion, total, 1))
    planned = Partitions(fusion, default_registry()).select(large_call(fusion), Tracer())
    schedulers = [segment.scheduler.type for segment in planned.partition.segments]
    assert schedulers == [SchedulerType.transpose, SchedulerType.inner_persistent]


def test_a_reduction_reads_operands_across_memory_itself():
    """Whatever vectors divide: by squares of registers, or by tiles."""
    for size in (4096, 4095):
        fusion = Fusion()
        x, y = (define_tensor(fusion, [size, size], True, DataType.BFloat16) for _ in range(2))
        total = apply_to_tensor(fusion, "add", x, permute(fusion, y, [1, 0]))
        add_output(fusion, sum_(fusion, total, [1]))
        planned = Partitions(fusion, default_registry()).select(large_call(fusion, size), Tracer())
        schedulers = [segment.scheduler.type for segment in planned.partition.segments]
        assert schedulers == [SchedulerType.reduction], size


def test_parts_with_nothing_in_common_are_kernels_of_one_launch():
    """Nine updates of a few elements each: one kernel would do them one after the other."""
    fusion = Fusion()
    step = define_tensor(fusion, [], True, DataType.Float)
    for _ in range(9):
        x = define_tensor(fusion, [4096], True, DataType.BFloat16)
        for _ in range(8):
            x = apply_to_tensor(fusion, "truediv", x, step)
        add_output(fusion, x)
    planned = Partitions(fusion, default_registry()).select(large_call(fusion), Tracer())
    assert len(planned.partition.segments) == 9 and len(planned.partition.launches) == 1
    assert len({segment.text for segment in planned.partition.segments}) == 1


# ---- what planners reject


class Limited(Rules):
    """Takes everything, and its planner no more than `count` nodes of more than 100 elements a row."""

    def __init__(self, count: int) -> None:
        super().__init__(lambda fusion: "")
        self.count = count
        self.rejected = 0

    def prepare(self, fusion: Fusion):
        def planner(facts: Facts, hardware: object) -> Proposal | Reject:
            if len(fusion.nodes) > self.count and max(facts.sizes.values()) > 100:
                self.rejected += 1
                return Reject("too many nodes for long rows")
            seconds = 1.0 + len(fusion.nodes)
            return Proposal(HeuristicParams(), lambda: Cost(0, seconds, seconds))

        return planner


def sizes_of_segments(planned: Planned) -> list[int]:
    return [len(segment.nodes) for segment in planned.partition.segments]


@pytest.mark.parametrize(
    "length, count, found", [(3, 2, [1, 2]), (8, 4, [4, 4]), (8, 3, [2, 2, 2, 2]), (5, 1, [1] * 5)]
)
def test_a_rejected_group_is_cut_in_two_until_its_parts_are_accepted(length, count, found):
    scheduler = Limited(count)
    planned, partitions = select(chain(length), scheduler, size=1000)
    assert sorted(sizes_of_segments(planned)) == found
    assert scheduler.rejected <= 2 * length
    assert sizes_of_segments(partitions.select(call(64), Tracer())) == [length], "short rows are one kernel"


def test_a_rejected_group_is_cut_where_the_least_crosses():
    """One value is all that three nodes hand to the five that follow; four and four would share two."""
    g = Graph()
    joined = g.op(g.op(g.input()), g.op(g.input()))
    c, d = g.op(joined), g.op(joined)
    e = g.op(c, d)
    planned, _ = select(g.output(g.op(e), g.op(e, d)), Limited(5), size=1000)
    assert sizes_of_segments(planned) == [3, 5]
    assert planned.partition.segments[0].outputs == (joined,)


def test_a_rejected_group_that_no_cut_helps_is_an_error_soon():
    scheduler = Limited(0)
    with pytest.raises(RejectedError, match="too many nodes for long rows"):
        select(chain(40), scheduler, size=1000)
    assert scheduler.rejected < 400
