"""Compiled kernels and what they run on.

Here live the way from a schedule to a `CompiledKernel` (`compiler.py`, `compiled_kernel.py`), what it
becomes on a GPU (`machine_code.py`, `occupancy.py`) and is called (`identity.py`), what it takes and how it
is launched (`arguments.py`, `passed_values.py`, `launch_sizes.py`, `in_place.py`, `combined.py`), the GPU or
the simulator that runs it (`targets.py`, `hardware.py`), the on-disk cache of cubins (`disk_cache.py`) and
kernels from CUDA source that the user wrote (`rtc_kernel.py`). Nothing here decides anything about a fusion.
May import everything from `core` to `sim`. Start reading at `compiler.KernelCompiler`; `rtc_kernel.py` is
the shortest way from text to a launch.
"""

from fusewright.core.hardware import HardwareInfo as HardwareInfo
from fusewright.runtime.compiled_kernel import CompiledKernel as CompiledKernel
from fusewright.runtime.rtc_kernel import RtcKernel as RtcKernel
