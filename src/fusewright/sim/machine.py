"""The lockstep machine: some blocks of a launch, all of whose threads execute each statement together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fusewright.core.dtype import DataType
from fusewright.core.enums import ParallelType
from fusewright.core.errors import DeadlockError, OutOfBoundsError, RaceError, SimulationError
from fusewright.core.op import CombineSpelling
from fusewright.kernel import ir as k
from fusewright.kernel.text import statement_text
from fusewright.sim import races
from fusewright.sim.activity import Activity
from fusewright.sim.arguments import Arguments
from fusewright.sim.clocks import Clocks
from fusewright.sim.faults import Fault
from fusewright.sim.index import IndexEvaluator, Lanes
from fusewright.sim.launch import Launch
from fusewright.sim.mbarriers import Mbarriers
from fusewright.sim.memory import Access, Filled, LinearMemory, LocalMemory, Memory, Region
from fusewright.sim.report import SimReport
from fusewright.sim.usage import Usage
from fusewright.sym import Expr, Symbol


class Blocked:
    """A wait that cannot continue. The same object is returned as long as that is so.

    Attributes:
        what: the awaited event, as a sentence about its state.
    """

    def __init__(self, what: str) -> None:
        self.what = what


#: What runs statements: it stops, if ever, where a wait cannot go on.
Steps = Generator[Blocked, None, None]
# What executes a statement, at once or, where statements are nested in it, in steps.
Handler = Callable[["Machine", Any], Steps | None]

# The arena is padded to this, so that the arenas of all blocks are equally aligned.
_ARENA_UNIT = 128


@dataclass(frozen=True)
class SimOptions:
    """What the simulator checks and shows.

    Attributes:
        races: whether to look for data races.
        uninitialized: whether to raise an error if memory is read that nothing wrote. A buffer that a loop
            writes anew in every iteration (`sim.usage`) keeps nothing from one iteration to the next.
        outputs: whether to raise an error if the kernel ends and an element of an output was never written.
        on_statement: called before each statement with it and the machine, for debugging.
        max_lanes: the number of threads to simulate at once, in whole blocks; a kernel with a grid reduction
            always runs as a whole.
    """

    races: bool = True
    uninitialized: bool = True
    outputs: bool = True
    on_statement: Callable[[k.Stmt, Machine], None] | None = None
    max_lanes: int = 1 << 17


@dataclass(frozen=True)
class Program:
    """A kernel with its launch and arguments: shared by all chunks of blocks."""

    kernel: k.Kernel
    usage: Usage
    launch: Launch
    arguments: Arguments
    options: SimOptions
    report: SimReport
    handlers: dict[type[k.Stmt], Handler]


@dataclass(eq=False)
class Turn:
    """The state of a role while others run: its lanes, loops and scopes, and its statements."""

    role: int | None
    active: Activity
    index: IndexEvaluator
    scopes: list[dict[Symbol | k.Buffer, None]]
    steps: Steps | None = None


# More than there are elements in the shared memory of a block.
SHARED_NUMBERS = 2**32


class Machine:
    """Runs blocks first_block .. first_block + blocks - 1 of a launch.

    A fault ends the run and leaves the state at the faulty statement for inspection.

    Attributes:
        index: values of index expressions.
        active: the lanes that currently execute.
        epoch: the number of barriers passed, an int or one number per block (blocks, 1).
        published: for each scratch buffer of grid reductions, the blocks (bool) that have used it.
        on_their_way: for each buffer, the targets of asynchronous copies that nothing has waited for.
        collectives: the number of reductions and scans of the block, by their axes.
        scratch: for each workspace, the axes and the number of its last use, and the epoch then.
        clocks: the happens-before order if mbarriers and roles determine it; None if barriers alone do.
        role: the number of the current role; None: the whole block runs together.
        mbarriers: those that have been initialized.
    """

    def __init__(self, program: Program, first_block: int, blocks: int) -> None:
        self.program = program
        self.first_block, self.blocks, self.threads = first_block, blocks, program.launch.threads
        self.active = Activity(blocks, self.threads)
        self.index = IndexEvaluator(self._builtins(), program.kernel.index_dtype is DataType.Int32)
        for symbol, value in program.arguments.sizes.items():
            self.index.bind(symbol, value)
        self.epoch: int | Tensor = 0
        self.published: dict[k.Buffer, Tensor] = {}
        self.on_their_way: dict[k.Buffer, list[Tensor]] = {}
        self.collectives: Counter[tuple[ParallelType, ...]] = Counter()
        self.scratch: dict[k.Buffer, tuple[tuple[ParallelType, ...], int, int | Tensor]] = {}
        roles = program.usage.roles
        self.clocks = None if roles is None else Clocks(first_block, blocks, roles(program.launch.block))
        self.role: int | None = None
        self.mbarriers: dict[k.Buffer, Mbarriers] = {}
        self._memories: dict[k.Buffer, Memory] = dict(program.arguments.buffers)
        self._scalars = dict(program.arguments.scalars)
        self._scopes: list[dict[Symbol | k.Buffer, None]] = [{}]  # as ordered sets
        self._constants: dict[tuple[str, DataType], Tensor] = {}
        self._first_stamps = races.stamp_of(
            torch.arange(first_block, first_block + blocks)[:, None], torch.arange(self.threads)
        )
        self._access: Access | None = None
        # Shared memory: the block's arena under None, and one of its own for each buffer without an offset.
        self._arenas: dict[k.Buffer | None, tuple[Tensor, Region]] = {}
        self._tag = 0

    # ---- execution ----------------------------------------------------------------------------

    def run(self, body: Sequence[k.Stmt]) -> None:
        """Execute statements. A mistake of a lane raises a SimulationError with its place."""
        for blocked in self.steps(body):
            fault = Fault(DeadlockError, f"deadlock: {blocked.what}, and nobody else is there")
            raise self._error(fault, body[0])

    def steps(self, body: Sequence[k.Stmt]) -> Steps:
        """Executes statements, and stops at a wait that cannot continue."""
        program = self.program
        for stmt in body:
            if program.options.on_statement is not None:
                program.options.on_statement(stmt, self)
            program.report.statements += 1
            try:
                steps = program.handlers[type(stmt)](self, stmt)
                if steps is not None:
                    yield from steps
            except Fault as fault:
                raise self._error(fault, stmt) from None

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A body: its declarations end with it."""
        self._scopes.append({})
        yield
        for declared in self._scopes.pop():
            if isinstance(declared, Symbol):
                self.index.unbind(declared)
            else:
                self._memories.pop(declared, None)

    @contextmanager
    def only(self, active: Activity) -> Iterator[None]:
        """Execute with other active lanes for a while."""
        outer, self.active = self.active, active
        known = self.clocks.known if self.clocks is not None and active.whole_blocks is None else None
        yield
        self.active = outer
        if known is not None:
            assert self.clocks is not None
            self.clocks.forget(known, self.role)

    def take_turn(self, turn: Turn) -> Blocked | None:
        """Runs a role until it waits or ends; returns what it waits for."""
        outer = Turn(self.role, self.active, self.index, self._scopes)
        self._take(turn)
        assert turn.steps is not None, "whose turn it is has something to do"
        blocked = next(turn.steps, None)
        turn.active = self.active
        self._take(outer)
        return blocked

    def _take(self, turn: Turn) -> None:
        self.role, self.active = turn.role, turn.active
        self.index, self._scopes = turn.index, turn.scopes
        self._access = None

    def active_where(self, condition: Expr) -> Activity | None:
        """The active lanes for which a condition holds; None if there are none."""
        return self.active.narrow(self.index(condition))

    def name_value(self, symbol: Symbol, value: Lanes) -> None:
        """Bind a symbol until the end of the present body."""
        self.index.bind(symbol, value)
        self._scopes[-1][symbol] = None

    def name_param(self, name: k.Param, param: k.Param) -> None:
        """Binds a name to a parameter until the end of the current body."""
        if isinstance(name, k.ScalarParam):
            assert isinstance(param, k.ScalarParam)
            if name.symbol is None or param.symbol is None:
                self._scalars[name] = self._scalars[param]
            else:
                self.name_value(name.symbol, self.index(param.symbol))
            return
        assert not isinstance(param, k.ScalarParam)
        self._memories[name.buffer] = self._memories[param.buffer]
        self._scopes[-1][name.buffer] = None

    def arrive(self, what: str) -> Tensor:
        """Check that every block that is active at all is active as a whole; returns which are, (blocks,)."""
        whole = self.active.whole_blocks
        if whole is None:
            arriving = self.active.mask
            assert arriving is not None
            absent = ~arriving if self.active.team is None else ~arriving & self.active.team
            missing = Activity(self.blocks, self.threads, absent).lanes
            blocks_with_arrivals = set((self.active.lanes // self.threads).tolist())
            lane = next(lane for lane in missing.tolist() if lane // self.threads in blocks_with_arrivals)
            problem = f"{what} is reached by other threads of the block but not this one"
            raise Fault(SimulationError, problem, lane)
        return whole

    def pass_barrier(self) -> None:
        """Orders previous accesses of the active blocks before their later ones."""
        whole = self.arrive("a barrier")
        self.program.report.barriers += int(whole.sum())
        if self.clocks is not None:
            self.clocks.pass_barrier(self.role, whole)
        if self.active.is_all:
            self.epoch = self.epoch + 1
        else:
            self.epoch = self.epoch + whole.long()[:, None]
        if int(torch.as_tensor(self.epoch).max()) > races.MAX_EPOCH:
            raise Fault(SimulationError, f"more than {races.MAX_EPOCH} barriers in one block")
        self._access = None

    def pass_grid_barrier(self) -> None:
        """Orders previous accesses of all blocks before their later ones."""
        self.pass_barrier()
        self.program.arguments.forget_accesses()

    # ---- memory -------------------------------------------------------------------------------

    def access(self, active: Activity) -> Access:
        """The lanes that access memory, stamped with the present epoch."""
        access = self._access
        if access is None or access.active is not active:
            if access is not None:
                stamps = access.all_stamps
            elif self.clocks is not None:
                stamps = self.clocks.stamps(self._first_stamps)
            else:
                stamps = self._first_stamps + races.at_epoch(self.epoch)
            access = self._access = Access(active, stamps, self.clocks or races.BARRIERS)
        return access

    def time_passed(self) -> None:
        """Starts a new epoch, in which accesses are distinguished from earlier ones."""
        self._access = None

    def memory(self, buffer: k.Buffer) -> Memory:
        found = self._memories.get(buffer)
        if found is None:
            raise Fault(SimulationError, f"`{buffer.name}` is used where it is not declared")
        return found

    def load(self, ref: k.Ref, width: int = 1, active: Activity | None = None) -> list[Tensor]:
        """Elements index .. index + width - 1 of the active lanes; others hold anything."""
        active = self.active if active is None else active
        if ref.buffer in self.on_their_way:
            early = torch.isin(
                self._places(ref, width, active), torch.cat(self.on_their_way[ref.buffer]).flatten()
            )
            if bool(early.any()):
                problem = f"copies to `{ref.buffer.name}` are on their way, and nothing has waited for them"
                raise Fault(RaceError, problem, int(active.lanes[early.any(dim=1)][0]))
        values = self.memory(ref.buffer).load(self.index(ref.index), width, self.access(active))
        if ref.buffer.space is not k.Space.LOCAL:
            traffic = self.program.report.traffic[ref.buffer.space]
            traffic.loads += active.count
            traffic.bytes_loaded += active.count * width * values[0].element_size()
        return values

    def start_copy(self, ref: k.Ref, width: int, active: Activity) -> None:
        """Notes that elements of the block are on their way to shared memory."""
        self.on_their_way.setdefault(ref.buffer, []).append(self._places(ref, width, active).flatten())

    def _places(self, ref: k.Ref, width: int, active: Activity) -> Tensor:
        """Numbers (active lanes, width) of the elements of shared memory, which differ between blocks."""
        first = active.compress(torch.as_tensor(self.index(ref.index)))
        block = active.lanes // self.threads
        return (block * SHARED_NUMBERS + first)[:, None] + torch.arange(width)

    def load_covering(
        self, ref: k.Ref, wanted: Sequence[Tensor], active: Activity
    ) -> tuple[list[Tensor], list[Filled]]:
        """The elements of a vector at an aligned address, and which of them are none of the tensor's.

        wanted: for each element the lanes for which it counts as read.
        """
        memory = self.memory(ref.buffer)
        assert isinstance(memory, LinearMemory), f"{ref.buffer.name} is in no memory that threads share"
        values, filled = memory.load_covering(self.index(ref.index), wanted, self.access(active))
        traffic = self.program.report.traffic[ref.buffer.space]
        traffic.loads += active.count
        traffic.bytes_loaded += active.count * len(wanted) * values[0].element_size()
        return values, filled

    def store(
        self,
        ref: k.Ref,
        values: Sequence[Tensor],
        active: Activity | None = None,
        filled: Sequence[Filled] = (),
    ) -> None:
        """Stores adjacent elements in the active lanes; `filled` tells which of them are fills."""
        active = self.active if active is None else active
        memory, index = self.memory(ref.buffer), self.index(ref.index)
        memory.store(index, values, self.access(active), filled)
        if ref.buffer.space is not k.Space.LOCAL:
            traffic = self.program.report.traffic[ref.buffer.space]
            traffic.stores += active.count
            traffic.bytes_stored += active.count * len(values) * values[0].element_size()

    def scatter(
        self, ref: k.Ref, values: Sequence[Tensor], combine: CombineSpelling | None, active: Activity
    ) -> None:
        """Stores adjacent elements in the active lanes, or combines them with the old ones, lane by lane."""
        memory = self.memory(ref.buffer)
        assert isinstance(memory, LinearMemory), f"{ref.buffer.name} is in no memory that threads share"
        memory.scatter(self.index(ref.index), values, combine, self.access(active))
        traffic = self.program.report.traffic[ref.buffer.space]
        traffic.stores += active.count
        traffic.bytes_stored += active.count * len(values) * values[0].element_size()

    def filled(self, operand: k.Operand, width: int, active: Activity) -> list[Filled]:
        """Which elements of an operand are fills, or made from some."""
        if isinstance(operand, k.Ref):
            memory = self.memory(operand.buffer)
            return memory.filled(self.index(operand.index), width, self.access(active))
        return [False] * width

    def operand(self, operand: k.Operand, active: Activity | None = None) -> Tensor:
        """The value of an operand in its own type, broadcastable to (blocks, threads)."""
        if isinstance(operand, k.Ref):
            return self.load(operand, 1, active)[0]
        if isinstance(operand, k.Imm):
            return self.constant(operand.value, operand.dtype)
        if isinstance(operand, k.ScalarRef):
            return self._scalars[operand.param]
        assert isinstance(operand, k.IndexValue)
        value = self.index(operand.expr)
        if isinstance(value, Tensor):
            return value.to(operand.dtype.values)
        return self.constant(value, operand.dtype)

    def constant(self, value: bool | int | float | complex, dtype: DataType) -> Tensor:
        """`value` for all lanes, (1, 1)."""
        key = (repr(value), dtype)  # unlike the value, tells -0.0 from 0.0 and NaN from nothing
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = torch.full((1, 1), value, dtype=dtype.values)
        return found

    def declare(self, buffer: k.Buffer) -> None:
        """Give a local or shared buffer undefined contents until the end of the present body."""
        self._memories[buffer] = self._undefined(buffer)
        self._scopes[-1][buffer] = None

    def renew(self, buffer: k.Buffer) -> None:
        """Undefine the contents of a buffer that is declared."""
        if self.program.options.uninitialized and buffer in self._memories:
            self._memories[buffer] = self._undefined(buffer)

    def _undefined(self, buffer: k.Buffer) -> Memory:
        size = self.index.uniform(buffer.size, f"the size of `{buffer.name}`")
        if buffer.space is k.Space.LOCAL:
            return LocalMemory(buffer.name, buffer.dtype, size)
        if buffer.space is k.Space.SHARED:
            return self._shared_memory(buffer, size)
        raise Fault(SimulationError, f"global buffer `{buffer.name}` is declared inside the kernel")

    def _shared_memory(self, buffer: k.Buffer, size: int) -> LinearMemory:
        """A shared buffer, in the block's arena if it has a place there, else in an arena of its own.

        Each time it has a new tag: it starts undefined, but accesses of the time before still race with new
        ones.
        """
        element = buffer.dtype.values.itemsize
        if buffer.offset is None:
            offset = 0
            arena, region = self._arena(buffer, size * element, element)
        else:
            offset = self.index.uniform(buffer.offset, f"the offset of `{buffer.name}`")
            limit = self.program.launch.shared_bytes
            if offset < 0 or offset + size * element > limit:
                raise Fault(
                    OutOfBoundsError,
                    f"`{buffer.name}` occupies bytes {offset} to {offset + size * element - 1} "
                    f"of a shared memory of {limit} bytes",
                )
            arena, region = self._arena(None, limit, self.program.usage.shared_granule)
        if offset % max(buffer.align, element):
            raise Fault(SimulationError, f"`{buffer.name}` at byte {offset} of shared memory is misaligned")
        flat = arena.view(buffer.dtype.values)
        self._tag += 1
        return LinearMemory(
            buffer.name,
            buffer.dtype,
            flat,
            size,
            origin=torch.arange(self.blocks)[:, None] * (flat.numel() // self.blocks) + offset // element,
            region=region,
            tag=self._tag,
            unaligned=offset % _ARENA_UNIT,
        )

    def _arena(self, owner: k.Buffer | None, size: int, granule: int) -> tuple[Tensor, Region]:
        """`size` bytes for every block, made at the first use."""
        found = self._arenas.get(owner)
        if found is not None:
            return found
        options = self.program.options
        total = self.blocks * (-(-size // _ARENA_UNIT) * _ARENA_UNIT)
        region = Region(
            total // granule, granule, races=options.races, tags=options.uninitialized, reads=True
        )
        # All bits set is a NaN in every float type that has one.
        made = self._arenas[owner] = torch.full((total,), 0xFF, dtype=torch.uint8), region
        return made

    # ---- places -------------------------------------------------------------------------------

    def _builtins(self) -> dict[str, Lanes]:
        values: dict[str, Lanes] = {}
        blocks = torch.arange(self.first_block, self.first_block + self.blocks)[:, None]
        threads = torch.arange(self.threads)[None, :]
        launch = self.program.launch
        for linear, axes, extents in (
            (blocks, k.BLOCK_AXES, launch.grid),
            (threads, k.THREAD_AXES, launch.block),
        ):
            for axis, extent in zip(axes, extents):
                position = linear % extent
                linear = linear // extent
                values[k.index_name(axis)] = position if position.numel() > 1 else int(position)
        return values

    def _error(self, fault: Fault, stmt: k.Stmt) -> SimulationError:
        lane = int(self.active.lanes[0]) if fault.lane is None else fault.lane
        block, thread = divmod(lane, self.threads)
        launch = self.program.launch
        facts = dict(fault.facts)
        problem = fault.problem
        if "other_block" in facts:
            problem = problem.replace(
                "{other}", self._other(facts.pop("other_block"), facts.pop("other_thread"))
            )
        return fault.kind(
            None,
            problem=problem,
            statement=statement_text(stmt),
            block=launch.block_index(self.first_block + block),
            thread=launch.thread_index(thread),
            **facts,
        )

    def _other(self, block: object, thread: object) -> str:
        launch = self.program.launch
        if not isinstance(block, int):
            return "threads of several blocks"
        if isinstance(thread, str):
            return f"{thread} in block {launch.block_index(block)}"
        if not isinstance(thread, int):
            return f"several threads of block {launch.block_index(block)}"
        return f"thread {launch.thread_index(thread)} of block {launch.block_index(block)}"
