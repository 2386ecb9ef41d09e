"""The execution of bulk copies, mbarriers and roles."""

from __future__ import annotations

import torch
from torch import Tensor

from fusewright.core.errors import DeadlockError, SimulationError
from fusewright.core.hardware import WARP_SIZE
from fusewright.kernel.ir import Arrive, BulkCopy, InitMbarriers, ProxyFence, Ref, Roles, Space, Wait
from fusewright.sim.activity import Activity
from fusewright.sim.clocks import Clocks
from fusewright.sim.faults import Fault
from fusewright.sim.machine import Blocked, Machine, Steps, Turn
from fusewright.sim.mbarriers import Mbarriers, Members
from fusewright.sim.memory import LinearMemory, Run
from fusewright.sim.races import Actors
from fusewright.sym import Expr


def run_init_mbarriers(machine: Machine, stmt: InitMbarriers) -> None:
    arrivals = torch.as_tensor(machine.index(stmt.arrivals)).expand(machine.blocks, 1)[:, 0]
    size = machine.index.uniform(stmt.buffer.size, f"the size of `{stmt.buffer.name}`")
    machine.mbarriers[stmt.buffer] = Mbarriers(stmt.buffer.name, size, arrivals, _clocks(machine))
    machine.pass_barrier()


def _clocks(machine: Machine) -> Clocks:
    assert machine.clocks is not None, "a kernel with mbarriers has clocks"
    return machine.clocks


def _of_lanes(machine: Machine, expr: Expr, active: Activity) -> Tensor:
    """The value of an expression in the active lanes, int64 (lanes,)."""
    return active.compress(torch.as_tensor(machine.index(expr))).long()


def _named(machine: Machine, ref: Ref, active: Activity) -> tuple[Mbarriers, Members]:
    """The mbarriers that the active lanes name, each once."""
    mbarriers = machine.mbarriers.get(ref.buffer)
    if mbarriers is None:
        raise Fault(SimulationError, f"nothing has begun the mbarriers `{ref.buffer.name}`")
    lanes, index = active.lanes, _of_lanes(machine, ref.index, active)
    return mbarriers, mbarriers.members(lanes, machine.threads, index)


def run_arrive(machine: Machine, stmt: Arrive) -> None:
    active = machine.active
    whole = machine.arrive("an arrival by warps") if stmt.by_warp else None
    mbarriers, members = _named(machine, stmt.mbarrier, active)
    if stmt.by_warp:
        members = Members(members.blocks, members.elements, members.lanes, -(-members.counts // WARP_SIZE))
    clocks = _clocks(machine)
    nobody = torch.zeros(machine.blocks, dtype=torch.bool)
    known = clocks.release(machine.role, stmt.by_warp, nobody if whole is None else whole)
    machine.time_passed()
    mbarriers.arrive(members, known)


def run_proxy_fence(machine: Machine, stmt: ProxyFence) -> None:
    if machine.clocks is not None:
        here = torch.zeros(machine.blocks, dtype=torch.bool)
        here[machine.active.lanes // machine.threads] = True
        machine.clocks.fence(machine.role, here)
        machine.time_passed()


def run_wait(machine: Machine, stmt: Wait) -> Steps:
    active = machine.active
    mbarriers, members = _named(machine, stmt.mbarrier, active)
    phase = torch.as_tensor(machine.index(stmt.phase)).expand(machine.blocks, machine.threads)
    phase = phase[members.lanes // machine.threads, members.lanes % machine.threads]
    blocked: Blocked | None = None
    while (number := mbarriers.unready(members, phase)) is not None:
        what = mbarriers.state(members, number)
        if blocked is None or blocked.what != what:
            blocked = Blocked(what)
        yield blocked
    here = torch.zeros(machine.blocks, dtype=torch.bool)
    here[members.blocks] = True
    _clocks(machine).acquire(machine.role, mbarriers.handed_on(members, machine.blocks), here)


def run_bulk_copy(machine: Machine, stmt: BulkCopy) -> None:
    active = machine.active_where(stmt.pred)
    if active is None:
        return
    mbarriers, _ = _named(machine, stmt.mbarrier, active)
    element = _of_lanes(machine, stmt.mbarrier.index, active)
    counts = _of_lanes(machine, stmt.count, active)
    which = torch.repeat_interleave(torch.arange(active.count), counts)
    first = counts.cumsum(0) - counts
    offset = torch.arange(which.numel()) - first[which]
    clocks = _clocks(machine)
    own = machine.access(active).actors
    blocks = own.lanes // machine.threads
    left = clocks.copy_stamps(
        blocks + machine.first_block, mbarriers.number + element, mbarriers.ended[blocks, element]
    )
    actors = Actors(own.lanes[which], own.threads, own.stamps[which], clocks.of_copies, left[which])
    some = counts > 0

    def run(ref: Ref) -> tuple[LinearMemory, Run]:
        memory = machine.memory(ref.buffer)
        assert isinstance(memory, LinearMemory), f"{ref.buffer.name} is in no memory that threads share"
        elements = _of_lanes(machine, ref.index, active)[which] + offset
        return memory, Run(elements, actors, first[some], counts[some])

    source, read = run(stmt.src)
    target, written = run(stmt.dst)
    target.write_run(written, source.read_run(read))
    for space in (Space.GLOBAL, Space.SHARED):
        traffic, moved = machine.program.report.traffic[space], int(counts.sum()) * stmt.dst.buffer.dtype.size
        if space is Space.GLOBAL:
            traffic.loads, traffic.bytes_loaded = traffic.loads + active.count, traffic.bytes_loaded + moved
        else:
            traffic.stores, traffic.bytes_stored = traffic.stores + active.count, traffic.bytes_stored + moved


def run_roles(machine: Machine, stmt: Roles) -> None:
    """Runs the roles in turn, in the order of the kernel: each until it waits for another."""
    whole = machine.arrive("the beginning of roles")
    roles = machine.program.usage.roles
    assert roles is not None
    number = roles(machine.program.launch.block)
    waiting: dict[Turn, Blocked | None] = {}
    for position, role in enumerate(stmt.body):
        team = number == position
        active = Activity(machine.blocks, machine.threads, whole[:, None] & team, team)
        turn = Turn(position, active, machine.index.copy(), [{}])
        turn.steps = machine.steps(role.body)
        waiting[turn] = None
    while waiting:
        before = dict(waiting)
        for turn in before:
            blocked = machine.take_turn(turn)
            if blocked is None:
                del waiting[turn]
            else:
                waiting[turn] = blocked
        if waiting and waiting == before:
            names = [(stmt.body[turn.role or 0].name, blocked) for turn, blocked in waiting.items()]
            each = "; ".join(f"role {name} waits: {blocked.what}" for name, blocked in names if blocked)
            raise Fault(DeadlockError, f"deadlock: {each}", int(next(iter(waiting)).active.lanes[0]))


def run_role(machine: Machine, stmt: object) -> None:
    raise Fault(SimulationError, "a role that is none of a block's roles")
