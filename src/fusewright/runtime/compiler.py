"""From a segment and its parameters to a `CompiledKernel`: all that is known of a kernel but its runs."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any

from fusewright.core.dtype import DataType
from fusewright.core.errors import ParamsError
from fusewright.core.hardware import MAX_REGISTERS_PER_THREAD, HardwareInfo
from fusewright.core.once import SharedCache
from fusewright.core.options import Options
from fusewright.core.serialization import fields_text
from fusewright.core.tracing import Tracer
from fusewright.cuda.nvrtc import Cubin, NvrtcOptions, Resources, compile_ptx, sass
from fusewright.cuda.printer import CudaSource, print_kernel
from fusewright.ir import Fusion, scheduled_text
from fusewright.ir.canonical import fusion_description
from fusewright.kernel.combine import combine
from fusewright.kernel.ir import Kernel
from fusewright.kernel.text import kernel_text
from fusewright.kernel.verify import verify
from fusewright.lower import LowerOptions, lower
from fusewright.runtime.arguments import Size, Source, Stride, sources_of
from fusewright.runtime.combined import combined_sources
from fusewright.runtime.disk_cache import DiskCache, open_cache
from fusewright.runtime.identity import kernel_name
from fusewright.runtime.launch_sizes import LaunchSizes
from fusewright.schedule import Schedule
from fusewright.schedulers.base import Scheduler, apply, is_built_in, type_name
from fusewright.schedulers.params import HeuristicParams
from fusewright.sym import Symbol

# Kernels compiled at a time: a compilation in NVRTC keeps a core busy.
MAX_COMPILES = max(2, os.cpu_count() or 1)
# Machine code kept in memory for definitions to come: that of some thousand kernels.
MAX_CUBIN_BYTES = 64 * 1024 * 1024
# Nodes of the scheduled fusions of the kernels that are kept in memory for definitions to come: 5 KB each,
# with all that was made of them. What a definition runs, it keeps itself.
MAX_NODES = 20_000
# The name while a user's kernel is being made; the final one is made from the content.
_UNNAMED = "fusewright"
#: What a user-made schedule, and a kernel made of several, are called where a scheduler's name stands.
USER = "user"
HORIZONTAL = "horizontal"


@dataclass(frozen=True, eq=False)
class CompiledKernel:
    """The immutable artefacts of one kernel.

    name: of the kernel in CUDA (`runtime.identity`), equal in every process. scheduler: its scheduler's
    name, "user" or "horizontal". params: what the scheduler applied; of a user's schedule those that it
    started from, or None. hardware: the GPU that it was made for. arguments: what to pass for each of
    `kernel.params`; symbols: the meaning of each symbol of the kernel. schedule: the scheduled fusion and the
    primitives that made it; nobody changes it any more. compile_seconds: from the fusion to the text; `Cubin`
    has the compiler's. parts: the kernels that this one is made of, if it is; it has no schedule and no
    params of its own then.
    """

    name: str
    scheduler: str
    params: Any
    hardware: HardwareInfo
    kernel: Kernel = field(repr=False)
    arguments: tuple[Source, ...] = field(repr=False)
    symbols: Mapping[Symbol, Size | Stride] = field(repr=False)
    source: CudaSource = field(repr=False)
    schedule: Schedule | None = field(repr=False)
    compile_seconds: float = field(repr=False)
    parts: tuple[CompiledKernel, ...] = field(default=(), repr=False)

    @cached_property
    def sizes(self) -> LaunchSizes:
        """What the sizes of a call make of it; compiled once for all launches."""
        return LaunchSizes(self)

    @property
    def index_dtype(self) -> DataType:
        return self.kernel.index_dtype

    @property
    def reason(self) -> str:
        """Why the heuristic chose these parameters; "" where there are none."""
        return getattr(self.params, "reason", "")

    def scheduled_ir(self, transforms: bool = False) -> str:
        """The scheduled fusion as text; with `transforms`, also how each tensor's loop axes were made."""
        if self.schedule is None:
            return "\n".join(part.scheduled_ir(transforms) for part in self.parts)
        return scheduled_text(self.schedule.fusion, transforms)

    @property
    def schedule_python(self) -> str:
        """The primitives that made the schedule, as Python that replays them; of parts one after another."""
        if self.schedule is None:
            return "\n".join(part.schedule_python for part in self.parts)
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
    def register_limit(self) -> int | None:
        """Registers a thread, if the params limit them; of parts the limit of each."""
        return self.parts[0].register_limit if self.parts else _register_limit(self.params)

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


