"""A kernel has other dimensions than the tensors that it is called with where these say more of memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from fusewright.ir import Fusion, Indexed, Reduction, Scalar, Stored
from fusewright.ops.evaluate import evaluate_fusion
from fusewright.rewrite import canonicalize, reshape_border
from fusewright.sym import as_int
from tests.ops.definition import Definition

Build = Callable[..., Any]


def rewritten(build: Build, shapes: Sequence[Sequence[int]], **layout: Any) -> tuple[Fusion, Any]:
    """The rewritten fusion of tensors of these sizes, which computes the same, and what was reshaped."""
    d, inputs = Definition(), [torch.randn(*shape) for shape in shapes]
    handles = [d.define_tensor(list(shape), **(layout or {"contiguity": True})) for shape in shapes]
    results = build(d, *handles)
    for result in results if isinstance(results, tuple) else (results,):
        d.add_output(result)
    d.fusion.unify_extents()
    wanted = evaluate_fusion(d.fusion, inputs)
    canonicalize(d.fusion)
    reshaped = reshape_border(d.fusion)
    seen = [x.reshape(sizes(tensor)) for x, tensor in zip(inputs, d.fusion.inputs)]
    for ours, theirs in zip(evaluate_fusion(d.fusion, seen), wanted, strict=True):
        torch.testing.assert_close(ours.reshape(theirs.shape), theirs)
    return d.fusion, reshaped


def sizes(tensor: Any) -> list[int]:
    return [as_int(extent) or 0 for extent in tensor.extents]


def centered(d: Definition, x: Any, dims: list[int]) -> Any:
    return d.sub(x, d.mean(x, dims, keepdim=True))


def test_a_flattened_input_is_an_input_of_rows():
    fusion, reshaped = rewritten(lambda d, x: centered(d, d.reshape(x, [4, 15]), [1]), [(4, 3, 5)])
    assert reshaped == (0,) and sizes(fusion.inputs[0]) == [4, 15]
    assert not any(isinstance(node, Indexed) for node in fusion.nodes)


def test_what_leads_back_is_an_output_of_rows():
    def build(d: Definition, x: Any) -> Any:
        return d.reshape(centered(d, d.reshape(x, [12, 5]), [1]), [4, 3, 5])

    fusion, reshaped = rewritten(build, [(4, 3, 5)])
    assert reshaped == (0,) and sizes(fusion.inputs[0]) == sizes(fusion.output_tensors()[0]) == [12, 5]
    assert not any(isinstance(node, (Indexed, Stored)) for node in fusion.nodes)


def test_one_of_several_shapes_of_a_result_is_that_of_the_kernel():
    def build(d: Definition, x: Any) -> Any:
        rows = centered(d, d.reshape(x, [12, 5]), [1])
        return d.reshape(rows, [4, 3, 5]), d.reshape(rows, [60])

    fusion, _ = rewritten(build, [(4, 3, 5)])
    assert [12, 5] in map(sizes, fusion.output_tensors())


def heads_merged(d: Definition, x: Any) -> Any:
    return d.mul(d.reshape(d.permute(x, [0, 2, 1, 3]), [2, 4, 15]), 2.0)


@pytest.mark.parametrize("order", [[3, 0, 2, 1], [0, 1, 2, 3], [2, 0, 3, 1]], ids=str)
def test_a_dimension_that_is_read_by_quotients_across_memory_is_two(order: list[int]):
    fusion, reshaped = rewritten(heads_merged, [(2, 3, 4, 5)], contiguity=True, stride_order=order)
    assert not reshaped and sizes(fusion.output_tensors()[0]) == [2, 4, 3, 5]
    [read] = [node for node in fusion.nodes if isinstance(node, Indexed)]
    assert len(set(read.map.identity_dims(4))) == 4 and None not in read.map.identity_dims(4)


def test_one_dimension_may_become_three():
    def build(d: Definition, x: Any) -> Any:
        return d.exp(d.reshape(d.permute(x, [1, 2, 0]), [60]))

    fusion, _ = rewritten(build, [(3, 4, 5)], contiguity=True, stride_order=[2, 1, 0])
    assert sizes(fusion.output_tensors()[0]) == [4, 5, 3]


def test_what_else_a_kernel_reads_is_split_where_its_memory_can_be():
    def build(d: Definition, x: Any, y: Any) -> Any:
        return d.mul(d.reshape(d.permute(x, [1, 0]), [12]), y)

    fusion, reshaped = rewritten(build, [(3, 4), (12,)], contiguity=True)
    assert reshaped == (1,) and sizes(fusion.inputs[1]) == sizes(fusion.output_tensors()[0]) == [4, 3]
    fusion, reshaped = rewritten(build, [(3, 4), (12,)], contiguity=False)
    assert not reshaped and sizes(fusion.output_tensors()[0]) == [12]


def test_a_dimension_that_is_read_along_memory_stays():
    fusion, _ = rewritten(heads_merged, [(2, 3, 4, 5)])
    assert sizes(fusion.output_tensors()[0]) == [2, 4, 15]


def test_an_input_that_is_also_read_as_it_lies_stays():
    def build(d: Definition, x: Any, y: Any) -> Any:
        return d.add(d.add(d.reshape(d.permute(x, [1, 0]), [12]), y), d.reshape(d.reshape(y, [3, 4]), [12]))

    def flipped(d: Definition, x: Any, y: Any) -> Any:
        return d.add(d.add(d.reshape(d.permute(x, [1, 0]), [12]), y), d.flip(y, [0]))

    for each in (build, flipped):
        rewritten(each, [(3, 4), (12,)], contiguity=True)


def test_a_dimension_of_repeated_elements_stays():
    """Neighbours read the same element, or the next one in memory, though by quotients."""

    def repeated(d: Definition, x: Any) -> Any:
        apart = d.expand(d.broadcast(x, [False, False, True]), [4, 5, 3])
        return d.exp(d.reshape(apart, [4, 15]))

    def scaled(d: Definition, x: Any, scales: Any) -> Any:
        apart = d.expand(d.broadcast(scales, [False, False, True]), [4, 5, 3])
        return d.mul(x, d.reshape(apart, [4, 15]))

    for fusion, _ in (rewritten(repeated, [(4, 5)]), rewritten(scaled, [(4, 15), (4, 5)])):
        assert sizes(fusion.output_tensors()[0]) == [4, 15]


def test_dimensions_reduced_together_are_one():
    fusion, reshaped = rewritten(lambda d, x: centered(d, x, [1, 2]), [(4, 3, 5)])
    assert reshaped == (0,) and sizes(fusion.inputs[0]) == sizes(fusion.output_tensors()[0]) == [4, 15]


def test_what_every_row_has_follows():
    def build(d: Definition, x: Any, w: Any) -> Any:
        return d.mul(centered(d, x, [1, 2]), d.broadcast(w, [True, False, False]))

    fusion, reshaped = rewritten(build, [(4, 3, 5), (3, 5)])
    assert reshaped == (0, 1) and sizes(fusion.inputs[1]) == [15]


def test_dimensions_that_a_weight_tells_apart_stay():
    """Of three the two that it does not are one."""
    fusion, reshaped = rewritten(
        lambda d, x, w: d.mul(centered(d, x, [1, 2, 3]), d.broadcast(w, [True, False, True, True])),
        [(4, 3, 5, 2), (3,)],
    )
    assert reshaped == (0,) and sizes(fusion.inputs[0]) == [4, 3, 10]


@pytest.mark.parametrize(
    "build, shape",
    [
        (lambda d, x: (d.sum(x, [1, 2]), d.sum(x, [1])), (4, 3, 5)),
        (lambda d, x: d.sum(d.add(x, d.permute(x, [0, 2, 1])), [1, 2]), (4, 3, 3)),
        (lambda d, x: centered(d, x, [0, 2]), (4, 3, 5)),
        (lambda d, x: centered(d, d.slice(x, [0, 0, 0], [4, 2, 5]), [1, 2]), (4, 3, 5)),
        (lambda d, x: d.sum(d.reshape(d.slice(x, [0, 0], [3, 4]), [12]), [0]), (6, 4)),
    ],
    ids=["reduced apart", "permuted", "not side by side", "a slice", "a flat slice"],
)
def test_other_inputs_stay(build: Build, shape: tuple[int, ...]):
    fusion, reshaped = rewritten(build, [shape])
    assert not reshaped and sizes(fusion.inputs[0]) == list(shape)


@pytest.mark.parametrize("contiguity", [[True, True, False], [False, False, True], [True, False, True]])
def test_memory_with_gaps_stays(contiguity: list[bool]):
    for build in (
        lambda d, x: centered(d, x, [1, 2]),
        lambda d, x: centered(d, d.reshape(x, [4, 15]), [1]),
    ):
        fusion, reshaped = rewritten(build, [(4, 3, 5)], contiguity=contiguity)
        assert not reshaped and sizes(fusion.inputs[0]) == [4, 3, 5]


def test_a_product_of_sizes_is_one_size():
    d = Definition()
    x = d.define_tensor([-1, -1, -1], contiguity=True)
    n, h, k = (d.size(x, i) for i in range(3))
    d.add_output(centered(d, d.reshape(x, [n, d.mul(h, k)]), [1]))
    d.fusion.unify_extents()
    canonicalize(d.fusion)
    extents = x.extents
    assert reshape_border(d.fusion) == (0,)
    [(size, product)] = d.fusion.computed_sizes.items()
    assert x.extents == (extents[0], size) and product is extents[1] * extents[2]
    sums = [node.output for node in d.fusion.nodes if isinstance(node, Reduction)]
    assert sums and all(each.logical[1].extent is size for each in sums)


def test_a_number_of_elements_is_computed_from_the_one_size():
    """So that a mean divides by a constant where all sizes of the kernel are assumed to be."""
    d = Definition()
    x = d.define_tensor([-1, -1, -1, -1], contiguity=True)
    d.add_output(centered(d, x, [0, 2, 3]))
    d.fusion.unify_extents()
    canonicalize(d.fusion)
    batch = x.extents[0]
    reshape_border(d.fusion)
    [size] = d.fusion.computed_sizes
    counts = [v.extent for node in d.fusion.nodes for v in node.inputs if isinstance(v, Scalar)]
    assert batch * size in counts and x.extents[0] is batch


def test_sizes_that_an_index_is_computed_by_stay_those_of_dimensions():
    """Of a weight for each row of an image: which it is follows from the width."""
    d = Definition()
    x, w = (d.define_tensor([-1] * rank, contiguity=True) for rank in (3, 1))
    n, h, k = (d.size(x, i) for i in range(3))
    rows = centered(d, d.reshape(x, [n, d.mul(h, k)]), [1])
    d.add_output(d.mul(d.reshape(rows, [n, h, k]), d.broadcast(w, [True, False, True])))
    d.fusion.unify_extents()
    canonicalize(d.fusion)
    extents = x.extents
    assert reshape_border(d.fusion) == () and x.extents == extents


def both_sums(d: Definition, x: Any) -> Any:
    return d.sum(x, [1]), d.sum(x, [2], keepdim=True)


@pytest.mark.parametrize(
    "build, shape, seen",
    [
        (both_sums, (1, 4, 5), [4, 5]),
        (lambda d, x: (d.sum(x, [0, 1]), d.sum(x, [2])), (1, 4, 5), [4, 5]),
        (lambda d, x: (d.sum(x, [0]), d.sum(x, [2]), d.sum(x, [0, 1, 2])), (4, 1, 5), [4, 5]),
        (lambda d, x: (d.sum(x, [0]), d.squeeze(d.sum(x, [1]), [1])), (4, 5, 1), [4, 5]),
        (lambda d, x: (d.sum(x, [1]), d.sum(d.permute(x, [1, 2, 0]), [1])), (1, 4, 5), [4, 5]),
        (lambda d, x: (d.broadcast(d.sum(x, [1]), [False, True, False]), d.sum(x, [2])), (1, 4, 5), [4, 5]),
        (lambda d, x: both_sums(d, d.select(x, 1, 1)), (1, 3, 4, 5), [1, 3, 4, 5]),
    ],
    ids=["batch", "reduced", "between", "last", "permuted", "broadcast", "picked"],
)
def test_dimensions_of_one_element_go_where_reductions_differ(
    build: Build, shape: tuple[int, ...], seen: list[int]
):
    fusion, _ = rewritten(build, [shape])
    assert sizes(fusion.inputs[0]) == seen
    for tensor in (t for node in fusion.nodes for t in node.outputs if t.ndim):
        assert len(getattr(tensor, "logical", ())) < 3


@pytest.mark.parametrize(
    "build, shapes",
    [
        (lambda d, x: centered(d, x, [2]), [(1, 4, 5)]),
        (lambda d, x, y: both_sums(d, d.add(x, y)), [(1, 4, 5), (3, 4, 5)]),
        (lambda d, x: (d.sum(x, [0]), d.sum(x, [2])), [(1, 4, 5)]),
        (lambda d, x: both_sums(d, d.mul(x, d.iota(5))), [(1, 4, 5)]),
    ],
    ids=["one kind of reduction", "more elsewhere", "reduced alone", "positions"],
)
def test_other_dimensions_of_one_element_stay(build: Build, shapes: Sequence[tuple[int, ...]]):
    fusion, reshaped = rewritten(build, shapes)
    assert not reshaped and sizes(fusion.inputs[0]) == list(shapes[0])
