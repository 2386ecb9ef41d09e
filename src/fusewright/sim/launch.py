"""The shape of a launch, and the launches that a GPU would reject."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from fusewright.core.errors import SimulationError
from fusewright.core.hardware import MAX_BLOCK, MAX_GRID, MAX_THREADS_PER_BLOCK, HardwareInfo
from fusewright.kernel.ir import Kernel, ScalarParam
from fusewright.sim.races import MAX_BLOCKS
from fusewright.sym import Expr, Symbol, evaluate

Argument = Tensor | int | float | complex | bool
Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class Launch:
    """Extents of the grid and the block along x, y, z, and the bytes of the block's shared arena."""

    grid: Dim3
    block: Dim3
    shared_bytes: int

    @property
    def blocks(self) -> int:
        return math.prod(self.grid)

    @property
    def threads(self) -> int:
        """Threads per block."""
        return math.prod(self.block)

    def block_index(self, linear: int) -> Dim3:
        return _coordinates(linear, self.grid)

    def thread_index(self, linear: int) -> Dim3:
        return _coordinates(linear, self.block)


def _coordinates(linear: int, extents: Dim3) -> Dim3:
    x, y, _ = extents
    return linear % x, linear // x % y, linear // (x * y)


def size_symbols(kernel: Kernel, args: Sequence[Argument]) -> dict[Symbol, int]:
    """The values of the kernel's size symbols; `args` are in the order of `kernel.params`."""
    if len(args) != len(kernel.params):
        raise SimulationError(f"`{kernel.name}` takes {len(kernel.params)} arguments, but got {len(args)}")
    values: dict[Symbol, int] = {}
    for param, arg in zip(kernel.params, args):
        if isinstance(param, ScalarParam) and param.symbol is not None:
            if isinstance(arg, bool) or not isinstance(arg, int):
                raise SimulationError(f"argument `{param.name}` of `{kernel.name}` is no integer: {arg!r}")
            _check_range(kernel, param.symbol, arg)
            values[param.symbol] = arg
    return values


def _check_range(kernel: Kernel, symbol: Symbol, value: int) -> None:
    """The kernel was simplified under what its symbols are declared to be, so launches keep to it."""
    too_large = isinstance(symbol.hi, int) and value > symbol.hi
    if value < symbol.lo or too_large or value % symbol.multiple_of:
        given = f"{symbol.lo} <= {symbol.name}" + (f" <= {symbol.hi}" if symbol.hi is not None else "")
        multiple = f", a multiple of {symbol.multiple_of}" if symbol.multiple_of > 1 else ""
        raise SimulationError(f"`{kernel.name}` was made for {given}{multiple}, not {value}")


def launch_of(
    kernel: Kernel,
    args: Sequence[Argument],
    *,
    grid: Dim3 | None = None,
    block: Dim3 | None = None,
    shared_bytes: int | None = None,
) -> Launch:
    """The launch by the kernel's own expressions; given values replace an expression."""
    sizes = size_symbols(kernel, args)
    return Launch(
        grid=_extents(kernel.grid, sizes) if grid is None else grid,
        block=_extents(kernel.block, sizes) if block is None else block,
        shared_bytes=evaluate(kernel.shared_bytes, sizes) if shared_bytes is None else shared_bytes,
    )


def _extents(exprs: tuple[Expr, Expr, Expr], sizes: Mapping[Symbol, int]) -> Dim3:
    x, y, z = exprs
    return evaluate(x, sizes), evaluate(y, sizes), evaluate(z, sizes)


def check_launch(kernel: Kernel, launch: Launch, hardware: HardwareInfo | None) -> None:
    """Raises SimulationError if a driver would reject the launch; without `hardware`, by CUDA's general
    limits.
    """
    max_threads = hardware.max_threads_per_block if hardware else MAX_THREADS_PER_BLOCK
    where = hardware.name if hardware else "any GPU"

    def refuse(what: str, value: object, limit: object) -> None:
        raise SimulationError(
            f"`{kernel.name}` cannot be launched on {where}: {what} is {value}, the limit {limit}"
        )

    for what, extents, limits in (("grid", launch.grid, MAX_GRID), ("block", launch.block, MAX_BLOCK)):
        least = 1 if what == "block" else 0
        if any(not least <= extent <= limit for extent, limit in zip(extents, limits)):
            refuse(f"the {what}", extents, limits)
    if launch.threads > max_threads:
        refuse("the number of threads a block", launch.threads, max_threads)
    if kernel.max_threads and launch.threads > kernel.max_threads:
        refuse("the number of threads a block", launch.threads, f"of its launch bounds {kernel.max_threads}")
    if hardware and launch.shared_bytes > hardware.shared_memory_per_block_optin:
        refuse("the shared memory of a block", launch.shared_bytes, hardware.shared_memory_per_block_optin)
    if launch.grid[0] % kernel.cluster:
        refuse("the grid along x", launch.grid[0], f"a multiple of {kernel.cluster}, the blocks of a cluster")
    if hardware and kernel.cluster > hardware.max_cluster:
        refuse("a cluster", kernel.cluster, hardware.max_cluster)
    if launch.blocks > MAX_BLOCKS:
        raise SimulationError(f"the simulator runs at most {MAX_BLOCKS} blocks, not {launch.blocks}")


def check_alignments(kernel: Kernel, args: Sequence[Argument]) -> None:
    """Raises SimulationError if a pointer is less aligned than the kernel's accesses need."""
    pointers = {
        param.buffer: arg.data_ptr()
        for param, arg in zip(kernel.params, args)
        if not isinstance(param, ScalarParam) and isinstance(arg, Tensor)
    }
    for alignment in kernel.alignments:
        if pointers[alignment.buffer] % alignment.bytes:
            raise SimulationError(
                f"`{kernel.name}`: `{alignment.buffer.name}` is not aligned to {alignment.bytes} bytes"
            )
