"""Rows of errors: what a definition does wrong, the class of the error, and what its text matches."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from fusewright import FusionDefinition
from fusewright.ops import OPS

BOUNDARY = "Tried to access out of boundary index {}. total index: {}"


@dataclass(frozen=True)
class Row:
    """One row. `call` writes and runs a definition; `needs`: methods without which the row is skipped."""

    case: str
    error: type[Exception]
    pattern: str | None
    call: Callable[[], object]
    needs: tuple[str, ...] = ()


def exactly(text: str) -> str:
    return re.escape(text)


def check(row: Row) -> None:
    methods = {*OPS, *dir(FusionDefinition().sched)}
    missing = [name for name in row.needs if name not in methods]
    if missing:
        pytest.skip(f"there is no {missing[0]} yet")
    for _ in range(2):  # the second definition like it fails as the first did
        with pytest.raises(row.error, match=row.pattern):
            row.call()


def definition(write: Callable[[FusionDefinition], object]) -> Callable[[], object]:
    """Writes a definition, and completes it."""

    def call() -> FusionDefinition:
        with FusionDefinition() as fd:
            write(fd)
        return fd

    return call


def joined(*shapes: Sequence[int], dim: int = 0) -> Callable[[], object]:
    """The cat of tensors of these shapes."""

    def call() -> None:
        with FusionDefinition() as fd:
            tensors: list[Any] = [fd.define_tensor([-1] * len(shape)) for shape in shapes]
            fd.add_output(fd.ops.cat(tensors, dim))
        fd.execute([torch.ones(shape) for shape in shapes])

    return call
