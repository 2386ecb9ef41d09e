"""The workbench: a copy of a fusion, the primitives that schedule it, and the record of their calls."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from fusewright.core.call_sites import CallSite, call_site
from fusewright.core.enums import CacheOp, LoadStoreOpType, MemoryType, ParallelType
from fusewright.core.errors import ScheduleError
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView, Val
from fusewright.schedule import caching, circular, completion, holding, inlining, propagate, transforms
from fusewright.schedule.assume import assume, assume_multiple
from fusewright.schedule.rfactor import rfactor
from fusewright.schedule.text import ROLES, call_text, to_python
from fusewright.schedule.trace import Call, TensorRef

F = TypeVar("F", bound=Callable[..., Any])


def _primitive(method: F) -> F:
    """Records the call with what it returned; checks that the tensors it is given are this schedule's."""

    @functools.wraps(method)
    def recorded(self: Schedule, *args: Any, **kwargs: Any) -> Any:
        try:
            for value in (*args, *kwargs.values()):
                self._check_owned(method.__name__, value)
            result = method(self, *args, **kwargs)
        except ScheduleError as error:
            error.primitive = f"in {call_text(_call(method, args, kwargs), self.name_of)}"
            raise
        self.call_sites.append(call_site())
        added = self._find_added()
        if added and self.fusion.naming is not None:
            source = next(v for v in (*args, *kwargs.values()) if isinstance(v, TensorView))
            for tensor in added:
                tensor.label = self.fusion.naming.derived(source.name, ROLES[method.__name__])
        self._trace.append(_call(method, args, kwargs, result, added))
        return result

    return recorded  # type: ignore[return-value]


def _call(
    method: Callable[..., Any],
    args: Iterable[Any],
    kwargs: Mapping[str, Any],
    result: Any = None,
    added: Any = (),
) -> Call:
    named = tuple((name, _plain(value)) for name, value in kwargs.items())
    return Call(method.__name__, tuple(map(_plain, args)), named, _plain(result), _plain(added))


def _plain(value: Any) -> Any:
    if isinstance(value, TensorView):
        return TensorRef(value.number)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return tuple(sorted((_plain(v) for v in value), key=str))
    if isinstance(value, (list, tuple)):
        return tuple(_plain(v) for v in value)
    return value


