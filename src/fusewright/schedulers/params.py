"""The decisions of the automatic schedulers: frozen dataclasses of plain fields.

Names and defaults are those of nvFuser's parameter objects (api.md section 7), so that scripts which edit
them run. `reason` says why a heuristic chose what it did; it takes no part in equality. The constraints of a
class are in its `validate`, which a scheduler calls before it applies params: users edit them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from fusewright.core.dtype import DataType
from fusewright.core.enums import ParallelType
from fusewright.core.errors import ParamsError
from fusewright.core.hardware import (
    MAX_BLOCK,
    MAX_GRID,
    MAX_REGISTERS_PER_THREAD,
    MAX_THREADS_PER_BLOCK,
    WARP_SIZE,
)

MAX_EXTENTS = dict(zip(("gdimx", "gdimy", "gdimz", "bdimx", "bdimy", "bdimz"), MAX_GRID + MAX_BLOCK))
# The widest access, 16 bytes, of the smallest elements. What of it a dtype allows, the lowering checks.
MAX_VECTOR = 16
# Rows whose results a block holds in shared memory, of the widest states there are.
MAX_ROWS_PER_BLOCK = 4096
# Copies of a loop's body: more make a kernel that compiles for minutes and spills all its registers.
MAX_UNROLL = 128
# Fields of ReductionParams that stand in the reference's interface, and have no meaning here yet.
_NOT_AVAILABLE = ("schedule_3d", "flip_grid", "split_grid_dim_inner_reduction")
# Those that persistent kernels read, reductions along memory, and those across it.
_PERSISTENT = (
    "project_persistent_buffers",
    "persistent_in_shared_memory",
    "batches_per_block_inner_reduction",
    "assumed_reduction_sizes",
)
_INNER = (
    "unroll_factor_top_of_vectorization",
    "vectorize_inner_reduction",
    "pad_inner_reduction_to_warp",
    "multiple_reds_per_blk",
)
_OUTER = ("unroll_factor_iter_dom", "vectorize_iter_dom")
# Four warps: a block's barrier leaves little idle, and an SM holds many blocks (api.md section 7).
TRANSPOSE_THREADS = 128


def _within(path: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ParamsError(path=path, expected=f"{low} to {high}", given=value)


def _text(value: object) -> str:
    return value.name if isinstance(value, Enum) else str(value)


def _vector(path: str, value: int) -> None:
    if value < 1 or value & (value - 1):
        raise ParamsError(
            f"`{path}`: Vectorization factor must be a power of 2",
            expected=f"a power of 2, at most {MAX_VECTOR}",
            given=value,
        )
    _within(path, value, 1, MAX_VECTOR)


@dataclass(frozen=True, slots=True)
class LaunchParams:
    """Extents of the grid and the block; -1 where the kernel decides from sizes, or has no such axis."""

    gdimx: int = -1
    gdimy: int = -1
    gdimz: int = -1
    bdimx: int = -1
    bdimy: int = -1
    bdimz: int = -1

    def validate(self) -> None:
        """Raises ParamsError for an extent that no launch can have."""
        for name, limit in MAX_EXTENTS.items():
            value = getattr(self, name)
            if value != -1 and not 1 <= value <= limit:
                raise ParamsError(path=f"lparams.{name}", expected=f"1 to {limit}, or -1", given=value)
        threads = max(1, self.bdimx) * max(1, self.bdimy) * max(1, self.bdimz)
        if threads > MAX_THREADS_PER_BLOCK:
            raise ParamsError(
                path="lparams.bdimx * bdimy * bdimz",
                expected=f"at most {MAX_THREADS_PER_BLOCK}",
                given=threads,
            )


@dataclass(frozen=True, slots=True)
class CompileParams:
    """index_type: Int32, Int, or None to choose by size. maxrregcount: registers a thread may use at most.

    enable_magic_zero, enable_ptxas_verbose: accepted for compatibility, changing nothing.
    """

    index_type: DataType | None = None
    maxrregcount: int = 255
    enable_magic_zero: bool = True
    enable_ptxas_verbose: bool = False

    def validate(self) -> None:
        """Raises ParamsError for what the compiler does not take."""
        _within("cparams.maxrregcount", self.maxrregcount, 0, MAX_REGISTERS_PER_THREAD)
        if self.index_type not in (None, DataType.Int, DataType.Int32):
            raise ParamsError(path="cparams.index_type", expected="Int, Int32 or None", given=self.index_type)


@dataclass(frozen=True, slots=True)
class HeuristicParams:
    """What all schedulers' params have."""

    lparams: LaunchParams = LaunchParams()
    cparams: CompileParams = CompileParams()
    reason: str = field(default="", compare=False)

    def validate(self) -> None:
        """Raises ParamsError for values that no fusion can be scheduled with, and for values that would
        change nothing: a field either does what it says or has its default.
        """
        self.lparams.validate()
        self.cparams.validate()

    def expect(self, name: str, value: object, where: str = "for this fusion") -> None:
        """Raises ParamsError unless the field has the one value that works there."""
        given = getattr(self, name)
        if given != value:
            raise ParamsError(path=name, expected=f"{_text(value)} {where}", given=_text(given))

    def _expect_defaults(self, names: Iterable[str], where: str) -> None:
        defaults = type(self)()
        for name in names:
            self.expect(name, getattr(defaults, name), where)

    def _expect_extents(self, read: Collection[str], from_sizes: Collection[str] = ("gdimx",)) -> None:
        """Raises ParamsError for extents in `lparams` that the scheduler would not read.

        `from_sizes`: of axes that follow from the sizes. The kernel has no axes for the others.
        """
        for name in MAX_EXTENTS:
            value = getattr(self.lparams, name)
            if name in from_sizes and value != -1:
                raise ParamsError(
                    path=f"lparams.{name}", expected="-1, as it follows from the sizes", given=value
                )
            if name not in from_sizes and name not in read and value not in (-1, 1):
                raise ParamsError(
                    path=f"lparams.{name}", expected="-1, as nothing is bound to it", given=value
                )


