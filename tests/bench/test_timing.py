"""Calls that are compared are timed in turns."""

from __future__ import annotations

import pytest

from bench import timing


def test_what_runs_first_is_no_slower_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def times(call: timing.Call, warmup_ms: float, repeat_ms: float) -> list[float]:
        asked.append(str(call()))
        return [1.0 / len(asked)] * 3  # milliseconds: clocks rise

    monkeypatch.setattr(timing, "_times", times)
    found = timing.medians_us({"first": lambda: "first", "second": lambda: "second"})
    assert asked == ["first", "second", "second", "first"] * (timing.TURNS // 2)
    # Of 1, 1/4, 1/5, 1/8 and of 1/2, 1/3, 1/6, 1/7, three times each.
    assert found == pytest.approx({"first": 1000 * (1 / 4 + 1 / 5) / 2, "second": 1000 * (1 / 3 + 1 / 6) / 2})
