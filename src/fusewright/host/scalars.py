"""Scalars that the host computes: those that are sizes when a signature is bound, the others at each call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from fusewright.core.dtype import DataType, from_torch
from fusewright.core.errors import InputError, ShapeError
from fusewright.core.op import Rule, converted
from fusewright.host.layout import size_value
from fusewright.ir import Fusion, Node, Pointwise, Scalar, Val
from fusewright.sym import Symbol

Number = bool | int | float | complex

# Rules whose result differs in type from what they compute in.
_FROM_OPERANDS = (Rule.COMPARE, Rule.PREDICATE, Rule.TO_REAL, Rule.MAKE_COMPLEX, Rule.CAST)

# (An integer of 64 bits would be rounded twice on its way to float.)
_CASTABLE = frozenset({DataType.Bool, DataType.Int32, DataType.Float, DataType.Double})
_CASTS: Mapping[DataType, Callable[..., float]] = {
    DataType.Double: float,
    DataType.Float: lambda value: ctypes.c_float(value).value,
}
_EXACT: Mapping[str, Callable[..., float]] = {
    "add": lambda a, b: float(a) + b,
    "sub": lambda a, b: float(a) - b,
    "mul": lambda a, b: float(a) * b,
    "neg": lambda a: -float(a),
}


class ScalarFunction:
    """The value of a node over scalars, from those of its operands; arithmetic as in a kernel."""

    def __init__(self, node: Node) -> None:
        assert isinstance(node, Pointwise)
        op, (result,) = node.op, node.outputs
        dtype = node.inputs[0].dtype if op.rule in _FROM_OPERANDS else result.dtype
        computed = DataType.Bool if op.rule is Rule.LOGICAL else dtype.compute
        self.name = op.name
        self._types = [(v.dtype, target) for v, target in zip(node.inputs, op.operand_dtypes(computed))]
        self._apply = op.spelling(computed).torch
        self._result = result.dtype

        self._exact = self._exact_function(node)

    def _exact_function(self, node: Pointwise) -> Callable[..., Number] | None:
        """Python's own function, where it gives the same value as the row: in double, and for casts.

        Ten times as fast as tensors, and a call may wait for it.
        """
        types = {own for own, _ in self._types}
        if node.op.rule is Rule.CAST:
            return _CASTS[self._result] if self._result in _CASTS and types <= _CASTABLE else None
        return _EXACT.get(node.op.name) if types | {self._result} == {DataType.Double} else None

    def __call__(self, *operands: Number) -> Number:
        if self._exact is not None:
            return self._exact(*operands)
        tensors = [
            converted(torch.tensor(value, dtype=own.compute.torch), target)
            for value, (own, target) in zip(operands, self._types)
        ]
        return converted(self._apply(*tensors), self._result).item()


class SizeScalars:
    """The scalars that decide sizes: inputs whose value is part of a signature, and what they lead to."""

    def __init__(self, fusion: Fusion) -> None:
        used: set[Symbol] = set()
        for axis in fusion.axes():
            used |= axis.extent.free_symbols
            if axis.expanded is not None:
                used |= axis.expanded.free_symbols
        self._symbols = [(symbol, s) for symbol, s in fusion.scalar_of.items() if symbol in used]
        needed = closure(scalar for _, scalar in self._symbols)
        self.inputs = frozenset(value for value in fusion.inputs if value in needed)
        self._nodes = [
            (node, ScalarFunction(node))
            for node in fusion.nodes
            if node.is_scalar and node.outputs[0] in needed
        ]

    def bind(self, values: dict[Val, Number], sizes: dict[Symbol, int]) -> None:
        """Computes the scalars into `values` (which holds the inputs) and adds the sizes that they are.

        Raises:
            ShapeError: a negative size.
        """
        for node, function in self._nodes:
            operands = [scalar_value(v, values, sizes) for v in node.inputs]
            values[node.outputs[0]] = function(*operands)
        for symbol, scalar in self._symbols:
            size = int(scalar_value(scalar, values, sizes).real)
            if size < 0:
                raise ShapeError(f"{scalar.name} is used as a size", expected="0 or more", given=size)
            sizes[symbol] = size


def scalar_value(value: Val, values: dict[Val, Number], sizes: dict[Symbol, int]) -> Number:
    """The value of a scalar that is a constant, in `values`, or the size of a dimension."""
    assert isinstance(value, Scalar)
    if value.value is not None:
        return value.value
    if value in values:
        return values[value]
    assert value.extent is not None, f"{value} has no value"
    return size_value(value.extent, sizes)


def closure(scalars: Iterable[Scalar]) -> set[Val]:
    """The scalars and everything that they are computed from."""
    found: set[Val] = set()
    stack: list[Val] = list(scalars)
    while stack:
        value = stack.pop()
        if value not in found:
            found.add(value)
            if value.definition is not None:
                stack.extend(value.definition.inputs)
    return found


def checked_scalar(index: int, scalar: Scalar, given: Any) -> Number:
    """The value passed for a scalar input, if a number of its kind converts to the scalar's type.

    Raises:
        InputError: no number, or one of a larger category (complex for a double, a float for an integer).
    """
    if isinstance(given, torch.Tensor):
        described = f"{dtype_name(given)} tensor of rank {given.dim()}"
        raise InputError(index=index, name=scalar.name, expected="a scalar", given=described)
    kinds: Sequence[type] = (bool, int, float, complex)
    category = next((i for i, kind in enumerate(kinds) if isinstance(given, kind)), None)
    if category is None:
        raise InputError(index=index, name=scalar.name, expected="a scalar", given=type(given).__name__)
    if category > scalar.dtype.category:
        shown = f"({given.real:g},{given.imag:g})" if isinstance(given, complex) else str(given)
        raise InputError(
            f"Scalar value {shown} is not compatible with the expected data type: {scalar.dtype.ir_name}.",
            hint=f"input {index}, {scalar.name}, is defined with {scalar.dtype}",
        )
    return given


def dtype_name(tensor: torch.Tensor) -> str:
    """The word for its dtype in messages: that of printed IR, or torch's where the IR has none."""
    try:
        return from_torch(tensor.dtype).ir_name
    except KeyError:
        return str(tensor.dtype)
