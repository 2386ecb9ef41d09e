"""Compiles a segment with its parameters, or a user's schedule, to a `CompiledKernel`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from fusewright.core.dtype import DataType
from fusewright.core.errors import ParamsError, ScheduleError
from fusewright.core.hardware import MAX_REGISTERS_PER_THREAD, HardwareInfo
from fusewright.core.once import SharedCache
from fusewright.core.options import Options
from fusewright.core.serialization import fields_text
from fusewright.core.tracing import SILENT, Tracer
from fusewright.cuda.nvrtc import NvrtcOptions
from fusewright.ir import Fusion, scheduled_text
from fusewright.ir.canonical import fusion_description
from fusewright.kernel.combine import combine
from fusewright.kernel.text import kernel_text
from fusewright.kernel.verify import verify
from fusewright.lower import Lowered, LowerOptions, lower
from fusewright.runtime.arguments import sources_of
from fusewright.runtime.combined import combined_sources
from fusewright.runtime.compiled_kernel import CompiledKernel, printed
from fusewright.runtime.disk_cache import DiskCache, open_cache
from fusewright.runtime.identity import kernel_name, plugin_digest
from fusewright.runtime.launch_sizes import check_architecture
from fusewright.runtime.transfer import kernel_from
from fusewright.schedule import Schedule
from fusewright.schedule.faults import name_primitive
from fusewright.schedulers.base import Scheduler, apply, is_built_in, type_name
from fusewright.schedulers.heuristics import untuned
from fusewright.schedulers.params import HeuristicParams

# Nodes of the scheduled fusions of the kernels that are kept in memory for definitions to come: 5 KB each,
# with all that was made of them. What a definition runs, it keeps itself.
MAX_NODES = 20_000
# The name while a user's kernel is being made; the final one is made from the content.
_UNNAMED = "fusewright"
#: What a user-made schedule, and a kernel made of several, are called where a scheduler's name stands.
USER = "user"
HORIZONTAL = "horizontal"


def chosen_index_type(params: Any) -> DataType | None:
    """The index type that params choose; None: the narrowest that a call allows."""
    return params.cparams.index_type if isinstance(params, HeuristicParams) else None


def index_dtype_of(params: Any, needed: DataType) -> DataType:
    """The index type of a kernel with these params; `needed` holds every offset of the call.

    Raises:
        ParamsError: the params choose indices that are too narrow for the call.
    """
    chosen = chosen_index_type(params)
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


def _weight(kernel: CompiledKernel) -> int:
    own = 1 if kernel.schedule is None else 1 + len(kernel.schedule.fusion.nodes)
    return own + sum(map(_weight, kernel.parts))


def register_limit_of(params: Any) -> int | None:
    """The register limit per thread, if these params have one."""
    registers = params.cparams.maxrregcount if isinstance(params, HeuristicParams) else 0
    return registers if 0 < registers < MAX_REGISTERS_PER_THREAD else None


def unlimited(params: Any) -> Any:
    """Params that make the same schedule, without a limit of registers."""
    if register_limit_of(params) is None:
        return params
    return dataclasses.replace(
        params, cparams=dataclasses.replace(params.cparams, maxrregcount=MAX_REGISTERS_PER_THREAD)
    )


def _lowered(schedule: Schedule, options: LowerOptions, tracer: Tracer, explains: bool) -> Lowered:
    """The kernel of a schedule. ScheduleError if there can be none; it names a primitive if `explains`."""
    try:
        return lower(schedule.fusion, options, tracer)
    except ScheduleError as error:
        if explains:
            name_primitive(error, schedule, lambda fusion: lower(fusion, options, SILENT))
        raise


class KernelCompiler:
    """Schedules, lowers and prints. Several threads may use one.

    The kernel itself compiles its machine code (`CompiledKernel.code`).

    Args:
        options: switches that change code, and the directory of the disk cache.
        explains: whether an error names the primitive that caused it. Finding it takes as long as lowering
            the schedule about a dozen times.
    """

    def __init__(self, options: Options, explains: bool = True) -> None:
        self.options = options
        self._explains = explains
        self._cache: DiskCache | None = None

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
        """The kernel that `scheduler` makes of `fusion` with `params`.

        All compilers of the process share kernels. Kernels that differ only in their register limit share
        everything but text and machine code, so `apply` is given params without a limit. A caller that
        requests dumps gets a new kernel, to see how it is made.

        Args:
            text: the canonical text of `fusion`; None: it is computed.
            names: the meaning of names in the definition, for dumps.
        """
        if text is None:
            text = fusion_description(fusion).text
        general = unlimited(params)

        def make() -> tuple[Scheduler, CompiledKernel]:
            start = perf_counter()
            with tracer.stage("schedule"):
                schedule = Schedule(fusion)
                apply(scheduler, schedule, general, hardware)
            own = type_name(scheduler.type)
            tracer.dump("params", lambda: f"{own}: {fields_text(params)}")
            nvrtc = self.nvrtc_options(hardware.arch)
            by = "" if is_built_in(scheduler) else plugin_digest(type(scheduler))
            name = kernel_name(text, own, general, index_dtype, nvrtc, by)
            return scheduler, self._compile(
                schedule, own, name, general, hardware, index_dtype, tracer, start, names
            )

        scheduler = untuned(scheduler)  # who chose the params shows in them alone
        if tracer.dumps_compilation:
            kernel = make()[1]
        else:
            kernel = _kernels.get(self._key(text, scheduler, general, index_dtype, hardware), make)[1]
        return _shown(kernel.with_register_limit(register_limit_of(params), tracer), tracer, names)

    def _key(
        self, text: str, scheduler: Scheduler, params: Any, index_dtype: DataType, hardware: HardwareInfo
    ) -> tuple[Any, ...]:
        # A kernel keeps the scheduler that is no built-in one, so that no other gets its id.
        who = type(scheduler) if is_built_in(scheduler) else id(scheduler)
        return text, who, params, index_dtype, hardware, self.options.key()

    def adopt(self, content: bytes, scheduler: Scheduler, text: str) -> None:
        """Has `compile` find a kernel that another process made (`transfer.kernel_to_bytes`).

        Args:
            content: of a kernel of the fusion with this canonical text, without a limit of registers.
        """
        kernel = kernel_from(content, self._disk_cache)
        scheduler = untuned(scheduler)
        key = self._key(text, scheduler, kernel.params, kernel.index_dtype, kernel.hardware)
        _kernels.get(key, lambda: (scheduler, kernel))

    def compile_schedule(
        self,
        schedule: Schedule,
        hardware: HardwareInfo,
        index_dtype: DataType,
        *,
        params: Any = None,
        tracer: Tracer,
    ) -> CompiledKernel:
        """The kernel of a schedule that a user made, perhaps from an automatic one with these params.

        It has no limit of registers, whatever the params say (`with_register_limit`).
        """
        start = perf_counter()
        if params is not None:
            tracer.dump("params", lambda: f"{USER}: {fields_text(params)}")
        made = self._compile(schedule, USER, None, unlimited(params), hardware, index_dtype, tracer, start)
        return _shown(made, tracer)

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
            text = "\n".join(part.name for part in parts)
            name = kernel_name(text, HORIZONTAL, None, first.index_dtype, first.nvrtc)
            with tracer.stage("combine"):
                # Equal ones are several objects where dumps show how each is made.
                distinct = {(part.name, part.full_text): part.kernel for part in reversed(parts)}
                kernel = combine(name, [distinct[part.name, part.full_text] for part in parts])
                tracer.dump("kernel", lambda: kernel_text(kernel), title="combine")
                verify(kernel, after="combine")
                arguments, symbols = combined_sources(kernel, parts, slots)
            source = printed(kernel, first.hardware, tracer)
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
                first.nvrtc,
                self._disk_cache,
                tuple(parts),
            )

        if tracer.dumps_compilation:
            return _shown(make(), tracer)
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
        schedule.complete()
        where = f"// where {names}\n" if names else ""
        tracer.dump("schedule", lambda: f"{where}{scheduled_text(schedule.fusion)}\n{schedule.to_python()}")
        with tracer.stage("lower"):
            lowered = _lowered(schedule, LowerOptions(name or _UNNAMED, index_dtype), tracer, self._explains)
        check_architecture(lowered.kernel, hardware)
        kernel, nvrtc = lowered.kernel, self.nvrtc_options(hardware.arch)
        if name is None:  # a user's tensors keep their names, so the kernel's own text is what it is
            name = kernel_name(kernel_text(kernel), scheduler, None, index_dtype, nvrtc)
            kernel = dataclasses.replace(kernel, name=name)
        source = printed(kernel, hardware, tracer)
        arguments, symbols = sources_of(lowered, schedule.fusion)
        return CompiledKernel(
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
            nvrtc,
            self._disk_cache,
        )

    def nvrtc_options(self, arch: str) -> NvrtcOptions:
        """What kernels are compiled with for an architecture, if nothing limits their registers."""
        options = self.options
        return NvrtcOptions(
            arch,
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


def _shown(kernel: CompiledKernel, tracer: Tracer, names: str = "") -> CompiledKernel:
    """Dumps a kernel's text and machine code as far as that is asked for."""
    where = f"// where {names}\n" if names else ""
    tracer.dump("cuda", lambda: f"{where}{kernel.cuda_text}", title=kernel.name)
    if any(tracer.wants(stage, kernel.name) for stage in ("ptx", "ptxas", "sass")):
        kernel.cubin(tracer=tracer)  # the simulator would never ask for it
    return kernel
