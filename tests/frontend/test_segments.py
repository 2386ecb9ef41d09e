"""`fd.segment`: segments are definitions that are printed, scheduled and run, and the whole runs them."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition, SchedulerType
from fusewright.core.errors import (
    ArgumentTypeError,
    DefinitionError,
    ExecutionOrderError,
    ParamsError,
    ScheduleError,
    ShapeError,
)
from fusewright.core.tracing import Tracer
from fusewright.host.executor import FusionExecutor
from fusewright.ir import Join, Piece, RandomState, Stored
from fusewright.ops import node_calls
from fusewright.ops.evaluate import evaluate_fusion, evaluate_values
from fusewright.runtime.random_states import random_states
from fusewright.schedulers import Registry, Reject, Scheduler, default_registry
from fusewright.segment import Partitions, Segment
from tests.fuzz.flavours import draw
from tests.fuzz.programs import Program, arguments, define
from tests.fuzz.running import fresh
from tests.ir.kinds import KINDS


class Block(FusionDefinition):
    """Layer norm, a projection that torch computes, and a softmax with a scalar: three segments."""

    def definition(self) -> None:
        x = self.define_tensor([-1, -1], True)
        w = self.define_tensor([-1, -1], True)
        scale = self.define_scalar()
        normal, *_ = self.ops.layer_norm(x, [x.size(1)])
        scores = self.ops.matmul(self.ops.silu(normal * scale), w)
        self.add_output(self.ops.softmax(scores * scale, 1))


def block_inputs(rows: int = 6, target: torch.device | str = "cpu") -> list[Any]:
    return [torch.randn(rows, 8, device=target), torch.randn(8, 10, device=target), 0.5]


@pytest.fixture
def block() -> tuple[Block, list[FusionDefinition]]:
    fd = Block()
    return fd, fd.segment(block_inputs())


def exactly(fd: FusionDefinition, inputs: Sequence[Any]) -> None:
    """Checks that the segmented definition computes what an equal one does that is not."""
    twin = FusionDefinition(fd.id())
    for actual, expected in zip(fd.execute(inputs), twin.execute(inputs), strict=True):
        torch.testing.assert_close(actual, expected)


def test_a_definition_as_its_segments(
    block: tuple[Block, list[FusionDefinition]], target: torch.device
) -> None:
    fd, segments = block
    assert [
        [r.op for r in s._finished().records if r.op[:6] not in ("define", "add_ou")] for s in segments
    ] == [
        ["size", "layer_norm", "mul", "silu"],
        ["matmul"],
        ["mul", "softmax"],
    ]
    first, middle, last = (fd.segment_index_space_maps[s] for s in segments)
    # x, the scale and the silu; the silu, w and the product; the product, the scale and the softmax.
    (activated,) = segments[0].outputs()
    assert {k: first[k] for k in segments[0].inputs()} == {0: 0, 1: 2}
    assert sorted(middle.values()) == sorted([1, first[activated], middle[segments[1].outputs()[0]]])
    assert {last[i] for i in segments[2].inputs()} == {2, middle[segments[1].outputs()[0]]}
    assert last[segments[2].outputs()[0]] == fd.outputs()[0]
    assert fd.map_value_to_last_used_segment == {
        0: 0,
        1: 1,
        2: 2,
        first[activated]: 1,
        middle[segments[1].outputs()[0]]: 2,
    }
    assert fd.segments == segments
    for rows in (6, 6, 3, 1, 0):
        exactly(fd, block_inputs(rows, target))
    assert [k.scheduler for k in fd._last_kernels()] == [
        k.scheduler for s in segments for k in s._last_kernels()
    ]
    with pytest.raises(ExecutionOrderError, match=r"each of fd\.segments"):
        fd.cuda_code_for(block_inputs())


def test_segments_are_printed_and_run_as_any_definition(block: tuple[Block, list[FusionDefinition]]) -> None:
    fd, segments = block
    held: dict[int, Any] = dict(zip(fd.inputs(), block_inputs()))
    for segment in segments:
        namespace: dict[str, Any] = {"FusionDefinition": FusionDefinition, "DataType": DataType}
        exec(repr(segment), namespace)
        with FusionDefinition() as same:
            namespace[f"nvfuser_fusion_id{segment.id()}"](same)
        assert same.id() == segment.id()
        states = fd.segment_index_space_maps[segment]
        outputs = segment.execute([held[states[i]] for i in segment.inputs()])
        held.update((states[i], out) for i, out in zip(segment.outputs(), outputs))
    inputs = [held[i] for i in fd.inputs()]
    (expected,) = FusionDefinition(fd.id()).execute(inputs)
    torch.testing.assert_close(held[fd.outputs()[0]], expected)


def test_segments_are_scheduled_one_by_one(block: tuple[Block, list[FusionDefinition]]) -> None:
    fd, (*_, last) = block
    ran: list[FusionDefinition] = []

    def persistent() -> None:
        ran.append(last)
        last.sched.schedule(SchedulerType.inner_persistent)

    last.schedule = persistent  # type: ignore[method-assign]
    exactly(fd, block_inputs())
    exactly(fd, block_inputs())
    assert ran == [last]
    assert [k.scheduler for k in fd._last_kernels()] == ["inner_persistent", "user"]
    # A schedule that is finished for a segment's inputs serves calls of the whole.
    given = [torch.randn(6, 10), 0.5]
    del last.schedule
    last._setup_schedule(given)
    persistent()
    last._finalize_schedule(given)
    exactly(fd, block_inputs())
    assert [k.scheduler for k in fd._last_kernels()] == ["inner_persistent", "user"]
    fd.execute(block_inputs(), override_user_schedule=True)
    assert [k.scheduler for k in fd._last_kernels()] == ["inner_persistent"] * 2
    fd.execute(block_inputs(), profile=True)
    profile = fd.profile()
    assert [p.scheduler for p in profile.kernel_profiles] == ["inner_persistent", "expr_eval", "user"]
    assert (profile.segments, [p.segment_id for p in profile.kernel_profiles]) == (3, [0, 1, 2])


def test_an_intermediate_is_freed_after_its_last_use(
    block: tuple[Block, list[FusionDefinition]], monkeypatch: pytest.MonkeyPatch
) -> None:
    fd, segments = block
    alive: list[list[bool]] = []
    made: list[weakref.ref[torch.Tensor]] = []
    execute = FusionDefinition._execute

    def watched(self: FusionDefinition, *args: Any, **kwargs: Any) -> list[torch.Tensor]:
        if self in segments:
            alive.append([ref() is not None for ref in made])
        outputs = execute(self, *args, **kwargs)
        if self in segments:
            made.append(weakref.ref(outputs[0]))
        return outputs

    monkeypatch.setattr(FusionDefinition, "_execute", watched)
    fd.execute(block_inputs())
    assert alive == [[], [True], [False, True]]


def test_one_kernel_is_no_segments() -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([-1]) * 2.0)
    assert fd.segment([torch.ones(3)]) == fd.segments == []
    assert not fd.segment_index_space_maps and not fd.map_value_to_last_used_segment
    exactly(fd, [torch.ones(3)])


def test_steps_of_a_segmentation_are_taken_in_order() -> None:
    fd = Block()
    with pytest.raises(ExecutionOrderError, match="_build_segment"):
        fd._build_segment(FusionDefinition(), 0)
    assert fd._setup_segmentation(block_inputs()) == 3
    with pytest.raises(ExecutionOrderError, match="in order"):
        fd._build_segment(FusionDefinition(), 1)
    made = [FusionDefinition() for _ in range(3)]
    maps = [fd._build_segment(segment, i) for i, segment in enumerate(made)]
    assert sorted(maps[0])[:2] == [0, 1]
    with pytest.raises(ArgumentTypeError, match="an empty definition"):
        fd._setup_segmentation(block_inputs())
        fd._build_segment(made[0], 0)
    with pytest.raises(ExecutionOrderError, match="not all segments"):
        fd._finalize_segmentation()


def test_threads_share_the_segments(block: tuple[Block, list[FusionDefinition]]) -> None:
    fd, _ = block
    inputs = [block_inputs(rows) for rows in (2, 3, 4, 5) * 4]
    expected = [FusionDefinition(fd.id()).execute(given)[0] for given in inputs]
    with ThreadPoolExecutor(8) as pool:
        for out, reference in zip(pool.map(lambda given: fd.execute(given)[0], inputs), expected):
            torch.testing.assert_close(out, reference)


# ---- what passes between segments --------------------------------------------------------------------------


class Small:
    """A scheduler that takes at most a number of nodes: anything is cut, also inside of operations."""

    def __init__(self, scheduler: Scheduler, nodes: int) -> None:
        self._scheduler = scheduler
        self._nodes = nodes
        self.params_type = scheduler.params_type
        self.type = scheduler.type
        self.apply = scheduler.apply

    def prepare(self, fusion: Any) -> Any:
        if len(fusion.nodes) > self._nodes:
            return Reject("too many nodes")
        return self._scheduler.prepare(fusion)


def small_segments(nodes: int) -> Registry:
    return Registry([Small(scheduler, nodes) for scheduler in default_registry()])


def test_a_segment_reads_sizes_by_their_negative_index() -> None:
    """A reduction of a flattened tensor, then a view of sizes that the second segment has no tensor of."""
    with FusionDefinition(registry=small_segments(1)) as fd:
        x = fd.define_tensor([-1, -1, -1], True)
        n = fd.define_scalar(None, DataType.Int)
        flat = fd.ops.reshape(x * x, [x.size(0) * x.size(1), x.size(2)])
        fd.add_output(fd.ops.reshape(fd.ops.sum(flat, [1]), [x.size(0), x.size(1)]) * (n * n))
    inputs = [torch.randn(3, 4, 5), 3]
    segments = fd.segment(inputs)
    passed = [{fd.segment_index_space_maps[s][i] for i in s.inputs()} for s in segments]
    [reader] = [i for i, states in enumerate(passed) if {-1, -2} <= states]
    assert 0 < reader == fd.map_value_to_last_used_segment[-1] == fd.map_value_to_last_used_segment[-2]
    for given in (inputs, [torch.randn(2, 7, 3), -2]):
        exactly(fd, given)
    with pytest.raises(ShapeError):
        exactly(fd, [torch.randn(2, 7), 1])


def test_a_view_passes_in_the_shape_that_the_user_wrote() -> None:
    with FusionDefinition() as fd:
        x, wide = fd.define_tensor([-1, -1], True), fd.define_tensor([-1, -1], True)
        fd.add_output(fd.ops.sum(x, [1], keepdim=True) + wide)
    first, second = fd.segment([torch.randn(6, 8), torch.randn(6, 11)])
    maps = fd.segment_index_space_maps
    assert (maps[first], maps[second]) == ({0: 0, 1: 2}, {0: 1, 1: 2, 2: 3})


def test_outputs_that_are_written_into_inputs(target: torch.device) -> None:
    """One that a later segment reads; two that trade places; one whose input is read later."""
    with FusionDefinition(registry=small_segments(1)) as fd:
        state, a, b, late = (fd.define_tensor([-1], True) for _ in range(4))
        updated = state * 2.0
        fd.add_output(updated, state)
        fd.add_output(fd.ops.exp(updated) + 1.0)
        fd.add_output(a, b)
        fd.add_output(b, a)
        shifted = late + 1.0
        fd.add_output(shifted, late)
        fd.add_output(shifted)
        fd.add_output(fd.ops.neg(shifted) * late)
    for segmented in (False, True):
        inputs = [torch.arange(4.0, device=target) + i for i in range(4)]
        before = [x.clone() for x in inputs]
        if segmented:
            assert len(fd.segment(inputs)) > 3
            inputs = [x.clone() for x in before]
        out, again, negated = fd.execute(inputs)
        expected = [2 * before[0], before[2], before[1], before[3] + 1]
        for x, y in zip((*inputs, out, again), (*expected, expected[0].exp() + 1, expected[3])):
            torch.testing.assert_close(x, y)
        torch.testing.assert_close(negated, -expected[3] * before[3])
        assert again is inputs[3] or again.data_ptr() == inputs[3].data_ptr()


def test_outputs_share_memory_with_inputs_alone() -> None:
    """As of the whole: an output that is a view of another output has memory of its own."""
    with FusionDefinition(registry=small_segments(1)) as fd:
        x, state = fd.define_tensor([-1, -1], True), fd.define_tensor([-1, -1], True)
        e = fd.ops.exp(x)
        fd.add_output(e)
        fd.add_output(fd.ops.permute(e, [1, 0]))
        fd.add_output(fd.ops.permute(x, [1, 0]))
        fd.add_output(state + 1.0, state)
        fd.add_output(fd.ops.permute(state + 1.0, [1, 0]))
    inputs = [torch.randn(3, 4), torch.randn(3, 4)]
    before = inputs[1].clone()
    assert len(fd.segment(inputs)) > 2
    outputs = fd.execute(inputs)
    x_, _ = inputs
    for out, expected in zip(outputs, (x_.exp(), x_.exp().T, x_.T, (before + 1).T), strict=True):
        torch.testing.assert_close(out, expected)
    torch.testing.assert_close(inputs[1], before + 1)
    places = [t.untyped_storage().data_ptr() for t in (*outputs, *inputs)]
    assert [places.count(place) for place in places] == [1, 1, 2, 1, 2, 1]


def test_random_numbers_are_drawn_once_and_in_order(target: torch.device) -> None:
    with FusionDefinition(registry=small_segments(3)) as fd:
        x = fd.define_tensor([-1, -1], True)
        kept, mask = fd.ops.dropout(x, 0.5)
        fd.add_output(kept + fd.ops.rand_like(x))
        fd.add_output(mask)
    given = torch.randn(5, 7, device=target)
    torch.manual_seed(3)
    expected = FusionDefinition(fd.id()).execute([given])
    assert len(fd.segment([given])) > 2
    torch.manual_seed(3)
    for actual, reference in zip(fd.execute([given]), expected):
        torch.testing.assert_close(actual, reference)


def test_what_no_definition_can_say_is_refused() -> None:
    with FusionDefinition(registry=small_segments(2)) as fd:
        x = fd.define_tensor([4, 4], True, DataType.Float4_e2m1fn_x2)
        fd.add_output(fd.ops.neg(fd.ops.cast(x, DataType.Float)))
    given = torch.randint(0, 256, (4, 4), dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    with pytest.raises(DefinitionError, match="no definition can pass to it"):
        fd.segment([given])
    assert not fd.segments


def test_what_add_output_makes_is_said_as_the_user_did() -> None:
    """Unpacked inputs, and outputs in an order of their own."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([4, 2], True, DataType.Float4_e2m1fn_x2)
        y = fd.define_tensor([-1, 4, 4])
        product = fd.ops.matmul(y, fd.ops.cast(x, DataType.Float))
        fd.add_output(fd.ops.exp(product), stride_order=[0, 1, 2])
    packed = torch.randint(0, 256, (4, 2), dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    inputs = [packed, 0.1 * torch.randn(3, 4, 4)]
    (expected,) = fd.execute(inputs)
    segments = fd.segment(inputs)
    assert segments[0]._finished().records[0].args == fd._finished().records[0].args
    assert segments[-1]._finished().records[-1].args[2] == fd._finished().records[-1].args[2]
    assert fd.segment_index_space_maps[segments[-1]] == {0: product.index, 1: fd.outputs()[0]}
    (out,) = fd.execute(inputs)
    torch.testing.assert_close(out, expected)
    assert out.stride() == expected.stride()


def test_to_torch_a_segmented_definition_is_one_operation(
    block: tuple[Block, list[FusionDefinition]],
) -> None:
    fd, segments = block
    inputs = block_inputs()
    (expected,) = FusionDefinition(fd.id()).execute(inputs)
    torch.testing.assert_close(torch.compile(fd.execute, backend="eager")(inputs)[0], expected)
    assert segments[0]._last_kernels()


# ---- every kind of node ------------------------------------------------------------------------------------


def _partition_alone(self: FusionExecutor, inputs: Any, **_: Any) -> tuple[Segment, ...]:
    partitions = Partitions(self.fusion, self.registry)
    return partitions.as_defined(partitions.structural(Tracer()).segments)


def _cut(program: Program) -> int:
    """Checks a program cut into single nodes by the reference evaluation; the number of its segments."""
    given = arguments(program, 0)
    with FusionDefinition(registry=small_segments(1)) as fd:
        define(program, fd, given)
    segments = fd.segment(given)
    if not segments:
        return 0
    states = random_states(torch.device("cpu"))

    def call(segment: FusionDefinition, inputs: list[Any], *_: Any) -> list[torch.Tensor]:
        fusion = segment._finished().fusion
        values = evaluate_values(fusion, inputs, states.take)
        # What the evaluation gives may be a view of an input that is written here.
        made = [(output, values[output.tensor].clone()) for output in fusion.outputs]
        for output, value in made:
            if output.alias is not None:
                inputs[fusion.inputs.index(output.alias)].copy_(value)
        return [value for output, value in made if not output.hidden]

    assert fd._segmentation is not None
    start = states.position()
    copies = [fresh("cpu", value, spec) for value, spec in zip(given, program.inputs)]
    outputs = fd._segmentation.run(copies, None, False, call)
    with states.again(start):
        expected = evaluate_fusion(fd._finished().fusion, given, states.take)
    for actual, reference in zip(outputs, expected, strict=True):
        torch.testing.assert_close(actual, reference, equal_nan=True)
    return len(segments)


def test_every_node_can_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random programs of all operations, each node of which becomes a definition of its own."""
    monkeypatch.setattr(FusionExecutor, "segments_for", _partition_alone)
    segments = [_cut(draw(2027, number)[1]) for number in range(24)]
    assert sum(segments) > 150


def test_updates_along_dimensions_of_one_element(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FusionExecutor, "segments_for", _partition_alone)
    assert all(_cut(draw(seed, 0)[1]) for seed in (3036, 3243, 3383))


def test_every_kind_of_node_has_calls() -> None:
    in_no_segment = {RandomState, Stored, Piece, Join}
    assert {*node_calls._WRITERS, *in_no_segment} == set(KINDS)


def test_an_update_is_a_segment_as_any_other(target: torch.device) -> None:
    """Its definition changes what it is passed, in place; a copy of an input, a cast, zeros."""
    with FusionDefinition() as fd:
        table, grad = (fd.define_tensor([-1, -1], True) for _ in range(2))
        index = fd.define_tensor([-1], True, DataType.Int)
        half = fd.ops.cast(fd.ops.sin(table), DataType.Half)
        added = fd.ops.index_put_accumulate(table, index, grad * 2.0)
        fd.add_output(added, table)
        fd.add_output(fd.ops.index_put_accumulate(half, index, fd.ops.cast(grad, DataType.Half)))
        wide = fd.ops.broadcast_in_dim(index, [index.size(0), 1], [0])
        fd.add_output(fd.ops.exp(fd.ops.scatter(grad, wide, 1.0, 1)))
        rows = [fd.ops.broadcast(t, [True] + [False] * t.ndim) for t in (grad, index)]
        fd.add_output(fd.ops.embedding_bwd(*rows, 9, 2, True))
        fd.add_output(added + table)

    def inputs() -> list[torch.Tensor]:
        torch.manual_seed(0)
        rows = torch.tensor([0, 2, 2, 5, 7], device=target)
        return [torch.randn(9, 8, device=target), torch.randn(5, 8, device=target), rows]

    given, twin = inputs(), inputs()
    expected = FusionDefinition(fd.id()).execute(twin)
    before = inputs()
    by_torch = before[0].index_put((before[2],), 2 * before[1], accumulate=True)
    segments = fd.segment(given)
    for _ in range(2):
        given = inputs()
        for out, wanted in zip(fd.execute(given), expected, strict=True):
            torch.testing.assert_close(out, wanted)
        for now, wanted in zip(given, (by_torch, *before[1:])):
            torch.testing.assert_close(now, wanted)
    torch.testing.assert_close(expected[-1], by_torch + before[0])
    updates = [s for s in segments if "index_put" in repr(s) or "scatter" in repr(s)]
    assert updates and all(len(s._last_kernels()) == 1 for s in updates), "what is there is not copied"
    (scattered,) = (s for s in updates if "scatter" in repr(s))
    params = scattered._last_kernels()[0].params
    assert params is not None
    fd.execute(inputs(), schedules={scattered: params})
    # By itself: T0 is the index, T1 what is changed.
    namespace: dict[str, Any] = {"FusionDefinition": FusionDefinition, "DataType": DataType}
    exec(repr(scattered), namespace)
    with FusionDefinition() as same:
        namespace[f"nvfuser_fusion_id{scattered.id()}"](same)
    memory = torch.zeros(5, 8, device=target)
    assert same.execute([torch.arange(5, device=target), memory]) == []
    assert torch.equal(memory, torch.eye(5, 8, device=target))


# ---- schedules of segments, for one call -------------------------------------------------------------------


def test_schedules_for_the_kernels_of_a_call() -> None:
    fd = Block()
    inputs = block_inputs()
    expected = fd.execute(inputs)
    first, last = fd._last_kernels()
    assert last.params is not None

    scheduled: list[object] = []

    def by_hand(fd: FusionDefinition) -> None:
        scheduled.append(fd)
        fd.sched.schedule(last.params)

    for schedules in ({0: first.params}, {2: by_hand}, {0: first.params, 2: by_hand}):
        for _ in range(2):
            torch.testing.assert_close(fd.execute(inputs, schedules=schedules), expected)
        kernels = fd._last_kernels()
        assert (kernels[0] is first) and (kernels[1] is last) == (2 not in schedules)
    assert len(scheduled) == 2
    fd.execute(inputs)
    assert fd._last_kernels() == (first, last)
    segments = fd.segment(inputs)
    for key in (2, segments[2]):
        torch.testing.assert_close(fd.execute(inputs, schedules={key: by_hand}), expected)
    for wrong, error, text in (
        ({3: by_hand}, ScheduleError, "no such segment"),
        ({fd: by_hand}, ScheduleError, "no such segment"),
        ({0: 3}, ParamsError, r"schedules\[0\]"),
        ({1: by_hand}, ScheduleError, "none that a kernel computes"),
    ):
        with pytest.raises(error, match=text):
            fd.execute(inputs, schedules=wrong)
    torch.testing.assert_close(fd.execute(inputs), expected)
