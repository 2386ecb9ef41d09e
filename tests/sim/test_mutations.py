"""Kernels of whole fusions with one mistake each: which the simulator reports, why it may pass over others.

A mutant is *reported* where simulating it raises a SimulationError, *wrong* where it leaves other bytes in
memory than the right kernel does, and *unnoticed* otherwise. None goes unnoticed unless one of EXPLANATIONS
shows that no result can depend on what was changed. `pytest -s` prints the counts. A run takes one of four
mutants, the same each time; with `--thorough` it takes all.
"""

from __future__ import annotations

import typing
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from unittest import mock

import pytest
import torch

from fusewright.core.dtype import DataType
from fusewright.core.errors import SimulationError
from fusewright.kernel.access import read_buffers, read_refs, written_buffers, written_refs
from fusewright.kernel.ir import (
    TRUE,
    Barrier,
    BlockReduce,
    BlockScan,
    ClusterReduce,
    Combine,
    Copy,
    GridBarrier,
    GridReduce,
    GridReduces,
    GridScan,
    Hold,
    If,
    IssueLoads,
    Kernel,
    Ref,
    ScalarParam,
    Scatter,
    Space,
    Stmt,
    index_symbol,
    walk,
)
from fusewright.sim import SimOptions
from fusewright.sim.activity import Activity
from fusewright.sim.machine import Machine
from fusewright.sim.memory import Filled
from fusewright.sim.statements import input_dtype, load_states
from fusewright.sym import const, lt, symbol
from tests.kernel import builders
from tests.sim.launches import Launch, launches_of
from tests.sim.mutation_cases import CASES, HELD_ROWS
from tests.sim.mutations import Mutant, condition_of, mutants_of

# One of so many mutants is run by default: most statements have several mutants that the same check reports.
EACH = 4
# Mistakes that need no comparison of values to be found.
REPORTED = {"predicate dropped", "barrier dropped", "initialisation dropped", "index off by one"}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The launches are small, and on a busy machine several threads would wait for one another."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# ---- why a mistake changes nothing ----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Trial:
    """A launch, what its kernel does, and launches of the same kernel at other sizes.

    Attributes:
        right: the bytes that the kernel leaves.
        executed: the statements that a thread comes to.
        outcomes: of mutants that were run, by kind, what they alter and the statement's id.
    """

    launch: Launch
    right: list[torch.Tensor]
    executed: frozenset[Stmt]
    others: list[Launch]
    outcomes: dict[tuple[str, str, int], str] = field(default_factory=dict)

    @staticmethod
    def of(launch: Launch, others: list[Launch]) -> Trial:
        executed: set[Stmt] = set()
        options = SimOptions(on_statement=lambda stmt, machine: executed.add(stmt))
        return Trial(launch, launch.run(launch.kernel, options), frozenset(executed), others)

    @cached_property
    def stores(self) -> set[tuple[object, ...]]:
        return _stores(self.launch, self.launch.kernel)

    @cached_property
    def work(self) -> Counter[type[Stmt]]:
        return _work(self.launch, self.launch.kernel)

    def outcome(self, mutant: Mutant) -> str:
        name = mutant.kind, mutant.what, id(mutant.stmt)
        if name not in self.outcomes:
            self.outcomes[name] = self._run(mutant)
        return self.outcomes[name]

    def _run(self, mutant: Mutant) -> str:
        try:
            after = self.launch.run(mutant.kernel)
        except SimulationError:
            return "reported"
        return "unnoticed" if all(map(torch.equal, after, self.right)) else "wrong"

    def explanation(self, mutant: Mutant) -> str:
        """The name of what shows that the mutant is right, or 'unexplained'.

        A statement that never runs is unexplained: to watch it shows nothing.
        """
        if mutant.stmt not in self.executed:
            return "unexplained"
        found = (each for each in EXPLANATIONS.get(mutant.kind, ()) if each(self, mutant))
        return next((each.__name__ for each in found), "unexplained")


def _watch(launch: Launch, mutant: Mutant, watch: Callable[[Machine], None]) -> None:
    """Run the right kernel, calling `watch` whenever it comes to the statement that the mutant alters."""

    def on_statement(stmt: Stmt, machine: Machine) -> None:
        if stmt is mutant.stmt:
            watch(machine)

    launch.run(launch.kernel, SimOptions(on_statement=on_statement))


