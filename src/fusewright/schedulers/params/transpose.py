"""Params of kernels that transpose tiles through shared memory."""

from __future__ import annotations

from dataclasses import dataclass

from fusewright.core.declaration import unavailable
from fusewright.core.errors import ParamsError
from fusewright.core.hardware import HardwareInfo
from fusewright.schedulers.params.decision import choice
from fusewright.schedulers.params.heuristic import MAX_UNROLL, WIDTHS, HeuristicParams
from fusewright.schedulers.params.launch import WHOLE_WARPS, Extent, LaunchParams, launch
from fusewright.schedulers.params.legal import SIZE, counts, each

# Four warps: a block's barrier leaves little idle, and an SM holds many blocks.
TRANSPOSE_THREADS = 128
TRIED_TILES = (8, 16, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class TransposeParams(HeuristicParams):
    """Tiles of two dimensions, which transpose tensors that are contiguous along the second dimension.

    Attributes:
        lparams: bdimx: threads of a block.
        tile_size1, tile_size2: elements along the contiguous dimension of the reference, and along the other
            dimension.
        vectorize_factor1, vectorize_factor2: elements per memory access along each.
        dims_merged_with_1, dims_merged_with_2: positions, in the reference's memory order, of dimensions that
            are merged with the tiled ones, from the inside: dimensions that are adjacent to them in all
            tensors, and small ones, which only together fill a tile.
        assumed_sizes: the sizes of the reference's dimensions, in memory order, that the kernel has as
            constants (`transpose.merged_dimensions.assumable`): it serves no others. (): it serves all.
    """

    lparams: LaunchParams = launch(bdimx=Extent(tried=WHOLE_WARPS))
    tile_size1: int = choice(32, counts(1, tried=TRIED_TILES))
    tile_size2: int = choice(32, counts(1, tried=TRIED_TILES))
    vectorize_factor1: int = choice(1, WIDTHS)
    vectorize_factor2: int = choice(1, WIDTHS)
    dims_merged_with_1: tuple[int, ...] = ()
    dims_merged_with_2: tuple[int, ...] = ()
    assumed_sizes: tuple[int, ...] = choice((), each(SIZE))
    split_before_tiling = unavailable((), "as dimensions are merged for a tile, and none is split")
    use_tma_load = unavailable(False, "as no scheduler does that yet")

    @property
    def threads(self) -> int:
        return self.lparams.bdimx if self.lparams.bdimx > 0 else TRANSPOSE_THREADS

    @property
    def vector_widths(self) -> tuple[int, ...]:
        """Elements of the accesses that it makes."""
        return self.vectorize_factor1, self.vectorize_factor2

    @property
    def elements_held(self) -> int:
        """The elements of one input that a thread has in registers at once."""
        return -(-self.tile_size1 * self.tile_size2 // self.threads)

    def validate(self, hardware: HardwareInfo) -> None:
        HeuristicParams.validate(self, hardware)
        for group in "12":
            size, width = getattr(self, f"tile_size{group}"), getattr(self, f"vectorize_factor{group}")
            self.require(size % width == 0, f"tile_size{group}", f"a multiple of vectorize_factor{group}")
            self._expect_at_most(self.tile_size1 * self.tile_size2 // width, MAX_UNROLL * self.threads)
        # A tile of the smallest elements. Of wider ones and several tensors, lowering counts the bytes.
        self._expect_at_most(self.tile_size1 * self.tile_size2, hardware.shared_memory_per_block_optin)

    def _expect_at_most(self, elements: int, limit: int) -> None:
        if elements > limit:
            raise ParamsError(path="tile_size1 * tile_size2", expected=f"1 to {limit}", given=elements)
