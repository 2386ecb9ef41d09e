"""Params of elementwise kernels. Kernels that resize are elementwise as well: their loads have an index."""

from __future__ import annotations

from dataclasses import dataclass

from fusewright.core.hardware import HardwareInfo
from fusewright.schedulers.params.decision import When, choice
from fusewright.schedulers.params.heuristic import SHIFTED_WIDTH, UNROLLING, WIDTHS, HeuristicParams
from fusewright.schedulers.params.launch import UNSET, WHOLE_WARPS, Extent, LaunchParams, launch
from fusewright.schedulers.params.legal import SIZE, among, counts, each

# Beyond these two, a break point rarely leaves rows and columns that both fill a block.
TRIED_BREAK_POINTS = (0, 1, 2)
_ROWS = When(lambda params: params.break_point > 0, "without rows (break_point 0)")
_UNALIGNED = When(lambda params: params.unaligned_inputs != (), "without unaligned_inputs")
_VECTORS = When(lambda params: params.vectorization_factor > 1, "without vectors")


@dataclass(frozen=True, slots=True)
class PointwiseParams(HeuristicParams):
    """Params of the pointwise scheduler. A thread computes vectors and unrolled accesses of output elements.

    Attributes:
        lparams: bdimx threads of a block lie along the columns, bdimy along the rows.
        break_point: the dimensions left of it form the rows of a 2-d iteration space; 0 for a 1-d one.
        split_block: not available; lparams.bdimy states it.
        split_grid_y_dim: rows beyond the grid's limit go to grid_z.
        flip_grid_binding: rows are bound to grid_x.
        vectorization_factor: elements per memory access.
        unroll_factor_inner, unroll_factor_outer: accesses along the inner dimension, and rows, in flight per
            thread.
        vectorized_dim: the dimension, in memory order, whose size vectors divide. Accesses to which it and
            all dimensions inside of it are one run of memory are vectors. -1: the innermost.
        assumed_sizes: among the sizes by which the kernel divides indices (`pointwise.divided_sizes`), those
            that it has as constants: it serves no others. (): it serves all.
        unaligned_inputs: positions of the inputs whose vectors may start at any element; each is taken from
            two aligned vectors.
        keeps_aligned: vectors of these inputs that start at multiples of a vector, whatever the sizes, are
            loaded as plain vectors.
        picked_inputs: positions of the inputs whose reads backward, or of every n-th element (up to every
            fourth), take their elements from aligned vectors. As many of them as a vector has fit an access
            of 16 bytes.
        shift_rows: the vectors of each row (with break_point 0, of all rows as one) start at aligned
            addresses of the output, whatever its length and position. So a row need not be a multiple of a
            vector.
        keeps_inputs: inputs that are read at every point leave the L2 cache last, so that stored data is
            written to memory early.
    """

    lparams: LaunchParams = launch(
        from_sizes=("gdimx", "gdimy", "gdimz"),
        bdimx=Extent(tried=WHOLE_WARPS),
        bdimy=Extent(read=lambda params: params.break_point > 0, tried=(UNSET,)),
    )
    break_point: int = choice(0, counts(0, tried=TRIED_BREAK_POINTS))
    split_block: bool = choice(False, among(False, reason="as lparams.bdimy says it"))
    split_grid_y_dim: bool = choice(False, when=_ROWS)
    flip_grid_binding: bool = choice(False, when=_ROWS)
    vectorization_factor: int = choice(1, WIDTHS)
    unroll_factor_inner: int = choice(1, UNROLLING)
    unroll_factor_outer: int = choice(1, UNROLLING, _ROWS)
    assumed_sizes: tuple[int, ...] = choice((), each(SIZE))
    vectorized_dim: int = choice(-1, counts(-1, tried=()), _VECTORS)
    unaligned_inputs: tuple[int, ...] = choice((), each(counts(0)), _VECTORS)
    keeps_aligned: bool = choice(False, when=_UNALIGNED)
    picked_inputs: tuple[int, ...] = choice((), each(counts(0)), _VECTORS)
    shift_rows: bool = choice(False, when=_VECTORS)
    keeps_inputs: bool = choice(False)

    @property
    def vector_widths(self) -> tuple[int, ...]:
        """Elements of the accesses that it makes."""
        return (self.vectorization_factor,)

    @property
    def elements_held(self) -> int:
        """The elements of one input that a thread has in registers at once."""
        return self.vectorization_factor * self.unroll_factor_inner * self.unroll_factor_outer

    @property
    def copies(self) -> int:
        """The copies of an access in the code of a thread."""
        if self.shift_rows:
            return self.elements_held // SHIFTED_WIDTH
        return self.unroll_factor_inner * self.unroll_factor_outer

    def validate(self, hardware: HardwareInfo) -> None:
        HeuristicParams.validate(self, hardware)
        inside = self.vectorized_dim == -1 or self.vectorized_dim >= self.break_point
        self.require(inside, "vectorized_dim", f"-1, or at least break_point ({self.break_point})")
        if self.shift_rows:
            self.expect("vectorized_dim", -1, "where rows are shifted (shift_rows)")
            self.expect("picked_inputs", (), "where rows are shifted (shift_rows)")
        if self.vectorized_dim != -1:
            self.expect("picked_inputs", (), "where vectors cross several dimensions (vectorized_dim)")
        if self.flip_grid_binding:
            self.expect("split_grid_y_dim", False, "where rows are on grid_x (flip_grid_binding)")


#: Pads, slices and other changes of size are loads with an index, in the kernels of the pointwise scheduler.
ResizeParams = PointwiseParams
