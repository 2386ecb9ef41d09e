"""The journal: all results for the params of problems, in an sqlite file that only grows.

Several processes may write to it. A row is never changed; if several rows have the same params, the last one
counts.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from math import inf
from pathlib import Path
from typing import Any, TypeGuard

from fusewright.core.errors import FusewrightError, TuneError
from fusewright.tune.problem import Problem

# Changes with the tables.
SCHEMA = 2
# "fwtj": says that an sqlite file is a journal.
APPLICATION = 0x6677746A
# Bytes below which a disk is full, or nearly so.
LITTLE_SPACE = 1 << 20
# Another process holds the file for milliseconds.
BUSY_SECONDS = 30

_TABLES = """
CREATE TABLE problems (key TEXT PRIMARY KEY, facts TEXT NOT NULL, created REAL NOT NULL);
CREATE TABLE trials (
    id INTEGER PRIMARY KEY AUTOINCREMENT, problem TEXT NOT NULL REFERENCES problems(key),
    params TEXT NOT NULL, origin TEXT NOT NULL, status TEXT NOT NULL, seconds REAL,
    detail TEXT NOT NULL, kernel TEXT NOT NULL,
    resources TEXT NOT NULL, make_seconds REAL, version TEXT NOT NULL, created REAL NOT NULL
);
CREATE INDEX trials_of ON trials (problem, version);
CREATE TABLE races (
    id INTEGER PRIMARY KEY AUTOINCREMENT, problem TEXT NOT NULL REFERENCES problems(key),
    seconds TEXT NOT NULL, copy_seconds REAL NOT NULL, version TEXT NOT NULL, created REAL NOT NULL
)
"""
_SEARCHES = """
CREATE TABLE searches (
    id INTEGER PRIMARY KEY AUTOINCREMENT, problem TEXT NOT NULL REFERENCES problems(key),
    asked TEXT NOT NULL, stop TEXT NOT NULL, tried INTEGER NOT NULL, refused INTEGER NOT NULL,
    version TEXT NOT NULL, created REAL NOT NULL
)
"""
#: By the version that they lead to: journals of older versions get the tables that they lack.
_TABLES_SINCE = {1: _TABLES, 2: _SEARCHES}


#: The origin of trials of the params that the scheduler itself chooses.
FORMULA = "heuristic"


class Status(Enum):
    """The result of params."""

    MEASURED = "measured"
    #: compiled; there was no GPU to run it on, or no memory for it
    COMPILED = "compiled"
    #: the scheduler, the compiler or the launcher refused them for this problem
    REJECTED = "rejected"
    #: Fusewright failed to make the kernel
    FAULT = "fault"
    #: results are not those of the reference
    WRONG = "wrong"
    #: the process died, or the GPU reported an error
    CRASHED = "crashed"
    #: it took longer than allowed
    HUNG = "hung"


#: What is a fault of Fusewright: legal params make right kernels, or are refused.
FAILED = frozenset({Status.FAULT, Status.WRONG, Status.CRASHED, Status.HUNG})


@dataclass(frozen=True)
class Trial:
    """The result of one configuration.

    Attributes:
        params: as JSON.
        origin: who proposed the params; `FORMULA`: the scheduler.
        seconds: of a launch, if it was measured.
        detail: why it failed.
        kernel: the kernel's name.
        resources: the assembler's report, as a dict.
        make_seconds: processor time from params to machine code.
    """

    params: str
    origin: str
    status: Status
    seconds: float | None = None
    detail: str = ""
    kernel: str = ""
    resources: dict[str, Any] | None = None
    make_seconds: float | None = None


@dataclass(frozen=True)
class SearchRecord:
    """The record of one search.

    Attributes:
        asked: the answers of heuristics and the user, one per line.
        stop: why it ended.
        tried: the number of configurations that were compiled.
        refused: the number of configurations that were rejected.
    """

    asked: list[str]
    stop: str
    tried: int
    refused: int


@dataclass(frozen=True)
class Race:
    """The heuristic's params and the best ones, timed in turns.

    Attributes:
        seconds: by params, as JSON.
        copy_seconds: of a copy of the least number of bytes that the problem reads and writes.
    """

    seconds: dict[str, float]
    copy_seconds: float


def _reading(path: Path) -> sqlite3.Connection:
    """A connection that writes no row. What a killed process left beside the file is worked in first.

    Where the disk is full that cannot be, and an empty log need not.
    """
    left = [path.with_name(path.name + suffix) for suffix in ("-journal", "-wal")]
    ways = ["mode=ro"]
    if any(each.exists() for each in left) and os.access(path, os.W_OK):
        ways.append("mode=rw")
    if not any(each.exists() and each.stat().st_size for each in left):
        ways.append("immutable=1")
    problem: sqlite3.OperationalError | None = None
    for way in ways:
        connection = _connected(path, f"?{way}")
        try:
            connection.execute("SELECT COUNT(*) FROM sqlite_master")
            return connection
        except sqlite3.OperationalError as error:
            connection.close()
            problem = problem or error
    assert problem is not None
    raise problem


def _connected(path: Path, way: str = "") -> sqlite3.Connection:
    name = path.absolute().as_uri() + way
    return sqlite3.connect(name, timeout=BUSY_SECONDS, isolation_level=None, uri=True)


class Journal:
    """An open journal; a context manager.

    Args:
        version: of the code generator: trials of other versions are kept but not used. None: the journal is
            only read, and the version is that of its last trial.

    Attributes:
        version: as above; "" if there is no trial.
        unreadable: of the problems read last, those that could not be read, with the reason.

    Raises:
        TuneError: the file cannot be read or written, is not a journal, or has another format version.
    """

    def __init__(self, path: Path, version: str | None) -> None:
        self.path = path
        self.unreadable: list[str] = []
        self._writes = version is not None
        with self._naming_the_file():
            self._connection = _connected(path) if self._writes else _reading(path)
            if self._writes:
                self._create()
            self._check()
            if self._writes:
                self._write_ahead()
            self.version = next(iter(self.versions()), "") if version is None else version

    def _create(self) -> None:
        """Makes the tables that an empty file, or a journal of an older version, lacks. No row changes."""
        with self._transaction() as db:
            schema = db.execute("PRAGMA user_version").fetchone()[0]
            is_empty = not db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]
            if not is_empty and not (self._is_journal() and schema >= 1):
                return
            for version, tables in _TABLES_SINCE.items():
                for statement in tables.split(";") if version > schema else ():
                    db.execute(statement)
            db.execute(f"PRAGMA application_id = {APPLICATION}")
            if schema < SCHEMA:
                db.execute(f"PRAGMA user_version = {SCHEMA}")

    def _write_ahead(self) -> None:
        """Has rows go to a log beside the file, which outlives a killed process: none waits for the disk.

        Where the file system cannot do that they go to the file, and wait.
        """
        with suppress(sqlite3.Error):  # another process is writing
            self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")

    def _is_journal(self) -> bool:
        found = self._connection.execute("PRAGMA application_id").fetchone()[0]
        return bool(found == APPLICATION)

    def _check(self) -> None:
        if not self._is_journal():
            raise TuneError(f"{self.path} is an sqlite file, but no journal", hint="name another file")
        self._schema = self._connection.execute("PRAGMA user_version").fetchone()[0]
        if not 1 <= self._schema <= SCHEMA:
            raise TuneError(
                f"{self.path} is a journal of another version",
                expected=f"1 to {SCHEMA}",
                given=self._schema,
                hint="a newer Fusewright wrote it; name another file",
            )

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the journal. The last process to close it leaves one file, which can be read from read-only
        storage.
        """
        if self._writes:
            with suppress(sqlite3.Error):  # others have it open
                self._connection.execute("PRAGMA busy_timeout = 0")
                self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()

    # ---- writing

    def add_problem(self, problem: Problem) -> None:
        with self._naming_the_file(), self._transaction() as db:
            facts = json.dumps(problem.to_dict())
            db.execute("INSERT OR IGNORE INTO problems VALUES (?, ?, ?)", (problem.key, facts, time.time()))

    def add_trial(self, key: str, trial: Trial) -> None:
        row = (
            key, trial.params, trial.origin, trial.status.value, trial.seconds, trial.detail, trial.kernel,
            json.dumps(trial.resources or {}), trial.make_seconds, self.version, time.time(),
        )  # fmt: skip
        with self._naming_the_file(), self._transaction() as db:
            db.execute(f"INSERT INTO trials VALUES (NULL{', ?' * len(row)})", row)

    def add_race(self, key: str, race: Race) -> None:
        row = key, json.dumps(race.seconds), race.copy_seconds, self.version, time.time()
        with self._naming_the_file(), self._transaction() as db:
            db.execute(f"INSERT INTO races VALUES (NULL{', ?' * len(row)})", row)

    def add_search(self, key: str, search: SearchRecord) -> None:
        row = (
            key, json.dumps(search.asked), search.stop, search.tried, search.refused,
            self.version, time.time(),
        )  # fmt: skip
        with self._naming_the_file(), self._transaction() as db:
            db.execute(f"INSERT INTO searches VALUES (NULL{', ?' * len(row)})", row)

    # ---- reading

    def problems(self) -> list[Problem]:
        """In the order in which they came. Those that other code wrote may not be readable (`unreadable`)."""
        with self._naming_the_file():
            rows = self._connection.execute(
                "SELECT key, facts FROM problems ORDER BY created, rowid"
            ).fetchall()
        found, self.unreadable = [], []
        for key, facts in rows:
            try:
                found.append(Problem.from_dict(json.loads(facts)))
            except _UNREADABLE as error:
                self.unreadable.append(f"{key}: {type(error).__name__}: {error}".partition("\n")[0])
        return found

    def trials(self, key: str) -> list[Trial]:
        """The last of each params, in the order in which params were first tried. Others are no trials."""
        with self._naming_the_file():
            rows = self._connection.execute(
                "SELECT params, origin, status, seconds, detail, kernel, resources, make_seconds "
                "FROM trials WHERE problem = ? AND version = ? ORDER BY id",
                (key, self.version),
            ).fetchall()
        return list({trial.params: trial for row in rows if (trial := _trial(*row)) is not None}.values())

    def ended(self, key: str, on_gpu: bool) -> dict[str, Trial]:
        """By params, the trials that are not repeated; a GPU repeats those that were only compiled."""
        return {t.params: t for t in self.trials(key) if t.status is not Status.COMPILED or not on_gpu}

    def race(self, key: str) -> Race | None:
        """The last one."""
        with self._naming_the_file():
            row = self._connection.execute(
                "SELECT seconds, copy_seconds FROM races WHERE problem = ? AND version = ? "
                "ORDER BY id DESC LIMIT 1",
                (key, self.version),
            ).fetchone()
        return None if row is None else _race(*row)

    def search(self, key: str) -> SearchRecord | None:
        """The last search. None: there was none, or the journal's version has none."""
        if self._schema < 2:
            return None
        with self._naming_the_file():
            row = self._connection.execute(
                "SELECT asked, stop, tried, refused FROM searches WHERE problem = ? AND version = ? "
                "ORDER BY id DESC LIMIT 1",
                (key, self.version),
            ).fetchone()
        try:
            return None if row is None else SearchRecord(list(json.loads(row[0])), *row[1:])
        except _UNREADABLE:
            return None

    def versions(self) -> list[str]:
        """What trials were made with, the latest first."""
        with self._naming_the_file():
            rows = self._connection.execute(
                "SELECT version FROM trials GROUP BY version ORDER BY MAX(id) DESC"
            )
            return [version for (version,) in rows.fetchall()]

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        db = self._connection
        if db.in_transaction:  # an interrupt came before the last one could be rolled back
            db.execute("ROLLBACK")
        try:
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")

    @contextmanager
    def _naming_the_file(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            hint = None
            with suppress(OSError):
                free = shutil.disk_usage(self.path.absolute().parent).free
                hint = f"its disk has {free} bytes left" if free < LITTLE_SPACE else None
            raise TuneError(f"the journal {self.path}: {error}", hint=hint) from error


#: What reading raises of text that other code, or nobody's, wrote.
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError, FusewrightError)


def _trial(
    params: str,
    origin: str,
    status: str,
    seconds: object,
    detail: str,
    kernel: str,
    resources: str,
    make_seconds: float | None,
) -> Trial | None:
    """The trial of a row; None: it is none."""
    if seconds is not None and not _is_time(seconds):
        return None
    try:
        taken, is_object = json.loads(resources), isinstance(json.loads(params), dict)
        return (
            Trial(params, origin, Status(status), seconds, detail, kernel, taken, make_seconds)
            if is_object
            else None
        )
    except _UNREADABLE:
        return None


def _race(seconds: str, copy_seconds: object) -> Race | None:
    """The race of a row; None: it is none."""
    try:
        times = json.loads(seconds)
        if _is_time(copy_seconds) and all(map(_is_time, times.values())):
            return Race(times, copy_seconds)
    except _UNREADABLE:
        pass
    return None


def _is_time(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and 0 < value < inf
