"""The loops that schedulers of reductions share: rows and reduced elements, cut, factored and inlined."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fusewright.core.enums import ParallelType
from fusewright.core.errors import ParamsError
from fusewright.ir.node import Reduction
from fusewright.ir.value import TensorView
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.io import Ports, find_loads, inline_rest, vectorize_ports
from fusewright.schedulers.params import ReductionParams
from fusewright.schedulers.reduction_space import ReductionSpace


def check_rows(space: ReductionSpace, params: ReductionParams) -> None:
    """Raises ParamsError for params that need rows where every dimension is reduced."""
    if not space.iteration:
        params.expect("fastest_dim", True, "where every dimension is reduced")
        params.expect("unroll_factor_iter_dom", 1, "where every dimension is reduced")
        params.expect("persistent_blocks", 0, "where every dimension is reduced")
        if params.multiple_reds_per_blk:
            raise ParamsError(
                path="lparams.bdimy",
                expected="1 where every dimension is reduced",
                given=params.lparams.bdimy,
            )


def merge_to_rows_and_reduction(schedule: Schedule, space: ReductionSpace, apart: int = 0) -> TensorView:
    """[..] -> [I, R] on the reference, each merged in memory order; I or R alone if there is no other.

    apart: so many of the innermost reduced dimensions stay apart from the others: [I, R outer, R inner].
    """
    reference = space.reference
    order = [*space.iteration, *space.reduction]
    positions = {reference.loop.index(axis): i for i, axis in enumerate(order)}
    if any(old != new for old, new in positions.items()):
        schedule.reorder(reference, positions)
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


def distribute(
    schedule: Schedule,
    space: ReductionSpace,
    reference: TensorView,
    ports: Ports,
    moved: list[int],
    width: int,
    unaligned: Collection[int] = (),
    apart: Collection[TensorView] = (),
) -> list[TensorView]:
    """Factors the serial axes at `moved` of every reduction, gives all tensors their loops, and vectorizes.

    `unaligned`: positions of inputs whose vectors may start at any element. `apart`: tensors that get loops
    of their own.

    Returns the partial results, one a reduction.
    """
    computed = [tensor for tensor in schedule.fusion.tensors() if tensor.definition is not None]
    selected = [tensor for tensor in computed if tensor not in apart] if apart else []
    schedule.transform_like(reference, selected)
    partials = [schedule.rfactor(tensor, moved) for tensor in _one_a_node(space.reductions)]
    selected += partials if apart else []
    schedule.transform_like(partials[0], selected)
    schedule.parallelize_like(partials[0], selected=selected)
    vectorize_ports(schedule, ports, width, unaligned=unaligned)
    return partials


def inline(
    schedule: Schedule,
    space: ReductionSpace,
    partials: Sequence[TensorView],
    width: int,
    load_position: int,
    columns: Sequence[TensorView] = (),
    placed: Sequence[TensorView] = (),
    side_by_side: bool = False,
) -> None:
    """Inlines everything as far as it can be, but loads before a reduction at `load_position` only.

    So the loads of a whole unrolled stretch are in flight together, and with them those of vectors that start
    at any element, which take two each. `columns`: reductions of columns that loads feed as well. `placed`:
    tensors that are inlined already. `side_by_side`: the partial results of
    that stretch are made before one collective combines them all.
    """
    lead = partials[0]
    loads = find_loads(schedule.fusion)
    early = [load for load in loads if load not in space.after and feeds(load, {*partials, *columns})]
    early += [load for load in loads if load.unaligned and load not in early]
    if side_by_side:
        early += [tensor for partial in partials for tensor in _states(partial)]
    if early:
        schedule.inline_at(lead, load_position, best_effort=True, selected=early)
    runs = combined_runs(partials, early) if width > 1 else []
    if runs:
        schedule.inline_at(lead, len(lead.loop) - 1, best_effort=True, selected=runs)
    inline_rest(schedule, {*early, *runs, *placed})


def inline_row_results(schedule: Schedule, partial: TensorView, step: int) -> list[TensorView]:
    """Inlines what becomes outputs of one element a row into loops over rows alone; returns it.

    Elsewhere it would be stored, or not, at every point of the row. `step`: of the loops along a row the
    first that is no thread's.
    """
    outputs = schedule.fusion.output_tensors()
    own = [t for t in outputs if len(t.loop) == len(partial.loop) and t.loop[step].is_broadcast]
    found = [tensor for output in own for tensor in output.producers if tensor.definition is not None]
    if found:
        rows = next(i for i, axis in enumerate(own[0].loop) if axis.is_broadcast)
        schedule.inline_at(partial, rows, best_effort=True, selected=found)
    return found


def combined_runs(partials: Sequence[TensorView], loads: Sequence[TensorView]) -> list[TensorView]:
    """What is reduced by an operation that combines values as a run, and so kept side by side."""
    found: dict[TensorView, None] = {}
    for partial in partials:
        node = partial.definition
        if isinstance(node, Reduction) and node.op.combine_run:
            found.update(dict.fromkeys(node.tensor_inputs))
    return [tensor for tensor in found if tensor not in loads]


def _states(tensor: TensorView) -> list[TensorView]:
    """All results of the node that computes `tensor`."""
    assert tensor.definition is not None
    return [out for out in tensor.definition.outputs if isinstance(out, TensorView)]


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