def _admitted(machine: Machine, mutant: Mutant) -> torch.Tensor:
    """The active lanes that the mutant lets in and the right kernel keeps out, bool (blocks, threads)."""

    def holds(stmt: Stmt) -> torch.Tensor:
        condition = condition_of(stmt)
        assert condition is not None
        return torch.as_tensor(machine.index(condition)).bool().expand(machine.blocks, machine.threads)

    mask = machine.active.mask
    admitted = holds(mutant.replacement[0]) & ~holds(mutant.stmt)
    return admitted if mask is None else admitted & mask


def is_implied(trial: Trial, mutant: Mutant) -> bool:
    """The rest of the condition, or the guards around it, keep out the same threads, at all sizes."""
    admitted: list[bool] = []
    for launch in (trial.launch, *trial.others):
        _watch(launch, mutant, lambda machine: admitted.append(bool(_admitted(machine, mutant).any())))
    return not any(admitted)


def writes_the_block_alone(trial: Trial, mutant: Mutant) -> bool:
    """More threads fill registers of their own, or places of their own in shared memory, with what they read
    within bounds.

    Nothing depends on them: in the right kernel they are unwritten there, or hold a fill, and the simulator
    reports where either reaches a result. What takes part in a reduction is another matter.
    """
    written = [buffer for stmt in walk((mutant.stmt,)) for buffer in written_buffers(stmt)]
    reduces = any(
        isinstance(stmt, (Combine, BlockReduce, BlockScan, GridReduce)) for stmt in walk((mutant.stmt,))
    )
    return not reduces and all(buffer.space is not Space.GLOBAL for buffer in written)


def contributes_the_identity(trial: Trial, mutant: Mutant) -> bool:
    """More threads take part in a reduction, with accumulators that hold the identity still."""
    stmt = mutant.stmt
    if not isinstance(stmt, (BlockReduce, GridReduce)):
        return False
    identity: list[bool] = []

    def watch(machine: Machine) -> None:
        active = machine.active.narrow(_admitted(machine, mutant))
        if active is None:
            return
        dtype = input_dtype(stmt.op, stmt.dst)
        for k in range(stmt.width):
            refs = [Ref(src.buffer, src.index + k) for src in stmt.src if isinstance(src, Ref)]
            states = load_states(machine, stmt.op, stmt.dst, refs, active)
            for state, value in zip(states, stmt.op.identity(dtype)):
                identity.append(bool((active.compress(state) == value).all()))

    _watch(trial.launch, mutant, watch)
    return bool(identity) and all(identity)


def repeats_stores(trial: Trial, mutant: Mutant) -> bool:
    """Threads store again what they have stored at the same place. (Were they several, they would race.)"""
    return trial.stores == _stores(trial.launch, mutant.kernel)


def _stores(launch: Launch, kernel: Kernel) -> set[tuple[object, ...]]:
    """Which thread stored which value to which element of which tensor."""
    found: set[tuple[object, ...]] = set()
    store = Machine.store

    def record(
        machine: Machine,
        ref: Ref,
        values: Sequence[torch.Tensor],
        active: Activity | None = None,
        filled: Sequence[Filled] = (),
    ) -> None:
        if ref.buffer.space is not Space.LOCAL:
            lanes = machine.active if active is None else active
            index = lanes.compress(torch.as_tensor(machine.index(ref.index)))
            for k, value in enumerate(values):
                columns = lanes.lanes, index + k, lanes.compress(value)
                rows = zip(*[column.tolist() for column in columns])
                found.update((ref.buffer.name, *row) for row in rows)
        store(machine, ref, values, active, filled)

    with mock.patch.object(Machine, "store", record):
        launch.run(kernel)
    return found


def works_in_registers_alone(trial: Trial, mutant: Mutant) -> bool:
    """Guards keep all threads from memory, accumulators and collectives in the iteration that is too many."""
    return trial.work == _work(trial.launch, mutant.kernel)


