"""Statements that the threads of a block, or the blocks of a grid, execute together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from fusewright.core.dtype import DataType
from fusewright.core.enums import ParallelType
from fusewright.core.errors import OutOfBoundsError, RaceError, SimulationError
from fusewright.core.op import ReductionOp, States, converted, selected
from fusewright.kernel import ir as k
from fusewright.kernel.exchange import TURNS_OF_REDUCTION, exchange_room, grid_exchange_room, threads_a_value
from fusewright.sim.activity import Activity
from fusewright.sim.faults import Fault
from fusewright.sim.machine import Machine, Steps
from fusewright.sim.memory import LinearMemory, LocalMemory
from fusewright.sim.statements import input_dtype, load_states, store_combined
from fusewright.sym import add, as_int, const

# Linear threads (and blocks) run along x fastest, so in a tensor's shape x comes last.
THREAD_DIMS = {axis: -1 - i for i, axis in enumerate(k.THREAD_AXES)}
BLOCK_DIMS = {axis: -4 - i for i, axis in enumerate(k.BLOCK_AXES)}


def run_barrier(machine: Machine, stmt: k.Barrier) -> None:
    machine.pass_barrier()


def run_grid_barrier(machine: Machine, stmt: k.GridBarrier) -> None:
    launch = machine.program.launch
    if machine.blocks != launch.blocks:
        raise Fault(SimulationError, "a grid barrier needs all blocks at once")
    present = machine.arrive("a grid barrier")
    if not bool(present.all()):
        block = int((~present).nonzero()[0])
        problem = "a grid barrier is reached by other blocks but not this one"
        raise Fault(SimulationError, problem, block * machine.threads)
    machine.program.arguments.check_zero(stmt.semaphore, "at a grid barrier")
    machine.pass_grid_barrier()


def run_block_reduce(machine: Machine, stmt: k.BlockReduce) -> None:
    machine.arrive("a block reduction")
    use_workspace(machine, stmt, stmt.axes)
    contributions = _contributions(machine, stmt)
    block = tuple(reversed(machine.program.launch.block))
    dims = tuple(THREAD_DIMS[axis] for axis in stmt.axes)
    reduced = _reduce(machine, stmt, contributions, (machine.blocks, *block), dims)
    _store_results(machine, stmt, reduced, machine.active)


def run_cluster_reduce(machine: Machine, stmt: k.ClusterReduce) -> None:
    cluster = machine.program.kernel.cluster
    present = machine.arrive("a cluster reduction").view(-1, cluster)
    missing = (present.any(1, keepdim=True) & ~present).reshape(-1)
    if bool(missing.any()):
        problem = "a cluster reduction is reached by other blocks of the cluster but not this one"
        raise Fault(SimulationError, problem, int(missing.nonzero()[0]) * machine.threads)
    use_workspace(machine, stmt, stmt.axes)
    block = [const(extent) for extent in machine.program.launch.block]
    for buffer in stmt.exchange:
        room = as_int(exchange_room(block, stmt.axes, stmt.width * cluster, buffer.dtype))
        assert room is not None
        _use_scratch(machine, [buffer], room)
    contributions = _contributions(machine, stmt)
    dims = (*(THREAD_DIMS[axis] for axis in stmt.axes), BLOCK_DIMS[ParallelType.grid_x])
    shape = (machine.blocks // cluster, cluster, *reversed(machine.program.launch.block))
    _store_results(machine, stmt, _reduce(machine, stmt, contributions, shape, dims), machine.active)


def run_grid_reduce(machine: Machine, stmt: k.GridReduce) -> None:
    launch = machine.program.launch
    present = arrive_across_blocks(machine, stmt, stmt.grid_axes, "a grid reduction")
    grid, block = tuple(reversed(launch.grid)), tuple(reversed(launch.block))
    use_workspace(machine, stmt, stmt.thread_axes)
    use_exchange(machine, stmt, stmt.thread_axes, TURNS_OF_REDUCTION if stmt.is_last is None else 1)
    if stmt.is_last is not None and math.prod(launch.grid[k.BLOCK_AXES.index(a)] for a in stmt.grid_axes) > 1:
        _publish(machine, stmt.exchange, present)
    contributions = _contributions(machine, stmt)
    dims = (*(THREAD_DIMS[axis] for axis in stmt.thread_axes), *(BLOCK_DIMS[axis] for axis in stmt.grid_axes))
    reduced = _reduce(machine, stmt, contributions, (*grid, *block), dims)
    if stmt.is_last is None:
        _store_results(machine, stmt, reduced, machine.active)
        return
    last = present[:, None] & _last_blocks(machine, stmt.grid_axes)
    only_block = last.numel() == 1
    machine.name_value(stmt.is_last, int(last) if only_block else last)
    active = machine.active.narrow(1 if only_block else last)
    assert active is not None  # every group that is present has a last block
    defined = last if machine.active.mask is None else last | ~machine.active.mask
    _store_results(machine, stmt, reduced, active)
    for ref in (shifted(ref, i) for i in range(stmt.width) for ref in stmt.dst):
        memory = machine.memory(ref.buffer)
        if isinstance(memory, LocalMemory) and not only_block:
            memory.forget(machine.index(ref.index), defined, machine.active)


def run_grid_reduces(machine: Machine, stmt: k.GridReduces) -> Steps:
    """What each finds does not depend on the others, so one comes after the other here."""
    yield from machine.steps(stmt.body)


def _store_results(
    machine: Machine, stmt: k.BlockReduce | k.ClusterReduce | k.GridReduce, reduced: States, active: Activity
) -> None:
    """dst = combine(dst, reduced) in the active lanes."""
    for i in range(stmt.width):
        dst = [shifted(ref, i) for ref in stmt.dst]
        into = tuple(machine.load(ref, 1, active)[0] for ref in dst)
        store_combined(machine, stmt.op, dst, into, tuple(state[i] for state in reduced), active)


OperandT = TypeVar("OperandT", bound=k.Operand)


def shifted(operand: OperandT, by: int) -> OperandT:
    """The element `by` places after that of a Ref; any other operand has the same value for each element."""
    if by == 0 or not isinstance(operand, k.Ref):
        return operand
    return replace(operand, index=add(operand.index, by))


def _contributions(machine: Machine, stmt: k.BlockReduce | k.ClusterReduce | k.GridReduce) -> States:
    """What each lane brings, (width, blocks, threads) a state; the identity where the predicate is 0."""
    op = stmt.op
    dtype = input_dtype(stmt.op, stmt.dst)
    shape = (machine.blocks, machine.threads)
    identity = [
        machine.constant(value, type_).expand(shape)
        for value, type_ in zip(op.identity(dtype), op.state_dtypes(dtype))
    ]
    active = machine.active_where(stmt.pred)
    rows: list[list[Tensor]] = [[] for _ in identity]
    for i in range(stmt.width):
        states: Sequence[Tensor] = identity
        if active is not None:
            refs = [shifted(ref, i) for ref in stmt.src]
            states = [state.expand(shape) for state in load_states(machine, op, stmt.dst, refs, active)]
            if active.mask is not None:
                states = [selected(active.mask, *pair) for pair in zip(states, identity)]
        for row, state in zip(rows, states):
            row.append(state)
    return tuple(torch.stack(row) for row in rows)


def _reduce(
    machine: Machine,
    stmt: k.BlockReduce | k.ClusterReduce | k.GridReduce,
    states: States,
    shape: tuple[int, ...],
    dims: tuple[int, ...],
) -> States:
    """Combine over `dims` of the lanes seen as `shape`; every lane of a group gets the group's result.

    Returns states (width, blocks, threads), or (width, blocks, 1) where all threads of a block agree.
    """
    width = states[0].shape[0]
    kept = [dim for dim in range(-len(shape), 0) if dim not in dims]
    order = [0, *(dim + 1 + len(shape) for dim in kept), *(dim + 1 + len(shape) for dim in sorted(dims))]
    kept_shape = [shape[dim] for dim in kept]
    groups = tuple(
        state.reshape(width, *shape).permute(order).reshape(width, *kept_shape, -1) for state in states
    )
    combined = _combine_tree(stmt.op, input_dtype(stmt.op, stmt.dst), groups)
    is_block_uniform = all(shape[dim] == 1 or dim in dims for dim in (-1, -2, -3))
    full = (*shape[:-3], 1, 1, 1) if is_block_uniform else shape
    with_ones = [1 if dim in dims else shape[dim] for dim in range(-len(shape), 0)]
    lanes = (machine.blocks, 1 if is_block_uniform else machine.threads)
    return tuple(
        state.reshape(width, *with_ones).expand(width, *full).reshape(width, *lanes) for state in combined
    )


def _combine_tree(op: ReductionOp, dtype: DataType, states: States) -> States:
    """Combine over the last dimension, which vanishes: halves with each other, until one is left."""
    combine = op.combining(dtype).torch
    types = op.state_dtypes(dtype)
    count = states[0].shape[-1]
    while count > 1:
        half = count // 2
        left = tuple(state[..., :half] for state in states)
        right = tuple(state[..., half : 2 * half] for state in states)
        merged = tuple(converted(state, type_) for state, type_ in zip(combine(left, right), types))
        if count % 2:
            merged = tuple(
                torch.cat([state, old[..., 2 * half :]], dim=-1) for state, old in zip(merged, states)
            )
        states, count = merged, half + count % 2
    return tuple(state[..., 0] for state in states)


def use_workspace(
    machine: Machine,
    stmt: k.BlockReduce | k.ClusterReduce | k.BlockScan | k.GridReduce | k.GridScan,
    axes: Sequence[ParallelType] = (),
    sides: int = 1,
) -> None:
    """Check that the scratch in shared memory is large enough, and that no reduction before may still use it;
    undefine it. `axes`: of a reduction, `sides`: of so many times its width.
    """
    of_block = machine.active.team is None or tuple(axes) == (ParallelType.block_x,)
    shared_by = threads_a_value(machine.program.kernel.block, axes) if of_block else 1
    _use_scratch(machine, stmt.workspace, sides * stmt.width * machine.active.team_size // shared_by)
    for buffer in filter(None, stmt.workspace):
        if isinstance(stmt, k.BlockReduce) and stmt.ordered:
            _check_ordered(machine, buffer)
    machine.collectives[tuple(axes)] += 1
    for buffer in filter(None, stmt.workspace):
        machine.scratch[buffer] = (tuple(axes), machine.collectives[tuple(axes)], machine.epoch)


def _use_scratch(machine: Machine, buffers: Sequence[k.Buffer | None], needed: int) -> None:
    for buffer in buffers:
        if buffer is None:
            continue
        memory = machine.memory(buffer)
        assert isinstance(memory, LinearMemory)
        _check_room(memory, needed)
        memory.clobber()


def _check_ordered(machine: Machine, buffer: k.Buffer) -> None:
    """A Fault unless all threads have passed a barrier since the buffer was last used as a workspace.

    A collective along the same axes has one inside.
    """
    before = machine.scratch.get(buffer)
    if before is None:
        return
    axes, count, epoch = before
    if machine.collectives[axes] == count and int(torch.as_tensor(machine.epoch - epoch).min()) == 0:
        raise Fault(
            RaceError, f"race: threads may still read `{buffer.name}`, for the reduction before this one"
        )


def arrive_across_blocks(
    machine: Machine, stmt: k.GridReduce | k.GridScan, axes: Sequence[ParallelType], what: str
) -> Tensor:
    """The arriving blocks, bool (blocks); a Fault unless all of each group along `axes` arrive, or none."""
    if machine.blocks != machine.program.launch.blocks:
        raise Fault(SimulationError, f"{what} needs all blocks at once")
    present = machine.arrive(what)
    grid = tuple(reversed(machine.program.launch.grid))
    dims = [BLOCK_DIMS[axis] + 3 for axis in axes]
    blocks = present.view(grid)
    missing = (blocks.amax(dims, keepdim=True) & ~blocks).reshape(-1)
    if bool(missing.any()):
        raise Fault(
            SimulationError,
            f"{what} is reached by other blocks of its group but not this one",
            int(missing.nonzero()[0]) * machine.threads,
        )
    return present


def use_exchange(
    machine: Machine, stmt: k.GridReduce | k.GridScan, axes: Sequence[ParallelType], turns: int
) -> None:
    """Checks the scratch in global memory: it is zero before the launch, and has room for `turns` of the
    results of threads off `axes`.
    """
    launch = machine.program.launch
    block = dict(zip(k.THREAD_AXES, launch.block))
    threads_left = math.prod(extent for axis, extent in block.items() if axis not in axes)
    types = [ref.buffer.dtype for ref in stmt.dst]
    needed = as_int(grid_exchange_room(const(launch.blocks), const(stmt.width * threads_left), types, turns))
    memory = machine.memory(stmt.exchange)
    assert isinstance(memory, LinearMemory) and needed is not None
    _check_room(memory, needed)
    machine.program.arguments.check_zero(stmt.exchange, "when the collective starts")


def _publish(machine: Machine, exchange: k.Buffer, present: Tensor) -> None:
    """Check that no block uses the exchange of a reduction twice.

    A block that has said what it found goes on before the last block has heard it: to say something else in
    the same place is a race.
    """
    before = machine.published.get(exchange)
    if before is not None and bool((before & present).any()):
        raise Fault(
            RaceError,
            f"race: this block uses `{exchange.name}` for a second grid reduction, "
            "while another block may still be at the first",
            int((before & present).nonzero()[0]) * machine.threads,
        )
    machine.published[exchange] = present if before is None else before | present


def _check_room(memory: LinearMemory, needed: int) -> None:
    if memory.size < needed:
        raise Fault(
            OutOfBoundsError, f"`{memory.name}` has {memory.size} elements, but the collective needs {needed}"
        )


def _last_blocks(machine: Machine, axes: Sequence[ParallelType]) -> Tensor:
    """Which blocks come last in their group, bool (blocks, 1). Here the one with the greatest indices."""
    grid = tuple(reversed(machine.program.launch.grid))
    last = torch.ones(grid, dtype=torch.bool)
    for axis in axes:
        dim = BLOCK_DIMS[axis] + 3
        last.narrow(dim, 0, grid[dim] - 1).fill_(False)
    return last.reshape(-1, 1)
