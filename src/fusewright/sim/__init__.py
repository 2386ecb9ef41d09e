"""The simulator: executes a kernel on the CPU in lockstep and raises for what is wrong on any GPU.

It knows the kernel IR alone and may import core, sym and kernel. Start with simulator.py (the entry and
the table of statements), then machine.py; memory.py and races.py hold the checks.

    report = simulate(kernel, [x, y, x.numel()])     # writes y; raises SimulationError
"""

from fusewright.sim.launch import launch_of
from fusewright.sim.machine import SimOptions
from fusewright.sim.report import SimReport
from fusewright.sim.simulator import simulate

__all__ = ["SimOptions", "SimReport", "launch_of", "simulate"]
