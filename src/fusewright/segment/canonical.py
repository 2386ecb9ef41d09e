"""Canonical segments: without names of a definition, so equal segments of a process share one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from fusewright.core.errors import FusewrightError
from fusewright.core.once import SharedCache, cached_property
from fusewright.ir import Fusion, TensorView, Val
from fusewright.schedulers.base import Planner, Reject, Scheduler, is_built_in, prepare, rejection_text
from fusewright.schedulers.heuristics import TunedScheduler
from fusewright.sym import Symbol

# The most nodes of all cached segments. A node takes about 2 KB with its values and the schedulers' analyses.
MAX_NODES = 20_000

# A canonical name, or the first part of a name that is derived from one: T3 in T3_copy.
_NAME = re.compile(r"\b[Tibdfc]\d+(?![0-9A-Za-z])")


@dataclass(frozen=True, slots=True, eq=False)
class CanonicalSegment:
    """A fusion with its own numbering, which represents all segments of its text. It is never changed.

    Attributes:
        text: its canonical text (`ir.canonical`).
        fusion: the fusion, whose inputs are in order of first use.
        values: its values by their numbers in the text; rewriting may have removed those that do not cross
            the border.
        sizes: its sizes by their numbers in the text.
        reshaped: positions of inputs whose dimensions in the segment differ from those of their source. They
            are dense in memory (`rewrite.border`).
    """

    text: str
    fusion: Fusion
    values: tuple[Val, ...]
    sizes: tuple[Symbol, ...]
    reshaped: tuple[int, ...] = ()
    _answers: dict[type, Planner | Reject] = field(default_factory=dict)

    def prepare(self, scheduler: Scheduler) -> Planner | Reject:
        """The scheduler's answer about the segment.

        Only answers of built-in schedulers are cached, since those of others may change.
        """
        if isinstance(scheduler, TunedScheduler):
            own = self.prepare(scheduler.base)
            return own if isinstance(own, Reject) else scheduler.planner(own)
        if not is_built_in(scheduler):
            return prepare(scheduler, self.fusion)
        answer = self._answers.get(type(scheduler))
        if answer is None:
            answer = self._answers.setdefault(type(scheduler), prepare(scheduler, self.fusion))
        return answer


_segments: SharedCache[str, CanonicalSegment] = SharedCache(
    MAX_NODES, lambda known: 1 + len(known.fusion.nodes)
)


def canonical_segment(text: str, make: Callable[[], CanonicalSegment]) -> CanonicalSegment:
    """The cached segment with this text; `make` makes it if the process does not have it."""
    return _segments.get(text, make)


class Names:
    """Translates the names of a canonical segment to those of the definition that it was extracted from."""

    def __init__(self, segment: CanonicalSegment, values: Iterable[Val], sizes: Iterable[Symbol]) -> None:
        self._segment = segment
        self._values = tuple(values)
        self._sizes = tuple(sizes)

    @cached_property
    def table(self) -> Mapping[str, str]:
        """Maps the segment's names of values and sizes to the definition's, if the definition has them."""
        found = {
            own.name: theirs.name
            for own, theirs in zip(self._segment.values, self._values)
            if isinstance(own, TensorView) or not own.is_constant
        }
        found.update((own.name, theirs.name) for own, theirs in zip(self._segment.sizes, self._sizes))
        made = [(size.name, str(e)) for size, e in self._segment.fusion.computed_sizes.items()]
        for name, text in made:
            found[name] = _NAME.sub(lambda of: found.get(of[0], of[0]), text)
        return found

    def translated(self, text: str) -> str:
        """Replaces the segment's names in a text by the definition's."""

        def translation(name: re.Match[str]) -> str:
            own = name[0]  # a tensor that only rewriting made has no other name
            return self.table.get(own) or (f"{own} of the kernel" if own.startswith("T") else own)

        return _NAME.sub(translation, text)

    def said_in(self, text: str) -> str:
        """The meaning of the names in a text about the segment, as `T0 is T4, i0 is i2`."""
        named = {name: self.table[name] for name in _NAME.findall(text) if name in self.table}
        return ", ".join(f"{own} is {theirs}" for own, theirs in named.items())

    @contextmanager
    def in_errors(self) -> Iterator[None]:
        """A context in which errors about the segment are translated to the definition's names."""
        try:
            yield
        except FusewrightError as error:
            error.reword(self.translated)
            raise

    def __str__(self) -> str:
        """The names that differ, as `T0 is T4, i0 is i2`."""
        return ", ".join(f"{own} is {theirs}" for own, theirs in self.table.items() if own != theirs)


@dataclass(frozen=True, slots=True, eq=False)
class Extraction:
    """A group of nodes of a fusion as a segment.

    Attributes:
        segment: the canonical segment, shared by all equal groups.
        values, sizes: the whole fusion's counterparts of `segment.values` and `segment.sizes`.
        outputs: the tensors of the group that others read.
    """

    segment: CanonicalSegment
    values: tuple[Val, ...]
    sizes: tuple[Symbol, ...]
    outputs: tuple[TensorView, ...]

    @property
    def fusion(self) -> Fusion:
        return self.segment.fusion

    @property
    def names(self) -> Names:
        return Names(self.segment, self.values, self.sizes)

    def to_segment(self) -> dict[Val, Val]:
        """Maps the whole fusion's values to the segment's."""
        return dict(zip(self.values, self.segment.values))

    def first_accepting(
        self, registry: Iterable[Scheduler]
    ) -> tuple[tuple[Scheduler, Planner] | None, list[str]]:
        """The first scheduler that accepts the segment, with its planner, and the rejections before it."""
        names = self.names
        reasons: list[str] = []
        for scheduler in registry:
            with names.in_errors():
                answer = self.segment.prepare(scheduler)
            if not isinstance(answer, Reject):
                return (scheduler, answer), reasons
            reasons.append(rejection_text(scheduler.type, names.translated(answer.reason)))
        return None, reasons
