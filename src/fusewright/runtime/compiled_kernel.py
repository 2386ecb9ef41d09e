"""`CompiledKernel`: everything about one kernel except its launches, and its machine code on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from fusewright.core.dtype import DataType
from fusewright.core.errors import ParamsError
from fusewright.core.hardware import MAX_REGISTERS_PER_THREAD, HardwareInfo
from fusewright.core.once import OnceCache, cached_property
from fusewright.core.tracing import SILENT, Tracer
from fusewright.cuda.driver import ArgLayout, Dim3, Launcher, LoadedKernel, PackedArgs
from fusewright.cuda.nvrtc import Cubin, NvrtcOptions, Resources
from fusewright.cuda.printer import CudaSource, print_kernel
from fusewright.ir import scheduled_text
from fusewright.kernel.ir import Kernel, is_cooperative
from fusewright.runtime.arguments import Size, Source, Stride
from fusewright.runtime.disk_cache import DiskCache
from fusewright.runtime.identity import kernel_name
from fusewright.runtime.launch_sizes import LaunchShape, LaunchSizes, check_clusters, check_resident
from fusewright.runtime.machine_code import MachineCode
from fusewright.runtime.passed_values import argument_code
from fusewright.schedule import Call, Schedule
from fusewright.schedulers.params import HeuristicParams
from fusewright.sym import Symbol, as_int


@dataclass(frozen=True, eq=False)
class CompiledKernel:
    """One kernel: its origin, its CUDA text and its machine code. A launch needs nothing else.

    It is immutable except for the machine code compiled so far. If a call determines the size of a block,
    `code` compiles machine code for more threads when a launch needs it. `with_register_limit` returns the
    same kernel with another limit. Both print and compile; nothing is scheduled or lowered again.

    Attributes:
        name: the kernel's name in CUDA (`runtime.identity`), equal in every process.
        scheduler: its scheduler's name, "user" or "horizontal".
        params: the params that the scheduler applied; for a user's schedule those that it started from, or
            None.
        hardware: the GPU that it was made for.
        kernel: the lowered kernel.
        arguments: what to pass for each of `kernel.params`.
        symbols: the meaning of each symbol of the kernel.
        source: its text, for blocks of up to `launch_bounds` threads.
        schedule: the scheduled fusion and the primitives that made it; it is never changed.
        compile_seconds: from the fusion to the text; `Cubin` has the compiler's time.
        nvrtc: the options that the text is compiled with.
        disk_cache: opens the cache of its machine code.
        parts: the kernels that a combined kernel consists of; it then has no schedule and no params of its
            own.
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
    nvrtc: NvrtcOptions = field(repr=False)
    disk_cache: Callable[[], DiskCache] = field(repr=False)
    parts: tuple[CompiledKernel, ...] = field(default=(), repr=False)

    # ---- how it was made

    @property
    def index_dtype(self) -> DataType:
        return self.kernel.index_dtype

    @property
    def reason(self) -> str:
        """Why the heuristic chose these parameters; "" if there are none."""
        return getattr(self.params, "reason", "")

    def scheduled_ir(self, transforms: bool = False) -> str:
        """The scheduled fusion as text; with `transforms`, also how each tensor's loop axes were made."""
        if self.schedule is None:
            return "\n".join(part.scheduled_ir(transforms) for part in self.parts)
        return scheduled_text(self.schedule.fusion, transforms)

    @property
    def schedule_text(self) -> str:
        """The primitives that made the schedule, as Python that replays them on the kernel's own fusion; of
        parts one after another. (What a definition's `schedule` may be, `fd.kernels_for` says.)
        """
        if self.schedule is None:
            return "\n".join(part.schedule_text for part in self.parts)
        return self.schedule.to_python()

    @property
    def trace(self) -> tuple[Call, ...]:
        """The same as values; none of a kernel that is made of several."""
        return () if self.schedule is None else self.schedule.trace()

    @property
    def cuda_text(self) -> str:
        """The generated kernel, as people read it."""
        return self.source.kernel

    @property
    def full_text(self) -> str:
        """The complete compilable source."""
        return self.source.text

    # ---- limits

    @property
    def register_limit(self) -> int | None:
        """The register limit per thread, if the params have one."""
        return self.kernel.max_registers or None

    @property
    def launch_bounds(self) -> int:
        """The maximum number of threads per block."""
        return self.kernel.max_threads

    @cached_property
    def has_fixed_block(self) -> bool:
        """Whether all launches have the same number of threads per block, whatever the sizes."""
        return all(as_int(extent) is not None for extent in self.kernel.block)

    @cached_property
    def is_cooperative(self) -> bool:
        """Whether its blocks wait for each other, so that a launch has as many as the GPU holds at once."""
        return is_cooperative(self.kernel)

    def with_register_limit(self, limit: int | None, tracer: Tracer = SILENT) -> CompiledKernel:
        """This kernel, compiled to use at most `limit` registers per thread (None: no limit).

        Equal limits return the same object. It has its own name.

        Raises:
            ParamsError: not a number of registers that a thread can have.
        """
        if limit is not None and not (type(limit) is int and 0 < limit <= MAX_REGISTERS_PER_THREAD):
            expected = f"1 to {MAX_REGISTERS_PER_THREAD} registers, or None"
            raise ParamsError(path="limit", expected=expected, given=repr(limit))
        if limit == self.register_limit:
            return self
        return self._limited.get(limit, lambda: self._with_limit(limit, tracer))

    @cached_property
    def _limited(self) -> OnceCache[int | None, CompiledKernel]:
        return OnceCache()

    def _with_limit(self, limit: int | None, tracer: Tracer) -> CompiledKernel:
        kernel = replace(self.kernel, name=self._name_for(f"{limit} registers"), max_registers=limit or 0)
        params = self.params
        if isinstance(params, HeuristicParams):
            allowed = MAX_REGISTERS_PER_THREAD if limit is None else limit
            params = replace(params, cparams=replace(params.cparams, maxrregcount=allowed))
        source = printed(kernel, self.hardware, tracer)
        return replace(self, name=source.name, params=params, kernel=kernel, source=source)

    # ---- machine code

    def code(
        self, threads: int | None = None, arch: str | None = None, tracer: Tracer = SILENT
    ) -> MachineCode:
        """The machine code for blocks of `threads`.

        If a call determines the block, code for up to 256 threads may use all registers that a thread can
        have. For more threads it is compiled again, for 512 and for `launch_bounds`. Code that is not for all
        blocks has its own name.

        Args:
            threads: None: the largest possible number.
            arch: None: that of `hardware`.
        """
        bound, arch = self._bound(threads), arch or self.nvrtc.arch
        return self._codes.get((bound, arch), lambda: self._code(bound, arch, tracer))

    def source_for(self, threads: int | None, tracer: Tracer = SILENT) -> CudaSource:
        """The text that `code` compiles."""
        bound = self._bound(threads)
        if bound == self.launch_bounds:
            return self.source
        return self._sources.get(bound, lambda: self._bounded(bound, tracer))

    @cached_property
    def _codes(self) -> OnceCache[tuple[int, str], MachineCode]:
        return OnceCache()

    @cached_property
    def _sources(self) -> OnceCache[int, CudaSource]:
        return OnceCache()

    def _bound(self, threads: int | None) -> int:
        if threads is None or self.has_fixed_block:
            return self.launch_bounds
        # Up to here a bound leaves a thread all the registers that it can have.
        warp = self.hardware.warp_size
        bound = self.hardware.registers_per_block // MAX_REGISTERS_PER_THREAD // warp * warp
        while bound < threads:
            bound *= 2
        return min(bound, self.launch_bounds)

    def _code(self, bound: int, arch: str, tracer: Tracer) -> MachineCode:
        source = self.source_for(bound, tracer)
        return MachineCode(source.name, source.text, replace(self.nvrtc, arch=arch), self.disk_cache)

    def _bounded(self, bound: int, tracer: Tracer) -> CudaSource:
        kernel = replace(self.kernel, name=self._name_for(f"{bound} threads"), max_threads=bound)
        return printed(kernel, self.hardware, tracer)

    def _name_for(self, limits: str) -> str:
        """A name for this kernel where it is compiled for other limits."""
        text = f"{self.name} for {limits}"
        return kernel_name(text, self.scheduler, None, self.index_dtype, self.nvrtc)

    def cubin(self, arch: str | None = None, *, tracer: Tracer = SILENT) -> Cubin:
        """The kernel compiled for `arch`, for the largest blocks. CompileError if NVRTC refuses the text."""
        return self.code(None, arch, tracer).cubin(tracer)

    def resources(self, arch: str | None = None, *, tracer: Tracer = SILENT) -> Resources:
        """Registers, spills and static shared memory of that. Raises as `cubin`."""
        return self.code(None, arch, tracer).resources(tracer)

    # ---- launches

    @cached_property
    def sizes(self) -> LaunchSizes:
        """Evaluates its launch for the sizes of a call; compiled once for all launches."""
        return LaunchSizes(self)

    def launcher(self, device: int, shape: LaunchShape, tracer: Tracer = SILENT) -> Launcher:
        """What launches it on CUDA device `device`, given the values of `arguments` in order.

        Raises:
            CompileError: as `cubin`. DriverError: the device does not take the code.
            ScheduleError: blocks that wait for each other are more than the device holds at once, or it holds
                no cluster of so many blocks.
        """
        bound = self._bound(None if self.has_fixed_block else shape.threads)
        loaded = self._loaded.find((bound, device))
        if loaded is None:
            loaded = self._loaded.get((bound, device), lambda: self._load(bound, device, tracer))
        kernel, resources = loaded
        if self.is_cooperative:
            check_resident(shape, resources, self.hardware)
        launcher = Launcher(
            kernel,
            *shape,
            self._packed,
            cooperative=self.is_cooperative,
            cluster=self._cluster,
        )
        if launcher.cluster is not None:
            wanted = prod(shape.grid) // self.kernel.cluster if self.is_cooperative else 1
            check_clusters(wanted, launcher.resident_clusters(), self.kernel.cluster, self.hardware)
        return launcher

    def _load(self, bound: int, device: int, tracer: Tracer) -> tuple[LoadedKernel, Resources]:
        """The machine code for blocks of up to `bound` threads on a device, and what it takes of it."""
        code = self.code(bound, tracer=tracer)
        return code.loaded(device, tracer), code.resources(tracer)

    @cached_property
    def _loaded(self) -> OnceCache[tuple[int, int], tuple[LoadedKernel, Resources]]:
        return OnceCache()

    @cached_property
    def _cluster(self) -> Dim3 | None:
        return (self.kernel.cluster, 1, 1) if self.kernel.cluster > 1 else None

    @cached_property
    def _packed(self) -> PackedArgs:
        index = self.index_dtype
        return PackedArgs(ArgLayout(tuple(argument_code(param, index) for param in self.kernel.params)))


def printed(kernel: Kernel, hardware: HardwareInfo, tracer: Tracer) -> CudaSource:
    """The CUDA text of a lowered kernel, with a lower register limit if no block would fit otherwise."""
    if kernel.max_registers:
        most = hardware.registers_a_thread(kernel.max_threads)
        kernel = replace(kernel, max_registers=min(kernel.max_registers, most))
    with tracer.stage("print"):
        return print_kernel(kernel)
