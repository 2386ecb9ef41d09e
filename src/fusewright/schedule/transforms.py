"""Primitives on the loop axes of one tensor."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Collection, Mapping, Sequence
from math import prod

from fusewright.core.dtype import INT64_MAX
from fusewright.core.enums import MemoryType, ParallelType
from fusewright.core.errors import ScheduleError
from fusewright.core.hardware import MAX_THREADS_PER_BLOCK
from fusewright.ir.axis import IterDomain, Merge, Reverse, ShiftedSplit, Split, Swizzle, ancestors
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.sym import ONE, Expr, as_int, const, divides

# Kernels of small tensors count their loops in 32 bits.
MAX_FACTOR = 2**31 - 1


def wrap(position: int, rank: int) -> int:
    """`position` counted from the front; raises ScheduleError outside [-rank, rank)."""
    wrapped = position + rank if position < 0 else position
    if not 0 <= wrapped < rank:
        raise ScheduleError(f"Tried to access out of boundary index {wrapped}. total index: {rank}")
    return wrapped


def _check_free(tensor: TensorView, position: int, what: str) -> None:
    """An axis is free to transform while it is serial and not shared with consumers or producers."""
    axis = tensor.loop[position]
    if axis.parallel is not ParallelType.serial:
        raise ScheduleError(
            f"{what}: axis {position} of {tensor.name} is already parallelized as {axis.parallel.name}",
            hint="transform axes before binding them",
        )
    if position < tensor.inline_at:
        raise ScheduleError(
            f"{what}: axis {position} of {tensor.name} is inside its inlined position {tensor.inline_at}",
            hint="transform axes before inlining",
        )
    for producer in tensor.producers:
        if position < producer.inline_at:
            raise ScheduleError(
                f"{what}: axis {position} of {tensor.name} is shared with {producer.name}, inlined at "
                f"{producer.inline_at}",
                hint="transform axes before inlining",
            )


def _check_length(what: str, tensor: TensorView, position: int, factor: int) -> None:
    """Raises ScheduleError where a loop of `factor` points in the place of an axis is longer than any, or
    all loops of the tensor together go over more points than indices can tell apart.
    """
    if factor > MAX_FACTOR:
        raise ScheduleError(
            f"{what}: no loop is that long", expected=f"at most {MAX_FACTOR}", given=str(factor)
        )
    others = (as_int(axis.extent) or 1 for i, axis in enumerate(tensor.loop) if i != position)
    points = factor * prod(others)
    if points > INT64_MAX:
        raise ScheduleError(
            f"{what}: the loops of {tensor.name} have more points than 64 bits count",
            expected=f"at most {INT64_MAX}",
            given=str(points),
        )


def inlined_loops(tensor: TensorView) -> int:
    """How many outer loops a tensor shares with its consumers or its producers."""
    return max(tensor.inline_at, *(producer.inline_at for producer in tensor.producers), 0)


def check_binding(what: str, tensor: TensorView, position: int, parallel: ParallelType) -> None:
    """Raises ScheduleError if inlined tensors would share an axis of threads or blocks as a loop.

    Such an axis is not a loop, so a reduction along it might be incomplete there when a consumer needs it.
    """
    axis = tensor.loop[position]
    if axis.parallel.is_thread and not parallel.is_thread and position < inlined_loops(tensor):
        raise ScheduleError(
            f"{what}: axis {position} of {tensor.name} is inside inlined loops and bound to threads",
            expected="another axis of threads or blocks",
            given=f"{parallel.name} instead of {axis.parallel.name}",
            hint="bind axes before inlining",
        )


def split(fusion: Fusion, tensor: TensorView, position: int, factor: int, inner_split: bool = True) -> Split:
    """[.., n, ..] -> [.., ceilDiv(n, factor), factor, ..]; the other way round with inner_split=False."""
    position = wrap(position, len(tensor.loop))
    if factor <= 0:
        raise ScheduleError(f"Invalid factor for split. Factor must be greater than 0. Factor = {factor}")
    _check_length("split", tensor, position, factor)
    _check_free(tensor, position, "split")
    transform = Split(tensor.loop[position], const(factor), inner_split, fusion.plain_axis)
    tensor.loop[position : position + 1] = [transform.outer, transform.inner]
    return transform


def shifted_split(
    fusion: Fusion,
    tensor: TensorView,
    position: int,
    factor: int,
    aligned: TensorView,
    turn: int | None = None,
) -> ShiftedSplit:
    """[.., n, ..] -> [.., ceilDiv(n + factor - 1, factor), factor, ..], as the rows of `aligned` lie."""
    position = wrap(position, len(tensor.loop))
    if factor <= 0 or factor & (factor - 1):
        raise ScheduleError("shifted_split: vectors have a power of two of elements", given=str(factor))
    _check_length("shifted_split", tensor, position, factor)
    _check_free(tensor, position, "shifted_split")
    axis = tensor.loop[position]
    rows, strides = _rows_of(tensor, ancestors(axis, tensor.maybe_root), aligned)
    if turn is not None:
        rows, strides = _turn_of(tensor, turn, factor, rows, strides)
    transform = ShiftedSplit(axis, const(factor), rows, strides, fusion.plain_axis)
    tensor.loop[position : position + 1] = [transform.outer, transform.inner]
    return transform


def _rows_of(
    tensor: TensorView, row: Collection[IterDomain], aligned: TensorView
) -> tuple[list[IterDomain], list[Expr]]:
    """The dimensions along which rows of `aligned` lie, as axes of `tensor`, and the strides along them.

    Raises:
        ScheduleError: `row` is not what is contiguous in `aligned`, or its strides are not known.
    """
    root = tensor.maybe_root
    if aligned.memory is not MemoryType.global_ or len(aligned.shape) != len(root):
        raise ScheduleError(
            f"shifted_split: {aligned.name} has no dimension in global memory for each of {tensor.name}",
            expected=f"an input or output of {len(root)} dimensions",
            given=str(aligned),
        )
    axis_of = dict(zip(aligned.shape, root))
    memory = [
        (axis, dense) for axis, dense in zip(aligned.allocation, aligned.contiguity) if dense is not None
    ]
    ours = [axis_of[axis] for axis, _ in reversed(memory)]
    count = sum(axis in row for axis in ours)
    if not all(dense for _, dense in memory) or not count or any(axis not in row for axis in ours[:count]):
        raise ScheduleError(
            f"shifted_split: the axis is not what lies along the rows of {aligned.name}",
            expected="its innermost dimensions, of memory without gaps",
            given=", ".join(map(str, row)),
        )
    strides = list(itertools.accumulate((axis.extent for axis, _ in reversed(memory)), operator.mul))
    return ours[count:], strides[count - 1 : -1]


def _turn_of(
    tensor: TensorView, position: int, factor: int, rows: Sequence[IterDomain], strides: Sequence[Expr]
) -> tuple[list[IterDomain], list[Expr]]:
    """The loop axis by whose points rows begin alike, and the stride along it.

    `rows`: the dimensions of the rows, innermost first, and the strides along them.

    Raises:
        ScheduleError: it is no such axis.
    """
    axis = tensor.loop[wrap(position, len(tensor.loop))]
    made = axis.definition
    of_rows: list[IterDomain] = []
    if isinstance(made, Split) and made.inner is axis and divides(const(factor), made.factor):
        of_rows = _merged(made.inputs[0])
    if not rows or of_rows != list(reversed(rows)):
        raise ScheduleError(
            f"shifted_split: rows do not begin alike at equal points of {axis}",
            expected=f"the inner axis of a split by a multiple of {factor} of all rows, as in memory",
            given=str(made.inputs[0]) if made is not None else str(axis),
        )
    return [axis], [strides[0]]


def _merged(axis: IterDomain) -> list[IterDomain]:
    """The axes that are merged to this one, outermost first; splits by one are none."""
    made = axis.definition
    if isinstance(made, Merge):
        return [found for each in made.inputs for found in _merged(each)]
    if isinstance(made, Split) and made.outer is axis and made.inner.extent is ONE:
        return _merged(made.inputs[0])
    return [axis]


def merge(fusion: Fusion, tensor: TensorView, outer: int, inner: int | None = None) -> Merge:
    """[.., a, b, ..] -> [.., a*b, ..], in the place of the outer one; `inner` defaults to the next axis."""
    rank = len(tensor.loop)
    outer = wrap(outer, rank)
    inner = wrap(outer + 1 if inner is None else inner, rank)
    if outer == inner:
        raise ScheduleError("Merging IterDomains requires two different axes")
    for position in (outer, inner):
        _check_free(tensor, position, "merge")
    a, b = tensor.loop[outer], tensor.loop[inner]
    if a.is_reduction != b.is_reduction:
        raise ScheduleError(
            "Merging IterDomains requires that their iteration types match", given=f"{a} and {b}"
        )
    transform = Merge(a, b, fusion.plain_axis)
    tensor.loop[outer] = transform.outputs[0]
    del tensor.loop[inner]
    return transform


def reorder(tensor: TensorView, old2new: Mapping[int, int]) -> None:
    """Moves axis `old` to position `new`; the others keep their order in the places left."""
    rank = len(tensor.loop)
    moved: dict[int, int] = {}
    for old, new in old2new.items():
        for name, value in (("old", old), ("new", new)):
            if value >= rank:
                raise ScheduleError(
                    "Reorder axes are not within the number of dimensions of the provided domain",
                    expected=f"positions in [{-rank}, {rank})",
                    given=str(value),
                )
            if value + rank < 0:
                raise ScheduleError(
                    f'Found "{name}" position that\'s less than 0 even though already adjusted by nDims: '
                    f"{value + rank}"
                )
        moved[old % rank] = new % rank
    if len(moved) != len(old2new) or len(set(moved.values())) != len(moved):
        raise ScheduleError("Reorder found duplicate axes", given=str(dict(old2new)))
    order: list[IterDomain | None] = [None] * rank
    for old, new in moved.items():
        order[new] = tensor.loop[old]
    rest = iter(axis for i, axis in enumerate(tensor.loop) if i not in moved)
    arranged = [axis if axis is not None else next(rest) for axis in order]
    shared = inlined_loops(tensor)
    if arranged[:shared] != tensor.loop[:shared]:
        raise ScheduleError(f"reorder: moves axes of {tensor.name} inside its inlined position {shared}")
    tensor.loop = arranged


def swizzle(fusion: Fusion, tensor: TensorView, x: int, y: int) -> Swizzle:
    """Exchanges columns within rows: y becomes y ^ x. Both extents: one constant power of two."""
    x, y = wrap(x, len(tensor.loop)), wrap(y, len(tensor.loop))
    if x == y:
        raise ScheduleError("swizzle: takes two different axes", given=f"axis {x} twice")
    a, b = tensor.loop[x], tensor.loop[y]
    size = as_int(a.extent) or 0
    if a.extent is not b.extent or size <= 0 or size & (size - 1):
        raise ScheduleError(
            "swizzle: axes must have the same constant power-of-two extent", given=f"{a} and {b}"
        )
    if a.is_reduction != b.is_reduction:
        raise ScheduleError("swizzle: both axes, or neither, must be reduced", given=f"{a} and {b}")
    for position in (x, y):
        _check_free(tensor, position, "swizzle")
    transform = Swizzle(a, b, fusion.plain_axis)
    tensor.loop[x], tensor.loop[y] = transform.outputs
    return transform


def reverse(fusion: Fusion, tensor: TensorView, position: int) -> Reverse:
    """Goes over an axis from its last point to its first."""
    position = wrap(position, len(tensor.loop))
    _check_free(tensor, position, "reverse")
    transform = Reverse(tensor.loop[position], fusion.plain_axis)
    tensor.loop[position] = transform.outputs[0]
    return transform


def parallelize(tensor: TensorView, position: int, parallel: ParallelType, *, pad: int = 1) -> None:
    """Binds an axis to threads, blocks, unrolling or vector access; `pad` rounds the thread count up."""
    position = wrap(position, len(tensor.loop))
    check_binding("parallelize", tensor, position, parallel)
    axis = tensor.loop[position]
    if not 1 <= pad <= MAX_THREADS_PER_BLOCK:
        raise ScheduleError(
            "parallelize: pad is what the number of threads becomes a multiple of",
            expected=f"1 to {MAX_THREADS_PER_BLOCK}",
            given=str(pad),
        )
    if parallel.is_block or parallel.is_grid:
        for other in tensor.loop:
            if other is not axis and other.parallel is parallel:
                raise ScheduleError(
                    f"parallelize: {tensor.name} has two axes of parallel type {parallel.name}"
                )
    if parallel is ParallelType.vectorize:
        size = as_int(axis.extent) or 0
        if size <= 0 or size & (size - 1):
            raise ScheduleError(
                f"parallelize: a vectorized axis needs a constant power-of-two extent, not {axis.extent}",
                hint="split the axis by the vector width first",
            )
    axis.parallel = parallel
    axis.padded = pad
