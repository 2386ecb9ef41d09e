"""Compiled kernels and the targets that run them.

What lives here: the compilation of a schedule to a `CompiledKernel` (`compiler.py`, `compiled_kernel.py`),
its machine code on a GPU (`machine_code.py`, `occupancy.py`) and its name (`identity.py`), its arguments and
launches (`arguments.py`, `passed_values.py`, `launch_sizes.py`, `in_place.py`, `combined.py`), the GPU or the
simulator that runs it (`targets.py`, `hardware.py`), the on-disk cache of cubins (`disk_cache.py`) and
kernels from a user's CUDA source (`rtc_kernel.py`). No module here makes decisions about a fusion. It may
import everything from `core` to `sim`. Start reading at `compiler.KernelCompiler`; `rtc_kernel.py` is the
shortest path from text to a launch.
"""

from fusewright.core.hardware import HardwareInfo as HardwareInfo
from fusewright.runtime.compiled_kernel import CompiledKernel as CompiledKernel
from fusewright.runtime.rtc_kernel import RtcKernel as RtcKernel
