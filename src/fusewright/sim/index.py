"""Values of index expressions in all lanes at once.

A lane is one thread of one block. A value is a Python int if all lanes agree, else a tensor of shape (blocks,
1), (1, threads) or (blocks, threads). So a value that depends only on the block is computed once per block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

import torch
from torch import Tensor

from fusewright.core.dtype import INT32_MAX
from fusewright.core.errors import SimulationError
from fusewright.sim.faults import Fault
from fusewright.sym import (
    Add,
    And,
    Const,
    Eq,
    Expr,
    FloorDiv,
    Le,
    Lt,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    Symbol,
    Xor,
    bounds,
    to_text,
)

Lanes = int | Tensor
"""An int, or an int64 or bool tensor that broadcasts to (blocks, threads)."""


class IndexEvaluator:
    """Evaluates interned expressions. A value is cached until a symbol in the expression is bound again.

    Args:
        builtins: values of `threadIdx.x`, `blockIdx.x`, ... by name; they never change. They are looked up by
            name, since a symbol of one name may be declared with several ranges.
        narrow: whether the kernel computes indices in 32 bits, which every product must fit in. (A product
            with a wider constant is one of 64 bits.)
    """

    def __init__(self, builtins: Mapping[str, Lanes], narrow: bool = False) -> None:
        self._builtins = builtins
        self.narrow = narrow
        self._bound: dict[Symbol, Lanes] = {}
        self._values: dict[Expr, Lanes] = {}
        # The memoised expressions that each bound symbol occurs in.
        self._dependents: dict[Symbol, list[Expr]] = {}

    def copy(self) -> IndexEvaluator:
        """Another evaluator with the same values, for threads that continue separately."""
        new = IndexEvaluator(self._builtins, self.narrow)
        new._bound.update(self._bound)
        return new

    def bind(self, symbol: Symbol, value: Lanes) -> None:
        """Gives `symbol` a value, and forgets values computed from its previous one."""
        old = self._bound.get(symbol)
        if old is value or (isinstance(old, int) and isinstance(value, int) and old == value):
            return
        self._bound[symbol] = value
        self._forget(symbol)

    def unbind(self, symbol: Symbol) -> None:
        """End the scope of `symbol`: using it from now on is an error."""
        if self._bound.pop(symbol, None) is not None:
            self._forget(symbol)

    def _forget(self, symbol: Symbol) -> None:
        for expr in self._dependents.pop(symbol, ()):
            self._values.pop(expr, None)

    def __call__(self, expr: Expr) -> Lanes:
        """The value of `expr`. A Fault for an unbound symbol or a division by zero."""
        if isinstance(expr, Const):
            return expr.value
        if isinstance(expr, Symbol):
            return self._symbol(expr)
        value = self._values.get(expr)
        if value is None:
            value = _EVALUATE[type(expr)](self, expr)
            self._values[expr] = value
            for symbol in expr.free_symbols:
                self._dependents.setdefault(symbol, []).append(expr)
        return value

    def uniform(self, expr: Expr, what: str) -> int:
        """The value of `expr`, which must be the same in all lanes; `what` names it in the error."""
        value = self(expr)
        if isinstance(value, Tensor):
            if value.numel() == 0 or bool((value != value.flatten()[0]).any()):
                raise Fault(SimulationError, f"{what} differs between threads: {to_text(expr)}")
            return int(value.flatten()[0])
        return int(value)

    def check_product(self, core: Expr, coefficient: int, value: Lanes) -> None:
        """A Fault if coefficient * core, which is `value`, does not fit in 32 bits somewhere."""
        low, high = bounds(core)
        if low is not None and high is not None and abs(coefficient) * max(-low, high) <= INT32_MAX:
            return
        if isinstance(value, Tensor):
            largest = int(value.abs().max()) if value.numel() else 0
        else:
            largest = abs(value)
        if largest > INT32_MAX >= abs(coefficient):
            text = to_text(core * coefficient)
            raise Fault(SimulationError, f"a product in an index does not fit in 32 bits: {text}")

    def _symbol(self, expr: Symbol) -> Lanes:
        value = self._bound.get(expr)
        if value is None:
            value = self._builtins.get(expr.name)
        if value is None:
            raise Fault(SimulationError, f"`{expr.name}` is used where it has no value")
        return value


def as_integer(value: Lanes) -> Lanes:
    """A value fit for arithmetic: torch would take the sum of two bool tensors as their disjunction."""
    return value.long() if isinstance(value, Tensor) and value.dtype is torch.bool else value


def as_mask(value: Lanes) -> int | Tensor:
    """A truth value: 0 or 1, or a bool tensor."""
    if isinstance(value, Tensor):
        return value if value.dtype is torch.bool else value != 0
    return int(value != 0)


def _add(evaluate: IndexEvaluator, expr: Add) -> Lanes:
    total, tensors = expr.constant, []
    for core, coefficient in expr.terms:
        value = as_integer(evaluate(core))
        if coefficient != 1:
            value = value * coefficient
            if evaluate.narrow:
                evaluate.check_product(core, coefficient, value)
        if isinstance(value, Tensor):
            tensors.append(value)
        else:
            total += value
    if not tensors:
        return total
    # The small ones first: a term of the block and one of the thread make a full tensor only once.
    tensors.sort(key=Tensor.numel)
    result = tensors[0] + total if total else tensors[0]
    for tensor in tensors[1:]:
        result = result + tensor
    return result


def _mul(evaluate: IndexEvaluator, expr: Mul) -> Lanes:
    result: Lanes = expr.coefficient
    for factor in expr.factors:
        result = result * as_integer(evaluate(factor))
    if evaluate.narrow:
        evaluate.check_product(expr.core, expr.coefficient, result)
    return result


def _is_power_of_two(value: Lanes) -> bool:
    return isinstance(value, int) and value > 0 and value & (value - 1) == 0


def _division(evaluate: IndexEvaluator, expr: FloorDiv | Mod) -> tuple[Lanes, Lanes]:
    dividend, divisor = as_integer(evaluate(expr.dividend)), as_integer(evaluate(expr.divisor))
    is_zero = bool((divisor == 0).any()) if isinstance(divisor, Tensor) else divisor == 0
    if is_zero:
        raise Fault(SimulationError, f"division by zero in an index: {to_text(expr)}")
    return dividend, divisor


def _floordiv(evaluate: IndexEvaluator, expr: FloorDiv) -> Lanes:
    dividend, divisor = _division(evaluate, expr)
    if isinstance(dividend, Tensor):
        if _is_power_of_two(divisor):
            return dividend >> (int(divisor).bit_length() - 1)
        return torch.div(dividend, divisor, rounding_mode="floor")
    if isinstance(divisor, Tensor):
        return torch.div(torch.tensor(dividend), divisor, rounding_mode="floor")
    return dividend // divisor


def _mod(evaluate: IndexEvaluator, expr: Mod) -> Lanes:
    dividend, divisor = _division(evaluate, expr)
    if isinstance(dividend, Tensor):
        if _is_power_of_two(divisor):
            return dividend & (int(divisor) - 1)
        return torch.remainder(dividend, divisor)
    if isinstance(divisor, Tensor):
        return torch.remainder(torch.tensor(dividend), divisor)
    return dividend % divisor


def _extremum(
    scalar: Callable[[list[int]], int],
    clamp: Callable[[Tensor, int], Tensor],
    tensor: Callable[[Tensor, Tensor], Tensor],
) -> Callable[[IndexEvaluator, Expr], Lanes]:
    def evaluate_extremum(evaluate: IndexEvaluator, expr: Expr) -> Lanes:
        values = [as_integer(evaluate(arg)) for arg in expr.args]
        scalars = [value for value in values if not isinstance(value, Tensor)]
        tensors = [value for value in values if isinstance(value, Tensor)]
        if not tensors:
            return scalar(scalars)
        result = reduce(tensor, tensors)
        return clamp(result, scalar(scalars)) if scalars else result

    return evaluate_extremum


def _xor(evaluate: IndexEvaluator, expr: Xor) -> Lanes:
    result: Lanes = 0
    for arg in expr.args:
        result = result ^ as_integer(evaluate(arg))
    return result


def _comparison(compare: Callable[[Lanes, Lanes], Lanes]) -> Callable[[IndexEvaluator, Expr], Lanes]:
    def evaluate_comparison(evaluate: IndexEvaluator, expr: Expr) -> Lanes:
        left, right = (as_integer(evaluate(arg)) for arg in expr.args)
        result = compare(left, right)
        return result if isinstance(result, Tensor) else int(result)

    return evaluate_comparison


def _and(evaluate: IndexEvaluator, expr: And) -> Lanes:
    result: Lanes = 1
    for arg in expr.args:
        value = as_mask(evaluate(arg))
        if isinstance(value, Tensor):
            result = value if isinstance(result, int) else result & value
        elif not value:
            return 0
    return result


def _or(evaluate: IndexEvaluator, expr: Or) -> Lanes:
    result: Lanes = 0
    for arg in expr.args:
        value = as_mask(evaluate(arg))
        if isinstance(value, Tensor):
            result = value if isinstance(result, int) else result | value
        elif value:
            return 1
    return result


def _not(evaluate: IndexEvaluator, expr: Not) -> Lanes:
    value = as_mask(evaluate(expr.args[0]))
    return ~value if isinstance(value, Tensor) else 1 - value


_EVALUATE: dict[type[Expr], Callable[..., Lanes]] = {
    Add: _add,
    Mul: _mul,
    FloorDiv: _floordiv,
    Mod: _mod,
    Min: _extremum(min, torch.clamp_max, torch.minimum),
    Max: _extremum(max, torch.clamp_min, torch.maximum),
    Xor: _xor,
    Lt: _comparison(lambda left, right: left < right),
    Le: _comparison(lambda left, right: left <= right),
    Eq: _comparison(lambda left, right: left == right),
    And: _and,
    Or: _or,
    Not: _not,
}