def _work(launch: Launch, kernel: Kernel) -> Counter[type[Stmt]]:
    """How many statements do more than fill a register from others."""
    executed: Counter[type[Stmt]] = Counter()

    def on_statement(stmt: Stmt, machine: Machine) -> None:
        refs = (*read_refs(stmt), *written_refs(stmt))
        in_memory = any(ref.buffer.space is not Space.LOCAL for ref in refs)
        pred = condition_of(stmt) if isinstance(stmt, (Copy, Scatter, Combine)) else None
        if pred is not None and machine.active.narrow(machine.index(pred)) is None:
            return
        if in_memory or isinstance(stmt, (Combine, BlockReduce, BlockScan, GridReduce, Barrier)):
            executed[type(stmt)] += 1

    launch.run(kernel, SimOptions(on_statement=on_statement))
    return executed


def discards_a_state(trial: Trial, mutant: Mutant) -> bool:
    """A reduction puts a state that nothing else reads where it puts another afterwards; both begin alike."""
    right, [wrong] = mutant.stmt, mutant.replacement
    if not isinstance(right, (BlockReduce, GridReduce)) or not isinstance(wrong, (BlockReduce, GridReduce)):
        return False
    places = [i for i, (old, new) in enumerate(zip(right.dst, wrong.dst)) if old.buffer is not new.buffer]
    others = [stmt for stmt in walk(trial.launch.kernel.body) if stmt is not right]
    if len(places) != 1 or wrong.src != right.src:
        return False
    lost, taken = right.dst[places[0]], wrong.dst[places[0]]
    if any(lost.buffer in read_buffers(stmt) for stmt in others) or taken not in wrong.dst[places[0] + 1 :]:
        return False
    alike: list[bool] = []

    def watch(machine: Machine) -> None:
        begun = [machine.active.compress(machine.load(ref)[0]) for ref in (lost, taken)]
        alike.append(torch.equal(*begun))

    _watch(trial.launch, mutant, watch)
    return bool(alike) and all(alike)


def reads_the_same_value(trial: Trial, mutant: Mutant) -> bool:
    """A register is read in place of another, of which one is a copy; at no size do they differ there."""
    right, [wrong] = mutant.stmt, mutant.replacement
    refs = zip(read_refs(right), read_refs(wrong))
    pairs = [(old, new) for old, new in refs if old.buffer is not new.buffer]
    kernel = trial.launch.kernel
    if written_buffers(right) != written_buffers(wrong):
        return False
    if not pairs or not all(_is_copy(kernel, a, b) or _is_copy(kernel, b, a) for a, b in pairs):
        return False
    alike: list[bool] = []

    def watch(machine: Machine) -> None:
        for pair in pairs:
            alike.append(torch.equal(*[machine.active.compress(machine.load(ref)[0]) for ref in pair]))

    for launch in (trial.launch, *trial.others):
        _watch(launch, mutant, watch)
    return bool(alike) and all(alike)


def _is_copy(kernel: Kernel, copy: Ref, source: Ref) -> bool:
    """Whether one statement writes the register of `copy`: all threads execute it once, to copy `source`."""
    match [stmt for stmt in walk(kernel.body) if copy.buffer in written_buffers(stmt)]:
        case [Copy(dst=dst, src=Ref() as src, width=1, pred=pred) as stmt]:
            assigned = [(ref.buffer, ref.index) for ref in (dst, src)]
            wanted = [(ref.buffer, ref.index) for ref in (copy, source)]
            return stmt in kernel.body and pred is TRUE and assigned == wanted
    return False


def steps_inwards(trial: Trial, mutant: Mutant) -> bool:
    """Whether a step to the other side is reported.

    An iteration that has code of its own is at one end of a loop: a step away from that end is another
    element of the same memory.
    """
    where, step = mutant.what.rsplit(" ", 1)
    other = f"{where} {-int(step):+}"
    twins = (m for m in mutants_of(trial.launch.kernel, [mutant.kind]) if m.stmt is mutant.stmt)
    return any(trial.outcome(twin) == "reported" for twin in twins if twin.what == other)


Explanation = Callable[[Trial, Mutant], bool]
# Any other mistake loses or misplaces something that a result is made from, so that nothing explains it.
EXPLANATIONS: dict[str, Sequence[Explanation]] = {
    "predicate dropped": (is_implied, writes_the_block_alone, contributes_the_identity, repeats_stores),
    "loop too long": (works_in_registers_alone, repeats_stores),
    "wrong buffer": (discards_a_state, reads_the_same_value),
}


