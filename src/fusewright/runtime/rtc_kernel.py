"""`RtcKernel`: compiles and launches a user's CUDA source with the same parts as generated kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace

import torch

from fusewright.core.errors import (
    ArgumentTypeError,
    CompileError,
    DeviceError,
    InputError,
    KernelSourceError,
    ShapeError,
)
from fusewright.core.once import OnceCache
from fusewright.core.options import Options
from fusewright.cuda import driver
from fusewright.cuda.driver import ArgLayout, Dim3, Launcher, PackedArgs
from fusewright.cuda.nvrtc import Cubin, NvrtcOptions, Resources
from fusewright.runtime.disk_cache import DiskCache, open_cache
from fusewright.runtime.hardware import hardware_of
from fusewright.runtime.machine_code import MachineCode

# How a scalar's explicit type is passed: codes of `driver.ARGUMENT_CODES`.
_CTYPES_CODES: dict[type, str] = {
    ctypes.c_bool: "?",
    ctypes.c_int8: "b",
    ctypes.c_uint8: "B",
    ctypes.c_int16: "h",
    ctypes.c_uint16: "H",
    ctypes.c_int32: "i",
    ctypes.c_uint32: "I",
    ctypes.c_int64: "q",
    ctypes.c_uint64: "Q",
    ctypes.c_longlong: "q",
    ctypes.c_ulonglong: "Q",
    ctypes.c_float: "f",
    ctypes.c_double: "d",
}
_DTYPE_CODES: dict[torch.dtype, str] = {
    torch.bool: "?",
    torch.int8: "b",
    torch.uint8: "B",
    torch.int16: "h",
    torch.int32: "i",
    torch.int64: "q",
    torch.float16: "e",
    torch.float32: "f",
    torch.float64: "d",
    torch.complex64: "F",
    torch.complex128: "D",
}
_ACCEPTED = "a CUDA tensor, a ctypes scalar (ctypes.c_int(3)) or a pair of value and dtype ((3, torch.int32))"
# Launch configurations kept ready; the oldest is built anew where a program uses more of one kernel.
MAX_LAUNCHERS = 64

Extent = int | Sequence[int]


class RtcKernel:
    """One kernel of a user's CUDA source.

    Args:
        source: CUDA C++ text. Built-in types and functions need no includes, and there are no include paths.
        name: the kernel, as C++ spells it: `scale`, `fill<float, 4>` (which instantiates the template).
        arch: the target architecture, such as `sm_90a`; None: the current GPU, or the described one.
        options: other compiler options; `arch` replaces their architecture if both are given.
        cache: the cache of cubins; None: the cache that the environment names.

    Raises:
        KernelSourceError: the source does not compile, or has no kernel of that name.
        ArgumentTypeError: `source` or `name` is not text.

    Example::

        kernel = RtcKernel("__global__ void scale(float* x, float s) { x[threadIdx.x] *= s; }", "scale")
        kernel.launch(1, 32, [x, ctypes.c_float(2)])
    """

    def __init__(
        self,
        source: str,
        name: str,
        *,
        arch: str | None = None,
        options: NvrtcOptions | None = None,
        cache: DiskCache | None = None,
    ) -> None:
        for what, text in (("source", source), ("name", name)):
            if not isinstance(text, str):
                raise ArgumentTypeError(
                    function="RtcKernel", expected=f"{what}: str", given=type(text).__name__
                )
        kinds = ("arch", arch, str), ("options", options, NvrtcOptions), ("cache", cache, DiskCache)
        for what, given, kind in kinds:
            if not isinstance(given, (kind, type(None))):
                raise ArgumentTypeError(
                    function="RtcKernel", expected=f"{what}: {kind.__name__}", given=type(given).__name__
                )
        self.source = source
        self.name = name
        if options is None:
            # The user's source may use what generated code never does: textures, the device runtime.
            options = NvrtcOptions(arch or _default_arch(), minimal=False)
        elif arch is not None:
            options = replace(options, arch=arch)
        self.options = options
        opened = cache or open_cache(Options.from_environment())
        #: its cubin, resources and occupancy, and where it is loaded
        self.code = MachineCode(name, source, options, lambda: opened, is_mangled=True)
        self._compile()
        self._launchers: OnceCache[tuple[object, ...], Launcher] = OnceCache(MAX_LAUNCHERS)

    def __repr__(self) -> str:
        return f"RtcKernel({self.name!r}, {self.options.arch}: {self.resources})"

    @property
    def cubin(self) -> Cubin:
        """The compiled program."""
        return self.code.cubin()

    @property
    def resources(self) -> Resources:
        """Registers, spills, shared memory, from the assembler's report."""
        return self.code.resources()

    def sass(self) -> str:
        """The machine code, where the CUDA toolkit's disassembler is installed."""
        return self.code.sass()

    def launch(
        self,
        grid: Extent,
        block: Extent,
        args: Sequence[object],
        shared: int = 0,
        stream: torch.cuda.Stream | int | None = None,
    ) -> None:
        """Enqueue the kernel. It does not wait; a tensor used on a stream other than its own is the caller's
        to record there.

        Args:
            grid, block: one to three extents, x first.
            args: CUDA tensors, passed as pointers to their first element, whatever their strides; scalars
                with an explicit type, as a ctypes value or as (value, dtype).
            shared: bytes of dynamic shared memory.
            stream: None: the current one of the tensors' device.

        Raises:
            ArgumentTypeError, InputError: an argument of no passable type, or one that differs in size from
                the kernel's parameter, or too few or too many.
            DeviceError: tensors that are on no GPU or on several, or no GPU at all.
            DriverError: the driver refuses the launch.
        """
        extents = _extent("grid", grid), _extent("block", block)
        if not isinstance(args, (list, tuple)):
            raise ArgumentTypeError(
                function="launch", expected="args: a list of arguments", given=type(args).__name__
            )
        passed = [_classify(index, value) for index, value in enumerate(args)]
        device = _common_device(args)
        layout = ArgLayout(tuple(code for code, _ in passed))
        launcher = self._launcher(device, *extents, shared, layout)
        with torch.cuda.device(device):
            if stream is None:
                stream = torch.cuda.current_stream()
            launcher(
                stream if isinstance(stream, int) else stream.cuda_stream, [value for _, value in passed]
            )

    def _compile(self) -> None:
        try:
            self.code.cubin()
        except CompileError as error:
            # The compiler looks the name up in a file of its own, which it names so in its messages.
            if "__nv_name_map" in error.log and not error.excerpt:
                message = f"the CUDA source has no kernel that {self.name!r} names"
            else:
                message = f"the CUDA source of kernel {self.name!r} does not compile for {self.options.arch}"
            raise KernelSourceError(message, log=error.log, excerpt=error.excerpt) from None

    def _launcher(self, device: int, grid: Dim3, block: Dim3, shared: int, layout: ArgLayout) -> Launcher:
        def make() -> Launcher:
            _check_sizes(self.name, layout, self.code.loaded(device).parameter_sizes())
            return self.code.launcher(device, grid, block, shared, PackedArgs(layout))

        return self._launchers.get((device, grid, block, shared, layout), make)


