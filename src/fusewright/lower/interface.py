"""The arguments and results of lowering."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fusewright.core.dtype import DataType
from fusewright.core.errors import ScheduleError
from fusewright.ir.value import Scalar, TensorView
from fusewright.kernel.ir import Kernel
from fusewright.sym import Expr, Symbol


@dataclass(frozen=True, slots=True)
class LowerOptions:
    """Options of lowering.

    Attributes:
        name: the name of the kernel.
        index_dtype: Int32 or Int, the type of index arithmetic.
    """

    name: str
    index_dtype: DataType = DataType.Int


@dataclass(frozen=True, slots=True, eq=False)
class TensorArgument:
    """The data pointer of an input or output of the scheduled fusion."""

    tensor: TensorView


@dataclass(frozen=True, slots=True, eq=False)
class SizeArgument:
    """The value of a size expression: a size symbol of the fusion."""

    extent: Expr


@dataclass(frozen=True, slots=True, eq=False)
class StrideArgument:
    """The stride, in elements, of dimension `dim` (of `tensor.shape`) of an input or output."""

    tensor: TensorView
    dim: int


@dataclass(frozen=True, slots=True, eq=False)
class ScalarArgument:
    """The value of a scalar, or of a rank-0 tensor in host memory."""

    value: Scalar | TensorView


@dataclass(frozen=True, slots=True, eq=False)
class WorkspaceArgument:
    """Scratch memory of `size` elements of `dtype`. `size` uses the kernel's size symbols."""

    size: Expr
    dtype: DataType
    zeroed: bool


Argument = TensorArgument | SizeArgument | StrideArgument | ScalarArgument | WorkspaceArgument


@dataclass(frozen=True, slots=True, eq=False)
class Lowered:
    """A kernel with its arguments and the meaning of its symbols.

    The value of each symbol in a call must be in the symbol's range and a multiple of its `multiple_of`
    (`check_symbols`).

    Attributes:
        kernel: the kernel.
        arguments: the argument for each of `kernel.params`.
        symbols: the meaning of each size and stride symbol in `kernel.grid`, `.block`, `.shared_bytes`, the
            workspace sizes and the body, and of symbols that the kernel relies on without containing them,
            such as a size that is a constant in it. They may differ from the fusion's symbols of the same
            name, since a kernel may assume more about a size, such as a divisor.
    """

    kernel: Kernel
    arguments: tuple[Argument, ...]
    symbols: Mapping[Symbol, SizeArgument | StrideArgument]


def check_symbols(values: Mapping[Symbol, int]) -> None:
    """Raises ScheduleError if a size or stride is not among the values that the kernel was lowered for."""
    for symbol, value in values.items():
        if value < symbol.lo or (isinstance(symbol.hi, int) and value > symbol.hi):
            raise ScheduleError(
                f"the schedule assumes the range of the size {symbol.name}",
                expected=str(symbol.lo) if symbol.lo == symbol.hi else f"{symbol.lo} to {symbol.hi}",
                given=str(value),
                hint="compute the heuristics for these inputs, or leave lparams.bdimx at -1 and "
                "the sizes that the params assume at ()",
            )
        if value % symbol.multiple_of:
            raise ScheduleError(
                f"the schedule vectorizes along {symbol.name}",
                expected=f"a multiple of {symbol.multiple_of}",
                given=str(value),
                hint="use a narrower vector for these sizes",
            )