# ---- the mutants of each case ---------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(0.5)
def test_mistakes_are_noticed(name: str, thorough: bool) -> None:
    each_of = 1 if thorough else EACH
    case = CASES[name]
    calls = [inputs() for inputs in (case.inputs, *case.others)]
    expected = case.reference(*[x.clone() for x in calls[0]])
    launches, outputs = launches_of(case.define, *calls)
    for actual, reference in zip(outputs[0] or calls[0], expected):
        torch.testing.assert_close(actual.float(), reference.float(), rtol=1e-4, atol=1e-3)
    counts: Counter[tuple[str, str]] = Counter()
    problems: list[str] = []
    for launch in launches[0]:
        others = [each for call in launches[1:] for each in call if each.kernel is launch.kernel]
        trial = Trial.of(launch, others)
        for mutant in mutants_of(launch.kernel):
            if zlib.crc32(str(mutant).encode()) % each_of:
                continue
            outcome = trial.outcome(mutant)
            if outcome == "unnoticed":
                outcome = trial.explanation(mutant)
            elif outcome == "wrong" and mutant.kind == "index off by one" and steps_inwards(trial, mutant):
                outcome = "steps_inwards"
            counts[mutant.kind, outcome] += 1
            if outcome == "unexplained" or (mutant.kind in REPORTED and outcome == "wrong"):
                problems.append(f"{outcome}, {mutant}")
    print(f"\n{name}: {sum(counts.values())} mutants of {len(launches[0])} kernels")
    for (kind, outcome), count in sorted(counts.items()):
        print(f"  {kind}: {count} {outcome}")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("name", HELD_ROWS)
def test_threads_hold_two_vectors_of_a_row(name: str) -> None:
    """Else a row has no loop over vectors and no guard of its last ones, in which to make mistakes."""
    launches, _ = launches_of(CASES[name].define, CASES[name].inputs())
    copies = [stmt for launch in launches[0] for stmt in walk(launch.kernel.body) if isinstance(stmt, Copy)]
    loads = [each for each in copies if each.dst.buffer.name == "T0_copy"]
    assert loads and all(each.dst.buffer.size == const(2 * each.width) for each in loads)


def test_nothing_explains_a_mistake_in_a_statement_that_never_runs() -> None:
    threads, size = index_symbol(builders.BX, const(32)), symbol("n", lo=0)
    x, y = (builders.tensor(name, DataType.Float, const(32), output=name == "y") for name in "xy")
    copy = Copy(builders.at(y.buffer, threads), builders.at(x.buffer, threads))
    rarely = If(lt(100, size), (replace(copy, pred=lt(threads, size)),))
    params = [x, y, ScalarParam("n", DataType.Index, size)]
    kernel = builders.kernel("rarely", params, [copy, rarely], [1], [32])
    unexplained = []
    for number in (5, 500):
        trial = Trial.of(Launch(kernel, [torch.randn(32), torch.empty(32), number], {}), [])
        [mutant] = (each for each in mutants_of(kernel, ["predicate dropped"]) if each.stmt in rarely.body)
        assert trial.outcome(mutant) == "unnoticed"
        unexplained.append(trial.explanation(mutant) == "unexplained")
    assert unexplained == [True, False]


def test_the_cases_have_kernels_with_every_statement() -> None:
    kinds: set[type[Stmt]] = set()
    for case in CASES.values():
        launches, _ = launches_of(case.define, case.inputs())
        kinds.update(type(stmt) for launch in launches[0] for stmt in walk(launch.kernel.body))
    of_rings = {stmt for stmt in typing.get_args(Stmt) if stmt.__module__ == "fusewright.kernel.waits"}
    # Hold and IssueLoads change nothing. No automatic schedule of so few elements has grid barriers,
    # clusters, scans of several blocks (see test_faults), several grid reductions or rings (test_waits alters
    # one).
    without = {Hold, IssueLoads, GridBarrier, GridReduces, GridScan, ClusterReduce}
    assert kinds == set(typing.get_args(Stmt)) - without - of_rings