@dataclass(frozen=True, slots=True)
class PointwiseParams(HeuristicParams):
    """One output element a thread times vector and unrolling.

    break_point: dimensions left of it form the rows of a 2-d iteration space, 0 for a 1-d one.
    vectorization_factor: elements of one memory access. unroll_factor_inner / _outer: accesses along the
    inner dimension, and rows, that a thread has in flight. split_grid_y_dim: rows beyond the grid limit go to
    grid_z. flip_grid_binding: rows on grid_x. lparams.bdimx: threads of a block. split_block is not
    available: threads lie along the columns. assumed_sizes: of the sizes by which the kernel divides indices
    (`divided_sizes`), where it has them as constants and serves no others; () where it serves all.
    vectorized_dim: the dimension, in memory order, whose size vectors divide: accesses that go through it and
    all dimensions inside of it as through one run of memory are vectors. -1: the innermost.
    """

    break_point: int = 0
    split_block: bool = False
    split_grid_y_dim: bool = False
    flip_grid_binding: bool = False
    vectorization_factor: int = 1
    unroll_factor_inner: int = 1
    unroll_factor_outer: int = 1
    assumed_sizes: tuple[int, ...] = ()
    vectorized_dim: int = -1

    def validate(self) -> None:
        HeuristicParams.validate(self)
        for size in self.assumed_sizes:
            if size < 1:
                raise ParamsError(path="assumed_sizes", expected="sizes of 1 or more", given=size)
        if self.break_point < 0:
            raise ParamsError(path="break_point", expected="0 or more", given=self.break_point)
        _vector("vectorization_factor", self.vectorization_factor)
        _within("unroll_factor_inner", self.unroll_factor_inner, 1, MAX_UNROLL)
        _within("unroll_factor_outer", self.unroll_factor_outer, 1, MAX_UNROLL)
        if self.vectorization_factor == 1:
            self.expect("vectorized_dim", -1, "without vectors")
        if self.vectorized_dim != -1 and self.vectorized_dim < self.break_point:
            raise ParamsError(
                path="vectorized_dim",
                expected=f"-1, or at least break_point ({self.break_point})",
                given=self.vectorized_dim,
            )
        self._expect_extents(["bdimx"], ["gdimx", "gdimy", "gdimz"])
        self.expect("split_block", False, "as threads lie along the columns")
        if not self.break_point:
            rows_only = ("split_grid_y_dim", "flip_grid_binding", "unroll_factor_outer")
            self._expect_defaults(rows_only, "without rows (break_point 0)")
        if self.flip_grid_binding:
            self.expect("split_grid_y_dim", False, "where rows are on grid_x (flip_grid_binding)")


