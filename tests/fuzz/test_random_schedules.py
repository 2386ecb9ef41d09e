"""Random sequences of scheduling primitives: the right result, or a UserError that changes nothing.

Whatever a user writes must not end in an InternalError, a fault that the simulator finds (a race, an access
out of bounds), a hang or a wrong result. A failure prints the schedule as Python.
`HYPOTHESIS_PROFILE=fuzz pytest tests/fuzz` draws new ones each time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import timedelta
from math import prod
from types import SimpleNamespace
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fusewright import FusionDefinition
from fusewright.core.enums import CacheOp, LoadStoreOpType, MemoryType, ParallelType
from fusewright.core.errors import UserError
from fusewright.ir import TensorView
from fusewright.ir.text import scheduled_text
from fusewright.schedule import Schedule
from fusewright.schedule.trace import Call
from fusewright.schedulers import Facts

EXAMPLES = 15  # of each definition; some thousands of primitives in all
# What explains a failure runs the example anew under a tracer, for minutes.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)
# Of one example; a kernel of these sizes takes milliseconds.
DEADLINE = timedelta(seconds=20)
FACTORS = (1, 2, 3, 4, 8)
# Iterations of one tensor's loops, and those of them that are serial: the simulator takes them one by one.
MAX_ITERATIONS, MAX_SERIAL = 10_000, 100
PARALLEL = (
    ParallelType.block_x,
    ParallelType.block_x,
    ParallelType.block_y,
    ParallelType.grid_x,
    ParallelType.grid_y,
    ParallelType.serial,
    ParallelType.unroll,
    ParallelType.vectorize,
    ParallelType.cluster_x,
)


# ---- what is scheduled: a definition for constant or symbolic sizes, and the same in torch


def _elementwise(fd: FusionDefinition, x: Any, y: Any) -> None:
    row = fd.ops.broadcast(fd.ops.exp(y), [True, False])
    total = x * row
    fd.add_output(total)
    fd.add_output(fd.ops.relu(total) + x)


def _transpose(fd: FusionDefinition, x: Any, y: Any) -> None:
    turned = fd.ops.permute(fd.ops.neg(x), [1, 0])
    fd.add_output(turned * fd.ops.broadcast(y, [False, True]))


def _sums(fd: FusionDefinition, x: Any, y: Any) -> None:
    scaled = x * fd.ops.broadcast(y, [True, False])
    fd.add_output(fd.ops.neg(fd.ops.sum(scaled, [1])))
    fd.add_output(fd.ops.max(scaled, [0]))


def _softmax(fd: FusionDefinition, x: Any, y: Any) -> None:
    shifted = x - fd.ops.broadcast(fd.ops.max(x, [1]), [False, True])
    weights = fd.ops.exp(shifted)
    fd.add_output(weights / fd.ops.broadcast(fd.ops.sum(weights, [1]), [False, True]))


def _normalization(fd: FusionDefinition, x: Any, y: Any) -> None:
    var, mean = fd.ops.var_mean(x, [1], 0, True)
    fd.add_output((x - mean) * fd.ops.rsqrt(var + 1e-2) * fd.ops.broadcast(y, [True, False]))


DEFINITIONS: dict[str, tuple[Callable[..., None], Callable[..., list[torch.Tensor]]]] = {
    "elementwise": (_elementwise, lambda x, y: [x * y.exp(), (x * y.exp()).relu() + x]),
    "transpose": (_transpose, lambda x, y: [-x.t() * y[:, None]]),
    "sums": (_sums, lambda x, y: [-(x * y).sum(1), (x * y).amax(0)]),
    "softmax": (_softmax, lambda x, y: [x.softmax(1)]),
    "normalization": (
        _normalization,
        lambda x, y: [(x - x.mean(1, True)) / (x.var(1, correction=0, keepdim=True) + 1e-2).sqrt() * y],
    ),
}
SHAPES = ((4, 8), (5, 7), (3, 33), (1, 6))


def _defined(body: Callable[..., None], sizes: tuple[int, int]) -> FusionDefinition:
    with FusionDefinition() as fd:
        body(
            fd, fd.define_tensor(list(sizes), contiguity=True), fd.define_tensor([sizes[1]], contiguity=True)
        )
    return fd


# ---- what schedules it

Draw = Callable[[st.SearchStrategy[Any]], Any]
Step = Callable[[Draw, Schedule, TensorView], Any]


def _axis(draw: Draw, tensor: TensorView) -> int:
    """Mostly one that there is."""
    rank = len(tensor.loop)
    return draw(st.integers(-rank, max(0, rank - 1)) if rank else st.just(0))


def _some(draw: Draw, schedule: Schedule) -> list[TensorView]:
    return draw(st.lists(st.sampled_from(schedule.tensors()), max_size=3))


def _swizzle(draw: Draw, schedule: Schedule, tensor: TensorView) -> None:
    """Of a square tile that is cut first, most of the time."""
    if len(tensor.loop) > 1 and draw(st.integers(0, 3)):
        factor = draw(st.sampled_from((2, 4)))
        schedule.split(tensor, 0, factor)
        schedule.split(tensor, -1, factor)
        schedule.swizzle(tensor, 1, -1)
    else:
        schedule.swizzle(tensor, _axis(draw, tensor), _axis(draw, tensor))


def _ring(draw: Draw, schedule: Schedule, tensor: TensorView) -> None:
    """A circular buffer: of a fresh copy of an input, most of the time."""
    if schedule.fusion.is_input(tensor) and tensor.uses and draw(st.integers(0, 3)):
        tensor = schedule.cache_after(tensor)
        schedule.set_memory_type(tensor, MemoryType.shared)
    stages, ahead, position = draw(st.integers(1, 4)), draw(st.integers(-2, 3)), draw(st.integers(-2, 1))
    if draw(st.booleans()):
        schedule.circular_buffer(tensor, stages, ahead, position)
    else:
        registers = draw(st.none() | st.sampled_from(((24, 40), (40, 240), (240, 24))))
        along = draw(st.sampled_from((ParallelType.block_x, ParallelType.block_y, ParallelType.grid_x)))
        schedule.warp_specialize(tensor, stages, ahead, along, registers, position)


def _hold_part(draw: Draw, schedule: Schedule, tensor: TensorView) -> None:
    """Of a load that is computed twice, most of the time."""
    again = _some(draw, schedule)
    if schedule.fusion.is_input(tensor) and tensor.uses and draw(st.integers(0, 3)):
        tensor = schedule.cache_after(tensor)
        again = schedule.recompute(tensor)
        if draw(st.booleans()):
            schedule.split(tensor, -1, draw(st.sampled_from(FACTORS)))
            schedule.transform_like(tensor)
    schedule.hold_part(tensor, again, draw(st.integers(0, 3)), _axis(draw, tensor))


STEPS: dict[str, Step] = {
    "split": lambda d, s, t: s.split(t, _axis(d, t), d(st.sampled_from(FACTORS)), d(st.booleans())),
    "merge": lambda d, s, t: s.merge(t, _axis(d, t), d(st.none() | st.integers(-3, 3))),
    "reorder": lambda d, s, t: s.reorder(t, {_axis(d, t): _axis(d, t)}),
    "shifted_split": lambda d, s, t: s.shifted_split(
        t,
        _axis(d, t),
        d(st.sampled_from(FACTORS)),
        d(st.sampled_from(s.tensors())),
        d(st.none() | st.integers(-1, 2)),
    ),
    "swizzle": _swizzle,
    "reverse": lambda d, s, t: s.reverse(t, _axis(d, t)),
    "hold_part": _hold_part,
    "set_cache_op": lambda d, s, t: s.set_cache_op(t, d(st.sampled_from(CacheOp))),
    "parallelize": lambda d, s, t: s.parallelize(
        t, _axis(d, t), d(st.sampled_from(PARALLEL)), d(st.sampled_from((1, 1, 32)))
    ),
    "rfactor": lambda d, s, t: s.rfactor(t, [_axis(d, t) for _ in range(d(st.integers(1, 2)))]),
    "cache_after": lambda d, s, t: s.cache_after(t, cached_uses=d(st.just(())) or _some(d, s)),
    "cache_before": lambda d, s, t: s.cache_before(
        t, d(st.just(LoadStoreOpType.set) | st.sampled_from(LoadStoreOpType))
    ),
    "cache_fork": lambda d, s, t: s.cache_fork(t),
    "recompute": lambda d, s, t: s.recompute(t),
    "assume": lambda d, s, t: s.assume(t, _axis(d, t), *d(st.sampled_from(((0, 64), (1, 40), (8, 8))))),
    "assume_multiple": lambda d, s, t: s.assume_multiple(t, _axis(d, t), d(st.sampled_from((0, 1, 2, 4)))),
    "allow_unaligned": lambda d, s, t: s.allow_unaligned(t),
    "set_memory_type": lambda d, s, t: s.set_memory_type(
        t, d(st.sampled_from((MemoryType.shared, MemoryType.shared, MemoryType.local, MemoryType.global_)))
    ),
    "store_along": lambda d, s, t: s.store_along(
        t, d(st.permutations(range(len(t.loop)))), d(st.sampled_from((0, 1, 4)))
    ),
    "ring": _ring,
    "set_allocation_as_loop": lambda d, s, t: s.set_allocation_as_loop(t),
    "prefetch": lambda d, s, t: s.prefetch(t),
    "accumulate_in_registers": lambda d, s, t: s.accumulate_in_registers(t),
    "all_reduce": lambda d, s, t: s.all_reduce(t),
    "transform_like": lambda d, s, t: s.transform_like(t, _some(d, s) if d(st.booleans()) else ()),
    "bounded_transform_backward": lambda d, s, t: s.bounded_transform_backward(
        t, d(st.integers(-1, 3)), _some(d, s), d(st.booleans())
    ),
    "parallelize_like": lambda d, s, t: s.parallelize_like(t, d(st.just(-1) | st.integers(-3, 3))),
    "inline_at": lambda d, s, t: s.inline_at(t, _axis(d, t), d(st.booleans()), _some(d, s)),
    "inline_most": lambda d, s, t: s.inline_most(_some(d, s) if d(st.booleans()) else ()),
}
# Those that most schedules are made of come more often.
CHOICE = [*STEPS, *("split", "parallelize", "reorder", "merge", "rfactor", "cache_after") * 2]


PAIRED = {"ring": ("circular_buffer", "warp_specialize")}  # a step -> the primitives that it calls


def test_every_primitive_is_drawn() -> None:
    assert {name for step in STEPS for name in PAIRED.get(step, (step,))} == {*Schedule.PRIMITIVES}


def _step(draw: Draw, schedule: Schedule, names: list[str]) -> None:
    """One primitive on some tensor; what is refused has changed nothing."""
    tensor = draw(st.sampled_from(schedule.tensors()))
    name = draw(st.sampled_from(names))
    calls = schedule.trace()
    before = scheduled_text(schedule.fusion)
    try:
        STEPS[name](draw, schedule, tensor)
    except UserError:
        if schedule.trace() == calls:  # not where it was the last of several
            assert scheduled_text(schedule.fusion) == before, f"{name} of {tensor} failed half way"


def _schedule(draw: Draw, schedule: Schedule) -> None:
    """Some primitives; then mostly what makes the loops of all tensors alike, and a few more."""
    for _ in range(draw(st.integers(0, 8))):
        _step(draw, schedule, CHOICE)
    if draw(st.integers(0, 4)):
        reference = draw(st.sampled_from(schedule.tensors()))
        for call in (schedule.transform_like, schedule.parallelize_like):
            with contextlib.suppress(UserError):
                call(reference)
    for _ in range(draw(st.integers(0, 3))):
        _step(draw, schedule, CHOICE)
    if draw(st.integers(0, 4)):
        schedule.inline_most()


def _is_short(schedule: Schedule, facts: Facts) -> bool:
    """Whether the simulator runs it in no time."""
    for tensor in schedule.tensors():
        extents = [max(1, facts.value(axis.extent)) for axis in tensor.loop]
        serial = [n for n, axis in zip(extents, tensor.loop) if not axis.parallel.is_thread]
        if prod(extents) > MAX_ITERATIONS or prod(serial) > MAX_SERIAL:
            return False
    return True


def _replayed(schedule: Schedule) -> tuple[Call, ...]:
    """The trace of the printed schedule."""
    names: dict[str, Any] = {}
    exec("from fusewright.core.enums import *", names)
    exec(schedule.to_python(), names)
    again = Schedule(schedule.original)
    names["schedule"](SimpleNamespace(sched=again))
    return again.trace()


@pytest.mark.sampled(0.5, "name")
@pytest.mark.parametrize("is_symbolic", [False, True], ids=["constant", "symbolic"])
@pytest.mark.parametrize("name", DEFINITIONS)
def test_random_primitives(name: str, is_symbolic: bool) -> None:
    body, reference = DEFINITIONS[name]

    @settings(max_examples=EXAMPLES, deadline=DEADLINE, phases=PHASES)
    @given(data=st.data(), shape=st.sampled_from(SHAPES))
    def check(data: Any, shape: tuple[int, int]) -> None:
        generator = torch.Generator().manual_seed(0)
        inputs = [torch.randn(size, generator=generator) for size in (shape, shape[1:])]
        fd = _defined(body, (-1, -1) if is_symbolic else shape)
        fd._setup_schedule(inputs, overwrite_existing_schedule=True)
        assert fd._open_schedule is not None
        user = fd._open_schedule.current
        _schedule(data.draw, user.schedule)
        hypothesis.note(user.schedule.to_python())
        assert _replayed(user.schedule) == user.schedule.trace()
        if not _is_short(user.schedule, user.facts):
            hypothesis.event("long")
            return
        fd._finalize_schedule(inputs)
        try:
            outputs = fd.execute(inputs)
        except UserError:
            hypothesis.event("refused")
            return
        hypothesis.event("ran")
        for actual, expected in zip(outputs, reference(*(x.double() for x in inputs)), strict=True):
            torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=1e-4)

    check()
