"""Sizes of a graph that is traced with symbols: functions that compute with them, and expressions of them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch import fx
from torch.utils._sympy.functions import FloatTrueDiv, FloorDiv, IntTrueDiv, Max, Min, Mod, PythonMod, ToFloat

from fusewright.core.dtype import DataType


def _size(ops: Any, tensor: Any, dim: int) -> Any:
    return ops.size(tensor, dim)


def _numel(ops: Any, tensor: Any) -> Any:
    return functools.reduce(ops.mul, [ops.size(tensor, dim) for dim in range(tensor.ndim)])


def _binary(name: str) -> Callable[..., Any]:
    return lambda ops, a, b: getattr(ops, name)(a, b)


SIZE_FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    torch.ops.aten.sym_size.int: _size,
    torch.ops.aten.sym_numel.default: _numel,
    operator.add: _binary("add"),
    operator.sub: _binary("sub"),
    operator.mul: _binary("mul"),
    operator.pow: _binary("pow"),
    operator.neg: lambda ops, a: ops.neg(a),
    # Sizes are not negative, so a quotient that is rounded to zero is rounded down.
    operator.floordiv: _binary("div"),
    operator.mod: _binary("mod"),
    operator.truediv: _binary("truediv"),
    torch.sym_float: lambda ops, a: ops.cast(a, DataType.Double),
    torch.sym_max: _binary("maximum"),
    torch.sym_min: _binary("minimum"),
    torch.sym_sum: lambda ops, terms: functools.reduce(ops.add, terms),
}
"""Each takes the operations of a definition, and handles or numbers."""

_EXPRESSIONS: Mapping[type[sympy.Basic], Callable[..., Any]] = {
    sympy.Integer: lambda ops, size: int(size),
    sympy.Float: lambda ops, size: float(size),
    sympy.Add: lambda ops, size, *parts: functools.reduce(ops.add, parts),
    sympy.Mul: lambda ops, size, *parts: functools.reduce(ops.mul, parts),
    sympy.Pow: lambda ops, size, base, exponent: ops.pow(base, exponent),
    FloorDiv: lambda ops, size, a, b: ops.div(_floored(ops, size, a, b), b),
    Mod: lambda ops, size, a, b: ops.mod(a, b),
    PythonMod: lambda ops, size, a, b: ops.remainder(a, b),
    Max: lambda ops, size, *parts: functools.reduce(ops.maximum, parts),
    Min: lambda ops, size, *parts: functools.reduce(ops.minimum, parts),
    IntTrueDiv: lambda ops, size, a, b: ops.truediv(a, b),
    FloatTrueDiv: lambda ops, size, a, b: ops.truediv(a, b),
    ToFloat: lambda ops, size, a: ops.cast(a, DataType.Double),
}
"""Each takes the operations of a definition, the expression, and handles or numbers for its parts."""


def _floored(ops: Any, size: sympy.Expr, dividend: Any, divisor: Any) -> Any:
    """A dividend whose quotient is a whole number, that of rounding down."""
    return dividend if size.args[0].is_nonnegative else ops.sub(dividend, ops.remainder(dividend, divisor))


def is_computable(size: sympy.Expr, is_known: Callable[[sympy.Expr], bool]) -> bool:
    """Whether `computed_size` can compute it from known values."""
    if is_known(size):
        return True
    kind = _kind(size)
    return kind is not None and all(is_computable(part, is_known) for part in size.args)


def computed_size(ops: Any, size: sympy.Expr, known: Callable[[sympy.Expr], Any]) -> Any:
    """A size that torch states as an expression, which no node of the graph computes.

    Args:
        ops: the operations of a definition.
        size: a computable expression of sizes, as `(s0**2)//s0`, which torch writes for the rest of a view.
        known: the scalar of a part that is known, or None.

    Returns:
        A number or a scalar.
    """
    found = known(size)
    if found is not None:
        return found
    kind = _kind(size)
    assert kind is not None
    return _EXPRESSIONS[kind](ops, size, *(computed_size(ops, part, known) for part in size.args))


def _kind(size: sympy.Expr) -> type[sympy.Basic] | None:
    return next((kind for kind in type(size).__mro__ if kind in _EXPRESSIONS), None)


class HostSizes:
    """Sizes that a call knows from its arguments, even if the graph derives them from computed tensors.

    Attributes:
        nodes: the nodes of the graph with such a value.
    """

    def __init__(self, graph: fx.Graph) -> None:
        #: by symbol: the argument that it is known from, and which of its dimensions, None for a number
        self._places: dict[sympy.Symbol, tuple[fx.Node, int | None]] = {}
        for node in graph.nodes:
            if node.op == "placeholder":
                self._bind(node)
        self.nodes = {
            node: expression
            for node in graph.nodes
            if node.op == "call_function" and node.target in SIZE_FUNCTIONS
            if (expression := expression_of(node.meta.get("val"))) is not None
            if expression.free_symbols <= self._places.keys()
            if {type(part) for part in expression.atoms(sympy.Function)} <= _ON_HOST.keys()
        }

    def _bind(self, node: fx.Node) -> None:
        value = node.meta.get("val")
        sizes = enumerate(value.shape) if isinstance(value, torch.Tensor) else [(None, value)]
        for dim, size in sizes:
            expression = expression_of(size)
            if isinstance(expression, sympy.Symbol):
                self._places.setdefault(expression, (node, dim))

    def program(self, wanted: Iterable[fx.Node]) -> Callable[[Mapping[fx.Node, Any]], dict[fx.Node, Any]]:
        """A function that computes some of these nodes from the arguments."""
        nodes = [node for node in dict.fromkeys(wanted) if node in self.nodes]
        expressions = [self.nodes[node] for node in nodes]
        symbols = sorted({s for e in expressions for s in e.free_symbols}, key=str)
        places = [self._places[symbol] for symbol in symbols]
        functions = {kind.__name__: function for kind, function in _ON_HOST.items()}
        compute = sympy.lambdify(symbols, expressions, modules=[functions, "math"])

        def values_of(arguments: Mapping[fx.Node, Any]) -> dict[fx.Node, Any]:
            given = [arguments[n] if dim is None else arguments[n].shape[dim] for n, dim in places]
            return dict(zip(nodes, compute(*given)))

        return values_of if nodes else lambda arguments: {}


_ON_HOST: Mapping[type[sympy.Basic], Callable[..., Any]] = {
    FloorDiv: operator.floordiv,
    Mod: operator.mod,
    PythonMod: operator.mod,
    Max: max,
    Min: min,
    IntTrueDiv: operator.truediv,
    FloatTrueDiv: operator.truediv,
    ToFloat: float,
}


def expression_of(value: Any) -> sympy.Expr | None:
    """Of a number or a symbolic one; None for anything else."""
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return value.node.expr
    return sympy.sympify(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def is_size(value: Any) -> bool:
    """Whether a node's fake value is a size or a number rather than a tensor."""
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, bool, int, float))


def is_known(value: Any) -> bool:
    """Whether it is a plain number."""
    return isinstance(value, (bool, int, float))


def is_number(size: Any, number: int) -> bool:
    """Whether a size is this number; a scalar of a definition may be any, and has no truth."""
    return isinstance(size, int) and size == number
