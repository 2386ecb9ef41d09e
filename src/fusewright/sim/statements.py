"""The execution of each kind of statement except the collectives (collectives.py)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from fusewright.core.dtype import DataType
from fusewright.core.errors import OutOfBoundsError, SimulationError
from fusewright.core.op import ReductionOp, converted, selected
from fusewright.kernel import ir as k
from fusewright.sim.activity import Activity
from fusewright.sim.faults import Fault
from fusewright.sim.index import Lanes
from fusewright.sim.machine import Machine, Steps
from fusewright.sim.memory import Filled, LinearMemory
from fusewright.sym import const, substitute


def run_alloc(machine: Machine, stmt: k.Alloc) -> None:
    machine.declare(stmt.buffer)


def run_let(machine: Machine, stmt: k.Let) -> None:
    machine.name_value(stmt.symbol, machine.index(stmt.value))


def run_let_value(machine: Machine, stmt: k.LetValue) -> None:
    active = machine.active_where(stmt.pred)
    value: Tensor | int = -1
    if active is not None:
        # As signed numbers of 64 bits, those beyond them are negative, and so within no extent.
        refuse_fills(machine, stmt.value, 1, active, "an index")
        value = machine.operand(stmt.value, active).to(torch.int64)
        valid = (value >= 0) & (value < torch.as_tensor(machine.index(stmt.extent)))
        if stmt.strict or stmt.symbol.lo == 0:
            _refuse_outside(machine, stmt, value, valid, active)
        if active.mask is not None:
            valid = valid & active.mask
        value = torch.where(valid, value, -1)
    machine.name_value(stmt.symbol, value)


def run_let_misalignment(machine: Machine, stmt: k.LetMisalignment) -> None:
    memory = machine.memory(stmt.buffer)
    assert isinstance(memory, LinearMemory), f"{stmt.buffer.name} is in no memory that threads share"
    machine.name_value(stmt.symbol, memory.misalignment(stmt.width))


def _refuse_outside(
    machine: Machine, stmt: k.LetValue, value: Tensor, valid: Tensor, active: Activity
) -> None:
    """A Fault if an active lane has a value that names nothing."""
    lane = active.first(~valid)
    if lane is not None:
        block, thread = divmod(lane, active.threads)
        index = int(value.expand(active.blocks, active.threads)[block, thread])
        extent = torch.as_tensor(machine.index(stmt.extent)).expand(active.blocks, active.threads)
        problem = f"index {index} is out of bounds for a dimension with size {int(extent[block, thread])}"
        raise Fault(OutOfBoundsError, problem, lane, index=index)


def run_if(machine: Machine, stmt: k.If) -> Steps:
    active = machine.active_where(stmt.cond)
    if active is not None:
        with machine.only(active), machine.scope():
            yield from machine.steps(stmt.body)


def run_for(machine: Machine, stmt: k.For) -> Steps:
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
                yield from machine.steps(stmt.body)


def run_bind(machine: Machine, stmt: k.Bind) -> Steps:
    """The blocks of each choice run the body by themselves."""
    position = machine.index(stmt.position)
    starts = [machine.index(start) for start in stmt.starts]
    number = sum((torch.as_tensor(start <= position).long() for start in starts), torch.zeros(1, 1).long())
    scratch = dict(machine.scratch)
    for i, choice in enumerate(stmt.choices):
        active = machine.active.narrow(number == i)
        if active is None:
            continue
        # What the blocks of another choice reduced is no history of these.
        machine.scratch = dict(scratch)
        with machine.only(active), machine.scope():
            for name, param in zip(stmt.names, choice):
                machine.name_param(name, param)
            yield from machine.steps(stmt.body)


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


def refuse_fills(machine: Machine, operand: k.Operand, width: int, active: Activity, what: str) -> None:
    """A Fault if an active lane holds a fill there, or a value computed from one."""
    for filled in machine.filled(operand, width, active):
        lane = None if filled is False else active.first(filled)
        if lane is not None:
            raise Fault(SimulationError, f"a fill, which stands for no value, is {what}", lane)


def run_wait_for_copies(machine: Machine, stmt: k.WaitForCopies) -> None:
    machine.on_their_way.clear()


def run_copy(machine: Machine, stmt: k.Copy) -> None:
    dst, width = stmt.dst, stmt.width
    reading = machine.active_where(stmt.pred)
    if stmt.asynchronous and reading is not None:
        machine.start_copy(dst, width, reading)
    values: list[Tensor] = []
    filled: list[Filled] = [False] * width
    if reading is not None:
        if isinstance(stmt.src, k.Ref) and stmt.covering is not None:
            wanted = [_wanted(machine, stmt.covering, number) for number in range(width)]
            values, filled = machine.load_covering(stmt.src, wanted, reading)
            filled = [~lanes | torch.as_tensor(mark) for lanes, mark in zip(wanted, filled)]
        elif isinstance(stmt.src, k.Ref):
            filled = machine.filled(stmt.src, width, reading)
            values = machine.load(stmt.src, width, reading)
        else:
            values = [machine.operand(stmt.src)]
    if stmt.fill is None:
        if reading is not None:
            store(machine, dst, values, filled, reading)
        return
    fill = machine.operand(stmt.fill)
    [of_fill] = machine.filled(stmt.fill, 1, machine.active)
    of_fill = of_fill if stmt.fill_is_value else True
    if reading is None:
        values, filled = [fill] * width, [of_fill] * width
    elif reading.mask is not None:
        values = [selected(reading.mask, value, fill) for value in values]
        filled = [chosen_fills(reading.mask, one, of_fill) for one in filled]
    store(machine, dst, values, filled, machine.active)


def _wanted(machine: Machine, covering: k.Covering, number: int) -> Tensor:
    """The lanes of the machine in which an element of a covering load stands for something."""
    condition = substitute(covering.wanted, {covering.lane: const(number)})
    return torch.as_tensor(machine.index(condition)).bool()


def run_window(machine: Machine, stmt: k.Window) -> None:
    """Lanes of each offset by themselves: the elements of a register file have constant places."""
    offset = torch.as_tensor(machine.index(stmt.offset))
    for first in range(stmt.width):
        active = machine.active.narrow(offset == first)
        if active is not None:
            src = k.Ref(stmt.src.buffer, stmt.src.index + first)
            filled = machine.filled(src, stmt.width, active)
            store(machine, stmt.dst, machine.load(src, stmt.width, active), filled, active)


def run_convert(machine: Machine, stmt: k.Convert) -> None:
    filled = machine.filled(stmt.src, stmt.width, machine.active)
    values = machine.load(stmt.src, stmt.width, machine.active)
    dtype = stmt.dst.buffer.dtype
    store(machine, stmt.dst, [converted(value, dtype) for value in values], filled, machine.active)


def run_scatter(machine: Machine, stmt: k.Scatter) -> None:
    active = machine.active_where(stmt.pred)
    if active is None:
        return
    refuse_fills(machine, stmt.src, stmt.width, active, f"stored to `{stmt.dst.buffer.name}`")
    if isinstance(stmt.src, k.Ref):
        values = machine.load(stmt.src, stmt.width, active)
    else:
        values = [machine.operand(stmt.src)]
    combine = None if stmt.op is None else stmt.op.combining(input_dtype(stmt.op, (stmt.dst,)))
    machine.scatter(stmt.dst, values, combine, active)


def chosen_fills(mask: Tensor, one: Filled, other: Filled) -> Filled:
    """The marks of `one` in the lanes of `mask`, of `other` elsewhere."""
    if one is other:
        return one
    return torch.where(mask, torch.as_tensor(one), torch.as_tensor(other))


def store(
    machine: Machine, dst: k.Ref, values: Sequence[Tensor], filled: Sequence[Filled], active: Activity
) -> None:
    """Store values with the marks of fills. No fill may leave the block."""
    if dst.buffer.space is k.Space.GLOBAL:
        for mark in filled:
            lane = None if mark is False else active.first(mark)
            if lane is not None:
                problem = f"a fill, which stands for no value, is stored to `{dst.buffer.name}`"
                raise Fault(SimulationError, problem, lane)
    machine.store(dst, values, active, filled)


def run_compute(machine: Machine, stmt: k.Compute) -> None:
    types = stmt.op.operand_dtypes(stmt.dtype)
    operands = [converted(machine.operand(arg), dtype) for arg, dtype in zip(stmt.args, types)]
    result = stmt.spelling.torch(*operands)
    filled: Filled = False
    for arg in stmt.args:
        [mark] = machine.filled(arg, 1, machine.active)
        filled = mark if filled is False else filled if mark is False else torch.as_tensor(filled) | mark
    store(machine, stmt.dst, [converted(result, stmt.dst.buffer.dtype)], [filled], machine.active)


def run_hold(machine: Machine, stmt: k.Hold) -> None:
    """Changes no value."""


def run_issue_loads(machine: Machine, stmt: k.IssueLoads) -> None:
    """Changes no value: a load is complete when the next statement runs."""


def run_init(machine: Machine, stmt: k.Init) -> None:
    dtype = input_dtype(stmt.op, stmt.dst)
    for ref, value in zip(stmt.dst, stmt.op.identity(dtype)):
        machine.store(ref, [machine.constant(value, ref.buffer.dtype)] * stmt.width)


def run_combine(machine: Machine, stmt: k.Combine) -> None:
    active = machine.active_where(stmt.pred)
    if active is None:
        return
    into = tuple(machine.load(ref, 1, active)[0] for ref in stmt.dst)
    if stmt.width > 1:
        [run] = stmt.src
        assert isinstance(run, k.Ref)
        refuse_fills(machine, run, stmt.width, active, "reduced")
        found = stmt.op.reduce((torch.stack(machine.load(run, stmt.width, active)),), (0,))
        types = stmt.op.state_dtypes(input_dtype(stmt.op, stmt.dst))
        states = tuple(converted(state, dtype) for state, dtype in zip(found, types))
    else:
        states = load_states(machine, stmt.op, stmt.dst, stmt.src, active)
    if stmt.in_order:
        _refuse_disorder(into[-1], states[-1], active)
    store_combined(machine, stmt.op, stmt.dst, into, states, active)


def _refuse_disorder(position: Tensor, following: Tensor, active: Activity) -> None:
    """A Fault if an active lane combines an element in order that comes before another one."""
    lane = active.first(following < position)
    if lane is not None:
        raise Fault(SimulationError, "an element is combined in order that comes before another", lane)


def load_states(
    machine: Machine, op: ReductionOp, dst: Sequence[k.Ref], src: Sequence[k.Operand], active: Activity
) -> tuple[Tensor, ...]:
    """The states to combine into `dst`, lifted from an input value if `src` holds one."""
    dtype = input_dtype(op, dst)
    types = op.state_dtypes(dtype)
    for each in src:
        refuse_fills(machine, each, 1, active, "reduced")
    if len(src) == len(types):
        return tuple(converted(machine.operand(each, active), type_) for each, type_ in zip(src, types))
    value = converted(machine.operand(src[0], active), dtype)
    return tuple(converted(state, type_) for state, type_ in zip(op.lift_torch(value), types))


def store_combined(
    machine: Machine,
    op: ReductionOp,
    dst: Sequence[k.Ref],
    into: tuple[Tensor, ...],
    states: tuple[Tensor, ...],
    active: Activity | None = None,
) -> None:
    """dst = combine(into, states)."""
    combined = op.combining(input_dtype(op, dst)).torch(into, states)
    for ref, value in zip(dst, combined):
        machine.store(ref, [converted(value, ref.buffer.dtype)], active)


def input_dtype(op: ReductionOp, dst: Sequence[k.Ref]) -> DataType:
    """The type of the operand of `op`, given the buffers of its states."""
    return _input_dtype(op, tuple([ref.buffer.dtype for ref in dst]))


@lru_cache(maxsize=256)  # asked for at every step of a reduction's loop
def _input_dtype(op: ReductionOp, states: tuple[DataType, ...]) -> DataType:
    dtype = k.reduced_dtype(op, states)
    if dtype is None:
        raise Fault(SimulationError, f"{op.name} has no states of {', '.join(map(str, states))}")
    return dtype
