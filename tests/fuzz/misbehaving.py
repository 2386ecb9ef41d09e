"""A run of programs that fails in every way, for the test of campaigns: workers import it by name."""

from __future__ import annotations

import os
import time

from tests.fuzz.programs import Program
from tests.fuzz.running import Finding, Outcome


def run(program: Program, device: str) -> Outcome:
    """By the number of inputs: ends its process, never ends, finds something as long as there are calls."""
    if len(program.inputs) == 1:
        os._exit(3)
    if len(program.inputs) == 2:
        time.sleep(3600)
    if not program.calls:
        return Outcome(executions=1, kernels=1)
    return Outcome(1, 1, finding=Finding("internal fault", "as asked", f"{len(program.calls)} calls"))
