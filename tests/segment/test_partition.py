"""The partition: right, deterministic, minimal in simple cases, and cheap on large graphs."""

from __future__ import annotations

import random
import time

import pytest

from fusewright.core.enums import SchedulerType
from fusewright.core.errors import NoSchedulerError, ScheduleError
from fusewright.ir import Copy, Fusion, Reduction, TensorView
from fusewright.schedulers import ExprEvalScheduler
from fusewright.segment import NO_EXCLUSIONS, Exclusions, Segment, SegmentedFusion, partition
from tests.segment.graphs import Graph, Rules, at_most, names, one_reduction


def check(result: SegmentedFusion) -> None:
    """Every needed node is in one segment, and segments read only what earlier ones or the caller made."""
    fusion = result.fusion
    available = set(fusion.inputs)
    available |= {out for node in result.scalar_nodes for out in node.outputs}
    shown: list[str] = []
    for segment in result.segments:
        assert set(segment.inputs) <= available
        available |= set(segment.outputs)
        assert [segment.to_segment[v] for v in segment.inputs] == segment.fusion.inputs
        assert [segment.to_segment[v] for v in segment.outputs] == segment.fusion.output_tensors()
        shown += [out.name for node in segment.nodes for out in node.outputs]
    needed = [n for n in fusion.ordered_nodes() if not n.is_scalar]
    # A segment may compute again what another one computes, or leave out what is computed elsewhere instead.
    assert set(shown) <= {out.name for node in needed for out in node.outputs}
    assert {o.tensor for o in fusion.outputs} <= available


def computed(segment: Segment) -> set[str]:
    return {out.name for node in segment.nodes for out in node.outputs}


def test_whole_fusion_is_asked_about_first():
    g = Graph()
    x = g.input()
    fusion = g.output(g.op(g.op(x), x))
    scheduler = Rules(lambda f: "")
    result = partition(fusion, [scheduler])
    check(result)
    assert len(result.segments) == 1 and scheduler.calls == 1


def test_a_segment_is_the_fusion_that_was_taken():
    """It is not extracted and rewritten again."""
    g = Graph()
    x = g.input()
    g.output(g.sum(g.op(x)))
    fusion = g.output(g.op(g.op(g.sum(g.op(x)))))
    taken: list[Fusion] = []

    def accept(candidate: Fusion) -> str:
        reason = one_reduction(candidate)
        if not reason:
            taken.append(candidate)
        return reason

    result = partition(fusion, [Rules(accept)])
    check(result)
    assert all(segment.fusion in taken for segment in result.segments)


def test_reduction_then_pointwise_is_two_segments():
    g = Graph()
    x, y = g.input(), g.input()
    s = g.sum(g.op(x))
    out = g.op(s, y)
    result = partition(g.output(out), [Rules(one_reduction)])
    check(result)
    first, second = result.segments
    assert names(first.inputs) == [x.name] and names(first.outputs) == [s.name]
    assert names(second.inputs) == [s.name, y.name] and names(second.outputs) == [out.name]


def test_merging_never_makes_a_cycle():
    # a -> s -> out and a -> out: {a, out} without s would need s and be needed by it.
    g = Graph()
    a = g.op(g.input())
    s = g.sum(a)
    result = partition(g.output(g.op(a, s)), [Rules(one_reduction)])
    check(result)
    assert len(result.segments) == 2


def test_border_tensor_loses_reduced_axes_and_becomes_contiguous():
    g = Graph()
    s = g.sum(g.input())
    result = partition(g.output(g.op(s)), [Rules(one_reduction)])
    border = result.segments[1].to_segment[s]
    assert isinstance(border, TensorView)
    assert border.extents == s.extents and not border.is_reduction
    assert border.contiguity == (True,) and border.definition is None
    assert [a.extent for a in border.logical] == [g.extents[0]]


