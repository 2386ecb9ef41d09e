"""A small problem for the tests of this folder, and a clock that needs no GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from fusewright import FusionDefinition
from fusewright.frontend.tuned.problems import problems_of
from fusewright.tune.problem import Problem


def column_sum(folder: Path, rows: int = 12, columns: int = 8) -> Problem:
    """Of int64, whose values a problem keeps."""
    x = torch.arange(rows * columns).reshape(rows, columns)
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.sum(fd.from_pytorch(x), dims=[0]))
    [problem] = problems_of(fd, [x], None, "column_sum", folder)
    return problem


class CountingClock:
    """Each run of any call takes a second."""

    device = torch.device("cpu")

    def median_seconds(self, call: Callable[[], object], *limits: object) -> float:
        call()
        return 1.0

    def beside(self, call: Callable[[], object], *others: object) -> float:
        return self.median_seconds(call)

    def spans(self, calls: Sequence[Callable[[], object]], repeats: int, ahead: int = 0) -> list[list[float]]:
        return [[self.median_seconds(call)] for call in calls]

    def copy(self, moved: int) -> Callable[[], object]:
        return lambda: None

    def copy_seconds(self, moved: int) -> float:
        return float(moved)
