"""The cache of definitions: a trie of records whose leaves hold finished fusions."""

from __future__ import annotations

import json
import threading
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch

from fusewright.core.errors import (
    ArgumentTypeError,
    DefinitionError,
    MissingDefinitionError,
    UserError,
    shown_number,
)
from fusewright.core.forks import renew_in_child
from fusewright.core.once import OnceCache
from fusewright.core.options import Options
from fusewright.frontend.printing import definition_text, repro_script
from fusewright.frontend.records import Record, from_plain, to_plain
from fusewright.frontend.states import Building, Outcome, StateValue
from fusewright.host import FinishedSchedule, FusionExecutor
from fusewright.ir import Fusion, Val, verify_fusion
from fusewright.schedule import Schedule
from fusewright.schedulers import Registry, Scheduler

__all__ = ["CachedDefinition", "FusionCache", "TrieNode"]

# Kept of one definition; the oldest go when more come. Signatures that the user made schedules for, schedules
# that differ, and executors of different registries.
MAX_SCHEDULED = 16384
MAX_SCHEDULES = 1024
MAX_EXECUTORS = 64

FILE_FORMAT = 1
"""Version of the files that `FusionCache.serialize` writes."""


class CachedDefinition:
    """A finished definition: its records, its fusion, the value of each state, and what runs it.

    `schedules`: the user's schedules, by the signature of the inputs that they are for. Equal ones are one
    object, so a signature more costs little.
    """

    def __init__(
        self, number: int, records: Sequence[Record], outcomes: Sequence[Outcome], building: Building
    ) -> None:
        self.id = number
        self.records = tuple(records)
        self.outcomes = tuple(outcomes)
        self.fusion: Fusion = building.fusion
        self.values: tuple[StateValue, ...] = tuple(building.values)
        self.hits = 0
        self.schedules: OnceCache[Hashable, FinishedSchedule] = OnceCache(MAX_SCHEDULED)
        self._finished: OnceCache[Hashable, FinishedSchedule] = OnceCache(MAX_SCHEDULES)
        self._executors: OnceCache[tuple[int, ...] | None, FusionExecutor] = OnceCache(MAX_EXECUTORS)
        self._executor: FusionExecutor | None = None
        self.fusion.unify_extents()
        verify_fusion(self.fusion)

    @property
    def executor(self) -> FusionExecutor:
        """What compiles and runs the fusion with the built-in schedulers."""
        # Every call comes here, so the usual way is one look.
        if self._executor is None:
            self._executor = self._executor_of(None)
        return self._executor

    def executor_for(self, registry: Registry | None) -> FusionExecutor:
        """What compiles and runs the fusion with these schedulers, None: the built-in ones.

        A registry counts with the schedulers that it holds now: one that changed has another executor.
        """
        return self.executor if registry is None else self._executor_of(tuple(registry))

    def _executor_of(self, schedulers: tuple[Scheduler, ...] | None) -> FusionExecutor:
        if not self.fusion.outputs:
            raise MissingDefinitionError(
                "Fusion is empty! It has no outputs", hint="fd.add_output(tensor) says what to compute"
            )

        def make() -> FusionExecutor:
            registry = None if schedulers is None else Registry(list(schedulers))
            return FusionExecutor(self.fusion, registry, repro=self.repro_script)

        # The executor keeps its schedulers alive, so that their ids stay theirs.
        return self._executors.get(None if schedulers is None else tuple(map(id, schedulers)), make)

    def signature(self, inputs: Sequence[Any], device: torch.device | None, gpu: str) -> Hashable:
        """What a user's schedule for these flat inputs is kept by: all that a heuristic may read of a call.

        That is what a program is bound to, and the GPU: `gpu` is what the simulator describes, for inputs on
        the CPU. None for inputs that do not fit the definition.
        """
        try:
            return device, gpu, self.executor.signature(inputs)
        except (AttributeError, TypeError, ValueError, RuntimeError):
            return None

    def keep_schedule(self, signature: Hashable, schedule: Schedule, params: Any) -> FinishedSchedule:
        """Keeps a user's schedule for a signature; returns the equal one that was kept before, if any."""
        new = FinishedSchedule(schedule, params)
        finished = self._finished.get(new.key, lambda: new)
        self.schedules.put(signature, finished)
        return finished

    def repro_script(self, inputs: Sequence[Any]) -> str:
        """A script that makes this definition and runs it on inputs like these."""
        return repro_script(self.records, self.outcomes, self.id, inputs)

    def index_of(self, value: Val) -> int:
        """The state that is `value`: the first, where several are. ValueError if none is."""
        return next(i for i, known in enumerate(self.values) if known is value)


