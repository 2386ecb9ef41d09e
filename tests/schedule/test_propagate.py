"""transform_like and parallelize_like over reductions, broadcasts and rfactored tensors."""

from __future__ import annotations

import pytest
import torch

from fusewright.core.enums import ParallelType
from fusewright.core.errors import ScheduleError
from fusewright.ir import Fusion, TensorView, verify_fusion
from fusewright.ir.text import scheduled_text
from fusewright.ops.build_elementwise import apply_to_tensor, copy_tensor
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_reduction import sum_, var_mean
from fusewright.ops.build_shape import broadcast, permute
from fusewright.schedule import Schedule, replay
from fusewright.schedule.propagate import spanning_walk
from fusewright.sym import as_int
from tests.lower.running import run


def shape(tensor: TensorView) -> str:
    return " ".join(f"{a.kind.value}{as_int(a.extent)}" for a in tensor.loop)


def normalization() -> Schedule:
    """T0[8, 12] -> copy -> sum -> broadcast -> copy - broadcast, the output."""
    fusion = Fusion()
    x = copy_tensor(fusion, define_tensor(fusion, [8, 12], True))
    total = broadcast(fusion, sum_(fusion, x, [1]), [False, True])
    add_output(fusion, apply_to_tensor(fusion, "sub", x, total))
    return Schedule(fusion)


def test_transforms_reach_everything_across_a_reduction_and_a_broadcast():
    schedule = normalization()
    load, total, wide, out = schedule.tensors()[1:]
    schedule.split(total, 1, 4)
    schedule.split(total, 0, 2)
    schedule.reorder(total, {2: 0})
    schedule.transform_like(total)
    assert shape(total) == "r3 i4 i2 r4"
    assert shape(load) == shape(out) == "i3 i4 i2 i4"
    # The broadcast has its size-1 axis cut alike, so that it can be inlined into loops over the whole.
    assert shape(wide) == "b1 i4 i2 b4"
    verify_fusion(schedule.fusion)


def test_axes_that_the_reference_lacks_stay_innermost():
    fusion = Fusion()
    x = define_tensor(fusion, [6, 8], True)
    narrow = sum_(fusion, x, [0])
    add_output(fusion, apply_to_tensor(fusion, "neg", narrow))
    schedule = Schedule(fusion)
    total, out = schedule.tensors()[1:]
    schedule.split(out, 0, 4)
    schedule.transform_like(out)
    assert shape(total) == "i2 i4 r6"


def test_a_merge_with_an_axis_that_is_missing_leaves_the_other():
    fusion = Fusion()
    x, y = define_tensor(fusion, [6], True), define_tensor(fusion, [6, 8], True)
    narrow = copy_tensor(fusion, x)
    wide = broadcast(fusion, narrow, [False, True])
    add_output(fusion, apply_to_tensor(fusion, "add", wide, y))
    schedule = Schedule(fusion)
    out = schedule.fusion.output_tensors()[0]
    schedule.merge(out, 0)
    schedule.split(out, 0, 4)
    schedule.transform_like(out)
    assert shape(schedule.tensor(narrow.number)) == "i2 i4"


def test_permuted_producer_loops_in_the_references_order():
    fusion = Fusion()
    x = copy_tensor(fusion, define_tensor(fusion, [6, 8], True))
    add_output(fusion, permute(fusion, x, [1, 0]))
    schedule = Schedule(fusion)
    out = schedule.fusion.output_tensors()[0]
    schedule.split(out, 0, 4)
    schedule.transform_like(out)
    assert shape(schedule.tensor(x.number)) == shape(out) == "i2 i4 i6"


def test_selected_tensors_only():
    schedule = normalization()
    load, total, wide, out = schedule.tensors()[1:]
    schedule.split(out, 1, 4)
    schedule.transform_like(out, [wide])
    assert shape(wide) == "i8 b1 b4" and shape(load) == "i8 i12" and shape(total) == "i8 r12"


