"""The verifier of fusions: one planted mistake a test, each named in the message."""

from __future__ import annotations

import pytest

from fusewright.core.dtype import DataType
from fusewright.core.enums import MemoryType
from fusewright.core.errors import VerifyError
from fusewright.ir import Copy, Fusion, IterKind, Output, Pointwise, Reduction, TensorView, verify_fusion
from fusewright.ops.build_elementwise import apply_to_tensor
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_reduction import sum_
from fusewright.ops.build_shape import broadcast
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.ops.reductions import SUM
from fusewright.schedule import transforms
from fusewright.sym import const


@pytest.fixture
def fusion() -> Fusion:
    """x[4, 6] -> s = sum(x, 1) -> y = x - broadcast(s), the output."""
    fusion = Fusion()
    x = define_tensor(fusion, [4, 6], True)
    total = broadcast(fusion, sum_(fusion, x, [1]), [False, True])
    add_output(fusion, apply_to_tensor(fusion, "sub", x, total))
    return fusion


def tensor(fusion: Fusion, sizes: list[int], dtype: DataType = DataType.Float) -> TensorView:
    return fusion.new_tensor([fusion.new_axis(const(n)) for n in sizes], dtype)


def assert_refused(fusion: Fusion, text: str) -> None:
    with pytest.raises(VerifyError, match=text):
        verify_fusion(fusion, "a test")


def test_well_formed(fusion):
    verify_fusion(fusion)


def test_message_names_what_was_done_last(fusion):
    fusion.outputs.append(Output(tensor(fusion, [4])))
    assert_refused(fusion, "fusion verifier, after a test: output T")


def test_output_that_nothing_computes(fusion):
    out = tensor(fusion, [4])
    fusion.add_output(out)
    assert_refused(fusion, "neither computed nor an input")


def test_alias_of_no_input(fusion):
    out = fusion.output_tensors()[0]
    fusion.outputs = [Output(out, out)]
    assert_refused(fusion, "which is no input")


def test_output_in_registers(fusion):
    fusion.output_tensors()[0].memory = MemoryType.local
    assert_refused(fusion, "not in global memory")


def test_operand_from_nowhere(fusion):
    out = tensor(fusion, [4])
    fusion.add_node(Copy(tensor(fusion, [4]), out))
    assert_refused(fusion, "is used, but neither computed nor an input")


def test_input_that_is_computed(fusion):
    x = fusion.inputs[0]
    fusion.add_node(Copy(x, x))
    assert_refused(fusion, "input T0 is also computed")


def test_node_removed_behind_the_fusions_back(fusion):
    fusion.nodes.popitem()
    assert_refused(fusion, "not in the fusion|does not belong")


def test_forgotten_use(fusion):
    fusion.inputs[0].uses.pop()
    assert_refused(fusion, "T0 is read by 2 nodes, but lists 1 uses")


def test_cycle(fusion):
    a, b = tensor(fusion, [4]), tensor(fusion, [4])
    fusion.add_node(Copy(a, b))
    fusion.add_node(Copy(b, a))
    fusion.add_output(b)
    assert_refused(fusion, "depends on itself")


def test_operands_of_other_types(fusion):
    x = fusion.inputs[0]
    out = tensor(fusion, [4, 6], DataType.Double)
    fusion.add_node(Pointwise(ELEMENTWISE["neg"], (x,), out))
    assert_refused(fusion, "a result of double where the row gives float")


def test_reduced_float_is_not_computed_with(fusion):
    half = tensor(fusion, [4], DataType.Half)
    fusion.add_input(half)
    fusion.add_node(Pointwise(ELEMENTWISE["exp"], (half,), tensor(fusion, [4], DataType.Half)))
    assert_refused(fusion, "operands of __half where the row computes in float")


def test_copy_that_converts(fusion):
    fusion.add_node(Copy(fusion.inputs[0], tensor(fusion, [4, 6], DataType.Half)))
    assert_refused(fusion, "a move from float to __half")


def test_sizes_that_differ(fusion):
    fusion.add_node(Copy(fusion.inputs[0], tensor(fusion, [4, 7])))
    assert_refused(fusion, r"axis iS1\{6\} of T0 becomes iS\d+\{7\}")


def test_ranks_that_differ(fusion):
    x, out = fusion.inputs[0], tensor(fusion, [4, 6, 2])
    fusion.add_node(Copy(x, out))
    assert_refused(fusion, "T0 has no axis 2")


def test_reduction_of_nothing(fusion):
    fusion.add_node(Reduction(SUM, (fusion.inputs[0],), (tensor(fusion, [4, 6]),)))
    assert_refused(fusion, "no axis is reduced")


def test_reduction_without_one_of_its_states(fusion):
    axes = [fusion.new_axis(const(4)), fusion.new_axis(const(6), IterKind.REDUCTION)]
    outs = [fusion.new_tensor(axes, DataType.Float) for _ in range(2)]
    fusion.add_node(Reduction(SUM, (fusion.inputs[0],), outs))
    assert_refused(fusion, "2 outputs for 1 states")


def test_loop_that_lost_an_axis(fusion):
    out = fusion.output_tensors()[0]
    transforms.split(fusion, out, 1, 4)
    del out.loop[2]
    assert_refused(fusion, "the loop axes of T.* left over or missing")


def test_loop_of_another_tensors_axes(fusion):
    out = fusion.output_tensors()[0]
    out.loop = list(fusion.inputs[0].logical)
    assert_refused(fusion, "are not made from the others")


def test_allocation_of_other_axes(fusion):
    out = fusion.output_tensors()[0]
    out.allocation = out.allocation[:1] * 2
    assert_refused(fusion, "no permutation of its logical axes")


def test_inlined_beyond_its_loops(fusion):
    fusion.output_tensors()[0].inline_at = 3
    assert_refused(fusion, "is inlined at 3")
