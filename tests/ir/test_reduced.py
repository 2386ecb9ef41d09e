"""Which nodes compute once a row: what a division's rounding depends on, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fusewright.ir import Fusion, Node, Pointwise, TensorView
from fusewright.ir.canonical import fusion_description
from fusewright.ir.node import FEW_REDUCED, MANY_REDUCED
from fusewright.ops.build_elementwise import apply_to_tensor, segment_set
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_reduction import mean, sum_, var
from fusewright.ops.build_shape import broadcast, permute
from fusewright.rewrite.proposed.two_pass import two_pass
from fusewright.segment.extract import extract

Build = Callable[[Fusion, TensorView], TensorView]


def _divide(fusion: Fusion, a: TensorView, b: TensorView | float) -> TensorView:
    return apply_to_tensor(fusion, "truediv", a, b)


def _row_sum(fusion: Fusion, x: TensorView) -> TensorView:
    return sum_(fusion, x, [1], keepdim=True)


def _outer(fusion: Fusion, x: TensorView) -> TensorView:
    return _divide(fusion, _row_sum(fusion, x), sum_(fusion, x, [0], keepdim=True))


def _expanded_mean(fusion: Fusion, x: TensorView) -> TensorView:
    wide = broadcast(fusion, sum_(fusion, x, [1]), [False, True])
    expanded = apply_to_tensor(fusion, "add", wide, x)
    return mean(fusion, expanded, [1])


ONCE_A_ROW: dict[str, Build] = {
    "mean": lambda f, x: mean(f, x, [1]),
    "variance": lambda f, x: var(f, x, [0]),
    "sum by a number": lambda f, x: _divide(f, sum_(f, x, [1]), 33.0),
    "of a function of a sum": lambda f, x: _divide(f, apply_to_tensor(f, "exp", sum_(f, x, [0])), 3.0),
    "permuted": lambda f, x: _divide(f, permute(f, _row_sum(f, x), [1, 0]), 3.0),
    "number by sum": lambda f, x: apply_to_tensor(f, "reciprocal", _row_sum(f, x)),
    "two sums": lambda f, x: _divide(f, sum_(f, x, [1]), sum_(f, x, [1])),
    "with a row of an input": lambda f, x: _divide(f, sum_(f, x, [0]), sum_(f, x, [0])),
    "across kernels": lambda f, x: _divide(f, segment_set(f, sum_(f, x, [1])), 33.0),
    "mean of a sum beside elements": _expanded_mean,
}
ONCE_AN_ELEMENT: dict[str, Build] = {
    "of elements": lambda f, x: _divide(f, x, 3.0),
    "element by sum": lambda f, x: _divide(f, x, _row_sum(f, x)),
    "sum by element": lambda f, x: _divide(f, _row_sum(f, x), x),
    "outer quotient": _outer,
}


def _division(fusion: Fusion) -> Node:
    rows = [n for n in fusion.nodes if isinstance(n, Pointwise) and not n.is_scalar]
    return [n for n in rows if n.op.spelling(n.output.dtype).precise][-1]


@pytest.mark.parametrize(
    "build, once_a_row",
    [
        *(pytest.param(build, True, id=name) for name, build in ONCE_A_ROW.items()),
        *(pytest.param(build, False, id=name) for name, build in ONCE_AN_ELEMENT.items()),
    ],
)
def test_division_is_once_a_row_where_no_dimension_joins_the_reduced_value(
    build: Build, once_a_row: bool
) -> None:
    fusion = Fusion()
    add_output(fusion, build(fusion, define_tensor(fusion, [-1, -1], True)))
    assert _division(fusion).reduced == (MANY_REDUCED if once_a_row else 0)
    # A kernel that holds the division alone sees no reduction, and knows nevertheless.
    alone = extract(fusion, [_division(fusion)]).fusion
    assert _division(alone).reduced == (MANY_REDUCED if once_a_row else 0)
    clone, _ = fusion.clone()
    assert _division(clone).reduced == (MANY_REDUCED if once_a_row else 0)


def test_sum_of_copies_is_a_reduction() -> None:
    fusion = Fusion()
    x = define_tensor(fusion, [-1, -1], [True, None])
    add_output(fusion, mean(fusion, x, [1]))
    assert _division(fusion).reduced


@pytest.mark.parametrize(
    ("sizes", "dims", "count"),
    [
        ((-1, 0), [1], 1),
        ((-1, 4), [1], 4),
        ((-1, 2, 8), [1, 2], FEW_REDUCED),
        ((-1, 17), [1], MANY_REDUCED),
        ((9, -1), [1], MANY_REDUCED),
    ],
)
def test_a_few_elements_are_counted(sizes: tuple[int, ...], dims: list[int], count: int) -> None:
    fusion = Fusion()
    x = define_tensor(fusion, list(sizes), True)
    add_output(fusion, mean(fusion, sum_(fusion, x, dims, keepdim=True), dims))
    assert _division(fusion).reduced == count


def test_kernels_of_few_elements_are_the_same_however_many_these_are() -> None:
    def text(size: int) -> str:
        fusion = Fusion()
        add_output(fusion, mean(fusion, define_tensor(fusion, [-1, size], True), [1]))
        return fusion_description(extract(fusion, [_division(fusion)]).fusion).text.replace(str(size), "n")

    assert text(3) == text(5) != text(17)


def test_sums_of_sums_count_the_elements_of_both() -> None:
    fusion = Fusion()
    x = define_tensor(fusion, [-1, 3, 4], True)
    add_output(fusion, mean(fusion, sum_(fusion, x, [2]), [1]))
    assert _division(fusion).reduced == 12


def test_two_pass_mean_is_once_a_row() -> None:
    fusion = Fusion()
    add_output(fusion, var(fusion, define_tensor(fusion, [-1, -1], True), [1]))
    node = next(n for n in fusion.nodes if n.label == "welford")
    mean = two_pass(fusion, node)[node.output]
    assert mean.definition is not None and mean.definition.reduced