def test_an_rfactored_reduction_keeps_what_made_its_logical_axes():
    schedule = normalization()
    load, total, _, out = schedule.tensors()[1:]
    schedule.split(total, 1, 4)
    partial = schedule.rfactor(total, [1])
    schedule.split(partial, 0, 2)
    schedule.transform_like(partial)
    assert shape(partial) == "i4 i2 r3 i4" and shape(total) == "i4 i2 r4"
    assert shape(load) == shape(out) == "i4 i2 i3 i4"
    verify_fusion(schedule.fusion)
    # and the other way round: a consumer's different cut of the row does not undo the partial's
    again = normalization()
    total, out = again.tensors()[2], again.fusion.output_tensors()[0]
    again.split(total, 1, 4)
    partial = again.rfactor(total, [1])
    again.split(out, 1, 3)
    again.transform_like(out)
    assert shape(partial) == "i8 r3 i4"
    verify_fusion(again.fusion)
    x = torch.randn(8, 12)
    torch.testing.assert_close(run(again, [x])[0], x - x.sum(1, keepdim=True))


def test_bindings_follow_axes_that_match():
    schedule = normalization()
    load, total, wide, out = schedule.tensors()[1:]
    schedule.parallelize(total, 0, ParallelType.grid_x)
    schedule.parallelize(total, 1, ParallelType.block_x, pad=32)
    schedule.parallelize_like(total)
    for tensor in (load, wide, out):
        assert [a.parallel for a in tensor.loop] == [ParallelType.grid_x, ParallelType.block_x]
    assert load.loop[1].padded == 32
    assert all(a.parallel is ParallelType.serial for a in schedule.fusion.inputs[0].loop)


def test_bindings_by_position_type_and_tensor():
    schedule = normalization()
    load, total, wide, out = schedule.tensors()[1:]
    schedule.parallelize(out, 0, ParallelType.grid_x)
    schedule.parallelize(out, 1, ParallelType.block_x, pad=32)
    schedule.parallelize_like(out, pos=1, selected=[load])
    assert [a.parallel.name for a in load.loop] == ["grid_x", "serial"]
    schedule.parallelize_like(out, selected=[wide], types=[ParallelType.block_x], propagate_padding=False)
    assert [a.parallel.name for a in wide.loop] == ["serial", "block_x"] and wide.loop[1].padded == 1
    assert [a.parallel.name for a in total.loop] == ["serial", "serial"]


def test_siblings_are_transformed_and_bound_alike():
    fusion = Fusion()
    var, mean = var_mean(fusion, define_tensor(fusion, [4, 8], True), [1], 0)
    add_output(fusion, var)
    add_output(fusion, mean)
    schedule = Schedule(fusion)
    lead, *others = (t for t in schedule.tensors() if t.is_reduction)
    schedule.split(lead, 1, 4)
    schedule.parallelize(lead, 2, ParallelType.block_x)
    schedule.transform_like(lead)
    schedule.parallelize_like(lead)
    assert len(others) == 2
    for other in others:
        assert shape(other) == "i4 r2 r4" and other.loop[2].parallel is ParallelType.block_x


@pytest.mark.parametrize("start", [1, 2, 4])
def test_the_walk_reaches_each_tensor_once_from_one_that_it_knows(start):
    schedule = normalization()
    reference = schedule.tensors()[start]
    known = {reference}
    for source, target, _ in spanning_walk(reference):
        assert source in known and target not in known
        known.add(target)
    assert known == set(schedule.tensors())


def test_the_walk_prefers_the_edge_that_carries_more():
    """From the output, x is reached directly, not through its sum, which lost a dimension."""
    schedule = normalization()
    load, _, _, out = schedule.tensors()[1:]
    sources = {target: source for source, target, _ in spanning_walk(out)}
    assert sources[load] is out


def test_a_swizzle_with_an_axis_that_is_missing_leaves_the_other():
    fusion = Fusion()
    x, y = define_tensor(fusion, [8], True), define_tensor(fusion, [8, 8], True)
    narrow = copy_tensor(fusion, x)
    wide = broadcast(fusion, narrow, [False, True])
    add_output(fusion, apply_to_tensor(fusion, "add", wide, y))
    schedule = Schedule(fusion)
    out = schedule.fusion.output_tensors()[0]
    schedule.split(out, 0, 4)
    schedule.split(out, 2, 4)
    schedule.swizzle(out, 1, 3)
    schedule.transform_like(out)
    assert shape(schedule.tensor(narrow.number)) == "i2 i4"
    values = [torch.randn(8), torch.randn(8, 8)]
    torch.testing.assert_close(run(schedule, values)[0], values[0][:, None] + values[1])


