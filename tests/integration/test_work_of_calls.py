"""The Python work of a call: of one seen before, and of one with a new size that needs no new kernel.

What is counted is function calls, so the tests do not depend on the machine; `./dev bench host` has the time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import torch

from bench.host import OPERATIONS, without_simulator
from bench.operation import Inputs
from bench.operations import selected
from fusewright import FusionCache

# Somewhat more than they take.
MOST_OF_A_REPEATED_CALL = 30
MOST_OF_A_NEW_SIZE = 80


def function_calls(run: Callable[[], object]) -> int:
    """The calls of functions of Python and of C that `run` makes."""
    counted = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
    return counted


@pytest.mark.parametrize("name", OPERATIONS)
def test_calls_cost_little(name: str) -> None:
    FusionCache.reset()
    device = torch.device("cpu")
    [operation] = selected([name])
    with without_simulator():
        # The first sizes have the kernels made that serve the last one.
        calls = [operation.inputs((rows, 4096), Inputs(device)) for rows in (300, 302, 308, 310)]
        fd = operation.definition(calls[0])
        for inputs in calls[:-1]:
            fd.execute(inputs)
        new = function_calls(lambda: fd.execute(calls[-1]))
        fd.execute(calls[-1])  # prepares what recognizes further ones
        again = function_calls(lambda: fd.execute(calls[-1]))
    assert new <= MOST_OF_A_NEW_SIZE
    assert again <= MOST_OF_A_REPEATED_CALL


def test_calls_that_take_turns_are_recognized_as_before() -> None:
    """Two of a size, two of another: nothing is made anew where they change."""
    FusionCache.reset()
    [operation] = selected(["softmax"])
    with without_simulator():
        first, second = (operation.inputs((rows, 4096), Inputs(torch.device("cpu"))) for rows in (300, 310))
        fd = operation.definition(first)
        turns = [first, first, second, second]
        for inputs in 2 * turns:
            fd.execute(inputs)
        found = function_calls(lambda: [fd.execute(inputs) for inputs in turns])
    assert found <= len(turns) * MOST_OF_A_REPEATED_CALL
