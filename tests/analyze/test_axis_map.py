"""How axes of neighbouring tensors correspond, and keys of axes made alike."""

from __future__ import annotations

import pytest

from fusewright.analyze.axis_map import AxisKeys, loop_keys, operand_map, producer_map, sibling_keys
from fusewright.ir import Fusion, TensorView
from fusewright.ops.build_elementwise import apply_to_tensor
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_reduction import sum_, var_mean
from fusewright.ops.build_shape import broadcast, permute, squeeze
from fusewright.schedule import transforms


@pytest.fixture
def fusion() -> Fusion:
    return Fusion()


def tensor(fusion: Fusion, *shape: int) -> TensorView:
    return define_tensor(fusion, list(shape), True)


def positions(producer: TensorView, consumer: TensorView) -> dict[int, int]:
    """Producer dimension -> consumer root axis, by position."""
    mapped = producer_map(producer, consumer)
    root = consumer.maybe_root
    return {producer.shape.index(p): root.index(c) for p, c in mapped.items()}


def test_producer_maps_of_relabelings(fusion):
    x = tensor(fusion, 2, 3)
    assert positions(x, apply_to_tensor(fusion, "neg", x)) == {0: 0, 1: 1}
    assert positions(x, permute(fusion, x, [1, 0])) == {0: 1, 1: 0}
    wide = broadcast(fusion, x, [True, False, False])
    assert positions(x, wide) == {0: 1, 1: 2}
    assert positions(wide, squeeze(fusion, wide, [0])) == {1: 0, 2: 1}


def test_reduced_axes_map_to_the_reductions_own_but_not_to_its_consumers(fusion):
    x = tensor(fusion, 2, 3)
    total = sum_(fusion, x, [0])
    assert positions(x, total) == {0: 0, 1: 1}
    after = apply_to_tensor(fusion, "neg", total)
    assert producer_map(total, after) == {total.logical[1]: after.logical[0]}


def test_every_output_of_a_node_maps_to_its_own_axes(fusion):
    x = tensor(fusion, 2, 3)
    var_mean(fusion, x, [1])
    outputs = x.uses[0].outputs
    assert len(outputs) == 3
    for out in outputs:
        assert list(producer_map(x, out).values()) == list(out.logical)


def test_operands_of_one_node_map_separately(fusion):
    x = tensor(fusion, 3, 3)
    wide = broadcast(fusion, sum_(fusion, x, [1]), [False, True])
    out = apply_to_tensor(fusion, "add", x, wide)
    node = out.definition
    assert operand_map(node, 0) == dict(zip(x.shape, out.logical))
    assert operand_map(node, 1) == dict(zip(wide.shape, out.logical))


def test_axes_made_alike_have_equal_keys_and_others_do_not(fusion):
    x = tensor(fusion, 8, 3)
    out = apply_to_tensor(fusion, "neg", x)
    add_output(fusion, out)
    mid = x.uses[0].output
    after = apply_to_tensor(fusion, "neg", mid)
    for t in (mid, after):
        transforms.split(fusion, t, 0, 4)
    ours, theirs = loop_keys(mid, after)
    assert ours == theirs and len(set(ours)) == 3
    transforms.split(fusion, mid, 2, 2)
    transforms.split(fusion, after, 2, 2, inner_split=False)
    ours, theirs = loop_keys(mid, after)
    assert ours[:2] == theirs[:2] and not set(ours[2:]) & set(theirs[2:])


def test_merge_with_an_absent_axis_passes_the_other_through_only_when_forwarding(fusion):
    x = tensor(fusion, 4)
    wide = broadcast(fusion, x, [False, True])
    apply_to_tensor(fusion, "add", wide, tensor(fusion, 4, 8))  # what wide is broadcast to
    transforms.merge(fusion, wide, 0)
    ours, theirs = loop_keys(x, wide)
    assert ours != theirs
    ours, theirs = loop_keys(x, wide, forward_absent=True)
    assert ours == theirs and None not in ours


def test_merge_with_an_absent_axis_of_one_point_is_the_other_axis(fusion):
    x = tensor(fusion, 4)
    wide = broadcast(fusion, x, [False, True])
    apply_to_tensor(fusion, "neg", wide)
    transforms.merge(fusion, wide, 0)
    transforms.split(fusion, wide, 0, 2)
    transforms.split(fusion, x, 0, 2)
    ours, theirs = loop_keys(x, wide)
    assert ours == theirs and None not in ours


def test_what_is_made_from_an_absent_leaf_has_no_key(fusion):
    x = tensor(fusion, 8)
    transforms.split(fusion, x, 0, 4)
    keys = AxisKeys().of_axes(x.loop, {x.logical[0]: None})
    assert [keys[a] for a in x.loop] == [None, None]


def test_siblings_compare_by_position(fusion):
    x = tensor(fusion, 4, 8)
    var_mean(fusion, x, [1])
    a, b, _ = x.uses[0].outputs
    assert len(set(sibling_keys(a, b)[0])) == 2 and sibling_keys(a, b)[0] == sibling_keys(a, b)[1]
    transforms.reorder(b, {0: 1})
    assert sibling_keys(a, b)[0] == sibling_keys(a, b)[1][::-1]
