"""The simulator: executes a kernel on the CPU in lockstep and raises for what is wrong on any GPU.

It knows the kernel IR alone and may import core, sym and kernel. Start with `simulator` (the entry and the
table of statements), then `machine`, with `activity` (which lanes execute) and `index`. One file a kind of
statement: `statements`, `collectives`, `scans`, `waits` with `mbarriers`. `memory`, `races`, `clocks` (of
roles) and `usage` hold the checks; `arguments` and `launch` are what a call brings, `report` what it did.

    report = simulate(kernel, [x, y, x.numel()])     # writes y; raises SimulationError
"""

from fusewright.sim.launch import launch_of
from fusewright.sim.machine import SimOptions
from fusewright.sim.report import SimReport
from fusewright.sim.simulator import simulate

__all__ = ["SimOptions", "SimReport", "launch_of", "simulate"]