class Schedule:
    """A fusion being scheduled.

    Every primitive documents how it changes the loop axes as `before -> after`. Negative positions count from
    the end. All primitives raise ScheduleError on failure and leave the schedule unchanged.

    Attributes:
        fusion: this schedule's own copy of the fusion.
        map: maps values of the original fusion to those of the copy.
    """

    PRIMITIVES = (
        "split",
        "shifted_split",
        "merge",
        "reorder",
        "swizzle",
        "reverse",
        "hold_part",
        "set_cache_op",
        "parallelize",
        "rfactor",
        "cache_after",
        "cache_before",
        "cache_fork",
        "recompute",
        "allow_unaligned",
        "assume",
        "assume_multiple",
        "set_memory_type",
        "store_along",
        "circular_buffer",
        "warp_specialize",
        "set_allocation_as_loop",
        "prefetch",
        "accumulate_in_registers",
        "all_reduce",
        "transform_like",
        "bounded_transform_backward",
        "parallelize_like",
        "inline_at",
        "inline_most",
    )

    def __init__(self, fusion: Fusion) -> None:
        self.original = fusion
        self.fusion: Fusion
        self.map: dict[Val, Val]
        self.fusion, self.map = fusion.clone()
        self._trace: list[Call] = []
        #: for each call of the trace where the user made it, if that is known
        self.call_sites: list[CallSite | None] = []
        self._nodes = set(self.fusion.nodes)
        self._by_number = {tensor.number: tensor for tensor in self.fusion.tensors()}

    def __repr__(self) -> str:
        """The primitives called so far, as Python."""
        return self.to_python()

    # ---- looking

    def tensors(self) -> list[TensorView]:
        """All tensors, in the order in which they were made."""
        return sorted(self.fusion.tensors(), key=lambda t: t.number)

    def tensor(self, number: int) -> TensorView:
        """The tensor T<number>. ScheduleError if there is none."""
        tensor = self._by_number.get(number)
        if tensor is None or not self._has(tensor):
            raise ScheduleError(f"there is no tensor T{number} in this fusion")
        return tensor

    def siblings(self, tensor: TensorView) -> list[TensorView]:
        """The tensors that one node computes, of which `tensor` is one: sums, means and counts of Welford."""
        return tensor.siblings

    def is_reduction(self, tensor: TensorView) -> bool:
        return not self.fusion.is_input(tensor) and tensor.is_reduction

    def name_of(self, ref: TensorRef) -> str:
        """The name of a tensor that is, or was, in the fusion."""
        tensor = self._by_number.get(ref.number)
        return f"T{ref.number}" if tensor is None else tensor.name

    def trace(self) -> tuple[Call, ...]:
        """The primitives called so far."""
        return tuple(self._trace)

    def to_python(self) -> str:
        """The trace as a function of a definition `fd`, whose `fd.sched` is a Schedule of the same fusion."""
        return to_python(self._trace)

    def _find_added(self) -> list[TensorView]:
        """Takes note of the tensors that nodes appended since the last call make; returns them by number."""
        found = []
        for node in reversed(self.fusion.nodes):
            if node in self._nodes:
                break
            self._nodes.add(node)
            found += [
                t for t in node.outputs if isinstance(t, TensorView) and t.number not in self._by_number
            ]
        found.sort(key=lambda t: t.number)
        self._by_number.update((t.number, t) for t in found)
        return found

    def _has(self, tensor: TensorView) -> bool:
        """Whether `tensor` is one of this schedule's fusion still: an input, or computed by a node."""
        is_known = self._by_number.get(tensor.number) is tensor
        return is_known and (tensor.definition is not None or self.fusion.is_input(tensor))

    def _check_owned(self, method: str, value: Any) -> None:
        if isinstance(value, TensorView):
            if not self._has(value):
                raise ScheduleError(f"{method}: {value.name} is not a tensor of this schedule's fusion")
        elif isinstance(value, (list, tuple, set)):
            for item in value:
                self._check_owned(method, item)

    def complete(self) -> None:
        """Calls the primitives that are lacking until the schedule can be lowered; see `completion`."""
        for tensor in completion.accumulated_in_memory(self.fusion):
            self.accumulate_in_registers(tensor)
        variable = completion.of_variable_size(self.fusion)
        if any(inlining.max_inline_position(self.fusion, t) > t.inline_at for t in variable):
            self.inline_most(variable)

    # ---- axes

    @_primitive
    def split(self, tensor: TensorView, dim: int, factor: int, inner_split: bool = True) -> None:
        """[.., n, ..] -> [.., ceilDiv(n, factor), factor, ..]; inner_split=False: the factor is outer."""
        transforms.split(self.fusion, tensor, dim, factor, inner_split)

    @_primitive
    def shifted_split(
        self, tensor: TensorView, dim: int, factor: int, aligned: TensorView, turn: int | None = None
    ) -> None:
        """[.., n, ..] -> [.., ceilDiv(n + factor - 1, factor), factor, ..], with each row's vectors aligned.

        The axis is the row of `aligned`, an input or output whose dimensions are those that `tensor` is
        computed along: its innermost dimension, or several merged. A row that starts s elements after a
        multiple of `factor` is shifted by s: point i is at [(i + s) // factor, (i + s) % factor]. The first
        and the last vector of a row have points outside of it, which are not computed.

        `turn`: a loop axis with one row per point. Rows at equal points start at the same distance from a
        multiple of `factor`: the axis is the inner result of a split of the rows by a constant. Then s
        depends only on this axis, so a loop over such rows has each column at one position.
        """
        transforms.shifted_split(self.fusion, tensor, dim, factor, aligned, turn)

    @_primitive
    def merge(self, tensor: TensorView, dim: int, inner: int | None = None) -> None:
        """[.., a, b, ..] -> [.., a*b, ..]: dim and the next axis, or `inner`."""
        transforms.merge(self.fusion, tensor, dim, inner)

    @_primitive
    def reorder(self, tensor: TensorView, old2new: Mapping[int, int]) -> None:
        """[a, b, c] -> [b, c, a] with {0: 2}: the axes not named keep their order."""
        transforms.reorder(tensor, old2new)

    def order_loops(self, tensor: TensorView, axes: Sequence[IterDomain]) -> None:
        """`reorder` by the loops themselves: the given loops come first, in this order."""
        positions = {tensor.loop.index(axis): i for i, axis in enumerate(axes)}
        if any(old != new for old, new in positions.items()):
            self.reorder(tensor, positions)

    @_primitive
    def swizzle(self, tensor: TensorView, x: int, y: int) -> None:
        """[.., x, y, ..] -> [.., x, y ^ x, ..] for two equal constant power-of-two extents."""
        transforms.swizzle(self.fusion, tensor, x, y)

    @_primitive
    def reverse(self, tensor: TensorView, dim: int) -> None:
        """[.., n, ..] -> [.., n, ..] from its last point to its first.

        The data that one loop read last is still in the L2 cache when the next loop reads it first.
        """
        transforms.reverse(self.fusion, tensor, dim)

    @_primitive
    def parallelize(self, tensor: TensorView, axis: int, parallel_type: ParallelType, pad: int = 1) -> None:
        """Binds a loop axis; `pad` rounds its threads up to a multiple (32 fills warps)."""
        transforms.parallelize(tensor, axis, parallel_type, pad=pad)

    @_primitive
    def rfactor(self, tensor: TensorView, dims: Sequence[int]) -> TensorView:
        """tensor[i, r0, r1] -> partial[i, r0, r1 reduced] then tensor[i, r0 reduced]; returns partial."""
        return rfactor(self.fusion, tensor, dims)

    # ---- copies and memory

    @_primitive
    def cache_after(
        self,
        tensor: TensorView,
        op_type: LoadStoreOpType = LoadStoreOpType.set,
        cache_op: CacheOp = CacheOp.unspecified,
        cached_uses: Collection[TensorView] = (),
    ) -> TensorView:
        """tensor -> uses  =>  tensor -> copy -> uses (only those computing `cached_uses`, if given).

        `op_type`: of the copy; `set` is the only one yet. `cache_op`: of a load from global memory.
        """
        _check_not_inlined("cache_after", tensor)
        return caching.cache_after(self.fusion, tensor, op_type, cache_op, cached_uses)

    @_primitive
    def cache_before(self, tensor: TensorView, op_type: LoadStoreOpType = LoadStoreOpType.set) -> TensorView:
        """definition -> tensor  =>  definition -> copy -> tensor; returns the copy. `op_type`: `set`."""
        _check_not_inlined("cache_before", tensor)
        return caching.cache_before(self.fusion, tensor, op_type)

    @_primitive
    def cache_fork(self, tensor: TensorView) -> TensorView:
        """An output with uses => a local tensor with a new output copied from it; returns the output."""
        _check_not_inlined("cache_fork", tensor)
        return caching.cache_fork(self.fusion, tensor)

    @_primitive
    def recompute(self, tensor: TensorView, recomputed_uses: Collection[TensorView] = ()) -> list[TensorView]:
        """tensor -> a, b => tensor -> a, twin -> b: every use after the first computes it anew.

        With `recomputed_uses`, one twin serves those.
        """
        _check_not_inlined("recompute", tensor)
        return caching.recompute(self.fusion, tensor, recomputed_uses)

    @_primitive
    def assume(self, tensor: TensorView, dim: int, low: int, high: int) -> None:
        """Assumes that the size of dimension `dim` is in [low, high]; values that follow are constants in the
        kernel.

        The kernel rejects a call with another size (automatic schedules then make another kernel).
        """
        assume(self.fusion, tensor, dim, low, high)

    @_primitive
    def assume_multiple(self, tensor: TensorView, dim: int, number: int) -> None:
        """Assumes that the size of dimension `dim` is a multiple of `number`, so that vectors may cross it.

        The kernel rejects a call with another size (automatic schedules then make another kernel).
        """
        assume_multiple(self.fusion, tensor, dim, number)

    @_primitive
    def set_memory_type(self, tensor: TensorView, memory_type: MemoryType) -> None:
        """Places an intermediate tensor in registers (local), shared or global memory.

        In global memory all blocks may read it. There is a grid barrier between a block's store and another
        block's read, so the launch is cooperative: all of its blocks must fit the GPU at once.
        """
        caching.set_memory_type(self.fusion, tensor, memory_type)

    @_primitive
    def set_cache_op(self, tensor: TensorView, cache_op: CacheOp) -> None:
        """Sets the cache hint of a load from global memory, including loads by index, or of a store to it."""
        caching.set_cache_op(tensor, cache_op)

    @_primitive
    def allow_unaligned(self, tensor: TensorView) -> None:
        """Lets the vectors of a load from global memory to registers start at any element.

        Each vector is selected from the two aligned vectors that contain it. So neither the address nor the
        lengths of rows need to be multiples of a vector. Without a vectorized axis nothing changes.
        """
        caching.allow_unaligned(tensor)

    @_primitive
    def hold_part(self, load: TensorView, again: Collection[TensorView], steps: int, pos: int) -> TensorView:
        """source -> load, again => source -> load -> held; source, held -> again; returns held.

        Shared memory holds the data that `load` loads in the first `steps` iterations of its loop at `pos`.
        `again`, which loads the same elements later, reads these from there and loads only the rest again.
        """
        return holding.hold_part(self.fusion, load, list(again), steps, pos)

    @_primitive
    def store_along(self, tensor: TensorView, dims: Sequence[int], padding: int = 0) -> None:
        """Stores a shared tensor along these of its loop axes as they are now, outermost first.

        An intermediate tensor in global memory takes its dimensions in any order, before they are split.
        Other tensors are stored along all their loops, and accept no other order; so is a shared tensor
        without this call. Axes left out must be bound to blocks or be inlined loops. `padding`: unused
        elements after each point of the first axis, which distribute reads across rows over the banks.
        """
        caching.store_along(self.fusion, tensor, dims, padding)

    @_primitive
    def circular_buffer(
        self, tensor: TensorView, stages: int, prefetch_distance: int = -1, pos: int = -1
    ) -> None:
        """Fills a shared tensor ahead of its readers by bulk copies, which one thread of the block starts.

        The tensor is copied from an input. In [.., n | run], with the bar at `pos`, the innermost axis is
        what one copy moves, contiguous in the input. The loops right of the bar form one stage, and the
        serial loops left of it count the stages. There is room for `stages` of them. `prefetch_distance`
        stages (negative: that many less than stages) are in flight, or have arrived, beyond those that are no
        longer read.
        """
        circular.circular_buffer(self.fusion, tensor, stages, prefetch_distance, pos)

    @_primitive
    def warp_specialize(
        self,
        tensor: TensorView,
        number_of_stages: int,
        prefetch_distance: int,
        parallel_type: ParallelType,
        num_registers: Sequence[int] | None = None,
        pos: int = -1,
    ) -> None:
        """Like `circular_buffer`, with a separate warp that starts the copies, in addition to the block's
        others along an axis.

        `num_registers`: per thread of the warps that load, which are then four, and per thread of those that
        compute.
        """
        circular.warp_specialize(
            self.fusion, tensor, number_of_stages, prefetch_distance, parallel_type, num_registers, pos
        )

    @_primitive
    def set_allocation_as_loop(self, tensor: TensorView) -> None:
        """Stores a tensor in shared memory or registers along its loops, which is the default without
        `store_along`.

        An output has the layout of its definition: its loops must follow the order of its memory.
        """
        caching.set_allocation_as_loop(self.fusion, tensor)

    @_primitive
    def prefetch(self, tensor: TensorView) -> None:
        """Loads a tensor into registers an iteration ahead of the serial loop that it is inlined into.

        Its load is in flight during the previous iteration. It takes twice the registers.
        """
        caching.prefetch(self.fusion, tensor)

    @_primitive
    def accumulate_in_registers(self, tensor: TensorView) -> TensorView:
        """reduction -> tensor in memory => reduction -> copy in registers -> tensor, in the same loops.

        `complete` does this for all reductions for which it was not called. Returns the copy.
        """
        return completion.accumulate_in_registers(self.fusion, tensor)

    @_primitive
    def all_reduce(self, tensor: TensorView) -> None:
        """Gives the result of a reduction across blocks to all of them, which wait for each other.

        Without it, only the last block has the result, and no later axis can be bound to those blocks. The
        launch is cooperative: all of its blocks must fit the GPU at once.
        """
        caching.all_reduce(tensor)

    # ---- propagation

    @_primitive
    def transform_like(self, tensor: TensorView, selected: Collection[TensorView] = ()) -> None:
        """Replays the loop transforms of `tensor` on all (or the selected) tensors."""
        propagate.transform_like(self.fusion, tensor, selected)

    @_primitive
    def bounded_transform_backward(
        self, tensor: TensorView, pos: int, to: Collection[TensorView], propagate_parallel_type: bool = False
    ) -> None:
        """Replays the loops of `tensor` left of `pos` (-1: all) on its producers up to those in `to`.

        Only the tensors between these change. `propagate_parallel_type`: also binds their loops in the same
        way.
        """
        propagate.bounded_transform_backward(self.fusion, tensor, pos, to, propagate_parallel_type)

    @_primitive
    def parallelize_like(
        self,
        tensor: TensorView,
        pos: int = -1,
        selected: Collection[TensorView] = (),
        types: Collection[ParallelType] = (),
        propagate_padding: bool = True,
    ) -> None:
        """Binds axes that match those of `tensor` left of `pos` in the same way; `types` restricts which."""
        propagate.parallelize_like(tensor, pos, selected, types, propagate_padding)

    @_primitive
    def inline_at(
        self,
        tensor: TensorView,
        pos: int = -1,
        best_effort: bool = False,
        selected: Collection[TensorView] = (),
    ) -> None:
        """Computes all (or the selected) tensors inside `pos` loops that they share with consumers."""
        inlining.inline_at(self.fusion, tensor, pos, best_effort, selected)

    @_primitive
    def inline_most(self, selected: Collection[TensorView] = ()) -> None:
        """Inlines all (or the selected) tensors as far as possible."""
        inlining.inline_most(self.fusion, selected)


def _check_not_inlined(primitive: str, tensor: TensorView) -> None:
    if tensor.inline_at:
        raise ScheduleError(
            f"{primitive}: {tensor.name} is inlined at {tensor.inline_at} already",
            hint=f"call {primitive} before inlining",
        )


def replay(fusion: Fusion, trace: Iterable[Call]) -> Schedule:
    """A new Schedule of `fusion` after the calls of `trace`."""
    schedule = Schedule(fusion)
    for call in trace:
        method = getattr(schedule, call.method, None)
        if method is None or call.method not in Schedule.PRIMITIVES:
            raise ScheduleError(f"trace: there is no primitive named {call.method!r}")
        method(
            *(_resolve(schedule, a) for a in call.args), **{k: _resolve(schedule, v) for k, v in call.kwargs}
        )
    return schedule


def _resolve(schedule: Schedule, value: Any) -> Any:
    if isinstance(value, TensorRef):
        return schedule.tensor(value.number)
    if isinstance(value, tuple):
        return tuple(_resolve(schedule, item) for item in value)
    return value
