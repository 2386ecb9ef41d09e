"""Evaluates a kernel's launch for the sizes of a call: extents, shared memory and workspaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from operator import gt
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from fusewright.core.errors import ScheduleError
from fusewright.core.hardware import BULK_COPIES_SINCE, MAX_BLOCK, MAX_GRID, HardwareInfo
from fusewright.cuda.driver import Dim3
from fusewright.cuda.nvrtc import Resources
from fusewright.kernel.ir import InitMbarriers, Kernel
from fusewright.lower import check_symbols
from fusewright.runtime.arguments import Size, Workspace
from fusewright.runtime.occupancy import occupancy
from fusewright.sym import Symbol, to_function

if TYPE_CHECKING:
    from fusewright.runtime.compiled_kernel import CompiledKernel


class LaunchShape(NamedTuple):
    """Extents of grid and block, x first, and bytes of dynamic shared memory."""

    grid: Dim3
    block: Dim3
    shared_bytes: int

    @property
    def threads(self) -> int:
        """Threads a block."""
        x, y, z = self.block
        return x * y * z

    def __str__(self) -> str:
        return f"grid {self.grid}, block {self.block}, {self.shared_bytes} bytes of shared memory"


class LaunchSizes:
    """The size expressions of one kernel, compiled, so that a call with new sizes is arithmetic."""

    def __init__(self, kernel: CompiledKernel) -> None:
        body, self._hardware = kernel.kernel, kernel.hardware
        self._is_cooperative = kernel.is_cooperative
        most = self._hardware.max_threads_per_block
        self._max_threads = min(most, body.max_threads or most)
        sources = kernel.symbols.items()
        self._sized = [symbol for symbol, source in sources if isinstance(source, Size)]
        #: (symbol, slot, dimension) of those symbols that are strides
        self.strided = [(s, source.slot, source.dim) for s, source in sources if not isinstance(source, Size)]
        self._size_values = to_function([x.extent for _, x in sources if isinstance(x, Size)])
        #: of the sizes that the kernel takes as arguments, in order
        self.arguments = to_function([x.extent for x in kernel.arguments if isinstance(x, Size)])
        self._extents = to_function([*body.grid, *body.block, body.shared_bytes])
        workspaces = [source for source in kernel.arguments if isinstance(source, Workspace)]
        self._workspaces = to_function([workspace.size for workspace in workspaces])

    def symbols(self, sizes: Mapping[Symbol, int], strides: Sequence[int]) -> dict[Symbol, int]:
        """The values of the kernel's symbols, from the fusion's sizes and one stride for each `strided`."""
        values = dict(zip(self._sized, self._size_values(sizes)))
        for (symbol, _, _), stride in zip(self.strided, strides):
            values[symbol] = stride
        return values

    def shape(self, values: Mapping[Symbol, int]) -> LaunchShape:
        """The launch that the kernel asks for; `values` are those of its symbols.

        An extent is at least 1: a reduction of nothing still has a result to write.

        Raises:
            ScheduleError: sizes that the kernel was not made for, a block that the GPU cannot hold, or more
                blocks than it holds at once where they wait for each other.
        """
        check_symbols(values)
        gx, gy, gz, bx, by, bz, shared = self._extents(values)
        shape = LaunchShape(
            (max(1, gx), max(1, gy), max(1, gz)), (max(1, bx), max(1, by), max(1, bz)), shared
        )
        _check(shape, self._hardware, self._max_threads)
        if self._is_cooperative:
            check_resident(shape, Resources(), self._hardware)
        return shape

    def workspaces(self, values: Mapping[Symbol, int]) -> tuple[int, ...]:
        """The elements of each workspace argument, at least one, in argument order."""
        return tuple(max(1, count) for count in self._workspaces(values))


def check_architecture(kernel: Kernel, hardware: HardwareInfo) -> None:
    """ScheduleError if the GPU has no clusters of so many blocks, or no bulk copies."""
    waits = any(isinstance(stmt, InitMbarriers) for stmt in kernel.body)
    if waits and hardware.compute_capability < BULK_COPIES_SINCE:
        raise ScheduleError(
            "circular buffers are filled by bulk copies",
            expected="a GPU that has them, sm_90 or later",
            given=f"{hardware.name}, {hardware.arch}",
            hint="leave circular_buffer and warp_specialize out",
        )
    most = hardware.max_cluster
    if kernel.cluster > most:
        has = f"at most {most} blocks a cluster" if most > 1 else "no clusters, which GPUs since sm_90 have"
        raise ScheduleError(
            f"clusters of {kernel.cluster} blocks do not fit",
            expected=f"{has}, on {hardware.name}",
            given=kernel.cluster,
            hint="split the axis that is bound to cluster_x by a smaller factor, or bind it to a loop",
        )


def check_resident(shape: LaunchShape, resources: Resources, hardware: HardwareInfo) -> None:
    """ScheduleError unless a GPU holds all blocks of a cooperative launch at once.

    Args:
        resources: what a thread and a block take; empty before the kernel is compiled.
    """
    held = occupancy(resources, shape.threads, shape.shared_bytes, hardware)
    if prod(shape.grid) > held.blocks * hardware.sm_count:
        raise ScheduleError(
            "the blocks of the launch wait for each other, but not all of them are resident at once",
            expected=f"at most {held.blocks * hardware.sm_count} blocks on {hardware.name}, whose "
            f"{hardware.sm_count} SMs hold {held}",
            given=f"{prod(shape.grid)} blocks",
            hint="give each block more of the work, by a serial axis beside that of the blocks, or fewer "
            "threads, registers or less shared memory",
        )


def check_clusters(wanted: int, resident: int, blocks: int, hardware: HardwareInfo) -> None:
    """ScheduleError unless a GPU holds so many clusters at once.

    Args:
        wanted: all of a cooperative launch, else 1. resident: how many the driver has room for.
        blocks: of a cluster.
    """
    if wanted > resident:
        what = "wait for each other, but not all of them are" if wanted > 1 else "have to be"
        raise ScheduleError(
            f"the blocks of the launch {what} resident at once",
            expected=f"at most {resident} clusters of {blocks} blocks on {hardware.name}",
            given=f"{wanted} clusters",
            hint="fewer blocks, smaller clusters, or fewer threads, registers or less shared memory a block",
        )


def _check(shape: LaunchShape, hardware: HardwareInfo, limit: int) -> None:
    (gx, gy, gz), (bx, by, bz) = shape.grid, shape.block
    if (
        bx * by * bz <= limit
        and (bx <= MAX_BLOCK[0] and by <= MAX_BLOCK[1] and bz <= MAX_BLOCK[2])
        and (gx <= MAX_GRID[0] and gy <= MAX_GRID[1] and gz <= MAX_GRID[2])
        and shape.shared_bytes <= hardware.shared_memory_per_block_optin
    ):
        return  # as nearly all are, and calls with new sizes wait for it
    _refuse(shape, hardware, limit)


def _refuse(shape: LaunchShape, hardware: HardwareInfo, limit: int) -> NoReturn:
    if shape.threads > limit:
        raise ScheduleError(
            f"a block of {shape.block} threads does not fit",
            expected=f"at most {limit} threads a block on {hardware.name}",
            given=shape.threads,
            hint="split the axes that are bound to threadIdx by smaller factors",
        )
    if any(map(gt, shape.block, MAX_BLOCK)):
        raise ScheduleError(
            "a block has too many threads along one axis",
            expected=f"at most {MAX_BLOCK} along x, y and z",
            given=str(shape.block),
            hint="bind the longest axis to block_x",
        )
    if any(map(gt, shape.grid, MAX_GRID)):
        raise ScheduleError(
            "the grid has too many blocks",
            expected=f"at most {MAX_GRID} along x, y and z",
            given=str(shape.grid),
            hint="bind the longest axis to grid_x",
        )
    raise ScheduleError(
        "the shared memory of a block does not fit",
        expected=f"at most {hardware.shared_memory_per_block_optin} bytes on {hardware.name}",
        given=shape.shared_bytes,
    )
