"""Host time of a launch: cuda-bindings against ctypes, each with the packed arguments of `Launcher`.

Run on a machine with a GPU: `./dev bench launch`. Prints microseconds per call for

* bindings: cuLaunchKernel of cuda-bindings, the way `Launcher` goes;
* ctypes: cuLaunchKernel of libcuda.so.1 through ctypes;
* store only: writing the arguments, the part that both share;
* bare: cuda-bindings with arguments that never change, the floor for this driver.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import statistics
from collections.abc import Callable
from time import perf_counter

from fusewright.cuda import driver
from fusewright.cuda.driver import ArgLayout, Launcher, Library, LoadedKernel, PackedArgs
from fusewright.cuda.nvrtc import NvrtcOptions, compile_cubin

SOURCE = """
extern "C" __global__ void
empty(const float* a, const float* b, float* c, long long n, long long m, float s) {}
"""
LAYOUT = ArgLayout(("P", "P", "P", "q", "q", "f"))
VALUES = (0, 0, 0, 1024, 1024, 1.0)
CALLS_PER_ROUND = 500  # below the depth of a stream's queue: the host must not wait for the device
ROUNDS = 20


def ctypes_launch(kernel: LoadedKernel, stream: int, arguments: PackedArgs) -> None:
    """One launch through ctypes."""
    arguments.store(*VALUES)
    _by_ctypes()(int(kernel.function), 1, 1, 1, 32, 1, 1, 0, stream, arguments.address, None)


@functools.cache
def _by_ctypes() -> Callable[..., int]:
    """cuLaunchKernel of libcuda.so.1."""
    launch = ctypes.CDLL("libcuda.so.1").cuLaunchKernel
    launch.argtypes = [
        ctypes.c_void_p,
        *[ctypes.c_uint] * 7,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ]
    launch.restype = ctypes.c_int
    return launch


def microseconds(call: Callable[[], object], synchronise: Callable[[], object]) -> float:
    """Median over rounds of the host time of one call."""
    times = []
    for _ in range(ROUNDS):
        synchronise()
        start = perf_counter()
        for _ in range(CALLS_PER_ROUND):
            call()
        times.append((perf_counter() - start) / CALLS_PER_ROUND)
    return statistics.median(times) * 1e6


def load(device: int) -> LoadedKernel:
    major = driver.device_attribute(device, "COMPUTE_CAPABILITY_MAJOR")
    minor = driver.device_attribute(device, "COMPUTE_CAPABILITY_MINOR")
    return Library(compile_cubin(SOURCE, NvrtcOptions(f"sm_{major}{minor}")).image).kernel("empty", device)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes none."""


def run(parsed: argparse.Namespace) -> int:
    kernel = load(0)
    api = driver._driver()

    def synchronise() -> None:
        driver.check("cuCtxSynchronize", api.cuCtxSynchronize())

    with driver.on_device(0):
        stream = int(driver.check("cuStreamCreate", api.cuStreamCreate(1)))
        arguments = PackedArgs(LAYOUT)
        launcher = Launcher(kernel, (1, 1, 1), (32, 1, 1), 0, arguments)
        launcher(stream, VALUES)
        rows = {
            "bindings": functools.partial(launcher, stream, VALUES),
            "ctypes": functools.partial(ctypes_launch, kernel, stream, arguments),
            "store only": functools.partial(arguments.store, *VALUES),
            "bare": functools.partial(launcher._enqueue, stream, arguments.address, 0),
        }
        for name, call in rows.items():
            print(f"{name:<12} {microseconds(call, synchronise):7.2f} us")
    return 0
