"""Buffers, operands and the parameters that a launch passes: the values that statements compute with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fusewright.core.dtype import DataType
from fusewright.core.enums import KeyEnum
from fusewright.sym import Expr, Symbol, floordiv


class Space(KeyEnum):
    """Where a buffer lives."""

    GLOBAL = "global"
    SHARED = "shared"
    LOCAL = "local"


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """A linear array of `size` elements of `dtype`. Two buffers are equal only if they are the same object.

    Attributes:
        align: the alignment in bytes that vector access needs (0: that of the dtype).
        offset: a shared buffer's position in the block's arena, in bytes, set by lower/.
        private: whether only the thread that wrote an element reads it, so that a shared or global buffer
            needs no barriers.
    """

    name: str
    dtype: DataType
    space: Space
    size: Expr
    align: int = 0
    offset: Expr | None = None
    private: bool = False


# ---- operands ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ref:
    """Element `index` of `buffer`."""

    buffer: Buffer
    index: Expr


@dataclass(frozen=True, slots=True)
class Imm:
    """A constant of `dtype`: bool, int, float or complex."""

    value: bool | int | float | complex
    dtype: DataType


@dataclass(frozen=True, slots=True)
class ScalarRef:
    """The value of a scalar parameter (`ScalarParam.symbol` is None)."""

    param: ScalarParam


@dataclass(frozen=True, slots=True)
class IndexValue:
    """An index expression used as a value of `dtype` (iota, counts)."""

    expr: Expr
    dtype: DataType


Operand = Ref | Imm | ScalarRef | IndexValue


def operand_dtype(operand: Operand) -> DataType:
    """The type of an operand's value."""
    if isinstance(operand, Ref):
        return operand.buffer.dtype
    return operand.param.dtype if isinstance(operand, ScalarRef) else operand.dtype


# ---- parameters -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class TensorParam:
    """A pointer argument. `buffer.size` bounds every element offset that the kernel may access.

    Attributes:
        is_output: whether the kernel must write all of its elements.
        is_home: whether a launch may pass the memory of this input also as an output's memory. Its reads then
            stay in order with the writes.
        is_updated: whether the kernel changes some of the values that it holds already (`Scatter`).
    """

    buffer: Buffer
    is_output: bool = False
    is_home: bool = False
    is_updated: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ScalarParam:
    """A value argument. With `symbol`, it is an index quantity (a size or stride); with `divisor`, it is the
    multiplier for divisions by that size (`multiplier`); else it is a user's scalar.
    """

    name: str
    dtype: DataType
    symbol: Symbol | None = None
    divisor: Expr | None = None


@dataclass(frozen=True, slots=True, eq=False)
class WorkspaceParam:
    """A global scratch buffer that the launcher provides.

    Attributes:
        zeroed: whether it is zero before the first launch. Such a workspace (semaphores, exchanges of the
            grid's all-reduces) is cleared only once: each launch leaves it in the state that the next launch
            of the same grid needs. Launches of other grids have other workspaces.
    """

    buffer: Buffer
    zeroed: bool = False


def multiplier(divisor: Expr) -> Expr:
    """The multiplier for divisions by `ScalarParam.divisor` in an argument (snippets/quotient.cuh)."""
    return floordiv(1 << 62, divisor) + 1


Param = TensorParam | ScalarParam | WorkspaceParam

#: The size of a parameter that is an address.
POINTER_BYTES = 8


def param_size(param: Param) -> int:
    """The bytes of a parameter."""
    return param.dtype.size if isinstance(param, ScalarParam) else POINTER_BYTES


def packed_bytes(sizes: Iterable[int]) -> int:
    """The bytes of values of these sizes in order, each aligned to its size, without padding at the end."""
    end = 0
    for size in sizes:
        end = -(-end // size) * size + size
    return end


def param_name(param: Param) -> str:
    """The name of a parameter in the kernel."""
    return param.name if isinstance(param, ScalarParam) else param.buffer.name
