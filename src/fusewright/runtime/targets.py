"""What compiled kernels run on: a CUDA device, or the simulator of a described GPU for tensors on the CPU."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from fusewright.core.dtype import DataType
from fusewright.core.errors import FusewrightError, ScheduleError
from fusewright.core.hardware import HardwareInfo
from fusewright.core.options import Options
from fusewright.core.tracing import Tracer
from fusewright.cuda.driver import ArgLayout, Dim3, Launcher, Library, LoadedKernel
from fusewright.kernel.ir import Kernel, ScalarParam
from fusewright.lower import check_symbols
from fusewright.runtime.compiler import CompiledKernel, KernelCompiler
from fusewright.runtime.hardware import hardware_of
from fusewright.runtime.once import OnceCache
from fusewright.sim import simulate
from fusewright.sym import ONE, Expr, Symbol, evaluate

#: A launch: the stream's handle (0 in the simulator) and one value for each parameter of the kernel.
Launch = Callable[[int, Sequence[Any]], object]


# CUDA C++ Programming Guide, technical specifications: the largest grid along x, y and z.
MAX_GRID = (2**31 - 1, 65535, 65535)


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """Extents of grid and block, x first, and bytes of dynamic shared memory."""

    grid: Dim3
    block: Dim3
    shared_bytes: int

    def __str__(self) -> str:
        return f"grid {self.grid}, block {self.block}, {self.shared_bytes} bytes of shared memory"


def launch_shape(kernel: CompiledKernel, values: Mapping[Symbol, int]) -> LaunchShape:
    """The launch that the kernel asks for; `values` are those of its symbols.

    An extent is at least 1: a reduction of nothing still has a result to write.

    Raises:
        ScheduleError: the sizes break a requirement of the kernel, or the GPU cannot hold a block.
    """
    check_symbols(values)
    for requirement in kernel.kernel.requirements:
        if not evaluate(requirement.cond, values):
            raise ScheduleError(requirement.message, given=f"{requirement.cond} with {_named(values)}")

    def extents(exprs: tuple[Expr, Expr, Expr]) -> Dim3:
        x, y, z = (1 if e is ONE else max(1, evaluate(e, values)) for e in exprs)
        return x, y, z

    shape = LaunchShape(
        extents(kernel.kernel.grid),
        extents(kernel.kernel.block),
        evaluate(kernel.kernel.shared_bytes, values),
    )
    _check(kernel, shape)
    return shape


def _named(values: Mapping[Symbol, int]) -> str:
    return ", ".join(f"{symbol.name} = {value}" for symbol, value in values.items())


def _check(kernel: CompiledKernel, shape: LaunchShape) -> None:
    hardware = kernel.hardware
    threads = shape.block[0] * shape.block[1] * shape.block[2]
    limit = min(hardware.max_threads_per_block, kernel.kernel.max_threads or hardware.max_threads_per_block)
    if threads > limit:
        raise ScheduleError(
            f"a block of {shape.block} threads does not fit",
            expected=f"at most {limit} threads a block on {hardware.name}",
            given=threads,
            hint="split the axes that are bound to threadIdx by smaller factors",
        )
    if any(extent > limit for extent, limit in zip(shape.grid, MAX_GRID)):
        raise ScheduleError(
            "the grid has too many blocks",
            expected=f"at most {MAX_GRID} along x, y and z",
            given=str(shape.grid),
            hint="bind the longest axis to grid_x",
        )
    if shape.shared_bytes > hardware.shared_memory_per_block_optin:
        raise ScheduleError(
            "the shared memory of a block does not fit",
            expected=f"at most {hardware.shared_memory_per_block_optin} bytes on {hardware.name}",
            given=shape.shared_bytes,
        )


class Target(Protocol):
    """Where tensors live and kernels run."""

    device: torch.device
    hardware: HardwareInfo
    #: whether kernels take addresses instead of tensors
    takes_pointers: bool

    def launcher(self, kernel: CompiledKernel, shape: LaunchShape, tracer: Tracer) -> Launch:
        """A callable that runs the kernel with this shape."""
        ...

    def argument(self, param: ScalarParam, value: Any) -> Any:
        """A scalar as launches take it."""
        ...

    def stream(self) -> int:
        """The handle of the stream that launches go to; of the simulator, one a thread."""
        ...


class SimulatedTarget:
    """The simulator of the GPU that the options describe."""

    takes_pointers = False

    def __init__(self, options: Options) -> None:
        self.device = torch.device("cpu")
        self.hardware = hardware_of(self.device, options)

    def launcher(self, kernel: CompiledKernel, shape: LaunchShape, tracer: Tracer) -> Launch:
        def launch(stream: int, values: Sequence[Any]) -> object:
            return simulate(
                kernel.kernel,
                values,
                grid=shape.grid,
                block=shape.block,
                shared_bytes=shape.shared_bytes,
                hardware=self.hardware,
            )

        return launch

    def argument(self, param: ScalarParam, value: Any) -> Any:
        return value

    def stream(self) -> int:
        return threading.get_ident()


class CudaTarget:
    """A CUDA device; kernels run on torch's current stream of it."""

    takes_pointers = True

    def __init__(self, device: torch.device, options: Options, compiler: KernelCompiler) -> None:
        index = device.index if device.index is not None else torch.cuda.current_device()
        self.device = torch.device("cuda", index)
        self.hardware = hardware_of(self.device, options)
        self._compiler = compiler
        self._loaded: OnceCache[CompiledKernel, LoadedKernel] = OnceCache()

    def launcher(self, kernel: CompiledKernel, shape: LaunchShape, tracer: Tracer) -> Launch:
        def load() -> LoadedKernel:
            cubin = self._compiler.cubin(kernel, tracer=tracer)
            with tracer.stage("load"):
                return Library(cubin.image).kernel(kernel.name, self.device.index)

        codes = tuple(_argument_code(p, kernel.kernel) for p in kernel.kernel.params)
        loaded = self._loaded.get(kernel, load)
        return Launcher(loaded, shape.grid, shape.block, shape.shared_bytes, ArgLayout(codes))

    def argument(self, param: ScalarParam, value: Any) -> Any:
        """A reduced float as the integer of its bits, anything else as it is."""
        bits = _BITS.get(param.dtype)
        if bits is None:
            return value
        return int(torch.tensor(value, dtype=param.dtype.torch).view(bits[1]).item())

    def stream(self) -> int:
        return torch.cuda.current_stream(self.device).cuda_stream


_CODES: dict[DataType, str] = {
    DataType.Bool: "?",
    DataType.Int: "q",
    DataType.Int32: "i",
    DataType.UInt64: "Q",
    DataType.Float: "f",
    DataType.Double: "d",
    DataType.ComplexFloat: "F",
    DataType.ComplexDouble: "D",
}
# Types that Python has no number for are passed as the integers of their bits.
_BITS: dict[DataType, tuple[str, torch.dtype]] = {
    DataType.Half: ("h", torch.int16),
    DataType.BFloat16: ("h", torch.int16),
    DataType.Float8_e4m3fn: ("b", torch.int8),
    DataType.Float8_e5m2: ("b", torch.int8),
    DataType.Float8_e8m0fnu: ("b", torch.int8),
}


def _argument_code(param: object, kernel: Kernel) -> str:
    """The code of `cuda.driver.ARGUMENT_CODES` for a parameter."""
    if not isinstance(param, ScalarParam):
        return "P"
    dtype = kernel.index_dtype if param.dtype is DataType.Index else param.dtype
    code = _CODES.get(dtype) or (_BITS[dtype][0] if dtype in _BITS else None)
    if code is None:
        raise FusewrightError(f"a kernel cannot take a scalar of dtype {dtype}")
    return code
