"""The source of each argument of a compiled kernel, in terms of the fusion that was compiled.

Lowering refers to tensors of the scheduled fusion, a copy that schedulers changed. Here, tensors are named by
slot: a fusion's inputs in order, then its distinct output tensors. So a `CompiledKernel` refers to no fusion
IR, and its launcher needs to know only its own values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fusewright.core.dtype import DataType
from fusewright.core.errors import InternalError
from fusewright.ir import Fusion, Scalar, TensorView, Val
from fusewright.lower import (
    Argument,
    Lowered,
    ScalarArgument,
    SizeArgument,
    StrideArgument,
    TensorArgument,
    WorkspaceArgument,
)
from fusewright.sym import Expr, Symbol


@dataclass(frozen=True, slots=True)
class Pointer:
    """The address of the tensor in `slot`."""

    slot: int


@dataclass(frozen=True, slots=True)
class Size:
    """The value of an expression over the fusion's size symbols."""

    extent: Expr


@dataclass(frozen=True, slots=True)
class Stride:
    """The stride of dimension `dim` of the tensor in `slot`, in elements."""

    slot: int
    dim: int


@dataclass(frozen=True, slots=True)
class Value:
    """The value of the scalar, or of the rank-0 tensor in host memory, in `slot`."""

    slot: int
    dtype: DataType


@dataclass(frozen=True, slots=True)
class Workspace:
    """Scratch memory of `size` elements (over the kernel's own symbols).

    zeroed: zero before the first launch.
    """

    size: Expr
    dtype: DataType
    zeroed: bool


Source = Pointer | Size | Stride | Value | Workspace


def slot_values(fusion: Fusion) -> tuple[Val, ...]:
    """The value in each slot: inputs, distinct outputs, then the scalars that the host computes."""
    computed = [v for node in fusion.nodes if node.is_scalar for v in node.outputs]
    return (*fusion.inputs, *fusion.output_tensors(), *computed)


class Slots:
    """Slots of the inputs and outputs of a fusion, by the numbers and names that all its copies share."""

    def __init__(self, fusion: Fusion) -> None:
        values = slot_values(fusion)
        # The first slot counts: an output that is an input is that input.
        self._slots = {_identity(v): slot for slot, v in reversed(list(enumerate(values)))}

    def source(self, argument: Argument) -> Source:
        """Where the argument comes from. InternalError if it is no value of the fusion."""
        if isinstance(argument, TensorArgument):
            return Pointer(self._slot(argument.tensor))
        if isinstance(argument, SizeArgument):
            return Size(argument.extent)
        if isinstance(argument, StrideArgument):
            return Stride(self._slot(argument.tensor), argument.dim)
        if isinstance(argument, WorkspaceArgument):
            return Workspace(argument.size, argument.dtype, argument.zeroed)
        assert isinstance(argument, ScalarArgument)
        value = argument.value
        if isinstance(value, Scalar) and value.extent is not None and _identity(value) not in self._slots:
            return Size(value.extent)
        return Value(self._slot(value), value.dtype)

    def _slot(self, value: TensorView | Scalar) -> int:
        slot = self._slots.get(_identity(value))
        if slot is None:
            raise InternalError(f"the kernel takes {value}, which is neither input nor output of its fusion")
        return slot


def _identity(value: TensorView | Scalar) -> object:
    return value.number if isinstance(value, TensorView) else value.name


def sources_of(lowered: Lowered, fusion: Fusion) -> tuple[tuple[Source, ...], Mapping[Symbol, Size | Stride]]:
    """The source of each parameter, and of each symbol of the kernel.

    `fusion` is the scheduled one: its outputs stand where those of the original do, though a scheduler may
    have replaced a tensor by a cached copy.
    """
    slots = Slots(fusion)
    symbols: dict[Symbol, Size | Stride] = {}
    for symbol, argument in lowered.symbols.items():
        source = slots.source(argument)
        assert isinstance(source, (Size, Stride))
        symbols[symbol] = source
    return tuple(slots.source(argument) for argument in lowered.arguments), symbols
