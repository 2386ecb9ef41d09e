"""The printed form of kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import pytest

from fusewright.kernel import text
from fusewright.kernel.ir import Kernel, Operand, Param, Stmt, walk
from fusewright.kernel.text import kernel_text, statement_text
from tests.kernel import builders

GOLDEN: dict[str, Callable[[], Kernel]] = {
    "pointwise": builders.pointwise,
    "row_welford": builders.row_welford,
    "row_welford_of_runs": lambda: builders.row_welford(run=4),
    "grid_sum": builders.grid_sum,
    "grid_sums": builders.grid_sums,
    "grid_reverse": builders.grid_reverse,
    "cluster_rows": builders.cluster_rows,
    "gathered_rows": builders.gathered_rows,
}


@pytest.mark.parametrize("name", GOLDEN)
def test_text(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"kernel/{name}", kernel_text(GOLDEN[name]()))


def test_every_statement_is_one_line_of_the_text() -> None:
    kernel = builders.row_softmax()
    lines = [line.strip() for line in kernel_text(kernel).splitlines()]
    printed = [statement_text(stmt) for stmt in walk(kernel.body)]
    assert lines[-len(printed) :] == printed


def test_every_node_has_its_function() -> None:
    assert set(text.STATEMENTS) == set(get_args(Stmt))
    assert set(text.OPERANDS) == set(get_args(Operand))
    assert set(text.PARAMS) == set(get_args(Param))
