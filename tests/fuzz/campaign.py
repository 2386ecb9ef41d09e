"""Many random programs on all cores: workers that may hang or die, a journal, and what was found.

Each worker is a process that runs one program after another. A program that takes too long, or that ends its
process (as a fault on a GPU does), is a finding like any other; its worker is replaced and the rest goes on.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import multiprocessing
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import torch

from tests.fuzz import bounded, flavours, kinds, layouts, operations, values, writer
from tests.fuzz.flavours import draw
from tests.fuzz.programs import Program, from_json, to_json
from tests.fuzz.running import Finding, Outcome, run
from tests.fuzz.shrinking import shrink, size_of

# A worker is replaced after so many programs, which bounds the memory of caches.
PROGRAMS_A_WORKER = 1000
# Longer than the slowest program on a busy machine; what takes longer is a finding.
SECONDS_A_PROGRAM = 120.0
SECONDS_OF_GRACE = 30.0
# To import torch on a busy machine.
SECONDS_TO_START = 300.0
SECONDS_BETWEEN_LINES = 5.0
# Findings of one class that each worker makes smaller; those that follow are kept as they are. (The class of
# a wrong result shows only in a small program.)
SHRUNK_A_GROUP = 2
SHRUNK_WRONG_RESULTS = 20
# Workers are forked from a process that has imported torch, and has done nothing else yet.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([__name__])
# After these a CUDA context may be unusable.
FATAL_ON_A_GPU = ("driver error", "exception", "hang")


@dataclass(frozen=True)
class Settings:
    """What is run.

    Attributes:
        programs, seed: programs 0 to `programs` - 1 of this seed. device: `cpu` (the simulator) or `cuda`.
        workers: processes. minutes: when to stop; None: when all have run.
        shrink: seconds for making one finding smaller. journal: where results are kept.
        run: runs one program on a device. limit: seconds that it may take. grace: what a worker that is stuck
            outside Python gets on top of that.
    """

    programs: int
    seed: int
    device: str = "cpu"
    workers: int = 1
    minutes: float | None = None
    shrink: float = 20.0
    journal: Path | None = None
    run: Callable[[Program, str], Outcome] = run
    limit: float = SECONDS_A_PROGRAM
    grace: float = SECONDS_OF_GRACE

    @property
    def header(self) -> dict[str, Any]:
        """What the results of a journal depend on."""
        return {"seed": self.seed, "device": self.device, "generator": _generator_version()}


def _generator_version() -> str:
    """Of the modules that decide which program a number stands for."""
    modules = (bounded, flavours, kinds, layouts, operations, values, writer)
    text = "".join(map(inspect.getsource, modules))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class JournalError(Exception):
    """A journal of other programs, or no journal."""


# ---- a worker ----------------------------------------------------------------------------------------------


class _TooLong(BaseException):
    """Raised by the alarm. No Exception: nothing that a program runs catches it."""


def _alarm(number: int, frame: FrameType | None) -> None:
    raise _TooLong("".join(traceback.format_stack(frame)[-6:]))


class _Runner:
    """Runs programs in this process, within their time. is_broken: whether it can run no more of them."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.is_broken = False

    def __call__(self, program: Program) -> Outcome:
        if self.is_broken:
            return Outcome()
        settings = self.settings
        signal.setitimer(signal.ITIMER_REAL, settings.limit)
        try:
            outcome = settings.run(program, settings.device)
        except _TooLong as late:
            where = str(late).strip().splitlines()
            head = where[-2].strip() if len(where) > 1 else "outside Python"
            message = f"no end in {settings.limit:.0f} s\n{late}"
            outcome = Outcome(finding=Finding("hang", head, message))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        finding = outcome.finding
        if finding is not None and settings.device != "cpu" and finding.kind in FATAL_ON_A_GPU:
            self.is_broken = True
        return outcome


