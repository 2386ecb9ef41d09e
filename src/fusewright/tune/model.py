"""Estimates before a configuration runs: which cannot be fast, and a lower bound on any time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusewright.core.hardware import REGISTER_BYTES
from fusewright.schedulers.cost import REGISTERS_TO_ADDRESS
from fusewright.tune.facts import WIDEST_ACCESS
from fusewright.tune.problem import Problem

# The bytes that a thread may spill; more would be significant traffic.
MOST_SPILLED = 128
# Copies of an access in a thread's code: of 1,100 points that an H200 ran and that had more, none was within
# 3% of the best of its problem, and they took 1 to 20 s to compile.
MOST_COPIES = 32


def refusal(problem: Problem, params: Any) -> str:
    """Why a configuration is not worth compiling; "" if nothing is known against it.

    Vectors (`vector_widths` of the params) are at most one access; the elements that a thread holds at once
    (`elements_held`) must fit into its registers; and code with many copies of an access (`copies`) takes
    long to compile and is not fast. The formula's own params are never rejected.
    """
    if params == problem.formula:
        return ""
    copies = getattr(params, "copies", 1)
    if copies > MOST_COPIES:
        return f"the code of a thread has {copies} copies of an access, which is more than pays"
    facts = problem.facts
    width = max(getattr(params, "vector_widths", ()), default=1)
    if facts is not None and width * facts.least_element_bytes > WIDEST_ACCESS:
        return f"vectors of {width} elements of {facts.least_element_bytes} bytes are more than one access"
    held = getattr(params, "elements_held", None)
    if held is None or facts is None:
        return ""
    launch = params.lparams
    threads = max(1, launch.bdimx) * max(1, launch.bdimy) * max(1, launch.bdimz)
    registers = held * facts.least_element_bytes // REGISTER_BYTES + REGISTERS_TO_ADDRESS
    most = problem.hardware.registers_a_thread(threads)
    if registers > most:
        return f"a thread would hold {held} elements in {registers} registers, of {most}"
    return ""


def refusal_of_code(resources: Mapping[str, Any]) -> str:
    """Why machine code is not worth a launch, from the assembler's report and the occupancy."""
    spilled = resources.get("spill_stores", 0)
    if spilled > MOST_SPILLED:
        return f"a thread spills {spilled} bytes of registers"
    if resources.get("blocks_per_sm", 1) < 1:
        return "no block of it fits into an SM"
    return ""


def roofline(problem: Problem, copy_seconds: float | None) -> float | None:
    """Seconds that no kernel of the problem is expected to beat: a copy's, or those of its arithmetic.

    None: no copy was timed.
    """
    if copy_seconds is None:
        return None
    arithmetic = 0.0 if problem.facts is None else problem.facts.least_seconds(problem.hardware)
    return max(copy_seconds, arithmetic)
