"""The targets of compiled kernels: a CUDA device, or the simulator of a described GPU for CPU tensors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import prod
from typing import Any, Protocol

import torch

from fusewright.core.hardware import HardwareInfo
from fusewright.core.options import Options
from fusewright.core.tracing import Tracer
from fusewright.kernel.ir import ScalarParam
from fusewright.runtime.compiled_kernel import CompiledKernel
from fusewright.runtime.hardware import hardware_of
from fusewright.runtime.launch_sizes import LaunchShape
from fusewright.runtime.machine_code import compile_all
from fusewright.runtime.passed_values import passed_value
from fusewright.runtime.random_states import RandomStates, random_states
from fusewright.runtime.single_thread import SINGLE_THREAD
from fusewright.sim import simulate

#: A launch: the stream's handle (0 in the simulator) and one value for each parameter of the kernel.
Launch = Callable[[int, Sequence[Any]], object]


# Simulated threads up to which torch runs in one thread. On idle cores two are at most twice as fast (no gain
# below 2^16 threads); on busy ones, where each of the thousands of small operations waits for the slower
# half, they were up to fifty times as slow.
SMALL_LAUNCH = 2**20


def _in_host_memory() -> AbstractContextManager[object]:
    """Within it torch makes new tensors there, whatever `torch.set_default_device` was told."""
    return nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu")


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
            with SINGLE_THREAD if alone else nullcontext(), _in_host_memory():
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

    def __init__(self, device: torch.device, options: Options) -> None:
        index = device.index if device.index is not None else torch.cuda.current_device()
        self.device = torch.device("cuda", index)
        self.hardware = hardware_of(self.device, options)
        self.random_states = random_states(self.device)
        self._parallel = not options.disabled("parallel_compile")

    def load(self, kernels: Sequence[CompiledKernel], tracer: Tracer) -> None:
        # Where blocks are a call's, the launch knows which code it needs.
        codes = [kernel.code(tracer=tracer) for kernel in kernels if kernel.has_fixed_block]
        missing = [code for code in codes if not code.is_loaded]
        if missing:
            with tracer.stage("compile"):
                compile_all(missing, self._parallel, tracer)

    def launcher(self, kernel: CompiledKernel, shape: LaunchShape, tracer: Tracer) -> Launch:
        return kernel.launcher(self.device.index, shape, tracer)

    def argument(self, param: ScalarParam, value: Any) -> Any:
        return passed_value(param, value)

    def stream(self) -> int:
        return torch.cuda.current_stream(self.device).cuda_stream
