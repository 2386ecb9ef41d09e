"""The estimated cost of a matrix product that a library computes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from fusewright.core.hardware import HardwareInfo
from fusewright.core.once import cached_property
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import LibraryCall, Node
from fusewright.ops.library import ADDMM, LINEAR, MATMUL
from fusewright.schedulers.base import Cost, Facts
from fusewright.schedulers.cost import COPY_SHARE, KERNEL_SECONDS, Traffic, busy_share
from fusewright.schedulers.sizes import ceil_div

# Rows and columns of the result that a block computes, where the result is as large. Libraries have tiles up
# to 128x256, which are the most efficient, and take smaller ones where these are few (NVIDIA, Matrix
# Multiplication Background User's Guide, "Tile Quantization"). The smallest counts here, so that nothing is
# taken to be slow for which a library has blocks enough.
TILE_ROWS = 64
TILE_COLUMNS = 64
# Elements of the inner dimension that a library leaves to a block where tiles are few: it splits the sum
# itself.
#   H200, cuBLAS, us, and its parts with their sum: 64x64x65536 bf16 15 and 45; of float 35 and 40,
#   64x64x16384 18 and 22, 256x256x16384 58 and 60.
SPLIT_LENGTH = 512


@dataclass(frozen=True, slots=True)
class Product:
    """`batch` products [rows, inner] x [inner, columns]."""

    batch: int
    rows: int
    columns: int
    inner: int

    @property
    def tiles(self) -> int:
        return self.batch * ceil_div(self.rows, TILE_ROWS) * ceil_div(self.columns, TILE_COLUMNS)

    def splits(self, hardware: HardwareInfo) -> int:
        """The parts of the inner dimension that different blocks sum over."""
        idle = hardware.sm_count // max(1, self.tiles)
        return max(1, min(idle, ceil_div(self.inner, SPLIT_LENGTH)))


def is_contraction(node: Node) -> bool:
    return isinstance(node, LibraryCall) and node.op in (MATMUL, LINEAR, ADDMM)


def product_of(node: LibraryCall, facts: Facts) -> Product:
    """The sizes of a contraction in a call."""
    a, b = node.seen(0).ndim, node.seen(1).ndim
    shape = [facts.value(extent) for extent in node.output.extents]
    columns = shape.pop() if b > 1 else 1
    rows = shape.pop() if a > 1 else 1
    inner = _inner(node, facts, prod(shape) * rows)
    if b > 2 and node.op is MATMUL:
        return Product(prod(shape), rows, columns, inner)
    return Product(1, prod(shape) * rows, columns, inner)  # one matrix multiplies all rows


def _inner(node: LibraryCall, facts: Facts, rows: int) -> int:
    """The dimension that is summed over. Of an operand that is seen through views, all of whose elements are
    taken to be seen, from how many there are.
    """
    extents = [facts.value(extent) for extent in node.tensor_inputs[0].extents]
    return prod(extents) // max(1, rows) if node.seen_through(0) else extents[-1]


@dataclass(frozen=True)
class ContractionCost:
    """The cost of a fusion of one contraction.

    Each SM computes one tile, or a part of the sum of one, at a time, at its share of the GPU's speed. A
    single tile takes as long as one of many, and with few tiles the memory bandwidth and arithmetic of the
    other SMs are idle.
    """

    fusion: Fusion
    node: LibraryCall

    @cached_property
    def _traffic(self) -> Traffic:
        return Traffic(self.fusion)

    def __call__(self, facts: Facts, hardware: HardwareInfo) -> Cost:
        product = product_of(self.node, facts)
        bytes_ = self._traffic.read(facts) + self._traffic.written(facts)
        bandwidth = hardware.memory_bandwidth_gbs * 1e9 * COPY_SHARE
        is_reduced = self.node.tensor_inputs[0].dtype.size <= 2
        speed = (hardware.tensor_tflops if is_reduced else hardware.float_tflops) * 1e12
        tile = min(product.rows, TILE_ROWS) * min(product.columns, TILE_COLUMNS)
        splits = product.splits(hardware)
        waves = ceil_div(product.tiles * splits, hardware.sm_count)
        computing = waves * 2 * tile * ceil_div(product.inner, splits) / (speed / hardware.sm_count)
        moving = bytes_ / (bandwidth * busy_share(product.tiles * splits, hardware))
        operations = 2 * product.batch * product.rows * product.columns * product.inner
        least = max(operations / speed, bytes_ / bandwidth)
        return Cost(bytes_, KERNEL_SECONDS + max(computing, moving), KERNEL_SECONDS + least)