def test_forced_boundary_stands_although_a_scheduler_takes_everything():
    g = Graph()
    a = g.op(g.input())
    b = g.boundary(a)
    result = partition(g.output(g.op(b, a)), [Rules(lambda f: "")])
    check(result)
    assert len(result.segments) == 2
    assert names(result.segments[0].outputs) == [a.name]
    copies = [n for s in result.segments for n in s.fusion.nodes if isinstance(n, Copy)]
    assert [c.segment for c in copies] == [False]


def test_scalars_are_computed_on_the_host():
    g = Graph()
    x, d = g.input(), g.scalar()
    e = g.scalar_op(g.scalar_op(d))
    result = partition(g.output(g.op(x, e)), [Rules(lambda f: "")])
    check(result)
    assert [n.outputs[0] for n in result.scalar_nodes][-1] is e
    assert result.segments[0].inputs == (x, e)


def test_siblings_that_read_one_tensor_are_merged():
    g = Graph()
    x = g.input()
    result = partition(g.output(g.sum(x), g.op(x), g.op(x)), [Rules(one_reduction)])
    check(result)
    assert len(result.segments) == 1

    blocked = Rules(lambda f: "no siblings" if len(f.outputs) > 1 else "")
    g = Graph()
    x = g.input()
    assert len(partition(g.output(g.op(x), g.op(x)), [blocked]).segments) == 2


def test_alias_is_kept_where_its_input_is_read():
    g = Graph()
    x = g.input()
    out = g.op(x)
    g.fusion.add_output(out, alias=x, hidden=True)
    (segment,) = partition(g.fusion, [Rules(lambda f: "")]).segments
    (output,) = segment.fusion.outputs
    assert output.alias is segment.fusion.inputs[0]


def test_forwarded_input_needs_no_segment():
    g = Graph()
    x = g.input()
    result = partition(g.output(x), [Rules(lambda f: "")])
    assert result.segments == ()


def test_registry_order_decides_and_rejections_are_logged():
    g = Graph()
    fusion = g.output(g.op(g.input()))
    first = Rules(lambda f: "never", SchedulerType.reduction)
    second = Rules(lambda f: "")
    result = partition(fusion, [first, second])
    assert result.segments[0].scheduler is second
    assert "Scheduler _reduction_ ***rejected*** because : never" in result.log()


def test_node_that_nobody_takes_is_an_error_with_the_reasons():
    g = Graph()
    fusion = g.output(g.op(g.input()))
    with pytest.raises(
        NoSchedulerError, match="Can not find a scheduler to schedule fusion segment"
    ) as error:
        partition(fusion, [Rules(lambda f: "too hard")])
    assert "because : too hard" in str(error.value) and "T1 = neg(T0)" in str(error.value)


def test_all_nodes_that_nobody_takes_are_named():
    g = Graph()
    x = g.input()
    sums = [g.sum(x), g.sum(x)]
    fusion = g.output(g.op(x), *sums)
    no_sums = Rules(lambda f: "a sum" if any(isinstance(n, Reduction) for n in f.nodes) else "")
    with pytest.raises(NoSchedulerError) as error:
        partition(fusion, [no_sums])
    assert all(f"{s.name} = " in str(error.value) for s in sums)


def test_error_of_a_scheduler_is_not_taken_for_a_rejection():
    """Also where it is shown a group that hands on less than before, which it may reject."""
    g = Graph()
    x = g.input()
    a = g.op(x)
    s = g.sum(a)
    fusion = g.output(g.op(a, s))

    def broken(candidate: Fusion) -> str:
        reason = one_reduction(candidate)
        if (
            not reason
            and len(candidate.nodes) == 2
            and [o.tensor.name for o in candidate.outputs] == [s.name]
        ):
            raise ScheduleError("broken plug-in")
        return reason

    assert len(partition(fusion, [Rules(one_reduction)]).segments) == 2
    with pytest.raises(ScheduleError, match="broken plug-in"):
        partition(fusion, [Rules(broken)])


# ---- exclusions