class TrieNode:
    """A definition up to some record: what the record made, how it goes on and, if it ends here, its leaf."""

    __slots__ = ("children", "leaf", "outcome")

    def __init__(self, outcome: Outcome | None = None) -> None:
        self.outcome = outcome
        self.children: dict[Record, TrieNode] = {}
        self.leaf: CachedDefinition | None = None


class FusionCache:
    """All definitions of the process. One object, `FusionCache.get()`; safe to use from several threads.

    The trie grows only when a definition is complete, and only under the lock: whoever follows it meanwhile
    sees whole nodes, and definitions that fail never enter it.

    Args:
        max_fusions: definitions kept; None: the option `max_fusions` of the environment, which is
            FUSEWRIGHT_MAX_FUSIONS or 16384.
        evict: what happens to one more. True: the definition that was written or looked up by its id least
            recently goes; whoever holds it may go on running it. False: it is an error, as in nvFuser.
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
        self._definitions: dict[int, CachedDefinition] = {}
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

    def definition(self, number: int) -> CachedDefinition:
        """The definition with this id. DefinitionError if there is none (any more)."""
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
    ) -> CachedDefinition:
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
            leaf = CachedDefinition(self._made, records, outcomes, building or Building(records))
            while len(self._definitions) >= self.max_fusions:
                self._drop(next(iter(self._definitions.values())))
            self._made += 1
            self._grow(records, outcomes).leaf = leaf
            self._definitions[leaf.id] = leaf
            return leaf

    def _touch(self, leaf: CachedDefinition) -> None:
        """Makes it the definition that was used last."""
        self._definitions.pop(leaf.id, None)
        self._definitions[leaf.id] = leaf

    def _drop(self, leaf: CachedDefinition) -> None:
        """Takes a definition out, with the nodes of the trie that only it needs."""
        del self._definitions[leaf.id]
        path = [self.root]
        for record in leaf.records:
            path.append(path[-1].children[record])
        path[-1].leaf = None
        for parent, record in zip(path[-2::-1], reversed(leaf.records)):
            child = parent.children[record]
            if child.children or child.leaf is not None:
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

    def _by_id(self) -> list[CachedDefinition]:
        return [self._definitions[number] for number in sorted(self._definitions)]

    def __repr__(self) -> str:
        with self._lock:
            return "\n".join(definition_text(d.records, d.outcomes, d.id) for d in self._by_id())

    def serialize(self, filename: str) -> None:
        """Write all definitions to a JSON file, which `deserialize` reads. Kernels are in the disk cache."""
        with self._lock:
            definitions = [[to_plain(record) for record in d.records] for d in self._by_id()]
        Path(filename).write_text(json.dumps({"format": FILE_FORMAT, "definitions": definitions}))

    def deserialize(self, filename: str) -> None:
        """Add the definitions of a file that `serialize` wrote.

        Raises:
            DefinitionError: the file is none, and nothing of it is added; or the cache is full and evicts
                nothing, and as many are added as it holds.
            OSError: it cannot be read.
        """
        try:
            built = [_built(records) for records in _records_of(Path(filename).read_text())]
        except (ValueError, RecursionError, UserError) as error:
            raise DefinitionError(problem=f"{filename} holds no serialized definitions ({error})") from error
        for records, outcomes, building in built:
            with self._lock:
                known = self._walk(records)
            if known is None or known.leaf is None:
                self.complete(records, outcomes, building)


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
