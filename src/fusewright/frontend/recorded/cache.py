"""The cache of definitions: a trie of records whose leaves are `FusionSchedules`."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from fusewright.core.errors import ArgumentTypeError, DefinitionError, UserError, shown_number
from fusewright.core.forks import renew_in_child
from fusewright.core.options import Options
from fusewright.core.whole_files import write_whole
from fusewright.frontend.recorded.fusion_schedules import FusionSchedules
from fusewright.frontend.recorded.printing import definition_text
from fusewright.frontend.recorded.records import Record, from_plain, to_plain
from fusewright.frontend.recorded.states import Building, Outcome
from fusewright.ops import describe_argument

# Mistakes kept. The one that was made first is forgotten first.
MAX_FAILURES = 1024

FILE_FORMAT = 1
"""Version of the files that `FusionCache.serialize` writes."""


class TrieNode:
    """A definition up to some record.

    Attributes:
        outcome: the values that the record made; None at the root, and if the record is wrong.
        error: the record's error, if it is wrong.
        children: the next records.
        leaf: the data of the definition that ends here, if one does.
    """

    __slots__ = ("children", "error", "leaf", "outcome")

    def __init__(self, outcome: Outcome | None = None, error: UserError | None = None) -> None:
        self.outcome = outcome
        self.error = error
        self.children: dict[Record, TrieNode] = {}
        self.leaf: FusionSchedules | None = None

    @property
    def is_needed(self) -> bool:
        """Whether something is kept here, or further on."""
        return bool(self.children) or self.leaf is not None or self.error is not None


class FusionCache:
    """All definitions of the process. There is one object, `FusionCache.get()`, which several threads may
    use.

    The trie grows only when a definition is complete or fails, and only under the lock; threads that follow
    it meanwhile see only complete nodes. A definition that failed is cached with its error. An equal one
    raises the error again and builds nothing.

    Args:
        max_fusions: the maximum number of definitions; None: the option `max_fusions` of the environment,
            which is FUSEWRIGHT_MAX_FUSIONS or 16384.
        evict: True: at the limit, the definition that was written or looked up by its id least recently is
            evicted; objects that hold it can still run it. False: reaching the limit is an error, as in
            nvFuser.
    """

    _instance: ClassVar[FusionCache | None] = None
    _guard: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, max_fusions: int | None = None, *, evict: bool = True) -> None:
        if max_fusions is None:
            max_fusions = Options.from_environment().max_fusions
        if type(max_fusions) is not int or max_fusions < 1:
            raise ArgumentTypeError(
                function="FusionCache", expected="max_fusions: a positive int", given=repr(max_fusions)
            )
        self.max_fusions = max_fusions
        self.evict = evict
        self.root = TrieNode()
        #: by id, the least recently used first
        self._definitions: dict[int, FusionSchedules] = {}
        #: the records of definitions that failed, the wrong one last, the oldest first
        self._failures: dict[tuple[Record, ...], None] = {}
        self._made = 0
        self._lookups = 0
        self._hits = 0
        self._lock = threading.Lock()
        renew_in_child(self)

    def renew(self) -> None:
        """Makes the locks anew, in a child of `fork`."""
        self._lock = threading.Lock()
        FusionCache._guard = threading.Lock()

    @classmethod
    def get(
        cls,
        max_fusions: int | None = None,
        selected_device: int | None = None,
        load_from_default_workspace: bool = True,
        *,
        evict: bool = True,
    ) -> FusionCache:
        """The cache of the process; the arguments count on the first call, and after `reset`.

        `selected_device` and `load_from_default_workspace` are accepted for nvFuser's sake: compiled kernels
        are kept in the disk cache by their content, which needs neither.
        """
        with cls._guard:
            if cls._instance is None:
                cls._instance = cls(max_fusions, evict=evict)
            return cls._instance

    @staticmethod
    def reset() -> None:
        """Forget every definition. Those that are held elsewhere keep working."""
        with FusionCache._guard:
            FusionCache._instance = None

    # ---- definitions

    def num_fusions(self) -> int:
        return len(self._definitions)

    def schedules(self, number: int) -> FusionSchedules:
        """The leaf of the definition with this id. DefinitionError if there is none (any more)."""
        with self._lock:
            found = self._definitions.get(number)
            if found is None:
                was = 0 <= number < self._made
                raise DefinitionError(
                    problem=f"there is no cached definition with id {shown_number(number)}",
                    hint=f"it was evicted; max_fusions is {self.max_fusions}" if was else None,
                )
            self._touch(found)
            return found

    def complete(
        self, records: Sequence[Record], outcomes: Sequence[Outcome], building: Building | None
    ) -> FusionSchedules:
        """The leaf of a definition that ends here: the one that is cached, else a new one from `building`.

        Raises:
            DefinitionError: the cache is full and evicts nothing.
        """
        with self._lock:
            self._lookups += 1
            node = self._walk(records)
            if node is not None and node.leaf is not None:
                node.leaf.hits += 1
                self._hits += 1
                self._touch(node.leaf)
                return node.leaf
            if not self.evict and len(self._definitions) >= self.max_fusions:
                raise DefinitionError(
                    f"The number of fusions in the cache has exceeded max_fusions, {self.max_fusions}",
                    hint="FusionCache.reset() empties it",
                )
            leaf = FusionSchedules(self._made, records, outcomes, building or Building(records))
            while len(self._definitions) >= self.max_fusions:
                self._drop(next(iter(self._definitions.values())))
            self._made += 1
            self._grow(records, outcomes).leaf = leaf
            self._definitions[leaf.id] = leaf
            return leaf

    def _touch(self, leaf: FusionSchedules) -> None:
        """Makes it the definition that was used last."""
        self._definitions.pop(leaf.id, None)
        self._definitions[leaf.id] = leaf

    def _drop(self, leaf: FusionSchedules) -> None:
        """Takes a definition out, with the nodes of the trie that only it needs."""
        del self._definitions[leaf.id]
        path = self._path(leaf.records)
        path[-1].leaf = None
        self._prune(path, leaf.records)

    def keep_failure(
        self, records: Sequence[Record], outcomes: Sequence[Outcome], wrong: Record, error: UserError
    ) -> None:
        """Caches the error of the record `wrong` after these."""
        with self._lock:
            node = self._grow(records, outcomes)
            if wrong in node.children:
                return
            node.children[wrong] = TrieNode(error=error.again())
            failed = (*records, wrong)
            self._failures[failed] = None
            if len(self._failures) > MAX_FAILURES:
                self._forget_failure(next(iter(self._failures)))

    def _forget_failure(self, records: tuple[Record, ...]) -> None:
        del self._failures[records]
        path = self._path(records)
        path[-1].error = None
        self._prune(path, records)

    def _path(self, records: Sequence[Record]) -> list[TrieNode]:
        """The nodes from the root to where these records lead, which are there."""
        path = [self.root]
        for record in records:
            path.append(path[-1].children[record])
        return path

    @staticmethod
    def _prune(path: Sequence[TrieNode], records: Sequence[Record]) -> None:
        """Takes the nodes off the end of a path that nothing needs."""
        for parent, record in zip(path[-2::-1], reversed(records)):
            if parent.children[record].is_needed:
                break
            del parent.children[record]

    def _walk(self, records: Sequence[Record]) -> TrieNode | None:
        node: TrieNode | None = self.root
        for record in records:
            if node is None:
                return None
            node = node.children.get(record)
        return node

    def _grow(self, records: Sequence[Record], outcomes: Sequence[Outcome]) -> TrieNode:
        node = self.root
        for record, outcome in zip(records, outcomes):
            node = node.children.setdefault(record, TrieNode(outcome))
        return node

    # ---- reports and files

    def stats(self) -> str:
        """How many definitions there are, and how often each was found again."""
        with self._lock:
            lines = [f"Total Fusions: {len(self._definitions)}"]
            if self._definitions:
                rate = 100 * self._hits / self._lookups
                lines.append("Cache Hits by Fusion Id:")
                lines += [f"\t{d.id} -> {d.hits} hits" for d in self._by_id()]
                lines.append(f"Cache Lookups: {self._lookups} Cache Hits: {self._hits} Hit Rate: {rate:.1f}%")
            return "\n".join(lines) + "\n"

    def _by_id(self) -> list[FusionSchedules]:
        return [self._definitions[number] for number in sorted(self._definitions)]

    def print(self) -> None:
        """Prints all definitions by id, as the calls that make them."""
        print(self)

    def __repr__(self) -> str:
        with self._lock:
            return "\n".join(definition_text(d.records, d.outcomes, d.id) for d in self._by_id())

    def serialize(self, filename: str | os.PathLike[str]) -> None:
        """Write all definitions to a JSON file, which `deserialize` reads. Kernels are in the disk cache.

        Raises:
            OSError: the file cannot be written, and is as it was.
        """
        path = _path("serialize", filename)
        with self._lock:
            definitions = [[to_plain(record) for record in d.records] for d in self._by_id()]
        write_whole(path, json.dumps({"format": FILE_FORMAT, "definitions": definitions}))

    def deserialize(self, filename: str | os.PathLike[str]) -> None:
        """Add the definitions of a file that `serialize` wrote.

        Raises:
            DefinitionError: the file is none, and nothing of it is added; or the cache is full and evicts
                nothing, and as many are added as it holds.
            OSError: it cannot be read.
        """
        path = _path("deserialize", filename)
        if path.exists() and not path.is_file():
            # A device may never end.
            raise DefinitionError(problem=f"{filename} is no file", expected="one that serialize() wrote")
        try:
            built = [_built(records) for records in _records_of(path.read_text(encoding="utf-8"))]
        except (ValueError, RecursionError, UserError) as error:
            raise DefinitionError(problem=f"{filename} holds no serialized definitions ({error})") from error
        for records, outcomes, building in built:
            with self._lock:
                known = self._walk(records)
            if known is None or known.leaf is None:
                self.complete(records, outcomes, building)


def _path(function: str, filename: object) -> Path:
    """ArgumentTypeError for what names no file."""
    if isinstance(filename, (str, os.PathLike)):
        return Path(filename)
    raise ArgumentTypeError(
        function=function, expected="filename: str or a path", given=describe_argument(filename)
    )


def _records_of(text: str) -> list[list[Record]]:
    """The definitions of a file. ValueError, or RecursionError of the JSON parser, if it is none."""
    data = json.loads(text)
    if not isinstance(data, dict) or data.get("format") != FILE_FORMAT:
        raise ValueError(f"no file of format {FILE_FORMAT}")
    definitions = data.get("definitions")
    if not isinstance(definitions, list) or not all(isinstance(records, list) for records in definitions):
        raise ValueError("its definitions are no list of lists")
    return [[from_plain(record) for record in records] for records in definitions]


def _built(records: list[Record]) -> tuple[list[Record], list[Outcome], Building]:
    """A definition as `FusionCache.complete` takes it. UserError if it is wrong."""
    building = Building()
    outcomes = [building.apply(record) for record in records]
    return records, outcomes, building