def _default_arch() -> str:
    target = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return hardware_of(target, Options.from_environment()).arch


def _extent(name: str, extent: Extent) -> Dim3:
    """Up to three extents as exactly three."""
    given = tuple(extent) if isinstance(extent, (list, tuple)) else (extent,)
    if not all(isinstance(size, int) for size in given):
        raise ArgumentTypeError(function="launch", expected=f"integers in {name}", given=extent)
    if not 1 <= len(given) <= 3 or min(given) < 1:
        raise ShapeError(f"{name} is one to three positive extents, x first", given=extent)
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z


def _classify(index: int, value: object) -> tuple[str, object]:
    """The code and the plain value of one argument."""
    if isinstance(value, torch.Tensor):
        return "P", value.data_ptr()
    code = _CTYPES_CODES.get(type(value))
    if code is not None:
        return code, value.value  # type: ignore[attr-defined]
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], torch.dtype):
        number, dtype = value
        code = _DTYPE_CODES.get(dtype)
        if code is not None and isinstance(number, _accepted_numbers(dtype)):
            return code, number
    raise ArgumentTypeError(
        function="launch",
        expected=f"argument {index} to be {_ACCEPTED}",
        given=f"{value!r} of type {type(value).__name__}",
        hint="a Python number does not say how wide the kernel's parameter is"
        if isinstance(value, int | float | complex)
        else None,
    )


def _accepted_numbers(dtype: torch.dtype) -> tuple[type, ...]:
    """The Python numbers that a scalar of this dtype may be given as."""
    if dtype.is_complex:
        return (int, float, complex)
    return (int, float) if dtype.is_floating_point else (int,)


def _common_device(args: Sequence[object]) -> int:
    """The index of the GPU that all tensors are on; without tensors, of the current one."""
    first: tuple[int, torch.device] | None = None
    for index, value in enumerate(args):
        if not isinstance(value, torch.Tensor):
            continue
        if value.device.type != "cuda":
            raise DeviceError(what=f"argument {index}", expected="a CUDA device", given=value.device)
        if first is None:
            first = index, value.device
        elif value.device != first[1]:
            raise DeviceError(
                what=f"argument {index}",
                expected=f"{first[1]}, as argument {first[0]} is",
                given=value.device,
            )
    if not driver.is_available():
        raise DeviceError(
            "a CUDA source kernel can be compiled here but not launched: there is no GPU",
            hint="only fusions run in the simulator",
        )
    return first[1].index if first is not None else torch.cuda.current_device()


def _check_sizes(name: str, layout: ArgLayout, parameters: tuple[int, ...]) -> None:
    """Compare the arguments with the parameters that the kernel was compiled with."""
    if len(layout.codes) != len(parameters):
        raise InputError(
            f"kernel {name!r} takes {len(parameters)} arguments",
            expected=len(parameters),
            given=len(layout.codes),
        )
    for index, (given, expected) in enumerate(zip(layout.sizes, parameters)):
        if given != expected:
            raise InputError(
                f"argument {index} of kernel {name!r} differs in size from the parameter",
                expected=f"{expected} bytes",
                given=f"{given} bytes",
            )
