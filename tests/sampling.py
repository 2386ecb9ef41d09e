"""The part of a parametrized test's cases that a run by default takes: the same in every run."""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence

import pytest


def sampled(items: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
    """All items but those that the marker `sampled(share, *names)` leaves out.

    It keeps `share` of a test's cases, and more if need be for each value of the parameters `names` to occur.
    """
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled") is None:
            yield item
        else:
            cases[item.nodeid.split("[")[0]].append(item)
    for each in cases.values():
        marker = each[0].get_closest_marker("sampled")
        assert marker is not None
        share, *names = marker.args
        yield from _part(each, share, names)


def _part(cases: list[pytest.Item], share: float, names: Sequence[str]) -> list[pytest.Item]:
    shuffled = sorted(cases, key=lambda case: (zlib.crc32(case.nodeid.encode()), case.nodeid))
    seen: set[tuple[str, str]] = set()
    kept, others = [], []
    for case in shuffled:
        values = {(name, _text(case.callspec.params[name])) for name in names}  # type: ignore[attr-defined]
        (others if values <= seen else kept).append(case)
        seen |= values
    return kept + others[: max(0, math.ceil(share * len(cases)) - len(kept))]


def _text(value: object) -> str:
    """The same in every process."""
    return str(getattr(value, "name", None) or getattr(value, "__name__", None) or value)
