"""What statements of a kernel compute with: buffers, operands and the parameters that a launch passes."""

from __future__ import annotations

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
    """A linear array of `size` elements of `dtype`; identity is what makes two buffers the same.

    `align` is the alignment in bytes that vector access needs (0: that of the dtype).
    `offset` is a shared buffer's place in the block's arena, in bytes, set by lower/. A `private` shared or
    global buffer is read at each element only by the thread that wrote it, so that it needs no barriers.
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
    """A pointer argument. `buffer.size` bounds every element offset that the kernel may touch.

    Attributes:
        is_output: whether the kernel is to write all of its elements.
        is_home: of an input, whether a launch may pass its memory as an output's, too. Its reads then stay in
            order with the writes.
        is_updated: whether it holds values already, of which the kernel changes some (`Scatter`).
    """

    buffer: Buffer
    is_output: bool = False
    is_home: bool = False
    is_updated: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ScalarParam:
    """A value argument: with `symbol`, an index quantity (a size or stride); with `divisor`, what gives the
    quotients by that as a product (`multiplier`); else a user's scalar.
    """

    name: str
    dtype: DataType
    symbol: Symbol | None = None
    divisor: Expr | None = None


@dataclass(frozen=True, slots=True, eq=False)
class WorkspaceParam:
    """A global scratch buffer that the launcher provides; `zeroed`: all zero before the first launch.

    A zeroed workspace (semaphores, what all-reduces of the grid exchange through) is cleared only once: each
    launch leaves it as the next one of the same grid needs it, and launches of other grids have others.
    """

    buffer: Buffer
    zeroed: bool = False


def multiplier(divisor: Expr) -> Expr:
    """What `ScalarParam.divisor` stands for in an argument (snippets/quotient.cuh)."""
    return floordiv(1 << 62, divisor) + 1


Param = TensorParam | ScalarParam | WorkspaceParam


def param_name(param: Param) -> str:
    """What a parameter is called in the kernel."""
    return param.name if isinstance(param, ScalarParam) else param.buffer.name
