"""Rows that share loads: what a stencil reads of one tensor along a dimension outside of the vectors.

Five taps down the columns of a matrix are five loads for each element, of which four come from the L2 cache,
as rows are too long for the L1 cache. A thread that has four neighbouring rows needs eight loads for them,
not twenty, and all of them are in flight at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusewright.analyze.vectorize import unit_stride_axis
from fusewright.core.hardware import REGISTER_BYTES
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.index_map import IndexMap, position
from fusewright.ir.node import Indexed
from fusewright.ir.value import TensorView
from fusewright.schedulers.reference_map import Access
from fusewright.sym import ZERO, Expr, as_int

# Rows that a thread may have, the first that pays.
ROWS = (4, 2)
# Registers of what a thread loads for its rows, at most.
MAX_LOADED_REGISTERS = 48


@dataclass(frozen=True, slots=True)
class RowWindows:
    """Loads that differ by whole rows.

    Attributes:
        at: how many dimensions are rows; a thread's rows are neighbours along the last of them.
        offsets: for each tensor, and each place beside its rows that is read, in which rows it is.
        sizes: bytes of an element of each.
    """

    at: int
    offsets: tuple[frozenset[int], ...]
    sizes: tuple[int, ...]

    def rows(self, width: int) -> int:
        """Returns the rows of each thread, if vectors have `width` elements; 1 if rows share too little."""
        every = sum(size * len(each) for each, size in zip(self.offsets, self.sizes))
        for rows in ROWS:
            loaded = rows * width * every - self.spared_bytes(rows, width)
            if self.saved(rows) >= 1 and loaded <= MAX_LOADED_REGISTERS * REGISTER_BYTES:
                return rows
        return 1

    def spared_bytes(self, rows: int, width: int) -> int:
        """Returns the bytes of a thread's vectors that it does not load, as it has them already."""
        again = (rows * len(each) - self._distinct(each, rows) for each in self.offsets)
        return width * sum(size * count for count, size in zip(again, self.sizes))

    def saved(self, rows: int) -> float:
        """Returns the loads that each row is spared by others."""
        return sum(len(each) - self._distinct(each, rows) / rows for each in self.offsets)

    @staticmethod
    def _distinct(offsets: frozenset[int], rows: int) -> int:
        return len({offset + row for offset in offsets for row in range(rows)})


def find_row_windows(
    fusion: Fusion, axes: Sequence[IterDomain], accesses: Sequence[Access]
) -> dict[int, RowWindows]:
    """Returns the windows along each dimension but the innermost, by how many dimensions are rows then."""
    places = [(access, _places(access, axes)) for access in accesses if fusion.is_input(access.tensor)]
    read = [(access.tensor, own) for access, own in places if own is not None]
    if len({tensor for tensor, _ in read}) == len(read):
        return {}
    found = {}
    for dim, axis in enumerate(axes[:-1]):
        together: dict[tuple[TensorView, tuple[Expr | None, ...]], set[int]] = {}
        for tensor, own in read:
            along = _along(own, position(dim, axis.extent))
            if along is not None:
                offset, others = along
                together.setdefault((tensor, others), set()).add(offset)
        windows = {key: offsets for key, offsets in together.items() if len(offsets) > 1}
        if windows:
            sizes = tuple([tensor.dtype.size for tensor, _ in windows])
            found[dim + 1] = RowWindows(dim + 1, tuple(map(frozenset, windows.values())), sizes)
    return found


def rows_loaded(
    accesses: Sequence[Access], axes: Sequence[IterDomain], inner: IterDomain | None
) -> set[tuple[TensorView, tuple[Expr, ...]]]:
    """Returns the rows of each tensor that loads go along by vectors, which share what lies in one row.

    All count as one unless a load has code of its own at the ends of rows: the CUDA compiler moves no load
    past that, so that all of a thread's are in registers at once.
    """
    found: set[tuple[TensorView, tuple[Expr, ...]]] = set()
    turned = {each.tensor for each in accesses if inner is not None and each.pieces_along(inner)}
    for access in accesses:
        own = (_places(access, axes) if access.tensor in turned else None) or ()
        unit = unit_stride_axis(access.tensor)
        row = tuple([each for axis, each in zip(access.tensor.shape, own) if axis is not unit])
        found.add((access.tensor, row))
    return found


def _places(access: Access, axes: Sequence[IterDomain]) -> tuple[Expr, ...] | None:
    """Returns the element that is read at each position of the reference; None if an index tensor says
    which.
    """
    own = {axis: position(dim, axis.extent) for dim, axis in enumerate(axes)}
    tensor, node = access.tensor, access.node
    if not access.by_index:
        to_reference = {ours: axis for axis, ours in access.axes.items()}
        return tuple([own.get(to_reference.get(ours), ZERO) for ours in tensor.shape])  # type: ignore[arg-type]
    if not isinstance(node, Indexed) or node.indices:
        return None
    positions: list[Expr] = [ZERO] * len(node.output.maybe_root)
    for axis, dim in access.dims.items():
        positions[dim] = own.get(axis, ZERO)
    return IndexMap(node.map.indices).at(positions).indices


def _along(places: tuple[Expr, ...], place: Expr) -> tuple[int, tuple[Expr | None, ...]] | None:
    """Returns how far a load is from the thread's own row, and what else it reads by; None if it reads no
    such row.
    """
    moved = [n for n, each in enumerate(places) if place in each.free_symbols]
    offset = as_int(places[moved[0]] - place) if len(moved) == 1 else None
    if offset is None:
        return None
    return offset, tuple([None if n == moved[0] else each for n, each in enumerate(places)])
