"""Params of kernels that multiply matrices with the GPU's matrix instructions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from fusewright.core.enums import (
    MatmulBufferingLoopLevel,
    MatmulCircularBufferingStrategy,
    MatmulTileRasterizationOrder,
    MatmulTilingStrategy,
    MmaMacroArch,
)
from fusewright.core.errors import ParamsError
from fusewright.core.hardware import HardwareInfo
from fusewright.schedulers.params.decision import Decision, When, choice
from fusewright.schedulers.params.heuristic import WIDTHS, HeuristicParams
from fusewright.schedulers.params.launch import LaunchParams, launch
from fusewright.schedulers.params.legal import counts

TRIED_TILES = (16, 32, 64, 128, 256)
TRIED_STAGES = (2, 3, 4, 6)
# CUDA C++ Programming Guide, thread block clusters: so many blocks run on every GPU that has clusters.
MAX_CLUSTER = 8
CLUSTER_CAPABILITY = (9, 0)
# Of the operands that matrix instructions take, all but a few are at least this wide.
OPERAND_BYTES = 2


@dataclass(frozen=True, slots=True)
class GemmTile(Decision):
    """A tile of a product: m x n of the result, of k products summed up."""

    m: int = choice(1, counts(1, tried=TRIED_TILES))
    n: int = choice(1, counts(1, tried=TRIED_TILES))
    k: int = choice(1, counts(1, tried=TRIED_TILES))


@dataclass(frozen=True, slots=True)
class MatMulTileOptions(Decision):
    """The tile that a block computes at a time, and the tile of a warp (or a warp group) within it."""

    cta_tile: GemmTile = GemmTile(128, 128, 32)
    warp_tile: GemmTile = GemmTile(64, 64, 32)

    def validate(self, hardware: HardwareInfo) -> None:
        Decision.validate(self, hardware)
        expect_multiples(self.cta_tile, self.warp_tile, "cta_tile", "warp_tile")


_WRITES = When(lambda options: options.circular_buffer_smem_write, "without circular_buffer_smem_write")


@dataclass(frozen=True, slots=True)
class CircularBufferOptions(Decision):
    """Buffers that loads fill while their previous contents are used.

    Attributes:
        circular_buffer_smem_write: for shared memory, filled from global memory.
        circular_buffer_smem_read: for registers, filled from shared memory.
        smem_circular_buffer_stage: the number of buffers in shared memory.
        smem_circular_buffer_prefetch_gap: the number of stages that are not in flight while one is used.
    """

    circular_buffer_smem_write: bool = False
    circular_buffer_smem_read: bool = False
    smem_circular_buffer_stage: int = choice(2, counts(2, tried=TRIED_STAGES), _WRITES)
    smem_circular_buffer_prefetch_gap: int = choice(1, counts(1, tried=(1, 2)), _WRITES)

    def validate(self, hardware: HardwareInfo) -> None:
        Decision.validate(self, hardware)
        gap, stages = self.smem_circular_buffer_prefetch_gap, self.smem_circular_buffer_stage
        expected = f"at most smem_circular_buffer_stage ({stages})"
        self.require(gap <= stages, "smem_circular_buffer_prefetch_gap", expected)


@dataclass(frozen=True, slots=True)
class SupportedVectorization(Decision):
    """Elements per access to the operands and to the tensors of the epilogue."""

    a: int = choice(1, WIDTHS)
    b: int = choice(1, WIDTHS)
    epilogue: int = choice(1, WIDTHS)


@dataclass(frozen=True, slots=True)
class ClusterDims(Decision):
    """Blocks of a cluster along the rows and along the columns of the result."""

    m: int = choice(1, counts(1, MAX_CLUSTER, (1, 2)))
    n: int = choice(1, counts(1, MAX_CLUSTER, (1, 2)))

    def validate(self, hardware: HardwareInfo) -> None:
        Decision.validate(self, hardware)
        blocks = self.m * self.n
        if blocks > 1 and hardware.compute_capability < CLUSTER_CAPABILITY:
            raise ParamsError(path="m * n", expected=f"1 on {hardware.arch}", given=blocks)
        if blocks > MAX_CLUSTER:
            raise ParamsError(path="m * n", expected=f"at most {MAX_CLUSTER}", given=blocks)


@dataclass(frozen=True, slots=True)
class _Shapes:
    """The shapes of one generation's instructions on 16-bit floats, and where there are such.

    Sources: PTX ISA, mma.sync (Matrix Fragments for mma.m8n8k4, .m16n8k8, .m16n8k16), wgmma.mma_async and
    tcgen05.mma (Matrix Shape), the last for one and for two blocks.
    """

    m: Sequence[int]
    n: Sequence[int]
    k: int
    least: tuple[int, int]
    exact: bool = False

    def run_on(self, capability: tuple[int, int]) -> bool:
        return capability[0] == self.least[0] if self.exact else capability >= self.least


_SHAPES = {
    MmaMacroArch.volta: _Shapes((8, 16), (8, 16), 4, (7, 0)),
    MmaMacroArch.turing: _Shapes((16,), (8, 16), 8, (7, 5)),
    MmaMacroArch.ampere: _Shapes((16,), (8, 16), 16, (8, 0)),
    MmaMacroArch.hopper: _Shapes((64,), range(8, 257, 8), 16, (9, 0), exact=True),
    MmaMacroArch.blackwell_1cta: _Shapes((64, 128), range(16, 257, 16), 16, (10, 0), exact=True),
    MmaMacroArch.blackwell_2cta: _Shapes((128, 256), range(32, 257, 32), 16, (10, 0), exact=True),
}


@dataclass(frozen=True, slots=True)
class MmaMacro(Decision):
    """A matrix instruction: its generation, and the shape that it multiplies. no_mma has no shape."""

    arch: MmaMacroArch = MmaMacroArch.no_mma
    m: int = 0
    n: int = 0
    k: int = 0

    def validate(self, hardware: HardwareInfo) -> None:
        Decision.validate(self, hardware)
        if self.arch is MmaMacroArch.no_mma:
            for name in ("m", "n", "k"):
                self.expect(name, 0, "without matrix instructions (no_mma)")
            return
        shapes = _SHAPES[self.arch]
        runs = shapes.run_on(hardware.compute_capability)
        self.require(runs, "arch", f"a generation that {hardware.arch} has")
        for name, legal in (("m", shapes.m), ("n", shapes.n), ("k", (shapes.k,))):
            expected = f"one of {', '.join(map(str, legal))} for {self.arch.name}"
            self.require(getattr(self, name) in legal, name, expected)


@dataclass
class MmaMacroEncode:
    """Builds an `MmaMacro`; its fields may be assigned."""

    arch: MmaMacroArch
    m: int
    n: int
    k: int

    def mma_macro(self) -> MmaMacro:
        """ParamsError for fields of a wrong type."""
        return MmaMacro(self.arch, self.m, self.n, self.k)


@dataclass(frozen=True, slots=True)
class MatmulParams(HeuristicParams):
    """How a product of matrices is cut up.

    Attributes:
        tile_sizes: of a block and of a warp.
        circular_buffer_options: of the operands' tiles.
        supported_vec_size: elements of one access.
        async_gmem_load_operands: loads of the operands by asynchronous copies.
        grid_traversal_factor: blocks that follow each other along the rows and along the columns, so that
            they share operands in the L2 cache.
        use_smem_epilogue: the result goes through shared memory to be stored in whole rows.
        use_ldst_matrix: ldmatrix and stmatrix between shared memory and registers.
        promote_prologue_smem_reuse: the epilogue takes the shared memory of the operands.
        splitk_factor: blocks that share the sum of one tile.
        tiling_strategy: how tiles go to blocks. buffering_loop_level: whose tiles are buffered.
        circular_buffering_strategy: whether the threads that load are those that multiply.
        cta_order: whether consecutive blocks go along rows or columns.
        cluster_dims: blocks of a cluster. mma_macro: the matrix instruction.
    """

    lparams: LaunchParams = launch(from_sizes=("gdimx", "gdimy", "gdimz"))
    tile_sizes: MatMulTileOptions = MatMulTileOptions()
    circular_buffer_options: CircularBufferOptions = CircularBufferOptions()
    supported_vec_size: SupportedVectorization = SupportedVectorization()
    async_gmem_load_operands: bool = False
    grid_traversal_factor: tuple[int, int] = (1, 1)
    use_smem_epilogue: bool = False
    use_ldst_matrix: bool = True
    promote_prologue_smem_reuse: bool = False
    splitk_factor: int = choice(1, counts(1, tried=(1, 2, 4, 8)))
    tiling_strategy: MatmulTilingStrategy = MatmulTilingStrategy.one_tile_per_cta
    buffering_loop_level: MatmulBufferingLoopLevel = MatmulBufferingLoopLevel.cta_tiles
    circular_buffering_strategy: MatmulCircularBufferingStrategy = MatmulCircularBufferingStrategy.pipelined
    cta_order: MatmulTileRasterizationOrder = MatmulTileRasterizationOrder.row_major
    cluster_dims: ClusterDims = ClusterDims()
    mma_macro: MmaMacro = MmaMacro()

    def validate(self, hardware: HardwareInfo) -> None:
        HeuristicParams.validate(self, hardware)
        self.require(min(self.grid_traversal_factor) >= 1, "grid_traversal_factor", "1 or more each")
        if not self.use_smem_epilogue:
            self.expect("promote_prologue_smem_reuse", False, "without use_smem_epilogue")
        if self.mma_macro.arch is not MmaMacroArch.no_mma:
            macro = self.mma_macro
            tile = GemmTile(macro.m, macro.n, macro.k)
            expect_multiples(self.tile_sizes.warp_tile, tile, "tile_sizes.warp_tile", "mma_macro")
        needed = self.operand_bytes()
        if needed > hardware.shared_memory_per_block_optin:
            raise ParamsError(
                path="tile_sizes.cta_tile",
                expected=f"operands of {hardware.shared_memory_per_block_optin} bytes in all stages",
                given=f"{needed} bytes",
            )

    def operand_bytes(self) -> int:
        """Shared memory that the operands' tiles take at least, in all stages."""
        tile, options = self.tile_sizes.cta_tile, self.circular_buffer_options
        stages = options.smem_circular_buffer_stage if options.circular_buffer_smem_write else 1
        return (tile.m + tile.n) * tile.k * OPERAND_BYTES * stages


def expect_multiples(outer: Any, inner: Any, path: str, of: str) -> None:
    """Raises ParamsError unless one tile is made of whole others."""
    for axis in fields(GemmTile):
        size, part = getattr(outer, axis.name), getattr(inner, axis.name)
        if size % part:
            raise ParamsError(
                path=f"{path}.{axis.name}", expected=f"a multiple of {of}.{axis.name} ({part})", given=size
            )