#: What a kernel is made from, and the kernel with its scheduler.
_kernels: SharedCache[tuple[Any, ...], tuple[Scheduler, CompiledKernel]] = SharedCache(
    MAX_NODES, lambda entry: _weight(entry[1])
)
#: By parts, the slots of each, and options.
_combined: SharedCache[tuple[Any, ...], CompiledKernel] = SharedCache(
    MAX_NODES, lambda kernel: _weight(kernel)
)
#: By text (or the kernel that dumps are asked of), options, and the directory of the disk cache.
_cubins: SharedCache[tuple[str | CompiledKernel, NvrtcOptions, Path | None], Cubin] = SharedCache(
    MAX_CUBIN_BYTES, lambda cubin: len(cubin.image)
)


def _weight(kernel: CompiledKernel) -> int:
    own = 1 if kernel.schedule is None else 1 + len(kernel.schedule.fusion.nodes)
    return own + sum(map(_weight, kernel.parts))


def _register_limit(params: Any) -> int | None:
    registers = params.cparams.maxrregcount if isinstance(params, HeuristicParams) else 0
    return registers if 0 < registers < MAX_REGISTERS_PER_THREAD else None


class KernelCompiler:
    """Schedules, lowers, prints and compiles. Safe to use from several threads.

    Args:
        options: switches that change code, and the disk cache's place.
        cache: of cubins; None: the one that the options name.
    """

    def __init__(self, options: Options, cache: DiskCache | None = None) -> None:
        self.options = options
        self._cache = cache

    def compile(
        self,
        fusion: Fusion,
        scheduler: Scheduler,
        params: Any,
        hardware: HardwareInfo,
        index_dtype: DataType,
        *,
        tracer: Tracer,
        text: str | None = None,
        names: str = "",
    ) -> CompiledKernel:
        """The kernel that `scheduler` makes of `fusion` with `params`. The cubin is made by `cubin`.

        All compilers of the process share kernels. Who asks for dumps gets a new one, to see how it is made.

        Args:
            text: the canonical text of `fusion`; None: to be found.
            names: what stands for what in the definition, for dumps.
        """
        if text is None:
            text = fusion_description(fusion).text

        def make() -> tuple[Scheduler, CompiledKernel]:
            start = perf_counter()
            with tracer.stage("schedule"):
                schedule = Schedule(fusion)
                apply(scheduler, schedule, params, hardware)
            own = type_name(scheduler.type)
            name = kernel_name(text, own, params, index_dtype, self._nvrtc_options(params, hardware.arch))
            made = self._compile(schedule, own, name, params, hardware, index_dtype, tracer, start, names)
            return scheduler, made

        if tracer.dumps_compilation:
            return make()[1]
        # A kernel keeps the scheduler that is no built-in one, so that no other gets its id.
        who = type(scheduler) if is_built_in(scheduler) else id(scheduler)
        return _kernels.get((text, who, params, index_dtype, hardware, self.options.key()), make)[1]

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
        return self._compile(schedule, USER, None, params, hardware, index_dtype, tracer, perf_counter())

    def combine(
        self, parts: Sequence[CompiledKernel], slots: Sequence[int], *, tracer: Tracer
    ) -> CompiledKernel:
        """One kernel for several independent ones, which agree in block, index type and register limit.

        Args:
            slots: how many values each part takes.

        Raises:
            VerifyError: a fault of the combination.
        """
        first = parts[0]

        def make() -> CompiledKernel:
            start = perf_counter()
            nvrtc = self._nvrtc_options(first.params, first.hardware.arch)
            text = "\n".join(part.name for part in parts)
            name = kernel_name(text, HORIZONTAL, None, first.index_dtype, nvrtc)
            with tracer.stage("combine"):
                # Equal ones are several objects where dumps show how each is made.
                distinct = {(part.name, part.full_text): part.kernel for part in reversed(parts)}
                kernel = combine(name, [distinct[part.name, part.full_text] for part in parts])
                tracer.dump("kernel", lambda: kernel_text(kernel), title="combine")
                verify(kernel, after="combine")
                arguments, symbols = combined_sources(kernel, parts, slots)
            with tracer.stage("print"):
                source = print_kernel(kernel)
            tracer.dump("cuda", lambda: source.kernel, title=name)
            seconds = perf_counter() - start + sum(part.compile_seconds for part in parts)
            return CompiledKernel(
                source.name,
                HORIZONTAL,
                None,
                first.hardware,
                kernel,
                arguments,
                symbols,
                source,
                None,
                seconds,
                tuple(parts),
            )

        if tracer.dumps_compilation:
            return make()
        return _combined.get((tuple(parts), tuple(slots), self.options.key()), make)

    def _compile(
        self,
        schedule: Schedule,
        scheduler: str,
        name: str | None,
        params: Any,
        hardware: HardwareInfo,
        index_dtype: DataType,
        tracer: Tracer,
        start: float,
        names: str = "",
    ) -> CompiledKernel:
        with tracer.stage("schedule"):
            schedule.complete()
        if params is not None:
            tracer.dump("params", lambda: f"{scheduler}: {fields_text(params)}")
        tracer.dump("schedule", lambda: f"{scheduled_text(schedule.fusion)}\n{schedule.to_python()}")
        with tracer.stage("lower"):
            lowered = lower(schedule.fusion, LowerOptions(name or _UNNAMED, index_dtype), tracer)
        kernel = lowered.kernel
        if name is None:  # a user's tensors keep their names, so the kernel's own text is what it is
            nvrtc = self._nvrtc_options(params, hardware.arch)
            name = kernel_name(kernel_text(kernel), scheduler, None, index_dtype, nvrtc)
            kernel = dataclasses.replace(kernel, name=name)
        with tracer.stage("print"):
            source = print_kernel(kernel)
        where = f"// where {names}\n" if names else ""
        tracer.dump("cuda", f"{where}{source.kernel}", title=name)
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
        options = self.nvrtc_options(kernel, arch)

        def compile_() -> Cubin:
            with tracer.stage("nvrtc"):
                cubin = self._disk_cache().compile(kernel.full_text, options)
            tracer.dump("ptx", lambda: compile_ptx(kernel.full_text, options), title=kernel.name)
            tracer.dump("ptxas", lambda: f"{options.arch}: {cubin.resources[kernel.name]}", title=kernel.name)
            tracer.dump("sass", lambda: sass(cubin), title=kernel.name)
            return cubin

        shared = kernel if tracer.dumps_compilation else kernel.full_text
        return _cubins.get((shared, options, self._disk_cache().directory), compile_)

    def cubins(self, kernels: Sequence[CompiledKernel], *, tracer: Tracer) -> list[Cubin]:
        """Those of several kernels, compiled side by side unless `parallel_compile` is disabled."""
        if len(kernels) < 2 or self.options.disabled("parallel_compile"):
            return [self.cubin(kernel, tracer=tracer) for kernel in kernels]
        with ThreadPoolExecutor(min(len(kernels), MAX_COMPILES)) as pool:
            return list(pool.map(lambda kernel: self.cubin(kernel, tracer=tracer), kernels))

    def resources(self, kernel: CompiledKernel, arch: str | None = None, *, tracer: Tracer) -> Resources:
        """Registers, spills and shared memory of the kernel, from the assembler's report."""
        return self.cubin(kernel, arch, tracer=tracer).resources[kernel.name]

    def nvrtc_options(self, kernel: CompiledKernel, arch: str | None = None) -> NvrtcOptions:
        """What the kernel's text is compiled with, by default for the GPU that it was made for."""
        params = (kernel.parts or (kernel,))[0].params
        return self._nvrtc_options(params, arch or kernel.hardware.arch)

    def _nvrtc_options(self, params: Any, arch: str) -> NvrtcOptions:
        options = self.options
        return NvrtcOptions(
            arch,
            max_registers=_register_limit(params),
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
