"""Scalars that the host computes: sizes when a signature is bound, others at each call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from fusewright.core.dtype import DataType, fits, from_torch
from fusewright.core.errors import DtypeError, InputError, ShapeError, shown_number
from fusewright.core.op import Rule, converted
from fusewright.host.inputs.layout import size_value
from fusewright.ir import Fusion, Node, Pointwise, RandomState, Scalar, Val
from fusewright.sym import Symbol

Number = bool | int | float | complex

# Python's floats represent integers up to this magnitude exactly. So a conversion to float rounds only once.
EXACT_INTEGER = 2**53
INT64_RANGE = (-(2**63), 2**63 - 1)

_FLOATS: Mapping[str, Callable[..., float]] = {
    "add": lambda a, b: float(a) + b,
    "sub": lambda a, b: float(a) - b,
    "mul": lambda a, b: float(a) * b,
    "neg": lambda a: -float(a),
}
_INTEGERS: Mapping[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
    "maximum": max,
    "minimum": min,
}


class ScalarFunction:
    """Computes the value of a scalar node from its operands' values, with the arithmetic of a kernel."""

    def __init__(self, node: Node) -> None:
        assert isinstance(node, Pointwise)
        op, (result,) = node.op, node.outputs
        computed = op.compute_dtype([v.dtype for v in node.inputs], result.dtype)
        self.name = op.name
        self._types = [(v.dtype, target) for v, target in zip(node.inputs, op.operand_dtypes(computed))]
        self._apply = op.spelling(computed).torch
        self._result = result.dtype
        self._shortcut = self._shortcut_of(node)

    def _shortcut_of(self, node: Pointwise) -> Callable[..., Number | None] | None:
        """A function that computes the node by Python's arithmetic; None if there is none for its types.

        Python's arithmetic is about ten times as fast as that of tensors, and a call may wait for it. The
        function serves doubles, 64-bit integers, and casts to floats. It returns None for operands for which
        the result might differ from the kernel's.
        """
        types = {own for own, _ in self._types}
        if node.op.rule is Rule.CAST:
            return _CASTS.get(self._result) if types <= _CASTABLE else None
        if types | {self._result} == {DataType.Double}:
            return _FLOATS.get(node.op.name)
        integer = _INTEGERS.get(node.op.name) if types | {self._result} == {DataType.Int} else None
        return None if integer is None else partial(_in_range, integer)

    def __call__(self, *operands: Number) -> Number:
        if self._shortcut is not None:
            value = self._shortcut(*operands)
            if value is not None:
                return value
        tensors = [
            converted(torch.tensor(value, dtype=own.compute.torch, device="cpu"), target)
            for value, (own, target) in zip(operands, self._types)
        ]
        return converted(self._apply(*tensors), self._result).item()


def _in_range(function: Callable[..., int], *operands: int) -> int | None:
    value = function(*operands)
    return value if INT64_RANGE[0] <= value <= INT64_RANGE[1] else None


def _to_double(value: float) -> float | None:
    return float(value) if isinstance(value, float) or abs(value) <= EXACT_INTEGER else None


def _to_float(value: float) -> float | None:
    is_exact = isinstance(value, float) or abs(value) <= EXACT_INTEGER
    return ctypes.c_float(value).value if is_exact else None


_CASTABLE = frozenset({DataType.Bool, DataType.Int32, DataType.Int, DataType.Float, DataType.Double})
_CASTS: Mapping[DataType, Callable[..., float | None]] = {
    DataType.Double: _to_double,
    DataType.Float: _to_float,
}


class SizeScalars:
    """The scalars that a signature fixes.

    Attributes:
        inputs: the scalar inputs that sizes depend on; their values are part of the signature.
        static: `inputs`, and all scalars computed from these, sizes of dimensions and constants alone.
    """

    def __init__(self, fusion: Fusion) -> None:
        used = fusion.size_symbols()
        self._symbols = [(symbol, s) for symbol, s in fusion.scalar_of.items() if symbol in used]
        self.symbols = frozenset(symbol for symbol, _ in self._symbols)
        needed = closure(scalar for _, scalar in self._symbols)
        self.inputs = frozenset(value for value in fusion.inputs if value in needed)
        self._nodes = [
            (node, ScalarFunction(node))
            for node in fusion.nodes
            if node.is_scalar and node.outputs[0] in needed
        ]
        passed = set(fusion.inputs) - self.inputs
        varying: set[Val] = set()
        for node in fusion.nodes:
            if node.is_scalar and (
                isinstance(node, RandomState) or any(v in passed or v in varying for v in node.inputs)
            ):
                varying.update(node.outputs)
        made = {out for node in fusion.nodes if node.is_scalar for out in node.outputs}
        self.static: frozenset[Val] = self.inputs | (made - varying)

    def bind(self, values: dict[Val, Number], sizes: dict[Symbol, int]) -> None:
        """Adds the scalars that sizes depend on to `values`, and the sizes to `sizes`.

        values: contains the values of `inputs` before.

        Raises:
            ShapeError: a size is negative.
        """
        for node, function in self._nodes:
            operands = [scalar_value(v, values, sizes) for v in node.inputs]
            values[node.outputs[0]] = function(*operands)
        for symbol, scalar in self._symbols:
            size = scalar_value(scalar, values, sizes)
            if not isinstance(size, torch.SymInt):
                size = int(size.real)
            if size < symbol.lo:
                raise ShapeError(
                    f"{scalar.name} is used as a size or an index", expected="0 or more", given=size
                )
            sizes[symbol] = size


def scalar_value(value: Val, values: dict[Val, Number], sizes: dict[Symbol, int]) -> Number:
    """The value of a scalar that is a constant, a key of `values`, or the size of a dimension."""
    assert isinstance(value, Scalar)
    if value.value is not None:
        return value.value
    if value in values:
        return values[value]
    assert value.extent is not None, f"{value} has no value"
    return size_value(value.extent, sizes)


def closure(scalars: Iterable[Scalar]) -> set[Val]:
    """The scalars and all values that they are computed from."""
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
    """Returns the value passed for a scalar input after checking that it converts to the scalar's type.

    Raises:
        InputError: the value is not a number, its category is larger (complex for a double, a float for an
            integer), or it is beyond the type's range.
    """
    if isinstance(given, torch.Tensor):
        described = f"{dtype_name(given)} tensor of rank {given.dim()}"
        raise InputError(index=index, name=scalar.name, expected="a scalar", given=described)
    if isinstance(given, (torch.SymInt, torch.SymFloat)):  # of a graph that is being traced
        return given  # type: ignore[return-value]
    kinds: Sequence[type] = (bool, int, float, complex)
    category = next((i for i, kind in enumerate(kinds) if isinstance(given, kind)), None)
    if category is None:
        raise InputError(index=index, name=scalar.name, expected="a scalar", given=type(given).__name__)
    if category > scalar.dtype.category or not fits(given, scalar.dtype):
        shown = f"({given.real:g},{given.imag:g})" if isinstance(given, complex) else shown_number(given)
        raise InputError(
            f"Scalar value {shown} is not compatible with the expected data type: {scalar.dtype.ir_name}.",
            hint=f"input {index}, {scalar.name}, is defined with {scalar.dtype}",
        )
    return given


def dtype_name(tensor: torch.Tensor) -> str:
    """The name of the tensor's dtype for messages: the name in printed IR, or torch's if the IR has none."""
    try:
        return from_torch(tensor.dtype).ir_name
    except DtypeError:
        return str(tensor.dtype)