def _work(connection: Connection, settings: Settings) -> None:
    """Runs the programs whose numbers come, and sends back one record for each."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, _alarm)
    torch.set_num_threads(1)
    runner = _Runner(settings)
    shrunk: dict[str, int] = {}
    connection.send(None)  # ready
    while (number := connection.recv()) is not None:
        record = _record(number, runner)
        if not runner.is_broken and _is_worth_shrinking(record, shrunk):
            connection.send({**record, "partial": True})  # counts if a smaller program ends this process
            record = _smaller(record, runner)
        connection.send({**record, "last": runner.is_broken})


def _record(number: int, runner: _Runner) -> dict[str, Any]:
    """What the journal says of one program."""
    try:
        flavour, program = draw(runner.settings.seed, number)
    except Exception:
        return _lost(number, Finding("generator fault", "it failed", traceback.format_exc()))
    outcome = runner(program)
    record = {"number": number, "flavour": flavour, **outcome.as_json()}
    return record if outcome.finding is None else {**record, "program": to_json(program)}


def _is_worth_shrinking(record: dict[str, Any], shrunk: dict[str, int]) -> bool:
    """Whether a finding is made smaller: the first few of each class. `shrunk`: how many there were."""
    finding = record["finding"]
    if finding is None or finding["kind"] in ("hang", "generator fault"):
        return False
    is_wrong = finding["kind"] == "wrong result"
    key = finding["kind"] if is_wrong else f"{finding['kind']}: {finding['head']}"
    shrunk[key] = shrunk.get(key, 0) + 1
    return shrunk[key] <= (SHRUNK_WRONG_RESULTS if is_wrong else SHRUNK_A_GROUP)


def _smaller(record: dict[str, Any], runner: _Runner) -> dict[str, Any]:
    """The record with the smallest program that was found, and its finding."""
    program, finding = shrink(
        from_json(record["program"]),
        Finding(**record["finding"]),
        runner,
        runner.settings.shrink,
    )
    return {**record, "finding": asdict(finding), "program": to_json(program), "is_small": True}


# ---- the parent --------------------------------------------------------------------------------------------


class _Worker:
    """A process, its pipe, and the program that it runs."""

    def __init__(self, settings: Settings) -> None:
        self.connection, other = _CONTEXT.Pipe()
        self.process = _CONTEXT.Process(target=_work, args=(other, settings), daemon=True)
        self.process.start()
        other.close()
        self.number: int | None = None
        self.deadline = 0.0
        self.seconds = 2 * settings.limit + settings.shrink + settings.grace
        self.start_up = SECONDS_TO_START
        self.given = 0  # programs; at PROGRAMS_A_WORKER it is replaced
        self.partial: dict[str, Any] | None = None  # of a finding that is being made smaller

    def give(self, number: int) -> None:
        self.number, self.given, self.partial = number, self.given + 1, None
        self.deadline = time.monotonic() + self.start_up + self.seconds
        self.connection.send(number)

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


@dataclass
class Summary:
    """What has run. findings: the records of programs that showed something, by class."""

    programs: int = 0
    executions: int = 0
    kernels: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    findings: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    flavours: dict[str, int] = field(default_factory=dict)

    def add(self, record: dict[str, Any]) -> None:
        self.programs += 1
        self.executions += record["executions"]
        self.kernels += record["kernels"]
        self.flavours[record["flavour"]] = self.flavours.get(record["flavour"], 0) + 1
        if record["refused"] is not None:
            self.refused[record["refused"]] = self.refused.get(record["refused"], 0) + 1
        if record["finding"] is not None:
            group = f"{record['finding']['kind']}: {record['finding']['head']}"
            if record["finding"]["kind"] == "wrong result" and "is_small" not in record:
                group = "wrong result: programs that were not made smaller"
            self.findings.setdefault(group, []).append(record)

    @property
    def found(self) -> int:
        return sum(map(len, self.findings.values()))

    def smallest(self) -> Iterator[tuple[str, dict[str, Any], int]]:
        """Of each class the smallest program, and how many there are; the most frequent class first."""
        for group, records in sorted(self.findings.items(), key=lambda item: (-len(item[1]), item[0])):
            kept = [r for r in records if r.get("program")]
            yield group, min(kept or records, key=_size), len(records)


def _size(record: dict[str, Any]) -> tuple[int, ...]:
    return size_of(from_json(record["program"])) if record.get("program") else ()


def campaign(settings: Settings, stream: TextIO = sys.stderr) -> Summary:
    """Runs all programs that the journal does not have yet. Ctrl-C stops it; what has run is kept."""
    summary = Summary()
    done = _resume(settings, summary)
    waiting = iter([n for n in range(settings.programs) if n not in done])
    journal = None if settings.journal is None else settings.journal.open("a", encoding="utf-8")
    try:
        if journal is not None and not done and not settings.journal.stat().st_size:  # type: ignore[union-attr]
            print(json.dumps(settings.header), file=journal, flush=True)
        for record in _records(settings, waiting):
            summary.add(record)
            if journal is not None:
                print(json.dumps(record), file=journal, flush=True)
            _progress(settings, summary, len(done), stream)
    except KeyboardInterrupt:
        print("\nstopped", file=stream)
    finally:
        if journal is not None:
            journal.close()
    return summary


def _resume(settings: Settings, summary: Summary) -> set[int]:
    """The numbers of the programs in the journal, which are added to the summary.

    Raises:
        JournalError: it is of another seed, device or generator.
    """
    if settings.journal is None or not settings.journal.exists() or not settings.journal.stat().st_size:
        return set()
    done: set[int] = set()
    with settings.journal.open(encoding="utf-8") as lines:
        header = _parsed(next(lines))
        if header != settings.header:
            raise JournalError(f"{settings.journal} holds {header}, not {settings.header}")
        for line in lines:
            record = _parsed(line)
            # The last line may be incomplete, if its process was killed.
            if record is not None and record["number"] < settings.programs and record["number"] not in done:
                done.add(record["number"])
                summary.add(record)
    return done


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _records(settings: Settings, waiting: Iterator[int]) -> Iterator[dict[str, Any]]:
    """One record for each program that waits, in the order in which they end."""
    end = None if settings.minutes is None else time.monotonic() + 60 * settings.minutes
    workers = [_Worker(settings) for _ in range(settings.workers)]
    try:
        for position in range(len(workers)):
            _next(workers, position, waiting, settings, end)
        while busy := [w for w in workers if w.number is not None]:
            ready = wait([w.connection for w in busy], timeout=1.0)
            for position, worker in enumerate(workers):
                if worker.number is None:
                    continue
                record = None
                if worker.connection in ready:
                    record = _received(worker)
                elif time.monotonic() > worker.deadline:
                    record = worker.partial or _lost(
                        worker.number, Finding("hang", "outside Python", "its process was ended")
                    )
                    worker.process.kill()
                if record is not None:
                    yield record
                    _next(workers, position, waiting, settings, end)
    finally:
        for worker in workers:
            worker.stop()


def _next(
    workers: list[_Worker], position: int, waiting: Iterator[int], settings: Settings, end: float | None
) -> None:
    """Gives a worker, or one in its place, the next program; none if there is none or it is too late."""
    worker = workers[position]
    worker.number = None
    number = None if end is not None and time.monotonic() > end else next(waiting, None)
    if number is None:
        return
    for _ in range(2):
        if worker.given >= PROGRAMS_A_WORKER or not worker.process.is_alive():
            worker.stop()
            worker = workers[position] = _Worker(settings)
        try:
            return worker.give(number)
        except OSError:  # it died meanwhile
            worker.process.join()


def _received(worker: _Worker) -> dict[str, Any] | None:
    """The record of the worker's program; None where it is ready to start, or seeks a smaller form of it."""
    assert worker.number is not None
    try:
        record = worker.connection.recv()
    except (EOFError, OSError):
        worker.process.join()
        finding = Finding(
            "crash", f"exit status {worker.process.exitcode}", "the process of the program ended"
        )
        return worker.partial or _lost(worker.number, finding)
    if record is None:
        worker.start_up, worker.deadline = 0.0, time.monotonic() + worker.seconds
        return None
    if record.pop("partial", False):
        worker.partial = record
        return None
    if record.pop("last"):
        worker.given = PROGRAMS_A_WORKER
    return record


def _lost(number: int, finding: Finding) -> dict[str, Any]:
    """The record of a program of which no more is known."""
    return {"number": number, "flavour": "", **Outcome(finding=finding).as_json()}


class _Clock:
    """When the last line was printed, and when the first program ran."""

    start = 0.0
    printed = 0.0


def _progress(settings: Settings, summary: Summary, resumed: int, stream: TextIO) -> None:
    now = time.monotonic()
    if not _Clock.start:
        _Clock.start = now
    if now < _Clock.printed + SECONDS_BETWEEN_LINES:
        return
    _Clock.printed = now
    rate = (summary.programs - resumed) / max(now - _Clock.start, 1.0)
    print(
        f"{summary.programs:,} of {settings.programs:,} programs, {summary.executions:,} executions, "
        f"{summary.found} findings of {len(summary.findings)} classes, {rate:.1f} programs/s",
        file=stream,
        flush=True,
    )
