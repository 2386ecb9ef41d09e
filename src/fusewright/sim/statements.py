"""What each kind of statement does, but for the collectives (collectives.py)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from fusewright.core.dtype import DataType
from fusewright.core.errors import SimulationError
from fusewright.core.op import ReductionOp, converted
from fusewright.kernel.ir import (
    Alloc,
    Combine,
    Compute,
    Copy,
    For,
    If,
    Init,
    Let,
    LetValue,
    Operand,
    Ref,
    reduced_dtype,
)
from fusewright.sim.activity import Activity
from fusewright.sim.faults import Fault
from fusewright.sim.index import Lanes
from fusewright.sim.machine import Machine


def run_alloc(machine: Machine, stmt: Alloc) -> None:
    machine.declare(stmt.buffer)


def run_let(machine: Machine, stmt: Let) -> None:
    machine.name_value(stmt.symbol, machine.index(stmt.value))


def run_let_value(machine: Machine, stmt: LetValue) -> None:
    active = machine.active.narrow(machine.index(stmt.pred))
    value: Tensor | int = -1
    if active is not None:
        # As signed numbers of 64 bits, those beyond them are negative, and so within no extent.
        value = machine.operand(stmt.value, active).to(torch.int64)
        valid = (value >= 0) & (value < torch.as_tensor(machine.index(stmt.extent)))
        if active.mask is not None:
            valid = valid & active.mask
        value = torch.where(valid, value, -1)
    machine.name_value(stmt.symbol, value)


def run_if(machine: Machine, stmt: If) -> None:
    active = machine.active.narrow(machine.index(stmt.cond))
    if active is not None:
        with machine.only(active), machine.scope():
            machine.run(stmt.body)


def run_for(machine: Machine, stmt: For) -> None:
    extent = _block_uniform(machine, machine.index(stmt.extent))
    count = int(extent.max()) if isinstance(extent, Tensor) else extent
    renewed = machine.program.usage.renewed.get(stmt, ())
    with machine.scope():
        for i in range(count):
            active = machine.active.narrow(extent > i) if isinstance(extent, Tensor) else machine.active
            if active is None:
                break
            machine.name_value(stmt.symbol, i)
            for buffer in renewed:
                machine.renew(buffer)
            with machine.only(active):
                machine.run(stmt.body)


def _block_uniform(machine: Machine, extent: Lanes) -> Lanes:
    """A loop's extent as an int or (blocks, 1); a Fault if it differs between active threads of a block."""
    if not isinstance(extent, Tensor):
        return extent
    shape = (machine.blocks, machine.threads)
    mask = machine.active.mask
    every = extent.expand(shape)
    active = torch.ones(shape, dtype=torch.bool) if mask is None else mask.expand(shape)
    # Blocks without active threads run no iteration.
    highest = torch.where(active, every, 0).amax(dim=1, keepdim=True)
    lane = machine.active.first(every != highest)
    if lane is not None:
        raise Fault(SimulationError, "the extent of the loop differs between threads of the block", lane)
    return highest


def run_copy(machine: Machine, stmt: Copy) -> None:
    reading = machine.active.narrow(machine.index(stmt.pred))
    values: list[Tensor] = []
    if reading is not None:
        if isinstance(stmt.src, Ref):
            values = machine.load(stmt.src, stmt.width, reading)
        else:
            values = [machine.operand(stmt.src)]
    if stmt.fill is None:
        if reading is not None:
            machine.store(stmt.dst, values, reading)
        return
    fill = machine.operand(stmt.fill)
    if reading is None:
        values = [fill] * stmt.width
    elif reading.mask is not None:
        values = [torch.where(reading.mask, value, fill) for value in values]
    machine.store(stmt.dst, values)


def run_compute(machine: Machine, stmt: Compute) -> None:
    types = stmt.op.operand_dtypes(stmt.dtype)
    operands = [converted(machine.operand(arg), dtype) for arg, dtype in zip(stmt.args, types)]
    result = stmt.spelling.torch(*operands)
    machine.store(stmt.dst, [converted(result, stmt.dst.buffer.dtype)])


def run_init(machine: Machine, stmt: Init) -> None:
    dtype = input_dtype(stmt.op, stmt.dst)
    for ref, value in zip(stmt.dst, stmt.op.identity(dtype)):
        machine.store(ref, [machine.constant(value, ref.buffer.dtype)] * stmt.width)


def run_combine(machine: Machine, stmt: Combine) -> None:
    into = tuple(machine.load(ref)[0] for ref in stmt.dst)
    if stmt.width > 1:
        [run] = stmt.src
        assert isinstance(run, Ref)
        found = stmt.op.reduce((torch.stack(machine.load(run, stmt.width)),), (0,))
        types = stmt.op.state_dtypes(input_dtype(stmt.op, stmt.dst))
        states = tuple(converted(state, dtype) for state, dtype in zip(found, types))
    else:
        states = load_states(machine, stmt.op, stmt.dst, stmt.src, machine.active)
    store_combined(machine, stmt.op, stmt.dst, into, states)


def load_states(
    machine: Machine, op: ReductionOp, dst: Sequence[Ref], src: Sequence[Operand], active: Activity
) -> tuple[Tensor, ...]:
    """The states to combine into `dst`, lifted from an input value where that is what `src` holds."""
    dtype = input_dtype(op, dst)
    types = op.state_dtypes(dtype)
    if len(src) == len(types):
        return tuple(converted(machine.operand(each, active), type_) for each, type_ in zip(src, types))
    value = converted(machine.operand(src[0], active), dtype)
    return tuple(converted(state, type_) for state, type_ in zip(op.lift_torch(value), types))


def store_combined(
    machine: Machine,
    op: ReductionOp,
    dst: Sequence[Ref],
    into: tuple[Tensor, ...],
    states: tuple[Tensor, ...],
    active: Activity | None = None,
) -> None:
    """dst = combine(into, states)."""
    combined = op.combining(input_dtype(op, dst)).torch(into, states)
    for ref, value in zip(dst, combined):
        machine.store(ref, [converted(value, ref.buffer.dtype)], active)


def input_dtype(op: ReductionOp, dst: Sequence[Ref]) -> DataType:
    """The type of what `op` reduces, given the buffers of its states."""
    return _input_dtype(op, tuple([ref.buffer.dtype for ref in dst]))


@lru_cache(maxsize=256)  # asked for at every step of a reduction's loop
def _input_dtype(op: ReductionOp, states: tuple[DataType, ...]) -> DataType:
    dtype = reduced_dtype(op, states)
    if dtype is None:
        raise Fault(SimulationError, f"{op.name} has no states of {', '.join(map(str, states))}")
    return dtype
