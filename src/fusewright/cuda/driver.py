"""Loads cubins and launches kernels through the CUDA driver.

Importing this module does not touch the driver and works without one; the first call loads it. Everything
runs in a device's primary context, which torch also uses.

Every repeated call launches kernels, so a `Launcher` is built once for a function and a launch configuration.
Per call it only stores the values into a fixed buffer with one `struct` call, and enqueues with one driver
call (`./dev bench host` times it).
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import struct
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from fusewright.core.errors import DriverError
from fusewright.core.once import OnceCache, cached_property

Dim3 = tuple[int, int, int]

# A launch may use this much shared memory without the function's attribute being raised (every architecture).
DEFAULT_SHARED_LIMIT = 48 * 1024
# Larger clusters have to be allowed function by function, and not every device runs them.
MAX_PORTABLE_CLUSTER = 8
# Launch configurations of a kernel for which it is kept how many clusters the device holds.
MAX_CONFIGURATIONS = 256


@functools.cache
def _driver() -> ModuleType:
    """The initialised driver bindings, imported on first use (0.1 s).

    Raises:
        DriverError: there is no driver or no device.
    """
    try:
        module = importlib.import_module("cuda.bindings.driver")
        (code,) = module.cuInit(0)
    except Exception as error:  # the loader's own exception classes differ between versions of the bindings
        raise DriverError(f"the CUDA driver cannot be loaded: {error}", call="cuInit") from error
    if code:
        raise DriverError(
            call="cuInit", code=code.name, problem="is there a GPU, and may this process use it?"
        )
    return module


def is_available() -> bool:
    """Whether there is a driver and at least one device."""
    try:
        return device_count() > 0
    except DriverError:
        return False


def check(call: str, result: tuple[Any, ...], detail: str = "") -> Any:
    """The value of a driver call's `(code, value)`.

    Raises:
        DriverError: the code is no success; the message names `call`, the code and its description.
    """
    code = result[0]
    if code:
        raise _error(call, code, detail)
    return result[1] if len(result) > 1 else None


def _error(call: str, code: Any, detail: str) -> DriverError:
    _, text = _driver().cuGetErrorString(code)
    described = text.decode() if text else "no description"
    problem = described + (f" ({detail})" if detail else "")
    return DriverError(call=call, code=code.name, problem=problem)


def driver_version() -> tuple[int, int]:
    """(major, minor) of the CUDA version that the driver supports."""
    version = check("cuDriverGetVersion", _driver().cuDriverGetVersion())
    return version // 1000, version % 1000 // 10


def device_count() -> int:
    return int(check("cuDeviceGetCount", _driver().cuDeviceGetCount()))


def device_name(device: int) -> str:
    name: bytes = check("cuDeviceGetName", _driver().cuDeviceGetName(256, _device(device)))
    return name.partition(b"\0")[0].decode()  # what stands behind it in the buffer is anything


def device_memory(device: int) -> int:
    """Bytes of memory of the device."""
    return int(check("cuDeviceTotalMem", _driver().cuDeviceTotalMem(_device(device))))


def device_attribute(device: int, name: str) -> int:
    """A device attribute by its name in the driver's interface, without `CU_DEVICE_ATTRIBUTE_`."""
    attribute = getattr(_driver().CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    result = _driver().cuDeviceGetAttribute(attribute, _device(device))
    return int(check("cuDeviceGetAttribute", result, name))


@functools.cache
def _device(device: int) -> Any:
    return check("cuDeviceGet", _driver().cuDeviceGet(device), f"device {device}")


@functools.cache
def _primary_context(device: int) -> Any:
    """The device's primary context, retained for the life of the process as torch does."""
    return check("cuDevicePrimaryCtxRetain", _driver().cuDevicePrimaryCtxRetain(_device(device)))


@contextmanager
def on_device(device: int) -> Iterator[None]:
    """A block in which the device's primary context is current; the previous one is restored after it."""
    api = _driver()
    check("cuCtxPushCurrent", api.cuCtxPushCurrent(_primary_context(device)))
    try:
        yield
    finally:
        check("cuCtxPopCurrent", api.cuCtxPopCurrent())


class Library:
    """A loaded cubin; one load serves all devices of its architecture.

    It is never unloaded: a captured CUDA graph may hold its functions without holding this object.
    """

    def __init__(self, image: bytes) -> None:
        """Raises: DriverError, if the image is none that the driver can load."""
        self._image = image
        result = _driver().cuLibraryLoadData(image, [], [], 0, [], [], 0)
        self._handle = check("cuLibraryLoadData", result)

    def kernel(self, name: str, device: int) -> LoadedKernel:
        """The kernel with this linker name, for launches on `device`."""
        api = _driver()
        kernel = check("cuLibraryGetKernel", api.cuLibraryGetKernel(self._handle, name.encode()), name)
        with on_device(device):
            function = check("cuKernelGetFunction", api.cuKernelGetFunction(kernel), name)
        return LoadedKernel(self, name, device, function)


class LoadedKernel:
    """A kernel in a device's context."""

    def __init__(self, library: Library, name: str, device: int, function: Any) -> None:
        self.library = library
        self.name = name
        self.device = device
        self.function = function
        self.registers = self.attribute("NUM_REGS")
        #: by block, bytes of dynamic shared memory, and cluster: a call with a new size asks, too
        self.resident_clusters: OnceCache[Hashable, int] = OnceCache(MAX_CONFIGURATIONS)
        self._shared_limit = DEFAULT_SHARED_LIMIT - self.attribute("SHARED_SIZE_BYTES")
        self._has_large_clusters = False
        self._lock = threading.Lock()

    def attribute(self, name: str) -> int:
        """A function attribute by its name in the driver's interface, without `CU_FUNC_ATTRIBUTE_`."""
        api = _driver()
        attribute = getattr(api.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        with on_device(self.device):
            return int(check("cuFuncGetAttribute", api.cuFuncGetAttribute(attribute, self.function), name))

    def set_attribute(self, name: str, value: int) -> None:
        api = _driver()
        attribute = getattr(api.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        with on_device(self.device):
            result = api.cuFuncSetAttribute(self.function, attribute, value)
            check("cuFuncSetAttribute", result, f"{name} = {value} for {self.name}")

    def parameter_sizes(self) -> tuple[int, ...]:
        """Bytes of each parameter, as the kernel was compiled."""
        api = _driver()
        sizes: list[int] = []
        while True:
            code, _, size = api.cuFuncGetParamInfo(self.function, len(sizes))
            if code == api.CUresult.CUDA_ERROR_INVALID_VALUE:  # past the last one
                return tuple(sizes)
            check("cuFuncGetParamInfo", (code, size), self.name)
            sizes.append(size)

    def allow_large_clusters(self) -> None:
        """Let launches have clusters that not every device runs."""
        with self._lock:
            if not self._has_large_clusters:
                self.set_attribute("NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1)
                self._has_large_clusters = True

    def allow_dynamic_shared(self, shared_bytes: int) -> None:
        """Let launches use this much dynamic shared memory. The limit only rises: launchers share it."""
        if shared_bytes <= self._shared_limit:
            return
        with self._lock:
            if shared_bytes > self._shared_limit:
                self.set_attribute("MAX_DYNAMIC_SHARED_SIZE_BYTES", shared_bytes)
                self._shared_limit = shared_bytes


# ---- arguments -------------------------------------------------------------------------------------

# Code of an argument -> (struct format, bytes). The codes are those of the struct module, `P` a device
# pointer, and `F` and `D` complex numbers of two floats and two doubles.
ARGUMENT_CODES: dict[str, tuple[str, int]] = {
    "P": ("Q", 8),
    "q": ("q", 8),
    "Q": ("Q", 8),
    "i": ("i", 4),
    "I": ("I", 4),
    "h": ("h", 2),
    "H": ("H", 2),
    "b": ("b", 1),
    "B": ("B", 1),
    "?": ("?", 1),
    "e": ("e", 2),
    "f": ("f", 4),
    "d": ("d", 8),
    "F": ("ff", 8),
    "D": ("dd", 16),
}
# Opaque arguments (a tensor map) are passed as bytes and aligned to their own requirement.
OPAQUE_ALIGNMENT = 64


@dataclass(frozen=True)
class ArgLayout:
    """The kernel's parameters in order: a code of `ARGUMENT_CODES` each, or `128s` for 128 opaque bytes."""

    codes: tuple[str, ...]

    @cached_property
    def _placed(self) -> tuple[str, tuple[int, ...], int]:
        """Struct format, offset of each argument, and size of the buffer."""
        formats, offsets, end = ["<"], [], 0
        for code in self.codes:
            opaque = code.endswith("s")
            text, size = (code, int(code[:-1])) if opaque else ARGUMENT_CODES[code]
            alignment = OPAQUE_ALIGNMENT if opaque else size
            start = -(-end // alignment) * alignment
            formats.append("x" * (start - end) + text)
            offsets.append(start)
            end = start + size
        return "".join(formats), tuple(offsets), max(end, 1)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of each argument."""
        return tuple(int(code[:-1]) if code.endswith("s") else ARGUMENT_CODES[code][1] for code in self.codes)

    @property
    def has_complex(self) -> bool:
        return any(code in ("F", "D") for code in self.codes)


class PackedArgs(threading.local):
    """An argument buffer: fixed slots, and the array of pointers to them that a launch takes.

    Each thread has its own buffer. A launch copies the arguments, so launchers may share them.
    `store(*values)` writes all slots in one call; `address` is that of the pointer array. Values are ints for
    pointers and integers, floats, bools, complex numbers, bytes for opaque arguments.
    """

    def __init__(self, layout: ArgLayout) -> None:  # called by each thread that uses the object
        text, offsets, size = layout._placed
        self._buffer = (ctypes.c_char * (size + OPAQUE_ALIGNMENT))()
        base = -ctypes.addressof(self._buffer) % OPAQUE_ALIGNMENT
        start = ctypes.addressof(self._buffer) + base
        self._pointers = (ctypes.c_void_p * max(len(offsets), 1))(*(start + offset for offset in offsets))
        self._layout = layout
        self.address = ctypes.addressof(self._pointers)
        self._pack = functools.partial(struct.Struct(text).pack_into, self._buffer, base)
        self.store: Callable[..., None] = self._store_complex if layout.has_complex else self._pack

    def _store_complex(self, *values: Any) -> None:
        flat: list[Any] = []
        for code, value in zip(self._layout.codes, values, strict=True):
            flat += (value.real, value.imag) if code in ("F", "D") else (value,)
        self._pack(*flat)


# ---- launches --------------------------------------------------------------------------------------


class Launcher:
    """Launches one kernel with one configuration. Several threads may call it.

    Args:
        grid, block: extents, x first; all positive.
        shared_bytes: dynamic shared memory.
        arguments: the buffer into which the kernel's arguments are written before each launch.
        cooperative: whether all blocks must be resident at once, so that the grid may synchronise.
        cluster: blocks in a cluster, x first; the grid is a multiple of it.
    """

    def __init__(
        self,
        kernel: LoadedKernel,
        grid: Dim3,
        block: Dim3,
        shared_bytes: int,
        arguments: PackedArgs,
        *,
        cooperative: bool = False,
        cluster: Dim3 | None = None,
    ) -> None:
        self.kernel = kernel
        self.grid, self.block, self.shared_bytes = grid, block, shared_bytes
        self.cooperative = cooperative
        self.cluster = cluster
        self._arguments = arguments
        kernel.allow_dynamic_shared(shared_bytes)
        api = _driver()
        self._success = (api.CUresult.CUDA_SUCCESS,)
        #: takes stream, address of the arguments, 0
        self._enqueue: Callable[[int, int, int], Any]
        if cooperative or cluster is not None:
            self._enqueue = _ExtendedLaunch(kernel, grid, block, shared_bytes, cooperative, cluster)
        else:
            launch = api.cuLaunchKernel
            self._enqueue = functools.partial(launch, kernel.function, *grid, *block, shared_bytes)

    def __call__(self, stream: int, values: Sequence[Any]) -> None:
        """Enqueue on `stream` (a handle; 0: the default stream of the current device).

        Raises:
            DriverError: the driver refused the launch; the message shows the configuration.
            struct.error: values that do not fit the layout.
        """
        arguments = self._arguments
        arguments.store(*values)
        result = self._enqueue(stream, arguments.address, 0)
        if result != self._success:
            self._failed(stream, arguments.address, result)

    def resident_clusters(self) -> int:
        """How many clusters the device holds at once, as the driver knows: blocks of a cluster are on SMs
        that lie together, and how many do differs from one GPU of a kind to the next.
        """
        enqueue = self._enqueue
        assert isinstance(enqueue, _ExtendedLaunch), "a launch without clusters"

        def ask() -> int:
            with on_device(self.kernel.device):
                found = enqueue.resident_clusters()
            return int(check("cuOccupancyMaxActiveClusters", found, self.kernel.name))

        return self.kernel.resident_clusters.get((self.block, self.shared_bytes, self.cluster), ask)

    def _failed(self, stream: int, address: int, result: Any) -> None:
        """Launch again if only the context was missing (the first CUDA call of a thread), else raise."""
        api = _driver()
        code = api.CUresult(result[0])
        if code in (api.CUresult.CUDA_ERROR_INVALID_CONTEXT, api.CUresult.CUDA_ERROR_NOT_INITIALIZED):
            check("cuCtxSetCurrent", api.cuCtxSetCurrent(_primary_context(self.kernel.device)))
            result = self._enqueue(stream, address, 0)
            if result == self._success:
                return
            code = api.CUresult(result[0])
        detail = (
            f"kernel {self.kernel.name}, grid {self.grid}, block {self.block}, {self.shared_bytes} bytes of "
            f"dynamic shared memory, {self.kernel.registers} registers a thread"
            + (f", cluster {self.cluster}" if self.cluster is not None else "")
            + (", cooperative" if self.cooperative else "")
        )
        raise _error(
            "cuLaunchKernelEx" if self.cooperative or self.cluster else "cuLaunchKernel", code, detail
        )


class _ExtendedLaunch(threading.local):
    """cuLaunchKernelEx with the arguments of a cuLaunchKernel that is bound to a configuration.

    Its configuration names the stream, so each thread has one.
    """

    def __init__(
        self,
        kernel: LoadedKernel,
        grid: Dim3,
        block: Dim3,
        shared_bytes: int,
        cooperative: bool,
        cluster: Dim3 | None,
    ) -> None:
        api = _driver()
        config = api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = block
        config.sharedMemBytes = shared_bytes
        attributes = []
        if cooperative:
            attribute = api.CUlaunchAttribute()
            attribute.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
            attribute.value.cooperative = 1
            attributes.append(attribute)
        if cluster is not None:
            if cluster[0] * cluster[1] * cluster[2] > MAX_PORTABLE_CLUSTER:
                kernel.allow_large_clusters()
            attribute = api.CUlaunchAttribute()
            attribute.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            extent = attribute.value.clusterDim
            extent.x, extent.y, extent.z = cluster
            attributes.append(attribute)
        config.attrs = attributes
        config.numAttrs = len(attributes)
        self._config, self._function, self._stream = config, kernel.function, 0
        self._launch = functools.partial(api.cuLaunchKernelEx, config, kernel.function)

    def __call__(self, stream: int, address: int, extra: int) -> Any:
        if stream != self._stream:
            self._config.hStream = self._stream = stream
        return self._launch(address, extra)

    def resident_clusters(self) -> Any:
        """What the driver answers."""
        return _driver().cuOccupancyMaxActiveClusters(self._function, self._config)
