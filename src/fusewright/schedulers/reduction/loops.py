"""The loops that schedulers of reductions share: kept and reduced dimensions, split, factored and inlined."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from fusewright.analyze.persistent import persistent_tensors
from fusewright.core.enums import ParallelType
from fusewright.ir.node import Reduction
from fusewright.ir.value import TensorView
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.io import Ports, find_loads, inline_rest, vectorize_ports
from fusewright.schedulers.params import ReductionParams
from fusewright.schedulers.reduction.space import ReductionSpace, all_outputs
from fusewright.schedulers.reduction.wider_vectors import aligned_rows


def check_rows(space: ReductionSpace, params: ReductionParams) -> None:
    """Raises ParamsError for params that need rows where every dimension is reduced."""
    if not space.iteration:
        params.expect("fastest_dim", True, "where every dimension is reduced")
        params.expect("unroll_factor_iter_dom", 1, "where every dimension is reduced")
        params.expect("persistent_blocks", 0, "where every dimension is reduced")
        alone = not params.multiple_reds_per_blk
        params.require(alone, "lparams.bdimy", "1 where every dimension is reduced")


def merge_to_rows_and_reduction(schedule: Schedule, space: ReductionSpace, apart: int = 0) -> TensorView:
    """[..] -> [I, R] on the reference, each merged in memory order; I or R alone if there is no other.

    apart: so many of the innermost reduced dimensions stay apart from the others: [I, R outer, R inner].
    """
    reference = space.reference
    schedule.order_loops(reference, [*space.iteration, *space.reduction])
    rows, outer = len(space.iteration), len(space.reduction) - apart
    for _ in range(apart - 1):
        schedule.merge(reference, rows + outer)
    for _ in range(outer - 1):
        schedule.merge(reference, rows)
    for _ in range(len(space.iteration) - 1):
        schedule.merge(reference, 0)
    return reference


def bind_rows(schedule: Schedule, tensor: TensorView, params: ReductionParams, serial: int = 0) -> None:
    """[I, ..] -> [BIDx, ..], or [BIDx, TIDy, ..] with several rows a block.

    Rows that a thread has in flight (inner kernels) are an axis before the last `serial` ones.
    """
    if params.multiple_reds_per_blk:
        schedule.split(tensor, 0, params.lparams.bdimy)
        schedule.parallelize(tensor, 1, ParallelType.block_y)
    if params.rows_in_flight > 1:
        schedule.split(tensor, 0, params.rows_in_flight)
        position = len(tensor.loop) - serial - 1
        schedule.reorder(tensor, {1: position})
        schedule.parallelize(tensor, position, ParallelType.unroll)
    if params.persistent_blocks:
        schedule.split(tensor, 0, params.persistent_blocks)
        schedule.parallelize(tensor, 1, ParallelType.grid_x)
    else:
        schedule.parallelize(tensor, 0, ParallelType.grid_x)


def cut(
    schedule: Schedule, space: ReductionSpace, reference: TensorView, params: ReductionParams
) -> tuple[list[int], int]:
    """Cuts [I, R] into loops of blocks and threads, and serial ones.

    Returns the positions of the serial loops of R, and the elements of a vector.
    """
    inner, outer = params.vector_widths
    if params.fastest_dim:
        return _cut_inner(schedule, space, reference, params), inner
    return _cut_outer(schedule, reference, params, bool(space.iteration)), outer


def split_into_vectors(
    schedule: Schedule, space: ReductionSpace, tensor: TensorView, params: ReductionParams
) -> None:
    """[.., R] -> [.., R, vector]; with shift_rows the vectors of each row begin at aligned addresses."""
    width = params.unroll_factor_inner_reduction
    aligned = aligned_rows(space) if params.shift_rows else None
    if aligned is None:
        schedule.split(tensor, -1, width)
    else:
        schedule.shifted_split(tensor, -1, width, aligned)


def dimensions_of_vectors(schedule: Schedule, space: ReductionSpace, params: ReductionParams) -> int:
    """How many of the innermost reduced dimensions vectors go through as one.

    Raises:
        ParamsError: there are not so many, or the vectors do not divide the product of their sizes.
        ScheduleError: a size is no multiple of its number.
    """
    multiples, inside = params.vectorized_dims, space.reduced_axes_inside
    if not multiples:
        return 1
    expected = f"numbers of 2 to {len(inside)} reduced dimensions" if len(inside) > 1 else "()"
    params.require(2 <= len(multiples) <= len(inside), "vectorized_dims", expected)
    width = params.unroll_factor_inner_reduction
    params.require(prod(multiples) % width == 0, "vectorized_dims", f"a product of multiples of {width}")
    for axis, multiple in zip(inside[-len(multiples) :], multiples):
        if multiple > 1:
            schedule.assume_multiple(space.reference, space.reference.logical.index(axis), multiple)
    return len(multiples)


def _cut_inner(
    schedule: Schedule, space: ReductionSpace, tensor: TensorView, params: ReductionParams
) -> list[int]:
    """[I, R] -> [BIDx, TIDy, (BIDy,) TIDx | serial, unroll, vector]; returns the positions after the bar."""
    has_rows = bool(space.iteration)
    split_into_vectors(schedule, space, tensor, params)
    schedule.split(tensor, -2, params.lparams.bdimx)
    schedule.split(tensor, -3, params.unroll_factor_top_of_vectorization)
    # now [.., serial, unroll, threads, vector]
    end = len(tensor.loop)
    schedule.reorder(tensor, {end - 2: end - 4})
    if params.cross_grid_inner_reduction:
        schedule.split(tensor, -3, params.lparams.gdimy)
        end = len(tensor.loop)
        schedule.reorder(tensor, {end - 3: end - 5})
        schedule.parallelize(tensor, end - 5, ParallelType.grid_y)
    end = len(tensor.loop)
    pad = params.padded_threads
    schedule.parallelize(tensor, end - 4, ParallelType.block_x, pad)
    schedule.parallelize(tensor, end - 2, ParallelType.unroll)
    if has_rows:
        # What a thread has in flight of several rows is side by side: [.. | serial, rows, unroll, vector].
        bind_rows(schedule, tensor, params, serial=2)
    end = len(tensor.loop)
    return [end - 4 if has_rows and params.rows_in_flight > 1 else end - 3, end - 2, end - 1]


def _cut_outer(schedule: Schedule, tensor: TensorView, params: ReductionParams, has_rows: bool) -> list[int]:
    """[I, R] -> [BIDx, TIDx, (BIDy,) TIDy | serial, unroll, (down) | vector]; returns what stands in bars.

    Blocks x, threads x and vectors are of I, the others of R; with lanes_down_columns threads x and y change
    places. The blocks of a cluster may stand in for blocks y. `down`: rows that a thread has side by side.
    """
    launch, reduction = params.lparams, 1 if has_rows else 0
    threads = (launch.bdimx, ParallelType.block_x), (launch.bdimy, ParallelType.block_y)
    (along, along_type), (down, down_type) = reversed(threads) if params.lanes_down_columns else threads
    side_by_side = params.rows_side_by_side > 1
    if side_by_side:
        schedule.split(tensor, reduction, params.rows_side_by_side)
        schedule.parallelize(tensor, reduction + 1, ParallelType.unroll)
    schedule.split(tensor, reduction, down)
    schedule.split(tensor, reduction, params.unroll_factor_inner_reduction)
    # [I, serial, unroll, threads] -> [I, threads, serial, unroll]
    schedule.reorder(tensor, {reduction + 2: reduction})
    schedule.parallelize(tensor, reduction, down_type)
    schedule.parallelize(tensor, reduction + 2, ParallelType.unroll)
    first = reduction + 1
    shared_by = max(launch.gdimy, params.blocks_per_cluster)
    if shared_by > 1:
        across = ParallelType.grid_y if params.cross_grid_inner_reduction else ParallelType.cluster_x
        schedule.split(tensor, reduction + 1, shared_by)
        schedule.reorder(tensor, {reduction + 2: reduction})
        schedule.parallelize(tensor, reduction, across)
        first += 1
    if has_rows:
        schedule.split(tensor, 0, params.unroll_factor_iter_dom)
        schedule.split(tensor, 0, along)
        schedule.reorder(tensor, {2: len(tensor.loop) - 1})
        schedule.parallelize(tensor, 0, ParallelType.grid_x)
        schedule.parallelize(tensor, 1, along_type)
        if params.unroll_factor_iter_dom > 1:
            schedule.parallelize(tensor, -1, ParallelType.unroll)
        first += 1
    return list(range(first, first + 2 + side_by_side))


def distribute(
    schedule: Schedule,
    space: ReductionSpace,
    reference: TensorView,
    ports: Ports,
    moved: list[int],
    width: int,
    unaligned: Collection[int] = (),
    apart: Collection[TensorView] = (),
    through: int = 1,
) -> list[TensorView]:
    """Factors the serial axes at `moved` of every reduction, gives all tensors their loops, and vectorizes.

    `unaligned`: positions of inputs whose vectors may start at any element. `apart`: tensors that get loops
    of their own. `through`: the dimensions that vectors go through as one.

    Returns the partial results, one a reduction.
    """
    # The way to what has inputs in common with the reductions, and nothing else, leads over these.
    selected = [tensor for tensor in schedule.fusion.tensors() if tensor not in apart] if apart else []
    schedule.transform_like(reference, selected)
    partials = [schedule.rfactor(tensor, moved) for tensor in _one_a_node(space.reductions)]
    selected += all_outputs(partials) if apart else []
    schedule.transform_like(partials[0], selected)
    schedule.parallelize_like(partials[0], selected=selected)
    vectorize_ports(schedule, ports, width, through, unaligned)
    return partials


def all_reduce(schedule: Schedule, space: ReductionSpace) -> None:
    """Gives the result of each reduction to all blocks that share it."""
    for tensor in _one_a_node(space.reductions):
        schedule.all_reduce(tensor)


def inline(
    schedule: Schedule,
    space: ReductionSpace,
    partials: Sequence[TensorView],
    width: int,
    load_position: int,
    columns: Sequence[TensorView] = (),
    placed: Sequence[TensorView] = (),
    side_by_side: bool = False,
    serial: Sequence[int] = (),
    ahead: Collection[TensorView] = (),
) -> None:
    """Inlines everything as far as it can be, but loads before a reduction at `load_position` only.

    So the loads of a whole unrolled stretch are in flight together, and with them those of vectors that start
    at any element, which take two each, and those of the inputs `ahead`. `columns`: reductions of columns
    that loads feed as well. `placed`: tensors that are inlined already. `side_by_side`: the partial results
    of that stretch are made before one collective combines them all. `serial`: as of `inline_runs`.
    """
    lead = partials[0]
    loads = [load for load in find_loads(schedule.fusion) if load not in placed]
    early = [load for load in loads if load not in space.after and feeds(load, {*partials, *columns})]
    early += [load for load in loads if load not in early and (load.unaligned or load.producers[0] in ahead)]
    if side_by_side:
        early += all_outputs(partials)
    if early:
        schedule.inline_at(lead, load_position, best_effort=True, selected=early)
    runs = inline_runs(schedule, partials, early, serial, width)
    inline_rest(schedule, {*early, *runs, *placed})


def share_across_rows(schedule: Schedule, partials: Sequence[TensorView], rows: int) -> list[TensorView]:
    """[.. | rows, batches, vector] -> [.. | batches, rows, vector] of what is computed when all reductions
    are, so that what these rows have in common is loaded once; returns those loads, inlined.

    `rows`: the position of the loop over the rows that a thread has in flight.
    """
    lead = partials[0]
    computed = [tensor for tensor in schedule.fusion.tensors() if tensor.definition is not None]
    late = [tensor for tensor in computed if not feeds(tensor, set(partials))]
    # Those of vectors too wide for one access have a loop more, the last.
    late = [tensor for tensor in late if len(tensor.loop) >= len(lead.loop) and not tensor.is_reduction]
    shared = [load for load in find_loads(schedule.fusion) if load in late and load.loop[rows].is_broadcast]
    stores = [tensor for tensor in schedule.fusion.output_tensors() if tensor in late]
    store = next((tensor for tensor in stores if not tensor.loop[rows].is_broadcast), None)
    if not shared or store is None:
        return []
    for tensor in late:
        schedule.reorder(tensor, {rows: rows + 1})
    schedule.inline_at(store, rows + 1, best_effort=True, selected=shared)
    return shared


def inline_row_results(schedule: Schedule, partial: TensorView, step: int) -> list[TensorView]:
    """Inlines what becomes outputs of one element a row into loops over rows alone; returns it.

    Elsewhere it would be stored, or not, at every point of the row. `step`: of the loops along a row the
    first that is no thread's.
    """
    outputs = schedule.fusion.output_tensors()
    # Those whose vectors several accesses store have more loops (`io.vectorize`).
    own = [t for t in outputs if len(t.loop) >= len(partial.loop) and t.loop[step].is_broadcast]
    found = [tensor for output in own for tensor in output.producers if tensor.definition is not None]
    kept = [t for t in persistent_tensors(schedule.fusion) if _is_computed_once_a_row(t) and t not in outputs]
    kept = [t for t in kept if len(t.loop) >= len(partial.loop) and t.loop[step].is_broadcast]
    if found or kept:
        rows = next(i for i, axis in enumerate((own or kept)[0].loop) if axis.is_broadcast)
        found = list(dict.fromkeys([*found, *kept]))
        schedule.inline_at(partial, rows, best_effort=True, selected=found)
    return found


def _is_computed_once_a_row(tensor: TensorView) -> bool:
    node = tensor.definition
    return node is not None and bool(node.reduced) and not isinstance(node, Reduction)


def inline_runs(
    schedule: Schedule,
    partials: Sequence[TensorView],
    loads: Sequence[TensorView],
    serial: Sequence[int],
    width: int,
) -> list[TensorView]:
    """Inlines what is reduced by an operation that combines values as a run so that registers hold a run of
    it: of a vector along the row, or of the rows that a thread has in flight. Returns it.

    `serial`: positions of the serial loops that are reduced, the outermost first.
    """
    if width == 1:
        return []
    lead, runs = partials[0], combined_runs(partials, loads)
    of_rows = bool(serial) and not lead.loop[-1].is_reduction
    if runs:
        position = serial[0] + 1 if of_rows else len(lead.loop) - 1
        schedule.inline_at(lead, position, best_effort=True, selected=runs)
    for partial in partials if of_rows else ():
        for state in partial.siblings if _combines_runs(partial) else ():
            schedule.reorder(state, {serial[-1]: -1})
    return runs


def _combines_runs(partial: TensorView) -> bool:
    node = partial.definition
    return isinstance(node, Reduction) and bool(node.op.combine_run)


def combined_runs(partials: Sequence[TensorView], loads: Sequence[TensorView]) -> list[TensorView]:
    """What is reduced by an operation that combines values as a run, and so kept side by side."""
    found: dict[TensorView, None] = {}
    for partial in partials:
        if _combines_runs(partial) and partial.definition is not None:
            found.update(dict.fromkeys(partial.definition.tensor_inputs))
    return [tensor for tensor in found if tensor not in loads]


def _one_a_node(reductions: tuple[TensorView, ...]) -> list[TensorView]:
    return list({tensor.definition: tensor for tensor in reductions}.values())


def feeds(load: TensorView, targets: set[TensorView]) -> bool:
    """Whether a reduction is computed from `load`."""
    stack, seen = [load], {load}
    while stack:
        tensor = stack.pop()
        if tensor in targets:
            return True
        for consumer in tensor.consumers:
            if consumer not in seen:
                seen.add(consumer)
                stack.append(consumer)
    return False
