"""Index expressions in all lanes at once agree with `sym.evaluate` in each."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fusewright import sym
from fusewright.core.errors import SimulationError
from fusewright.sim.faults import Fault
from fusewright.sim.index import _EVALUATE, IndexEvaluator
from fusewright.sym import Expr, Symbol, symbol

BLOCKS, THREADS = 3, 5
BLOCK = symbol("blockIdx.x", hi=BLOCKS - 1)
THREAD = symbol("threadIdx.x", hi=THREADS - 1)
LOOP = symbol("i", hi=3)
SIZE = symbol("n", lo=1, hi=100)


def _evaluator(loop: int, size: int) -> IndexEvaluator:
    evaluate = IndexEvaluator(
        {"blockIdx.x": torch.arange(BLOCKS)[:, None], "threadIdx.x": torch.arange(THREADS)[None, :]}
    )
    evaluate.bind(LOOP, loop)
    evaluate.bind(SIZE, size)
    return evaluate


def _grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    def binary(function: Any) -> st.SearchStrategy[Expr]:
        return st.builds(function, inner, inner)

    divisors = st.integers(1, 9).map(sym.const) | st.just(SIZE) | st.just(sym.add(THREAD, 1))
    return st.one_of(
        *map(binary, (sym.add, sym.sub, sym.mul, sym.minimum, sym.maximum)),
        *map(binary, (sym.lt, sym.le, sym.eq, sym.ne, sym.land, sym.lor)),
        st.builds(sym.floordiv, inner, divisors),
        st.builds(sym.mod, inner, divisors),
        st.builds(sym.lnot, inner),
    )


LEAVES = st.sampled_from([BLOCK, THREAD, LOOP, SIZE]) | st.integers(-9, 9).map(sym.const)


@given(st.recursive(LEAVES, _grow, max_leaves=12), st.integers(0, 2), st.integers(1, 40))
def test_agrees_with_scalar_evaluation(expr: Expr, loop: int, size: int) -> None:
    evaluate = _evaluator(loop, size)
    for i in (loop, loop + 1):  # the second time, what does not depend on the loop is remembered
        evaluate.bind(LOOP, i)
        lanes = torch.as_tensor(evaluate(expr)).expand(BLOCKS, THREADS)
        for block in range(BLOCKS):
            for thread in range(THREADS):
                values = {BLOCK: block, THREAD: thread, LOOP: i, SIZE: size}
                assert int(lanes[block, thread]) == sym.evaluate(expr, values)


def test_every_kind_of_expression_has_a_rule() -> None:
    def leaves(cls: type[Expr]) -> set[type[Expr]]:
        below = {leaf for sub in cls.__subclasses__() for leaf in leaves(sub)}
        return below or {cls}

    assert set(_EVALUATE) | {sym.Const, sym.Symbol} == leaves(Expr)


def test_what_does_not_depend_on_the_loop_is_computed_once() -> None:
    evaluate = _evaluator(0, 7)
    invariant = sym.mul(BLOCK, SIZE)
    value = evaluate(sym.add(invariant, LOOP)), evaluate(invariant)
    evaluate.bind(LOOP, 1)
    assert evaluate(invariant) is value[1]
    assert evaluate(sym.add(invariant, LOOP)) is not value[0]


def test_values_stay_as_small_as_what_they_depend_on() -> None:
    evaluate = _evaluator(2, 7)
    assert evaluate(sym.add(LOOP, SIZE)) == 9
    block, thread = evaluate(sym.mul(BLOCK, 4)), evaluate(sym.mul(THREAD, 4))
    assert isinstance(block, torch.Tensor) and block.shape == (BLOCKS, 1)
    assert isinstance(thread, torch.Tensor) and thread.shape == (1, THREADS)


@pytest.mark.parametrize(
    ("expr", "problem"),
    [
        (symbol("unbound"), "`unbound` is used where it has no value"),
        (sym.floordiv(SIZE, THREAD), "division by zero"),
    ],
)
def test_undefined_expressions_are_faults(expr: Symbol, problem: str) -> None:
    with pytest.raises(Fault, match=problem) as caught:
        _evaluator(0, 7)(expr)
    assert caught.value.kind is SimulationError


def test_products_of_narrow_kernels_fit_in_32_bits() -> None:
    """A difference of two products may fit although they do not."""
    t, other = symbol("t"), symbol("other")
    for expr in (t * 65536 - other, other - t * 65536, sym.minimum(t * other * 16384, 7)):
        for narrow in (False, True):
            evaluate = IndexEvaluator({}, narrow)
            evaluate.bind(other, 5)
            evaluate.bind(t, torch.tensor([[0, 20000]]))
            evaluate(expr)
            evaluate.bind(t, torch.tensor([[0, 40000]]))
            if narrow:
                with pytest.raises(Fault, match="a product in an index does not fit in 32 bits: "):
                    evaluate(expr)
            else:
                evaluate(expr)