def test_excluded_scheduler_is_not_asked_about_groups_with_the_node():
    g = Graph()
    a = g.op(g.input())
    b = g.op(a)
    fusion = g.output(g.op(b))
    first, second = Rules(lambda f: "", SchedulerType.reduction), Rules(lambda f: "")
    assert [s.scheduler for s in partition(fusion, [first, second]).segments] == [first]
    excluded = NO_EXCLUSIONS.without_nodes("reduction", [b.definition])
    # What takes everything is preferred to what is asked first.
    assert [s.scheduler for s in partition(fusion, [first, second], exclusions=excluded).segments] == [second]
    one = Rules(at_most(1))
    result = partition(fusion, [first, one], exclusions=excluded)
    check(result)
    assert [s.scheduler for s in result.segments if b.name in computed(s)] == [one]


def test_node_excluded_for_all_is_an_error():
    g = Graph()
    a = g.op(g.input())
    fusion = g.output(g.op(a))
    excluded = NO_EXCLUSIONS.without_nodes("pointwise", [a.definition])
    with pytest.raises(NoSchedulerError, match=rf"fusion segment: {a.name} = neg\(T0\)"):
        partition(fusion, [Rules(lambda f: "")], exclusions=excluded)


def test_nodes_that_a_scheduler_may_not_merge():
    g = Graph()
    a = g.op(g.input())
    b = g.op(a)
    c = g.op(b)
    fusion = g.output(c)
    apart = NO_EXCLUSIONS.without_merges("pointwise", [a.definition], [b.definition])
    result = partition(fusion, [Rules(lambda f: "")], exclusions=apart)
    check(result)
    assert [len(s.nodes) for s in result.segments] in ([1, 2], [2, 1])
    assert [{a.name, b.name} <= computed(s) for s in result.segments] == [False, False]


def test_excluded_nodes_of_other_segments_cost_nothing():
    """Looking up what is excluded takes as long as the group, however much is excluded elsewhere."""

    class Counted(frozenset):
        rounds = 0

        def __iter__(self):
            Counted.rounds += 1
            return super().__iter__()

    g = Graph()
    value = g.input()
    for _ in range(100):
        value = g.op(value)
    fusion = g.output(value)
    excluded = Exclusions(Counted(("reduction", node) for node in fusion.nodes))
    partition(fusion, [Rules(at_most(10))], exclusions=excluded)
    assert Counted.rounds <= 3  # once each to translate, to search and to cut


def test_dead_nodes_are_dropped():
    g = Graph()
    x = g.input()
    g.op(x)
    result = partition(g.output(g.op(x)), [Rules(lambda f: "")])
    assert len(result.segments[0].fusion.nodes) == 1


def random_graph(seed: int, count: int) -> Fusion:
    draw = random.Random(seed)
    g = Graph()
    values = [g.input(), g.input()]
    for _ in range(count):
        recent = values[-8:] if draw.random() < 0.8 else values
        if draw.random() < 0.15:
            values.append(g.sum(draw.choice([v for v in recent if v.ndim == 2] or values[:1])))
        else:
            values.append(g.op(draw.choice(recent), draw.choice(recent)))
    return g.output(*values[-3:])


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs(seed):
    texts = set()
    for _ in range(2):
        result = partition(random_graph(seed, 40), [Rules(one_reduction), Rules(at_most(9))])
        check(result)
        texts.add(str(result))
    assert len(texts) == 1, "the partition differs between runs"


@pytest.mark.parametrize(
    "build",
    [
        pytest.param("chain", id="chain"),
        pytest.param("hub", id="hub"),
        pytest.param("random", id="random"),
    ],
)
def test_large_graphs_cost_little_more_than_linear(build):
    def nodes_shown(count: int) -> float:
        g = Graph()
        if build == "random":
            fusion = random_graph(1, count)
        else:
            hub = g.op(g.input())
            values = [hub]
            for _ in range(count):
                values.append(g.op(hub if build == "hub" else values[-1]))
            fusion = g.output(*(values[1:] if build == "hub" else values[-1:]))
        scheduler = Rules(at_most(25))
        check(partition(fusion, [scheduler]))
        return scheduler.shown / count

    start = time.perf_counter()
    small, large = nodes_shown(200), nodes_shown(1000)
    assert large < 2 * small, f"{small:.0f} nodes shown a node of 200, {large:.0f} of 1000"
    assert time.perf_counter() - start < 20


