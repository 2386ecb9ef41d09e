"""Recording: follows a definition down the trie, and builds its fusion from the first new record."""

from __future__ import annotations

from fusewright.core.errors import DefinitionError, UserError
from fusewright.frontend.recorded.cache import FusionCache, TrieNode
from fusewright.frontend.recorded.fusion_schedules import FusionSchedules
from fusewright.frontend.recorded.records import Record
from fusewright.frontend.recorded.states import Building, Outcome


class Recorder:
    """One definition while it is being written.

    As long as the trie has the records, it also has their values or their errors, and nothing is built. At
    the first new record, the fusion is built from the records so far, and from then on record by record. So
    an error is raised at the line that causes it.
    """

    def __init__(self, cache: FusionCache, max_length: int) -> None:
        self._cache = cache
        self._max_length = max_length
        self._node: TrieNode | None = cache.root
        self._building: Building | None = None
        self.records: list[Record] = []
        self.outcomes: list[Outcome] = []
        self.state_count = 0

    def record(self, record: Record) -> tuple[int, Outcome]:
        """Adds a record: the index of the first state that has a handle, and what the record makes.

        After an error the definition is as it was before the call.

        Raises:
            UserError: the call is wrong, or the definition too long.
        """
        if len(self.records) >= self._max_length:
            raise DefinitionError(
                f"The definition has exceeded its limit of {self._max_length} records",
                hint="FusionDefinition(max_length=...) sets the limit",
            )
        node = None if self._node is None else self._node.children.get(record)
        if node is not None and node.error is not None:
            raise node.error.again()
        if node is not None and node.outcome is not None:
            outcome = node.outcome
        else:
            outcome = self._build(record)
        self._node = node
        self.records.append(record)
        self.outcomes.append(outcome)
        first = self.state_count + outcome.hidden
        self.state_count += outcome.count
        return first, outcome

    def _build(self, record: Record) -> Outcome:
        building = self._building or Building(self.records)
        self._building = None  # an error leaves half a record in the fusion, which is then built anew
        try:
            outcome = building.apply(record)
        except UserError as error:
            self._cache.keep_failure(self.records, self.outcomes, record, error)
            raise
        self._building = building
        return outcome

    def complete(self) -> FusionSchedules:
        """The cached definition that these records are."""
        return self._cache.complete(self.records, self.outcomes, self._building)
