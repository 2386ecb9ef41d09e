"""Automatic schedules with a few calls left out, moved or changed: the right result, or a UserError.

They hold what random primitives seldom come to: rings, clusters, rows that are held, scans of several blocks.
`HYPOTHESIS_PROFILE=fuzz pytest tests/fuzz` draws others each time.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from fusewright import FusionDefinition
from fusewright.core.enums import CacheOp, MemoryType, ParallelType
from fusewright.core.errors import UserError
from fusewright.core.hardware import described
from fusewright.schedule import Schedule
from fusewright.schedule.trace import Call, TensorRef
from fusewright.schedulers import Facts

H200 = described("h200")
IS_FUZZ = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
SEED = os.urandom(4).hex() if IS_FUZZ else "0"
# Of each definition: params that are drawn, and changes of the schedule of each.
PARAMS, CHANGES = (30, 5) if IS_FUZZ else (1, 3)
# Iterations of one tensor's loops that are serial: the simulator takes them one by one.
MAX_SERIAL = 200
SHAPES = ((5, 33), (16, 64), (40, 4), (2, 128))

Defined = tuple[Callable[[Any, Any], Any], Callable[[torch.Tensor], torch.Tensor]]
DEFINITIONS: dict[str, Defined] = {
    "transpose": (lambda ops, x: ops.neg(ops.permute(x, [1, 0])), lambda x: -x.t()),
    "rows": (lambda ops, x: ops.sum(x, [1]), lambda x: x.sum(1)),
    "columns": (lambda ops, x: ops.max(x, [0]), lambda x: x.amax(0)),
    "softmax": (
        lambda ops, x: (e := ops.exp(x - ops.max(x, [1], True))) / ops.sum(e, [1], True),
        lambda x: x.softmax(1),
    ),
    "columns twice": (lambda ops, x: x - ops.sum(x, [0], True), lambda x: x - x.sum(0)),
    "rows and columns": (
        lambda ops, x: ops.sum((x - ops.sum(x, [1], True)) * x, [0]),
        lambda x: ((x - x.sum(1, True)) * x).sum(0),
    ),
    "scan": (lambda ops, x: ops.cumsum(x, 1), lambda x: x.cumsum(1)),
    "scan of columns": (lambda ops, x: ops.cumsum(x, 0), lambda x: x.cumsum(0)),
}

KINDS: dict[type, Sequence[Any]] = {
    kind: [member for member in kind if not getattr(member, "is_mesh", False)]
    for kind in (ParallelType, MemoryType, CacheOp)
}


def _changed(value: Any, draw: random.Random) -> Any:
    """Another argument of the same type."""
    if type(value) in KINDS:
        return draw.choice(KINDS[type(value)])
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return draw.choice((value + 1, value - 1, 2 * value, value // 2, 0, 1, 4, 32))
    if isinstance(value, TensorRef):
        return TensorRef(max(0, value.number + draw.choice((-2, -1, 1, 2))))
    if isinstance(value, dict) and value:
        key = draw.choice(list(value))
        return {**value, key: _changed(value[key], draw)}
    if isinstance(value, tuple) and value:
        i = draw.randrange(len(value))
        return draw.choice((value[::-1], (*value[:i], *value[i + 1 :])))
    return value


def _changed_call(call: Call, draw: random.Random) -> Call:
    i = draw.randrange(len(call.args) + len(call.kwargs))
    args, kwargs = list(call.args), list(call.kwargs)
    if i < len(args):
        args[i] = _changed(args[i], draw)
    else:
        name, value = kwargs[i - len(args)]
        kwargs[i - len(args)] = name, _changed(value, draw)
    return Call(call.method, tuple(args), tuple(kwargs), call.result, call.added)


def _changed_trace(trace: Sequence[Call], draw: random.Random) -> list[Call]:
    calls = list(trace)
    for _ in range(draw.choice((1, 1, 2, 3))):
        i = draw.randrange(len(calls))
        how = draw.random()
        if how < 0.3:
            del calls[i]
        elif how < 0.5:
            calls.insert(draw.randrange(len(calls)), calls.pop(i))
        else:
            calls[i] = _changed_call(calls[i], draw)
    return calls


def _apply(schedule: Schedule, calls: Sequence[Call]) -> None:
    """The calls that are legal where they come."""

    def own(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(own, value))
        return schedule.tensor(value.number) if isinstance(value, TensorRef) else value

    for call in calls:
        with contextlib.suppress(UserError):
            getattr(schedule, call.method)(*map(own, call.args), **{k: own(v) for k, v in call.kwargs})


def _is_short(schedule: Schedule, facts: Facts) -> bool:
    for tensor in schedule.tensors():
        serial = 1
        for axis in tensor.loop:
            serial *= 1 if axis.parallel.is_thread else max(1, facts.value(axis.extent))
        if serial > MAX_SERIAL:
            return False
    return True


def _traces(fd: FusionDefinition, inputs: list[torch.Tensor], draw: random.Random) -> list[Sequence[Call]]:
    """Schedules of its one kernel, for params of its space."""
    params = fd.kernels_for(inputs)[0].params
    drawn = list(params.space(H200, base=params, points=4 * PARAMS, seed=draw.randrange(1000)))
    found: list[Sequence[Call]] = []
    for each in draw.sample(drawn, len(drawn)):
        with contextlib.suppress(UserError):
            [kernel] = fd.kernels_for(inputs, schedules={0: each})
            assert kernel.kernel is not None
            found.append(kernel.kernel.trace)
        if len(found) == PARAMS:
            break
    return found


@pytest.mark.parametrize("name", DEFINITIONS)
def test_changed_automatic_schedules(name: str) -> None:
    define, reference = DEFINITIONS[name]
    draw = random.Random(f"{SEED} {name}")
    shape = draw.choice(SHAPES)
    with FusionDefinition() as fd:
        x = fd.define_tensor(draw.choice(([-1, -1], list(shape))), contiguity=True)
        fd.add_output(define(fd.ops, x))
    inputs = [torch.randn(shape, generator=torch.Generator().manual_seed(0))]
    expected = reference(inputs[0].double())
    for trace in _traces(fd, inputs, draw):
        for _ in range(CHANGES):
            fd._setup_schedule(inputs, overwrite_existing_schedule=True)
            assert fd._open_schedule is not None
            fd.sched.segment(0)
            user = fd._open_schedule.current
            _apply(user.schedule, _changed_trace(trace, draw))
            text = fd.sched.to_python()
            is_short = _is_short(user.schedule, user.facts)
            fd._finalize_schedule(inputs)
            if not is_short:
                continue
            try:
                [found] = fd.execute(inputs)
            except UserError:
                continue
            except Exception as error:
                raise AssertionError(f"{SEED}: {text}") from error
            assert torch.allclose(found.double(), expected, rtol=1e-4, atol=1e-4), f"{SEED}: {text}"
