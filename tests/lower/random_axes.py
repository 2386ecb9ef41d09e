"""Random chains of transforms of a tensor's loop axes, as hypothesis draws them."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from fusewright.core.enums import ParallelType
from fusewright.ir import TensorView
from fusewright.schedule import Schedule
from fusewright.sym import as_int

Draw = Callable[[st.SearchStrategy], object]

THREADS = (ParallelType.block_x, ParallelType.block_y, ParallelType.unroll)
BLOCKS = (ParallelType.grid_x, ParallelType.grid_y)


def transform(draw: Draw, schedule: Schedule, tensor: TensorView, steps: int = 5) -> None:
    """Applies up to `steps` random transforms that the schedule accepts."""
    for _ in range(draw(st.integers(0, steps))):
        rank = len(tensor.loop)
        kind = draw(st.sampled_from(("split", "merge", "reorder", "swizzle")))
        a, b = draw(st.integers(0, rank - 1)), draw(st.integers(0, rank - 1))
        if kind == "split":
            schedule.split(tensor, a, draw(st.integers(1, 4)), draw(st.booleans()))
        elif kind == "merge" and a != b:
            schedule.merge(tensor, a, b)
        elif kind == "reorder":
            schedule.reorder(tensor, {a: b})
        elif kind == "swizzle":
            _swizzle(schedule, tensor, draw(st.sampled_from((2, 4))))


def _swizzle(schedule: Schedule, tensor: TensorView, size: int) -> None:
    """Cuts a square tile from the first and the last axis, and swizzles it."""
    schedule.split(tensor, 0, size)
    schedule.split(tensor, -1 if len(tensor.loop) > 2 else 0, size)
    schedule.swizzle(tensor, 1, len(tensor.loop) - 1)


def parallelize(draw: Draw, schedule: Schedule, tensor: TensorView, kinds: tuple[ParallelType, ...]) -> None:
    """Binds random axes, each kind at most once, unrolling only what has a constant extent."""
    for kind in kinds:
        position = draw(st.integers(0, 2 * len(tensor.loop)))
        if position >= len(tensor.loop) or tensor.loop[position].parallel is not ParallelType.serial:
            continue
        if kind is ParallelType.unroll and as_int(tensor.loop[position].extent) is None:
            continue
        schedule.parallelize(tensor, position, kind)
