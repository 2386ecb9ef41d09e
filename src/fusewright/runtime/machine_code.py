"""The machine code of one kernel: CUDA text with its compilation options, the cubin, and the devices that
loaded it.

Generated kernels and kernels that a user wrote (`rtc_kernel.py`) are compiled, loaded and launched here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from fusewright.core.hardware import HardwareInfo
from fusewright.core.once import OnceCache, SharedCache, cached_property
from fusewright.core.tracing import SILENT, Tracer
from fusewright.cuda.driver import Dim3, Launcher, Library, LoadedKernel, PackedArgs
from fusewright.cuda.nvrtc import Cubin, NvrtcOptions, Resources, compile_ptx, sass
from fusewright.runtime.disk_cache import DiskCache
from fusewright.runtime.occupancy import Occupancy, occupancy

# Kernels compiled at a time: a compilation in NVRTC keeps a core busy.
MAX_COMPILES = max(2, os.cpu_count() or 1)
# Machine code kept in memory for definitions to come: that of some thousand kernels.
MAX_CUBIN_BYTES = 64 * 1024 * 1024

#: By text (or the code that dumps are asked of), names, options, and the directory of the disk cache.
_cubins: SharedCache[tuple[str | MachineCode, tuple[str, ...], NvrtcOptions, Path | None], Cubin] = (
    SharedCache(MAX_CUBIN_BYTES, lambda cubin: len(cubin.image))
)


@dataclass(frozen=True, eq=False)
class MachineCode:
    """The machine code of a kernel's text, compiled once, on first use. Several threads may use it.

    Attributes:
        name: the kernel, as C++ spells it.
        text: the complete source.
        options: the compilation options.
        disk_cache: opens the cache of the cubin; called only if there is a cubin to make.
        is_mangled: whether the linker uses another name for the kernel, as for all but `extern "C"`.
    """

    name: str
    text: str = field(repr=False)
    options: NvrtcOptions
    disk_cache: Callable[[], DiskCache] = field(repr=False)
    is_mangled: bool = False

    def cubin(self, tracer: Tracer = SILENT) -> Cubin:
        """From memory, disk or NVRTC.

        Raises:
            CompileError: NVRTC refuses the text; with its log and the source.
        """
        cache = self.disk_cache()
        names = (self.name,) if self.is_mangled else ()

        def compile_() -> Cubin:
            with tracer.stage("nvrtc"):
                cubin = cache.compile(self.text, self.options, names)
            tracer.dump("ptx", self.ptx, title=self.name)
            tracer.dump(
                "ptxas", lambda: f"{cubin.arch}: {cubin.resources[self._symbol(cubin)]}", title=self.name
            )
            tracer.dump("sass", lambda: sass(cubin), title=self.name)
            return cubin

        shared = self if tracer.dumps_compilation else self.text
        return _cubins.get((shared, names, self.options, cache.directory), compile_)

    def resources(self, tracer: Tracer = SILENT) -> Resources:
        """Registers, spills and static shared memory, from the assembler's report. Raises as `cubin`."""
        cubin = self.cubin(tracer)
        return cubin.resources[self._symbol(cubin)]

    def occupancy(self, threads: int, shared_bytes: int, hardware: HardwareInfo) -> Occupancy:
        """What an SM of this GPU holds of it, in blocks of `threads` with this much dynamic shared memory."""
        return occupancy(self.resources(), threads, shared_bytes, hardware)

    def ptx(self) -> str:
        """The PTX that the machine code is assembled from. Raises as `cubin`."""
        return compile_ptx(self.text, self.options)

    def sass(self) -> str:
        """The machine code as text, where the CUDA toolkit's disassembler is installed; else a line that says
        so.
        """
        return sass(self.cubin())

    def loaded(self, device: int, tracer: Tracer = SILENT) -> LoadedKernel:
        """The kernel on CUDA device `device`, loaded at the first call.

        Raises:
            CompileError: as `cubin`. DriverError: there is no such device, or it does not take the code.
        """

        def load() -> LoadedKernel:
            cubin = self.cubin(tracer)
            with tracer.stage("load"):
                return Library(cubin.image).kernel(self._symbol(cubin), device)

        return self._loaded.get(device, load)

    def launcher(
        self,
        device: int,
        grid: Dim3,
        block: Dim3,
        shared_bytes: int,
        arguments: PackedArgs,
        tracer: Tracer = SILENT,
    ) -> Launcher:
        """What launches it with this configuration. Raises as `loaded`."""
        return Launcher(self.loaded(device, tracer), grid, block, shared_bytes, arguments)

    @property
    def is_loaded(self) -> bool:
        """Whether some device has it, so that there is nothing to compile."""
        return len(self._loaded) > 0

    @cached_property
    def _loaded(self) -> OnceCache[int, LoadedKernel]:
        return OnceCache()

    def _symbol(self, cubin: Cubin) -> str:
        return cubin.lowered_names[self.name] if self.is_mangled else self.name


def compile_all(codes: Sequence[MachineCode], parallel: bool = True, tracer: Tracer = SILENT) -> None:
    """Makes the cubins of several kernels, side by side if `parallel`. Raises as `MachineCode.cubin`."""
    codes = list(dict.fromkeys(codes))
    if len(codes) < 2 or not parallel:
        for code in codes:
            code.cubin(tracer)
        return
    with ThreadPoolExecutor(min(len(codes), MAX_COMPILES)) as pool:
        list(pool.map(lambda code: code.cubin(tracer), codes))