@dataclass(frozen=True, slots=True)
class TransposeParams(HeuristicParams):
    """Tiles of two dimensions, through which tensors that are contiguous along the second are turned.

    tile_size1, tile_size2: elements along the dimension that the reference is contiguous along, and along
    the other. vectorize_factor1, vectorize_factor2: elements of one memory access along each.
    dims_merged_with_1, dims_merged_with_2: positions, in the reference's memory order, of dimensions that
    are merged with the tiled ones, from the inside: those that lie beside them in all tensors, and small
    ones, which fill a tile only together. lparams.bdimx: threads of a block. assumed_sizes: those of the
    reference's dimensions, in memory order, that the kernel has as constants, so that it serves no others
    (`transpose.assumable`); () where it serves all.
    """

    tile_size1: int = 32
    tile_size2: int = 32
    vectorize_factor1: int = 1
    vectorize_factor2: int = 1
    dims_merged_with_1: tuple[int, ...] = ()
    dims_merged_with_2: tuple[int, ...] = ()
    assumed_sizes: tuple[int, ...] = ()

    @property
    def threads(self) -> int:
        return self.lparams.bdimx if self.lparams.bdimx > 0 else TRANSPOSE_THREADS

    def validate(self) -> None:
        HeuristicParams.validate(self)
        for group in "12":
            size, width = getattr(self, f"tile_size{group}"), getattr(self, f"vectorize_factor{group}")
            _vector(f"vectorize_factor{group}", width)
            if size < 1 or size % width:
                raise ParamsError(
                    path=f"tile_size{group}", expected=f"a multiple of vectorize_factor{group}", given=size
                )
            vectors = self.tile_size1 * self.tile_size2 // width
            _within("tile_size1 * tile_size2", vectors, 1, MAX_UNROLL * self.threads)
        for size in self.assumed_sizes:
            if size < 1:
                raise ParamsError(path="assumed_sizes", expected="sizes of 1 or more", given=size)
        self._expect_extents(["bdimx"])


@dataclass(frozen=True, slots=True)
class ScanParams(HeuristicParams):
    """How the rows that a scan runs along are cut up.

    fastest_dim: the scanned dimension is contiguous in memory ("inner"); else "outer".

    Inner: lparams.bdimx threads go through a row in steps, each with unroll_factor vectors of
    vectorization_factor elements in flight; lparams.bdimy rows a block.

    Outer: lparams.bdimx threads along the contiguous dimension, vectorization_factor columns each, and
    lparams.bdimy threads down the columns, each with unroll_factor rows in flight.
    """

    fastest_dim: bool = True
    vectorization_factor: int = 1
    unroll_factor: int = 1

    def validate(self) -> None:
        HeuristicParams.validate(self)
        _vector("vectorization_factor", self.vectorization_factor)
        _within("unroll_factor", self.unroll_factor, 1, MAX_UNROLL)
        for name in ("bdimx", "bdimy"):
            value = getattr(self.lparams, name)
            if value < 1:
                raise ParamsError(path=f"lparams.{name}", expected="the extent, 1 or more", given=value)
        self._expect_extents(["bdimx", "bdimy"])