def test_rows_are_not_merged_into_what_is_reduced():
    """As the reduction would be over all rows then."""
    schedule = normalization()
    out = schedule.fusion.output_tensors()[0]
    before = {tensor: shape(tensor) for tensor in schedule.tensors() if tensor is not out}
    schedule.merge(out, 0)
    with pytest.raises(
        ScheduleError, match="T2 cannot loop alike: it reduces one of two axes that are merged"
    ):
        schedule.transform_like(out)
    assert shape(out) == "i96" and {tensor: shape(tensor) for tensor in before} == before


def test_columns_are_not_exchanged_by_a_row_that_is_reduced():
    """As a column's sum would then be of elements of several."""
    fusion = Fusion()
    x = define_tensor(fusion, [8, 8], True)
    add_output(fusion, sum_(fusion, copy_tensor(fusion, x), [0]))
    schedule = Schedule(fusion)
    x, load, total = schedule.tensors()
    for tensor in (load, total):
        schedule.split(tensor, 0, 4)
        schedule.split(tensor, 2, 4)
    with pytest.raises(ScheduleError, match="swizzle: both axes, or neither, must be reduced"):
        schedule.swizzle(total, 1, 3)
    schedule.swizzle(load, 1, 3)
    with pytest.raises(
        ScheduleError, match="T2 cannot loop alike: it reduces one of two axes that are swizzled"
    ):
        schedule.transform_like(load)


def test_loops_go_backward_to_a_bound_and_no_further():
    """x -> copy -> exp -> sum, with another use of exp: only what is between the sum and exp follows it."""
    fusion = Fusion()
    load = copy_tensor(fusion, define_tensor(fusion, [8, 12], True))
    exp = apply_to_tensor(fusion, "exp", load)
    negated = apply_to_tensor(fusion, "neg", exp)
    add_output(fusion, sum_(fusion, negated, [1]))
    add_output(fusion, apply_to_tensor(fusion, "abs", exp))
    schedule = Schedule(fusion)
    load, exp, negated, total, other = schedule.tensors()[1:]
    schedule.split(total, 0, 2)
    schedule.split(total, 2, 4)
    schedule.parallelize(total, 0, ParallelType.grid_x)
    schedule.parallelize(total, 3, ParallelType.block_x)
    schedule.bounded_transform_backward(total, -1, [exp], propagate_parallel_type=True)
    assert [shape(t) for t in (exp, negated)] == ["i4 i2 i3 i4"] * 2
    assert [a.parallel for a in exp.loop] == [a.parallel for a in total.loop]
    assert [shape(t) for t in (load, other)] == ["i8 i12"] * 2
    # Left of a position: what is to its right is there whole.
    schedule.bounded_transform_backward(total, 1, [load])
    assert [shape(t) for t in (load, exp, negated)] == ["i4 i2 i12"] * 3
    assert load.loop[0].parallel is ParallelType.serial
    schedule.bounded_transform_backward(total, 0, [negated])
    assert shape(negated) == "i8 i12"
    before = scheduled_text(schedule.fusion)
    for pos, to, problem in (
        (-1, [], "lists tensors that T4 is computed from.*given: none"),
        (-1, [exp, other], "lists tensors that T4 is computed from.*given: T5"),
        (-1, [total], "lists tensors that T4 is computed from.*given: T4"),
        (5, [exp], "T4 has no position 5.*expected: -1 for all loops, or 0 to 4"),
    ):
        with pytest.raises(ScheduleError, match=f"(?s){problem}"):
            schedule.bounded_transform_backward(total, pos, to)
    assert scheduled_text(schedule.fusion) == before
    schedule.bounded_transform_backward(total, -1, [load])
    schedule.transform_like(total)
    schedule.parallelize_like(total)
    verify_fusion(schedule.fusion)
    x = torch.randn(8, 12)
    replayed = replay(fusion, schedule.trace())
    for out, expected in zip(run(replayed, [x]), ((-x.exp()).sum(1), x.exp()), strict=True):
        torch.testing.assert_close(out, expected)
