"""The Python time of a graph grows linearly with its nodes: no function runs out of proportion.

What is counted is the lines that each function executes, so the tests do not depend on the machine.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import pytest
import torch

from bench.stacks import Graph, layer_stack, pointwise_chain
from fusewright import FusionCache
from fusewright.core.once import clear_shared_caches
from fusewright.cuda.printer import print_kernel
from fusewright.runtime import compiled_kernel
from tests.work import forget_proofs

# Of the lines that the half of a graph takes: what halves or sorts takes somewhat more than twice as many.
MOST_GROWTH = 2.25
# A function that runs fewer is not looked at.
LEAST_LINES = 1000


def define_and_compile(graph: Graph) -> None:
    FusionCache.reset()
    clear_shared_caches()
    number = graph.definition().id()
    assert number is not None
    FusionCache.get().schedules(number).executor.compile(graph.inputs(torch.device("cpu")))


def lines_by_function(graph: Graph) -> Counter[CodeType]:
    """How many lines of each function run from the definition of a graph to the text of its kernels."""
    forget_proofs()
    lines: Counter[CodeType] = Counter()

    def trace(frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        if event == "line":
            lines[frame.f_code] += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        define_and_compile(graph)
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize(
    "graph, size", [(pointwise_chain, 60), (layer_stack, 2)], ids=["operations", "kernels"]
)
def test_work_is_linear(graph: Callable[[int], Graph], size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Not collected for the check that kernels compile.
    monkeypatch.setattr(compiled_kernel, "print_kernel", print_kernel)
    define_and_compile(graph(1))  # what a process does once
    small, large = (lines_by_function(graph(count)) for count in (size, 2 * size))
    grown = {
        f"{code.co_filename}:{code.co_firstlineno} {code.co_qualname}": (small[code], count)
        for code, count in large.items()
        if count > max(LEAST_LINES, MOST_GROWTH * small[code])
    }
    assert not grown
