"""The cells of the matrix: a group of operations on tensors of one type and shape, as one program."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from fusewright import DataType
from fusewright.cli.survey import survey
from fusewright.ops import OPS
from tests.fuzz.programs import Input, Program, TensorArgument
from tests.fuzz.shrinking import without_unused
from tests.fuzz.values import contiguous_strides
from tests.matrix.layouts import SHAPES, Shape
from tests.matrix.rows import GROUPS, ROWS, Cell

# How many cells the run by default has beside those that show each operation once.
FURTHER_CELLS = 30
DTYPES = (
    *(DataType.Float, DataType.Double, DataType.Half, DataType.BFloat16),
    *(DataType.Float8_e4m3fn, DataType.Float8_e5m2, DataType.Float8_e8m0fnu),
    *(
        DataType.Int,
        DataType.Int32,
        DataType.UInt64,
        DataType.Bool,
        DataType.ComplexFloat,
        DataType.ComplexDouble,
    ),
)
# Of a shape that every operation takes.
COMMON_SIZES = (33, 31)
#: Whose types are not those of their first tensor: embeddings are found for indices, sizes have no type.
FOR_ALL_TYPES = ("embedding_fwd", "at")


@dataclass(frozen=True)
class Place:
    """Where in the matrix a cell is."""

    group: str
    dtype: DataType
    shape: Shape

    def __str__(self) -> str:
        return f"{self.group}-{self.dtype.name}-{self.shape}"

    @property
    def digest(self) -> int:
        return int.from_bytes(hashlib.sha256(str(self).encode()).digest()[:4], "big")

    @property
    def operations(self) -> list[str]:
        return [op for op in GROUPS[self.group] if takes(op, self.dtype)]


@lru_cache
def accepted() -> dict[str, tuple[DataType, ...]]:
    """The types that each operation takes, as `fusewright ops` lists them."""
    return {row.name: row.dtypes or () for row in survey()}


def takes(op: str, dtype: DataType) -> bool:
    return op in FOR_ALL_TYPES or dtype in accepted()[op]


def places() -> Iterator[Place]:
    """All of the matrix."""
    for group in GROUPS:
        for dtype in DTYPES:
            for shape in SHAPES:
                yield Place(group, dtype, shape)


def chosen() -> list[Place]:
    """The places of the run by default: those of the least digests, with which all operations are shown."""
    ordered = sorted(places(), key=lambda place: place.digest)
    found = ordered[:FURTHER_CELLS]
    shown = {op for place in found for op in shown_in(place)}
    for place in ordered[FURTHER_CELLS:]:
        if not shown.issuperset(place.operations):
            new = shown_in(place) - shown
            shown |= new
            found += [place] if new else []
    return found


def shown_in(place: Place) -> set[str]:
    """The operations that the cell of a place has."""
    return {call.op for call in program(place.operations, place.dtype, place.shape).calls}


def program(ops: Sequence[str], dtype: DataType, shape: Shape) -> Program:
    """What these operations make of tensors of a type and a shape."""
    cell = Cell(shape.sizes, dtype)
    for op in ops:
        ROWS[op](cell)
    sizes, strides = shape.sizes, shape.strides
    others = tuple(n for dim, n in enumerate(sizes) if dim != cell.channel)
    channels = sizes[cell.channel] if sizes else 1
    last, rows = sizes[-1:] or (1,), sizes[:1] or (1,)
    index = DataType.Int if sum(strides) % 2 else DataType.Int32
    x = TensorArgument(sizes, strides, shape.offset, 1)
    inputs = [
        (Input(dtype, shape.form), x),
        (Input(dtype, shape.form), replace(x, seed=2)),
        (Input(DataType.Bool, "symbolic"), _plain(sizes, 3)),
        (Input(index, "symbolic"), _plain(sizes, 4, cell.last or None)),
        (Input(index, "symbolic"), _plain(rows, 5, rows[0] or None)),
        (Input(index, "symbolic"), _plain(others, 6, channels or None)),
        (Input(dtype, "symbolic"), _plain(last, 7)),
        (Input(dtype, "symbolic"), _plain((channels,), 8)),
    ]
    return without_unused(Program([i for i, _ in inputs], cell.calls, cell.outputs, [[a for _, a in inputs]]))


def types_shown() -> dict[str, list[str]]:
    """The types with which the matrix shows each operation, as `fusewright ops` prints them."""
    shape = next(shape for shape in SHAPES if shape.sizes == COMMON_SIZES)
    return {
        op: [
            dtype.name
            for dtype in DataType
            if dtype in DTYPES and takes(op, dtype) and program([op], dtype, shape).outputs
        ]
        for op in OPS
        if op in ROWS
    }


def _plain(sizes: tuple[int, ...], seed: int, below: int | None = None) -> TensorArgument:
    return TensorArgument(sizes, contiguous_strides(sizes), 0, seed, below=below)
