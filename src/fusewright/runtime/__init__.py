"""Compiled kernels and what they run on.

Here live the description of the target (`hardware.py`), the on-disk cache of cubins (`disk_cache.py`) and
kernels from CUDA source that the user wrote (`rtc_kernel.py`). Nothing here decides anything about a fusion.
May import everything from `core` to `sim`. Start reading at `rtc_kernel.py`: it is the shortest way from text
to a launch.
"""

from fusewright.core.hardware import HardwareInfo as HardwareInfo
from fusewright.runtime.rtc_kernel import RtcKernel as RtcKernel
