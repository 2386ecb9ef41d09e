"""Extents of the grid and the block, and compiler settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from fusewright.core.dtype import DataType
from fusewright.core.errors import ParamsError
from fusewright.core.hardware import MAX_REGISTERS_PER_THREAD, WARP_SIZE, HardwareInfo
from fusewright.schedulers.params.decision import Choice, Decision, choice
from fusewright.schedulers.params.legal import Counts, among, counts

UNSET = -1
AXES = "xyz"
BLOCK_EXTENTS = tuple(f"bdim{axis}" for axis in AXES)
EXTENTS = (*(f"gdim{axis}" for axis in AXES), *BLOCK_EXTENTS)
# Powers of two up to the largest block: what a space tries.
TRIED_EXTENTS = tuple(1 << n for n in range(11))
WHOLE_WARPS = tuple(n for n in TRIED_EXTENTS if n >= WARP_SIZE)


def _extent(limit: Callable[[HardwareInfo], int]) -> Any:
    return choice(UNSET, Counts(1, limit, TRIED_EXTENTS, unset=UNSET), reads_unset=1)


@dataclass(frozen=True, slots=True)
class LaunchParams(Decision):
    """Extents of the grid and the block; -1 if the kernel computes them from sizes or has no such axis."""

    gdimx: int = _extent(lambda hardware: hardware.max_grid[0])
    gdimy: int = _extent(lambda hardware: hardware.max_grid[1])
    gdimz: int = _extent(lambda hardware: hardware.max_grid[2])
    bdimx: int = _extent(lambda hardware: hardware.max_block[0])
    bdimy: int = _extent(lambda hardware: hardware.max_block[1])
    bdimz: int = _extent(lambda hardware: hardware.max_block[2])

    @property
    def threads(self) -> int:
        """The threads of a block, by the extents that are set."""
        return max(1, self.bdimx) * max(1, self.bdimy) * max(1, self.bdimz)

    def validate(self, hardware: HardwareInfo) -> None:
        """Raises ParamsError for a launch that the GPU does not take."""
        Decision.validate(self, hardware)
        if self.threads > hardware.max_threads_per_block:
            raise ParamsError(
                path="bdimx * bdimy * bdimz",
                expected=f"at most {hardware.max_threads_per_block}",
                given=self.threads,
            )


@dataclass(frozen=True, slots=True)
class CompileParams(Decision):
    """Compiler settings.

    Attributes:
        index_type: Int32, Int, or None to choose by size.
        maxrregcount: the maximum number of registers per thread; 0 and 255: no limit.
        enable_magic_zero, enable_ptxas_verbose: accepted for compatibility, without effect.
        device, include_paths: not available.
    """

    index_type: DataType | None = choice(None, among(None, DataType.Int, DataType.Int32))
    maxrregcount: int = choice(
        MAX_REGISTERS_PER_THREAD, counts(0, lambda hardware: hardware.max_registers_per_thread)
    )
    enable_magic_zero: bool = True
    enable_ptxas_verbose: bool = False
    device: str | None = choice(None, among(None, reason="as a kernel runs where its inputs are"))
    include_paths: tuple[str, ...] = choice((), among((), reason="as kernels include nothing of a user's"))


@dataclass(frozen=True, slots=True)
class Extent:
    """How a params class uses one extent of `lparams`.

    Attributes:
        required: the params that need a number; others may leave it to the scheduler.
        read: the params that use it at all.
        tried: the numbers that a space tries, and UNSET if that has a different meaning from them.
    """

    required: Callable[[Any], bool] = lambda params: False
    read: Callable[[Any], bool] = lambda params: True
    tried: tuple[int, ...] = TRIED_EXTENTS


#: An extent that all params of a class need.
REQUIRED = Extent(required=lambda params: True)


@dataclass(frozen=True, slots=True)
class LaunchChoice(Choice):
    """A declaration of `lparams`. See `launch`."""

    extents: tuple[tuple[str, Extent], ...] = ()
    from_sizes: tuple[str, ...] = ()

    def check(self, params: Any) -> None:
        """Raises ParamsError for extents that are missing, or that the scheduler would not read."""
        extents = dict(self.extents)
        for name in EXTENTS:
            value, extent = getattr(params.lparams, name), extents.get(name)
            path = f"lparams.{name}"
            if name in self.from_sizes:
                if value != UNSET:
                    raise ParamsError(path=path, expected="-1, as it follows from the sizes", given=value)
            elif extent is None or not extent.read(params):
                if value not in (UNSET, 1):
                    raise ParamsError(path=path, expected="-1, as nothing is bound to it", given=value)
            elif extent.required(params) and value < 1:
                raise ParamsError(path=path, expected="the extent, 1 or more", given=value)

    def values(self, name: str, params: Any, hardware: HardwareInfo, own: int = UNSET) -> tuple[int, ...]:
        """The values of an extent that a space tries, given those before it: a block has a limited number of
        threads.

        Args:
            own: the value in the params from which it starts.
        """
        extent = dict(self.extents).get(name)
        if extent is None or not extent.read(params):
            return (UNSET,)
        limit = (hardware.max_grid + hardware.max_block)[EXTENTS.index(name)]
        if name in BLOCK_EXTENTS:
            before = BLOCK_EXTENTS[: BLOCK_EXTENTS.index(name)]
            threads = prod(max(1, getattr(params.lparams, each)) for each in before)
            limit = max(1, min(limit, hardware.max_threads_per_block // threads))
            own = min(own, limit)
        required = extent.required(params)
        tried = tuple(n for n in extent.tried if n <= limit and not (n == UNSET and required))
        if own in tried or (own == UNSET and (required or 1 not in tried)):
            return tried
        # UNSET is 1 where that is tried: which of both stands there makes no other kernel.
        return (own, *(n for n in tried if own != UNSET or n != 1))


def threads_to_hold(length: int, elements: int, step: int) -> int:
    """The number of threads, a multiple of `step`, each of which holds so many elements of `length`."""
    return max(1, -(-length // (elements * step))) * step


def launch(*, from_sizes: tuple[str, ...] = ("gdimx",), **extents: Extent) -> Any:
    """Declares the field `lparams` of a params class: the extents that its scheduler reads.

    from_sizes: the extents that follow from the sizes. The kernel has no axes for the others.
    """
    declared = LaunchChoice(extents=tuple(extents.items()), from_sizes=from_sizes)
    return declared.field(LaunchParams())