@dataclass(frozen=True, slots=True)
class InnerOuterParams(HeuristicParams):
    """How a domain that is reduced along its rows and along its columns is cut up.

    lparams.bdimx * lparams.bdimz threads along a row, vectorization_factor contiguous columns each, and
    lparams.bdimy down the columns, each with unroll_factor rows in flight. Shuffles combine what threads x
    find in a row, shared memory what threads z do. rows_per_block: a multiple of the rows that a block has in
    flight.
    """

    vectorization_factor: int = 1
    unroll_factor: int = 1
    rows_per_block: int = 1

    @property
    def rows_per_thread(self) -> int:
        """Rows whose results a thread combines across blocks."""
        return -(-self.rows_per_block // (self.lparams.bdimx * self.lparams.bdimy))

    @property
    def columns_per_block(self) -> int:
        return self.lparams.bdimx * self.lparams.bdimz * self.vectorization_factor

    def validate(self) -> None:
        HeuristicParams.validate(self)
        _vector("vectorization_factor", self.vectorization_factor)
        _within("unroll_factor", self.unroll_factor, 1, MAX_UNROLL)
        threads = ("bdimx", "bdimy", "bdimz")
        for name in threads:
            value = getattr(self.lparams, name)
            if value < 1:
                raise ParamsError(path=f"lparams.{name}", expected="the extent, 1 or more", given=value)
        self._expect_extents(threads, ["gdimx", "gdimy"])
        step = self.lparams.bdimy * self.unroll_factor
        if self.rows_per_block < 1 or self.rows_per_block % step:
            raise ParamsError(
                path="rows_per_block",
                expected=f"a multiple of lparams.bdimy * unroll_factor ({step})",
                given=self.rows_per_block,
            )
        _within("rows_per_block", self.rows_per_block, step, max(step, MAX_ROWS_PER_BLOCK))


@dataclass(frozen=True, slots=True)
class ReductionParams(HeuristicParams):
    """How a reduction, or a normalization that holds its rows (`persistent_kernel`), is cut up.

    fastest_dim: the reduced dimensions include the one that is contiguous in memory ("inner"); else "outer".

    Inner: a block reduces a row (lparams.bdimy rows, if multiple_reds_per_blk) with lparams.bdimx threads.
    unroll_factor_inner_reduction is the vector width (if vectorize_inner_reduction) along the row and
    unroll_factor_top_of_vectorization the vectors a thread has in flight. A persistent kernel
    gives each thread batches_per_block_inner_reduction vectors to hold; 0 batches: it holds none and reads
    the row again. persistent_in_shared_memory: held there, not in registers. project_persistent_buffers: only
    inputs are held, what follows from them is computed again. assumed_reduction_sizes: the size of each
    reduced dimension, outermost in memory first, where the kernel has them as constants and serves no others;
    () where it serves all that its threads can hold.

    Outer: lparams.bdimx threads along the rows, unroll_factor_iter_dom columns each (if vectorize_iter_dom),
    and lparams.bdimy threads down the columns with unroll_factor_inner_reduction rows in flight.

    cross_grid_inner_reduction: lparams.gdimy blocks share one reduction. cross_block_inner_reduction: the
    threads of a block do.

    block_dim_* and grid_dim_* say what each axis is bound to, which follows from the fields above
    (`bindings`); other values are refused. So are schedule_3d, flip_grid and split_grid_dim_inner_reduction.
    """

    fastest_dim: bool = False
    persistent_kernel: bool = False
    project_persistent_buffers: bool = False
    persistent_in_shared_memory: bool = False
    schedule_3d: bool = False
    flip_grid: bool = False
    cross_block_inner_reduction: bool = False
    cross_grid_inner_reduction: bool = False
    unroll_factor_inner_reduction: int = 1
    unroll_factor_top_of_vectorization: int = 1
    vectorize_inner_reduction: bool = False
    split_grid_dim_inner_reduction: bool = False
    pad_inner_reduction_to_warp: bool = False
    batches_per_block_inner_reduction: int = 1
    assumed_reduction_sizes: tuple[int, ...] = ()
    block_dim_inner_reduction: ParallelType = ParallelType.serial
    grid_dim_inner_reduction: ParallelType = ParallelType.serial
    multiple_reds_per_blk: bool = False
    unroll_factor_iter_dom: int = 1
    vectorize_iter_dom: bool = False
    block_dim_iter_dom: ParallelType = ParallelType.serial
    grid_dim_iter_dom: ParallelType = ParallelType.serial

    @property
    def bindings(self) -> Mapping[str, ParallelType]:
        """What block_dim_* and grid_dim_* are with the other fields as they are."""
        block, grid = ParallelType.block_x, ParallelType.grid_x
        rows = ParallelType.block_y if self.multiple_reds_per_blk else ParallelType.serial
        blocks = ParallelType.grid_y if self.cross_grid_inner_reduction else ParallelType.serial
        return {
            "block_dim_inner_reduction": block if self.fastest_dim else ParallelType.block_y,
            "block_dim_iter_dom": rows if self.fastest_dim else block,
            "grid_dim_inner_reduction": blocks,
            "grid_dim_iter_dom": grid,
        }

    def validate(self) -> None:
        HeuristicParams.validate(self)
        self._expect_defaults(_NOT_AVAILABLE, "as no scheduler does that yet")
        if self.persistent_kernel:
            self._validate_persistent()
        else:
            self._expect_defaults(_PERSISTENT, "in a kernel that is not persistent")
        self._expect_defaults(_OUTER if self.fastest_dim else _INNER, f"with fastest_dim {self.fastest_dim}")
        _within("unroll_factor_top_of_vectorization", self.unroll_factor_top_of_vectorization, 1, MAX_UNROLL)
        self._validate_vectors()
        self._validate_launch()
        if not self.cross_block_inner_reduction:
            threads = "bdimx" if self.fastest_dim else "bdimy"
            if getattr(self.lparams, threads) != 1:
                raise ParamsError(
                    path="cross_block_inner_reduction",
                    expected=f"True unless lparams.{threads} is 1",
                    given=False,
                )
        for name, binding in self.bindings.items():
            self.expect(name, binding, "with the other fields as they are (`bindings`)")

    def _validate_persistent(self) -> None:
        self.expect("fastest_dim", True, "in a persistent kernel")
        self.expect("cross_grid_inner_reduction", False, "in a persistent kernel")
        _within("batches_per_block_inner_reduction", self.batches_per_block_inner_reduction, 0, MAX_UNROLL)
        if self.batches_per_block_inner_reduction:
            self.expect("unroll_factor_top_of_vectorization", 1, "where batches are held")
        else:
            self.expect("project_persistent_buffers", True, "where no batches are held")
            self.expect("persistent_in_shared_memory", False, "where no batches are held")
            self.expect("assumed_reduction_sizes", (), "where no batches are held")
        for size in self.assumed_reduction_sizes:
            if size < 1:
                raise ParamsError(path="assumed_reduction_sizes", expected="sizes of 1 or more", given=size)

    def _validate_vectors(self) -> None:
        for name, vectorized in (
            ("unroll_factor_inner_reduction", self.vectorize_inner_reduction),
            ("unroll_factor_iter_dom", self.vectorize_iter_dom),
        ):
            if vectorized:
                _vector(name, getattr(self, name))
            _within(name, getattr(self, name), 1, MAX_UNROLL)

    def _validate_launch(self) -> None:
        holds = self.persistent_kernel and self.batches_per_block_inner_reduction > 0
        needed = ["bdimy"] if self.multiple_reds_per_blk or not self.fastest_dim else []
        needed += ["gdimy"] if self.cross_grid_inner_reduction else []
        needed += [] if holds else ["bdimx"]
        for name in needed:
            value = getattr(self.lparams, name)
            if value < 1:
                raise ParamsError(path=f"lparams.{name}", expected="the extent, 1 or more", given=value)
        self._expect_extents([*needed, "bdimx"])
        if self.pad_inner_reduction_to_warp and self.lparams.bdimx > 0 and self.lparams.bdimx % WARP_SIZE:
            raise ParamsError(
                path="lparams.bdimx",
                expected=f"a multiple of {WARP_SIZE} with pad_inner_reduction_to_warp",
                given=self.lparams.bdimx,
            )