# ---- nodes that no kernel contains -------------------------------------------------------------------------


def labels(result: SegmentedFusion) -> list[list[str]]:
    """What each segment computes, in order, without what it computes again."""
    return [[node.label for node in segment.nodes] for segment in result.segments]


def with_library(rule) -> list:
    return [Rules(lambda f: rule(f) or ("not for a kernel" if is_whole(f) else "")), ExprEvalScheduler()]


def is_whole(fusion: Fusion) -> bool:
    return any(node.traits.whole for node in fusion.nodes)


def test_a_whole_node_is_a_segment_and_keeps_no_others_apart():
    """Chains before it, beside it and behind it are one kernel each, and its siblings read x once."""
    g = Graph()
    x, y = g.input(), g.input()
    before = g.op(g.op(x, y))
    made = g.whole(before, y)
    behind = g.op(g.op(made), g.op(made, y))
    fusion = g.output(behind, g.op(g.op(x)))
    result = partition(fusion, with_library(lambda f: ""))
    check(result)
    assert labels(result) == [["add", "neg", "neg", "neg"], ["whole"], ["neg", "add", "add"]]
    assert [s.scheduler.type.name for s in result.segments] == ["pointwise", "expr_eval", "pointwise"]


def test_all_kernels_are_one_where_no_path_leads_through_a_whole_node():
    """Nothing relates the two chains but that they are both kernels' work."""
    g = Graph()
    fusion = g.output(g.op(g.input()), g.op(g.input()), g.whole(g.input()))
    assert labels(partition(fusion, with_library(lambda f: ""))) == [["neg", "neg"], ["whole"]]


def test_no_merge_goes_around_a_whole_node():
    """c reads a directly and through the whole node: a and c are two kernels."""
    g = Graph()
    a = g.sum(g.input())
    fusion = g.output(g.op(g.op(a), g.whole(a)))
    result = partition(fusion, with_library(lambda f: ""))
    check(result)
    assert labels(result) == [["sum"], ["whole"], ["neg", "add"]]


def test_nothing_is_computed_again_for_a_whole_node():
    g = Graph()
    x = g.op(g.input())
    fusion = g.output(g.whole(x), g.whole(g.whole(x)))
    result = partition(fusion, with_library(lambda f: ""))
    check(result)
    assert labels(result) == [["neg"], ["whole"], ["whole"], ["whole"]]


@pytest.mark.parametrize("seed", range(10))
def test_random_graphs_with_whole_nodes(seed: int):
    random_ = random.Random(seed)
    g = Graph(rank=26)
    values = [g.input(), g.input()]
    for _ in range(25):
        kind = random_.choice([g.op, g.op, g.op, g.whole, g.sum])
        values.append(kind(*random_.choices(values[-6:], k=1 if kind == g.sum else random_.choice([1, 2]))))
    fusion = g.output(*values[-3:])
    result = partition(fusion, with_library(one_reduction))
    check(result)
    whole = [node for node in fusion.ordered_nodes() if node.traits.whole]
    assert sorted(s.nodes[0].output.number for s in result.segments if s.evaluated) == [
        node.output.number for node in whole
    ]


def test_a_kernel_scheduler_alone_takes_no_whole_node():
    g = Graph()
    fusion = g.output(g.whole(g.op(g.input())))
    with pytest.raises(NoSchedulerError, match=r"fusion segment: T2 = whole\(T1\)"):
        partition(fusion, with_library(lambda f: "")[:1])
