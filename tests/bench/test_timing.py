"""Calls that are compared are timed in turns."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

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


def test_a_copy_moves_as_many_bytes_as_are_asked_for_however_large_its_tensors_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Counted(TorchDispatchMode):
        moved = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten.copy_.default:
                self.moved += 2 * args[0].numel() * args[0].element_size()
            return func(*args, **(kwargs or {}))

    monkeypatch.setattr(timing, "COPY_ELEMENTS", 8)
    copies = timing.Copies(torch.device("cpu"))
    for moved in (4, 28, 32, 36, 100):
        with Counted() as counted:
            copies.call(moved)()
        assert counted.moved == moved
