"""Scans over the threads of a block, and over blocks."""

from __future__ import annotations

import torch
from torch import Tensor

from fusewright.core.dtype import DataType
from fusewright.core.errors import SimulationError
from fusewright.core.op import ReductionOp, States, converted
from fusewright.kernel.exchange import TURNS_OF_SCAN
from fusewright.kernel.ir import BlockScan, GridScan, Ref
from fusewright.sim.collectives import (
    BLOCK_DIMS,
    THREAD_DIMS,
    arrive_across_blocks,
    shifted,
    use_exchange,
    use_workspace,
)
from fusewright.sim.faults import Fault
from fusewright.sim.machine import Machine
from fusewright.sim.statements import input_dtype, refuse_fills


def run_block_scan(machine: Machine, stmt: BlockScan) -> None:
    machine.arrive("a block scan")
    use_workspace(machine, stmt)
    _scan(machine, stmt, (machine.blocks, *reversed(machine.program.launch.block)), THREAD_DIMS[stmt.axis])


def run_grid_scan(machine: Machine, stmt: GridScan) -> None:
    launch = machine.program.launch
    arrive_across_blocks(machine, stmt, (stmt.grid_axis,), "a grid scan")
    use_workspace(machine, stmt, (stmt.thread_axis,), sides=2)
    use_exchange(machine, stmt, (stmt.thread_axis,), TURNS_OF_SCAN)
    shape = (*reversed(launch.grid), *reversed(launch.block))
    for ref in (*stmt.src, *stmt.carry):
        for k in range(stmt.width):
            _check_same(machine, shifted(ref, k), shape, THREAD_DIMS[stmt.thread_axis])
    _scan(machine, stmt, shape, BLOCK_DIMS[stmt.grid_axis])


def _check_same(machine: Machine, ref: Ref, shape: tuple[int, ...], dim: int) -> None:
    """A Fault unless the threads along `dim` hold the same."""
    lanes = (machine.blocks, machine.threads)
    held = machine.load(ref)[0].expand(lanes).reshape(shape)
    first = held.narrow(dim, 0, 1)
    differs = ((held != first) & ~((held != held) & (first != first))).reshape(lanes)
    if machine.active.mask is not None:
        differs = differs & machine.active.mask
    if bool(differs.any()):
        problem = f"`{ref.buffer.name}` differs between threads of a block that scan with others"
        raise Fault(SimulationError, problem, int(differs.reshape(-1).nonzero()[0]))


def _scan(machine: Machine, stmt: BlockScan | GridScan, shape: tuple[int, ...], dim: int) -> None:
    """dst = combine(carry, src before along `dim` of `shape`), carry = combine(carry, src of all)."""
    op, dtype = stmt.op, input_dtype(stmt.op, stmt.dst)
    types = op.state_dtypes(dtype)
    lanes = (machine.blocks, machine.threads)
    for ref in stmt.src:
        refuse_fills(machine, ref, stmt.width, machine.active, "scanned")
    for k in range(stmt.width):
        brought = tuple(
            machine.load(shifted(ref, k))[0].expand(lanes).reshape(shape).movedim(dim, -1) for ref in stmt.src
        )
        carry = tuple(machine.load(shifted(ref, k))[0] for ref in stmt.carry)
        sums = _scanned(op, dtype, brought)
        starts = (torch.full_like(state[..., :1], value) for state, value in zip(sums, op.identity(dtype)))
        before = tuple(torch.cat([start, s[..., :-1]], -1) for start, s in zip(starts, sums))
        total = tuple(state[..., -1:].expand_as(state) for state in sums)
        for refs, states in ((stmt.dst, before), (stmt.carry, total)):
            flat = tuple(state.movedim(-1, dim).reshape(lanes) for state in states)
            for ref, value, type_ in zip(refs, op.combining(dtype).torch(carry, flat), types):
                machine.store(shifted(ref, k), [converted(value, type_)])


def _scanned(op: ReductionOp, dtype: DataType, states: States) -> States:
    """The combinations of the states up to each one along the last dimension, in log2 of its size steps."""
    combine, types = op.combining(dtype).torch, op.state_dtypes(dtype)
    step, count = 1, states[0].shape[-1]
    while step < count:
        left: tuple[Tensor, ...] = tuple(state[..., :-step] for state in states)
        right = tuple(state[..., step:] for state in states)
        merged = (converted(state, type_) for state, type_ in zip(combine(left, right), types))
        states = tuple(torch.cat([old[..., :step], new], -1) for old, new in zip(states, merged))
        step *= 2
    return states
