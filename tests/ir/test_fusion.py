"""The container: copies, equal sizes, order of nodes, numbering."""

from __future__ import annotations

import pytest

from fusewright.core.dtype import DataType
from fusewright.core.enums import MemoryType, ParallelType
from fusewright.core.errors import ShapeError
from fusewright.ir import Fusion, Pointwise, TensorView, fusion_text, scheduled_text, verify_fusion
from fusewright.ir.index_map import positions
from fusewright.ops.build_elementwise import apply_to_tensor
from fusewright.ops.build_inputs import add_output, define_scalar, define_tensor
from fusewright.ops.build_reduction import sum_
from fusewright.ops.build_resize import pad, roll, split
from fusewright.schedule import transforms
from fusewright.schedulers import default_registry
from fusewright.segment import partition
from fusewright.sym import ceildiv, const, is_nonneg, maximum, minimum
from tests.integration.cases import CASES, Case


def neg(fusion: Fusion, x: TensorView) -> TensorView:
    return apply_to_tensor(fusion, "neg", x)


def add(fusion: Fusion, x: TensorView, y: TensorView) -> TensorView:
    return apply_to_tensor(fusion, "add", x, y)


def test_clone_shares_nothing_that_a_schedule_changes():
    fusion = Fusion()
    x = define_tensor(fusion, [-1, 8], True)
    out = neg(fusion, sum_(fusion, x, [1]))
    add_output(fusion, out)
    before = str(fusion)
    twin, values = fusion.clone()
    assert str(twin) == before
    copied = values[out]
    transforms.split(twin, copied, 0, 4)
    transforms.parallelize(copied, 0, ParallelType.grid_x)
    twin.add_node(Pointwise(copied.definition.op, (copied,), twin.new_tensor(copied.logical, out.dtype)))
    assert str(fusion) == before and not out.uses and len(out.loop) == 1
    assert values[x] is twin.inputs[0] and twin.outputs[0].tensor is copied


def test_clone_numbers_new_values_after_the_old_ones():
    fusion = Fusion()
    add_output(fusion, neg(fusion, define_tensor(fusion, [-1], True)))
    twin, _ = fusion.clone()
    assert neg(twin, twin.output_tensors()[0]).name == neg(fusion, fusion.output_tensors()[0]).name == "T2"


def test_clone_keeps_transforms_and_aliases():
    fusion = Fusion()
    x = define_tensor(fusion, [-1], True)
    out = neg(fusion, x)
    transforms.split(fusion, out, 0, 4)
    add_output(fusion, out, x)
    twin, values = fusion.clone()
    verify_fusion(twin)
    assert [str(a) for a in values[out].loop] == [str(a) for a in out.loop]
    assert values[out].loop[0].definition.inputs == values[out].logical
    assert twin.outputs[0].alias is values[x] and twin.outputs[0].hidden


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_clone_is_wellformed_and_reads_the_same(case: Case):
    whole = case.definition()._finished().fusion
    for fusion in (whole, *(segment.fusion for segment in partition(whole, default_registry()).segments)):
        twin, values = fusion.clone()
        verify_fusion(twin, "clone")
        assert fusion_text(twin) == fusion_text(fusion) and scheduled_text(twin) == scheduled_text(fusion)
        assert twin.equalities == fusion.equalities and twin.ranges == fusion.ranges
        assert set(values) == set(fusion.values()) and set(values.values()) == set(twin.values())
        assert not set(twin.values()) & set(fusion.values()) and not set(twin.nodes) & set(fusion.nodes)
        assert not set(twin.axes()) & set(fusion.axes()), "an axis is shared"
        assert {s: values.get(v, v) for s, v in fusion.scalar_of.items()} == twin.scalar_of


def test_equal_sizes_become_the_one_made_first_or_the_constant():
    fusion = Fusion()
    x, y, z = (define_tensor(fusion, shape, True) for shape in ([-1, -1], [-1, -1], [-1, 5]))
    out = add(fusion, add(fusion, y, x), z)
    first = x.logical[0].extent
    fusion.unify_extents()
    assert all(t.logical[0].extent is first for t in (x, y, z, out))
    assert all(t.logical[1].extent is const(5) for t in (x, y, z, out))
    assert fusion.same_size(y.extents[0], x.extents[0])


def test_equal_sizes_are_one_in_index_expressions():
    fusion = Fusion()
    x = define_tensor(fusion, [-1, 4], True)
    padded = pad(fusion, x, [define_scalar(fusion, None, DataType.Int), 0])
    split(fusion, padded, [5, 1], 1)  # so the padded rows have 6 elements
    rolled = roll(fusion, padded, [-100], [1])
    fusion.unify_extents()
    row, column = positions(rolled.extents)
    assert rolled.extents[1] is const(6)
    assert rolled.definition.map.indices == (row, (column + 100) % 6)


def test_different_constants_are_never_equal():
    with pytest.raises(ShapeError, match="a conflict was found with 2 different sizes"):
        Fusion().equate(const(3), const(4), "add")


def test_a_size_that_met_a_constant_meets_no_other():
    fusion = Fusion()
    n = fusion.new_extent()
    fusion.equate(n, const(3), "first")
    with pytest.raises(ShapeError, match="second"):
        fusion.equate(const(4), n, "second")


def test_ordered_nodes_are_those_that_outputs_need_producers_first():
    fusion = Fusion()
    x = define_tensor(fusion, [-1], True)
    a = neg(fusion, x)
    neg(fusion, a)  # dead
    b = neg(fusion, a)
    c = add(fusion, b, a)
    add_output(fusion, c)
    # Creation order is not order of computation once a schedule inserts copies.
    fusion.nodes = dict.fromkeys(reversed(fusion.nodes))
    assert [n.output for n in fusion.ordered_nodes()] == [a, b, c]


def test_replace_inputs_keeps_uses_right():
    fusion = Fusion()
    x, y = define_tensor(fusion, [4], True), define_tensor(fusion, [4], True)
    out = add(fusion, x, x)
    add_output(fusion, out)
    fusion.replace_inputs(out.definition, {x: y})
    assert out.definition.inputs == (y, y) and not x.uses and y.uses == [out.definition]
    verify_fusion(fusion)


def test_inputs_and_outputs_are_in_global_memory():
    fusion = Fusion()
    x = define_tensor(fusion, [-1], True)
    middle = neg(fusion, x)
    out = neg(fusion, middle)
    add_output(fusion, out)
    assert [t.memory for t in (x, middle, out)] == [MemoryType.global_, MemoryType.local, MemoryType.global_]


def test_numbering_of_scalars_is_shared_with_sizes():
    fusion = Fusion()
    define_tensor(fusion, [-1], True)
    assert define_scalar(fusion, None, DataType.Double).name == "d2"  # i0, and 1 for the shared zero


def test_a_size_that_the_prover_alone_knows_is_computed_by_the_host():
    fusion = Fusion()
    n, m = fusion.new_extent(), fusion.new_extent()
    first = minimum(const(5), n)
    size = ceildiv(maximum(first, minimum(m, n)) - first, const(2))
    assert is_nonneg(size)
    x = fusion.new_tensor([fusion.new_axis(each) for each in (n, m, size)], DataType.Float)
    fusion.add_input(x)
    fusion.unify_extents()
    assert fusion.computed_sizes == {x.extents[2]: size}
