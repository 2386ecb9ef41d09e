"""The partition beside the best of all, by the estimates of the schedulers, for random small graphs."""

from __future__ import annotations

import os
import random
from functools import cache

import pytest

from fusewright.core.dtype import DataType
from fusewright.core.hardware import described
from fusewright.core.tracing import Tracer
from fusewright.host.inputs.layout import Layout
from fusewright.ir import Fusion, Scalar, TensorView
from fusewright.ops.build_elementwise import apply_to_tensor, convert_tensor
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_reduction import max_, sum_
from fusewright.ops.build_shape import broadcast, permute
from fusewright.schedulers import Facts, Reject, default_registry
from fusewright.schedulers.cost import CostModel
from fusewright.segment import NO_EXCLUSIONS, Call, Partitions
from fusewright.segment.draft import Draft
from fusewright.segment.exclusions import ExclusionIndex

# More for a report: FUSEWRIGHT_TEST_GRAPHS=100 FUSEWRIGHT_TEST_GRAPH_NODES=12 pytest THIS_FILE
GRAPHS = int(os.environ.get("FUSEWRIGHT_TEST_GRAPHS", "12"))
NODES = int(os.environ.get("FUSEWRIGHT_TEST_GRAPH_NODES", "9"))
LEAST_NODES = 4
# Graphs whose best partition has a reduction in another kernel than the one that it merges with first.
APART = ((25, 11), (88, 11))
SIZES = ((16384, 4096), (512, 65536), (64, 262144), (100000, 256), (256, 768))
# The partition may cost this much more than the best.
WORST = 1.05


def random_graph(seed: int, nodes: int) -> tuple[Fusion, Call]:
    """A graph of up to so many nodes that kernels compute, with the sizes of a call."""
    draw = random.Random(seed)
    fusion = Fusion()
    wide: list[TensorView] = [
        define_tensor(fusion, [-1, -1], True, draw.choice((DataType.Float, DataType.BFloat16)))
        for _ in range(draw.choice((1, 2)))
    ]
    for other in wide[1:]:
        for a, b in zip(wide[0].extents, other.extents):
            fusion.equate(a, b, "inputs")
    made: list[TensorView] = []
    # A step adds at most two nodes.
    while sum(not node.is_scalar for node in fusion.nodes) < nodes - 1:
        kind = draw.choice(("unary", "unary", "binary", "binary", "rows", "columns", "cast", "transposed"))
        x = draw.choice(wide[-3:])
        if kind == "unary":
            new = apply_to_tensor(fusion, draw.choice(("neg", "exp", "abs")), x)
        elif kind == "binary":
            new = apply_to_tensor(fusion, draw.choice(("add", "mul")), x, draw.choice(wide))
        elif kind == "cast":
            new = convert_tensor(fusion, x, DataType.Float)
        elif kind == "transposed":
            other = permute(fusion, x, [1, 0])
            made.append(apply_to_tensor(fusion, "neg", other))
            continue
        else:
            dim = 1 if kind == "rows" else 0
            reduced = draw.choice((sum_, max_))(fusion, x, [dim])
            if draw.random() < 0.5:
                made.append(reduced)
                continue
            new = broadcast(fusion, reduced, [dim == 0, dim == 1])
            made.append(reduced)
            if sum(not node.is_scalar for node in fusion.nodes) < nodes:
                new = apply_to_tensor(fusion, "sub", x, new)
            else:
                continue
        wide.append(new)
        made.append(new)
    results = {t for t in made if not t.uses} | {made[-1]}
    for tensor in sorted(results, key=lambda t: t.number):
        add_output(fusion, tensor)
    fusion.unify_extents()
    sizes = dict(zip(wide[0].extents, draw.choice(SIZES)))
    layouts = cache(Layout)

    def facts(segment) -> Facts:
        own = segment.own_sizes(sizes)
        strides = [
            () if isinstance(value, Scalar) else layouts(value).at(sizes)[1] for value in segment.inputs
        ]
        laid_out = segment.own_strides(strides, own)
        return Facts(own, laid_out, tuple(256 for _ in strides), DataType.Int)

    return fusion, Call(tuple(sizes.values()), lambda segments: None, facts, described("h200"))


def best_partition(fusion: Fusion, call: Call) -> tuple[float, tuple[str, ...]]:
    """Its seconds and its groups: of all into groups that a scheduler each takes, no work repeated."""
    draft = Draft(fusion, default_registry())
    nodes = draft.nodes
    index = {node: i for i, node in enumerate(nodes)}
    excluded = ExclusionIndex(NO_EXCLUSIONS)
    before = [sum({1 << index[v.definition] for v in node.inputs if v.definition in index}) for node in nodes]
    everything = (1 << len(nodes)) - 1

    @cache
    def seconds(group: int) -> float | None:
        members = [node for i, node in enumerate(nodes) if group >> i & 1]
        read = {
            out
            for node in members
            for out in node.outputs
            if isinstance(out, TensorView)
            and any(index.get(use, -1) >= 0 and use not in members for use in out.uses)
        }
        segment = draft._segment(members, read, excluded)
        if isinstance(segment, list):
            return None
        answer = call.plan(segment)
        if isinstance(answer, Reject):
            return None
        estimate = answer.estimate or CostModel(segment.fusion).estimate(call.facts(segment), call.hardware)
        return estimate().seconds

    @cache
    def best(done: int) -> tuple[float, tuple[str, ...]]:
        if done == everything:
            return 0.0, ()
        found: tuple[float, tuple[str, ...]] = float("inf"), ()
        group = rest = everything & ~done
        while group:  # every subset of the rest that needs nothing else of it
            if all(not before[i] & ~(done | group) for i in range(len(nodes)) if group >> i & 1):
                cost = seconds(group)
                if cost is not None:
                    after, groups = best(done | group)
                    names = " ".join(n.output.name for i, n in enumerate(nodes) if group >> i & 1)
                    found = min(found, (cost + after, (f"{names}: {cost}", *groups)))
            group = (group - 1) & rest
        return found

    return best(0)


@pytest.mark.parametrize(
    "seed, nodes",
    [
        *((seed, LEAST_NODES + seed % (NODES - LEAST_NODES + 1)) for seed in range(GRAPHS)),
        *APART,
    ],
)
def test_partition_is_nearly_the_best(seed, nodes):
    fusion, call = random_graph(seed, nodes)
    planned = Partitions(fusion, default_registry()).select(call, Tracer())
    seconds = 0.0
    for segment, proposal in zip(planned.partition.segments, planned.proposals):
        estimate = proposal.estimate or CostModel(segment.fusion).estimate(call.facts(segment), call.hardware)
        seconds += estimate().seconds
    best, groups = best_partition(fusion, call)
    assert seconds <= WORST * best, f"{planned.partition}\n{seconds}, but {best} by {groups}"
