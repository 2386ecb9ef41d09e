"""From a segment and its parameters to a `CompiledKernel`: all that is known of a kernel but its runs."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from fusewright.core.dtype import DataType
from fusewright.core.errors import ParamsError
from fusewright.core.hardware import MAX_REGISTERS_PER_THREAD, HardwareInfo
from fusewright.core.options import Options
from fusewright.core.serialization import fields_text
from fusewright.core.tracing import Tracer
from fusewright.cuda.nvrtc import Cubin, NvrtcOptions, Resources, compile_ptx, sass
from fusewright.cuda.printer import CudaSource, print_kernel
from fusewright.ir import Fusion, scheduled_text
from fusewright.kernel.ir import Kernel
from fusewright.kernel.text import kernel_text
from fusewright.lower import LowerOptions, lower
from fusewright.runtime.arguments import Size, Source, Stride, sources_of
from fusewright.runtime.disk_cache import DiskCache, open_cache
from fusewright.runtime.once import OnceCache
from fusewright.schedule import Schedule
from fusewright.schedulers.base import Scheduler, type_name
from fusewright.schedulers.params import HeuristicParams
from fusewright.sym import Symbol

# Kernels compiled at a time: a compilation in NVRTC keeps a core busy.
MAX_COMPILES = max(2, os.cpu_count() or 1)
# Machine code kept in memory, by kernel and architecture.
MAX_CUBINS = 4096
# Hex digits of the hash in a kernel's name: enough to tell the kernels of a process apart.
NAME_DIGITS = 8
# The name while a kernel is being made; the final one is made from the content.
_UNNAMED = "fusewright"
_NO_IDENTIFIER = re.compile("[^A-Za-z0-9_]")
#: What a user-made schedule is called where a scheduler's name stands.
USER = "user"


@dataclass(frozen=True, eq=False)
class CompiledKernel:
    """The immutable artefacts of one kernel.

    name: of the kernel in CUDA, made from its content, so equal in every process. scheduler: its scheduler's
    name, or "user". params: what the scheduler applied; of a user's schedule those that it started from, or
    None. hardware: the GPU that it was made for. arguments: what to pass for each of `kernel.params`;
    symbols: the meaning of each symbol of the kernel. schedule: the scheduled fusion and the primitives that
    made it; nobody changes it any more. compile_seconds: from the fusion to the text; `Cubin` has the
    compiler's.
    """

    name: str
    scheduler: str
    params: Any
    hardware: HardwareInfo
    kernel: Kernel = field(repr=False)
    arguments: tuple[Source, ...] = field(repr=False)
    symbols: Mapping[Symbol, Size | Stride] = field(repr=False)
    source: CudaSource = field(repr=False)
    schedule: Schedule = field(repr=False)
    compile_seconds: float = field(repr=False)

    @property
    def index_dtype(self) -> DataType:
        return self.kernel.index_dtype

    @property
    def reason(self) -> str:
        """Why the heuristic chose these parameters; "" where there are none."""
        return getattr(self.params, "reason", "")

    def scheduled_ir(self, transforms: bool = False) -> str:
        """The scheduled fusion as text; with `transforms`, also how each tensor's loop axes were made."""
        return scheduled_text(self.schedule.fusion, transforms)

    @property
    def schedule_python(self) -> str:
        """The primitives that made the schedule, as Python that replays them."""
        return self.schedule.to_python()

    @property
    def cuda_text(self) -> str:
        """The generated kernel, as people read it."""
        return self.source.kernel

    @property
    def full_text(self) -> str:
        """The complete compilable source."""
        return self.source.text

    @property
    def launch_bounds(self) -> int:
        """Most threads a block; 0: none given."""
        return self.kernel.max_threads


def index_dtype_of(params: Any, needed: DataType) -> DataType:
    """The index type of a kernel with these params; `needed` holds every offset of the call.

    Raises:
        ParamsError: the params choose indices that are too narrow for the call.
    """
    chosen = params.cparams.index_type if isinstance(params, HeuristicParams) else None
    if chosen is DataType.Int32 and needed is not DataType.Int32:
        raise ParamsError(
            path="cparams.index_type", expected="Int or None, for offsets beyond 32 bits", given="Int32"
        )
    return needed if chosen is None else chosen


