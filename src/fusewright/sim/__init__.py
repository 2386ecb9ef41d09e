"""The simulator: executes a kernel on the CPU in lockstep, and raises errors for everything that is wrong on
any GPU.

It knows only the kernel IR and may import core, sym and kernel. Start with `simulator` (the entry and the
table of statements), then `machine`, with `activity` (which lanes execute) and `index`. There is one file for
each kind of statement: `statements`, `collectives`, `scans`, `waits` with `mbarriers`. `memory`, `races`,
`clocks` (of roles) and `usage` hold the checks. `arguments` and `launch` are the inputs of a call, and
`report` describes its execution.

    report = simulate(kernel, [x, y, x.numel()])     # writes y; raises SimulationError
"""

from fusewright.sim.launch import launch_of
from fusewright.sim.machine import SimOptions
from fusewright.sim.report import SimReport
from fusewright.sim.simulator import simulate

__all__ = ["SimOptions", "SimReport", "launch_of", "simulate"]
