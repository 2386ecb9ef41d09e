"""What compiled kernels run on: a CUDA device, or the simulator of a described GPU for tensors on the CPU."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from math import prod
from typing import Any, Protocol

import torch

from fusewright.core.dtype import DataType
from fusewright.core.errors import FusewrightError
from fusewright.core.hardware import HardwareInfo
from fusewright.core.once import OnceCache
from fusewright.core.options import Options
from fusewright.core.tracing import Tracer
from fusewright.cuda.driver import ArgLayout, Launcher, Library, LoadedKernel, PackedArgs
from fusewright.kernel.ir import Kernel, ScalarParam
from fusewright.runtime.compiler import CompiledKernel, KernelCompiler
from fusewright.runtime.hardware import hardware_of
from fusewright.runtime.launch_sizes import LaunchShape
from fusewright.runtime.random_states import RandomStates, random_states
from fusewright.runtime.single_thread import SINGLE_THREAD
from fusewright.sim import simulate

#: A launch: the stream's handle (0 in the simulator) and one value for each parameter of the kernel.
Launch = Callable[[int, Sequence[Any]], object]


# Simulated threads up to which torch runs in one thread. On idle cores two are at most twice as fast (no gain
# below 2^16 threads); on busy ones, where each of the thousands of small operations waits for the slower
# half, they were up to fifty times as slow.
SMALL_LAUNCH = 2**20


# Kernels that a device keeps loaded for new launches; those that are launched already keep theirs.
MAX_LOADED = 4096


class Target(Protocol):
    """Where tensors live and kernels run."""

    device: torch.device
    hardware: HardwareInfo
    #: whether kernels take addresses instead of tensors
    takes_pointers: bool
    #: where random numbers start
    random_states: RandomStates

    def load(self, kernels: Sequence[CompiledKernel], tracer: Tracer) -> None:
        """Makes the machine code of several kernels, so that `launcher` need not one after another."""
        ...

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
        self.random_states = random_states(self.device)

    def load(self, kernels: Sequence[CompiledKernel], tracer: Tracer) -> None:
        """The simulator runs kernels as they are."""

    def launcher(self, kernel: CompiledKernel, shape: LaunchShape, tracer: Tracer) -> Launch:
        alone = prod(shape.grid) * prod(shape.block) <= SMALL_LAUNCH

        def launch(stream: int, values: Sequence[Any]) -> object:
            with SINGLE_THREAD if alone else nullcontext():
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
        self.random_states = random_states(self.device)
        self._compiler = compiler
        self._loaded: OnceCache[CompiledKernel, tuple[LoadedKernel, PackedArgs]] = OnceCache(MAX_LOADED)

    def load(self, kernels: Sequence[CompiledKernel], tracer: Tracer) -> None:
        missing = [kernel for kernel in dict.fromkeys(kernels) if kernel not in self._loaded]
        if missing:
            with tracer.stage("compile"):
                self._compiler.cubins(missing, tracer=tracer)

    def launcher(self, kernel: CompiledKernel, shape: LaunchShape, tracer: Tracer) -> Launch:
        def load() -> tuple[LoadedKernel, PackedArgs]:
            cubin = self._compiler.cubin(kernel, tracer=tracer)
            codes = tuple(_argument_code(p, kernel.kernel) for p in kernel.kernel.params)
            with tracer.stage("load"):
                loaded = Library(cubin.image).kernel(kernel.name, self.device.index)
            return loaded, PackedArgs(ArgLayout(codes))

        loaded, arguments = self._loaded.get(kernel, load)
        return Launcher(loaded, shape.grid, shape.block, shape.shared_bytes, arguments)

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
    DataType.Float4_e2m1fn: ("b", torch.int8),
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