class KernelCompiler:
    """Schedules, lowers, prints and compiles. Safe to use from several threads.

    Args:
        options: switches that change code, and the disk cache's place.
        cache: of cubins; None: the one that the options name.
    """

    def __init__(self, options: Options, cache: DiskCache | None = None) -> None:
        self.options = options
        self._cache = cache
        self._cubins: OnceCache[tuple[CompiledKernel, str], Cubin] = OnceCache(MAX_CUBINS)

    def compile(
        self,
        fusion: Fusion,
        scheduler: Scheduler,
        params: Any,
        hardware: HardwareInfo,
        index_dtype: DataType,
        *,
        tracer: Tracer,
    ) -> CompiledKernel:
        """The kernel that `scheduler` makes of `fusion` with `params`. The cubin is made by `cubin`."""
        start = perf_counter()
        with tracer.stage("schedule"):
            schedule = Schedule(fusion)
            scheduler.apply(schedule, params)
        name = type_name(scheduler.type)
        return self._compile(schedule, name, params, hardware, index_dtype, tracer, start)

    def compile_schedule(
        self,
        schedule: Schedule,
        hardware: HardwareInfo,
        index_dtype: DataType,
        *,
        params: Any = None,
        tracer: Tracer,
    ) -> CompiledKernel:
        """The kernel of a schedule that a user made, perhaps from an automatic one with these params."""
        return self._compile(schedule, USER, params, hardware, index_dtype, tracer, perf_counter())

    def _compile(
        self,
        schedule: Schedule,
        scheduler: str,
        params: Any,
        hardware: HardwareInfo,
        index_dtype: DataType,
        tracer: Tracer,
        start: float,
    ) -> CompiledKernel:
        if params is not None:
            tracer.dump("params", lambda: f"{scheduler}: {fields_text(params)}")
        tracer.dump("schedule", lambda: f"{scheduled_text(schedule.fusion)}\n{schedule.to_python()}")
        with tracer.stage("lower"):
            lowered = lower(schedule.fusion, LowerOptions(_UNNAMED, index_dtype), tracer)
        digest = hashlib.sha256(kernel_text(lowered.kernel).encode()).hexdigest()[:NAME_DIGITS]
        # A third party's type may be any text.
        name = f"fusewright_{_NO_IDENTIFIER.sub('_', scheduler)}_{digest}"
        kernel = dataclasses.replace(lowered.kernel, name=name)
        with tracer.stage("print"):
            source = print_kernel(kernel)
        tracer.dump("cuda", source.kernel, title=name)
        arguments, symbols = sources_of(lowered, schedule.fusion)
        compiled = CompiledKernel(
            source.name,
            scheduler,
            params,
            hardware,
            kernel,
            arguments,
            symbols,
            source,
            schedule,
            perf_counter() - start,
        )
        if any(tracer.wants(stage, name) for stage in ("ptx", "ptxas", "sass")):
            self.cubin(compiled, tracer=tracer)  # the simulator would never ask for it
        return compiled

    # ---- machine code

    def cubin(
        self,
        kernel: CompiledKernel,
        arch: str | None = None,
        *,
        tracer: Tracer,
    ) -> Cubin:
        """The kernel compiled for `arch` (by default the GPU it was made for), from memory, disk or NVRTC.

        Raises:
            CompileError: NVRTC refuses the text; with its log and the source.
        """
        target = arch or kernel.hardware.arch

        def compile_() -> Cubin:
            options = self._nvrtc_options(kernel.params, target)
            with tracer.stage("nvrtc"):
                cubin = self._disk_cache().compile(kernel.full_text, options)
            tracer.dump("ptx", lambda: compile_ptx(kernel.full_text, options), title=kernel.name)
            tracer.dump("ptxas", lambda: f"{target}: {cubin.resources[kernel.name]}", title=kernel.name)
            tracer.dump("sass", lambda: sass(cubin), title=kernel.name)
            return cubin

        return self._cubins.get((kernel, target), compile_)

    def cubins(self, kernels: Sequence[CompiledKernel], *, tracer: Tracer) -> list[Cubin]:
        """Those of several kernels, compiled side by side unless `parallel_compile` is disabled."""
        if len(kernels) < 2 or self.options.disabled("parallel_compile"):
            return [self.cubin(kernel, tracer=tracer) for kernel in kernels]
        with ThreadPoolExecutor(min(len(kernels), MAX_COMPILES)) as pool:
            return list(pool.map(lambda kernel: self.cubin(kernel, tracer=tracer), kernels))

    def resources(self, kernel: CompiledKernel, arch: str | None = None, *, tracer: Tracer) -> Resources:
        """Registers, spills and shared memory of the kernel, from the assembler's report."""
        return self.cubin(kernel, arch, tracer=tracer).resources[kernel.name]

    def _nvrtc_options(self, params: Any, arch: str) -> NvrtcOptions:
        options = self.options
        registers = params.cparams.maxrregcount if isinstance(params, HeuristicParams) else 0
        return NvrtcOptions(
            arch,
            max_registers=registers if 0 < registers < MAX_REGISTERS_PER_THREAD else None,
            fma=not options.disabled("fma"),
            fast_math=options.enabled("fast_math"),
            line_info=options.enabled("kernel_lineinfo"),
            debug=options.enabled("kernel_debug"),
        )

    def _disk_cache(self) -> DiskCache:
        # Opened at first use: a target that needs no machine code touches no disk.
        if self._cache is None:
            self._cache = open_cache(self.options)
        return self._cache
