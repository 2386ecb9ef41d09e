"""`FusionSchedules`: the leaf of a definition in the cache, with everything that equal definitions share."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch

from fusewright.core.errors import MissingDefinitionError
from fusewright.core.once import OnceCache
from fusewright.frontend.recorded.fusion_state import FusionState
from fusewright.frontend.recorded.printing import repro_script
from fusewright.frontend.recorded.records import Record
from fusewright.frontend.recorded.states import Building, Outcome
from fusewright.host import FinishedSchedule, FusionExecutor, SegmentSchedules
from fusewright.host.inputs.memory_checks import has_no_memory
from fusewright.ir import Fusion, Node, verify_fusion
from fusewright.ir.naming import number_by_state
from fusewright.schedulers import Registry, Scheduler, default_registry, key_of

# Cache limits per definition. The entry that was kept first is evicted first.
# Signatures of inputs that the user made schedules for:
MAX_SIGNATURES = 16384
# user schedules that differ:
MAX_SCHEDULES = 1024
# executors of different registries:
MAX_EXECUTORS = 64


class FusionSchedules:
    """A complete definition: its fusion, its schedules, and the state of its values.

    The definition object that asked for a user schedule stores which inputs it serves. This object holds what
    equal schedules share, so that a kernel is compiled once.

    Attributes:
        id: its number in the cache.
        records, outcomes: the records of the definition, and the values that they make.
        fusion: the fusion that the records build.
        state: the map between the values of the fusion and the state indices of the definition.
        nodes: the nodes that each record made.
        user: the user's schedules, by a key that is equal if their kernels are.
        shared: the user's schedules by signature, for definitions that share them (`shares_schedules`).
        hits: how often an equal definition was completed.
    """

    def __init__(
        self, number: int, records: Sequence[Record], outcomes: Sequence[Outcome], building: Building
    ) -> None:
        self.id = number
        self.records = tuple(records)
        self.outcomes = tuple(outcomes)
        self.fusion: Fusion = building.fusion
        self.nodes: tuple[tuple[Node, ...], ...] = tuple(building.nodes)
        self.hits = 0
        self.user: OnceCache[Hashable, FinishedSchedule] = OnceCache(MAX_SCHEDULES)
        self.shared: OnceCache[Hashable, FinishedSchedule | SegmentSchedules] = OnceCache(MAX_SIGNATURES)
        self._executors: OnceCache[Hashable, FusionExecutor] = OnceCache(MAX_EXECUTORS)
        #: the schedulers of the default registry, and the executor that asks these
        self._default: tuple[tuple[Scheduler, ...] | None, FusionExecutor | None] = None, None
        self.fusion.unify_extents()
        number_by_state(self.fusion, building.values)
        verify_fusion(self.fusion)
        #: for each output of the fusion the state that `add_output` was given; None: an operation added it
        self.given = tuple(building.outputs)
        outputs = [state for state in self.given if state is not None]
        self.state = FusionState(self.fusion, building.values, building.inputs, outputs)

    @property
    def executor(self) -> FusionExecutor:
        """The automatic schedules: the executor for the default registry in its current state."""
        # Every call comes here, so the usual way is one look.
        current = default_registry().current
        schedulers, executor = self._default
        if schedulers is not current or executor is None:
            executor = self._executor_of(current)
            self._default = current, executor
        return executor

    def executor_for(self, registry: Registry | None) -> FusionExecutor:
        """The executor for these schedulers; None: those of the default registry.

        A registry is identified by the schedulers and heuristics that it currently has. After a change it has
        another executor, which has nothing that was made before.
        """
        return self.executor if registry is None else self._executor_of(registry.current)

    def _executor_of(self, schedulers: tuple[Scheduler, ...]) -> FusionExecutor:
        if not self.fusion.outputs:
            raise MissingDefinitionError(
                "Fusion is empty! It has no outputs", hint="fd.add_output(tensor) says what to compute"
            )

        def make() -> FusionExecutor:
            return FusionExecutor(self.fusion, Registry(schedulers), repro=self.repro_script)

        # The executor keeps its schedulers alive, so that their ids stay theirs.
        return self._executors.get(tuple(map(key_of, schedulers)), make)

    def signature(self, inputs: Sequence[Any], device: torch.device | None, gpu: str) -> Hashable:
        """The key of a user's schedule for these flat inputs: everything that a heuristic may read about a
        call.

        It is the signature that a program is bound to, and the GPU: `gpu` is the simulator's, for inputs on
        the CPU. None for inputs that do not fit the definition, or that have no memory.
        """
        if has_no_memory(inputs):
            return None
        try:
            return device, gpu, self.executor.signature(inputs)
        except (AttributeError, TypeError, ValueError, RuntimeError):
            return None

    def user_schedule(self, new: FinishedSchedule) -> FinishedSchedule:
        """A schedule of it all that a user has written: the equal one, if there was one before."""
        return self.user.get(new.key, lambda: new)

    def repro_script(self, inputs: Sequence[Any]) -> str:
        """A script that makes this definition and runs it on inputs like these."""
        return repro_script(self.records, self.outcomes, self.id, inputs)
