"""The printed form of fusions."""

from __future__ import annotations

from fusewright.core.dtype import DataType
from fusewright.core.enums import CacheOp, ParallelType
from fusewright.ir import Fusion, fusion_text, scheduled_text
from fusewright.ops.build_elementwise import apply_to_tensor
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_reduction import sum_, var_mean
from fusewright.ops.build_shape import broadcast
from fusewright.schedule import Schedule

MATH = """\
Inputs:
  T0_g_float[iS0{i0}, iS1{3}]
  T1_g___half[iS2{3}]
Outputs:
  T4_g_float[iS6{i0}, iS7{3}]

%kernel_math {
T2_l_float[iS3{3}]
   = cast(T1_g___half[iS2{3}]);
T3_l_float[bS4{1}, iS5{3}]
   = Broadcast( T2_l_float[iS3{3}], flags={true, false} );
T4_g_float[iS6{i0}, iS7{3}]
   = T0_g_float[iS0{i0}, iS1{3}]
   + T3_l_float[bS4{1}, iS5{3}];
} // %kernel_math\x20
"""


def test_print_math():
    fusion = Fusion()
    x = define_tensor(fusion, [-1, 3], True)
    bias = apply_to_tensor(fusion, "add", x, define_tensor(fusion, [3], True, DataType.Half))
    add_output(fusion, bias)
    assert fusion_text(fusion) == MATH


def test_tensor_shows_where_it_is_inlined():
    fusion = Fusion()
    x = define_tensor(fusion, [-1], True)
    add_output(fusion, apply_to_tensor(fusion, "exp", apply_to_tensor(fusion, "neg", x)))
    schedule = Schedule(fusion)
    middle, out = schedule.tensors()[1:]
    schedule.inline_most()
    assert str(middle) == "T1_l_float[iS1{i0}] ca_pos( 1 )"
    assert str(out) == "T2_g_float[iS2{i0}] produce_pos( 1 )"


def test_statements_by_kind_of_node():
    fusion = Fusion()
    x = define_tensor(fusion, [4, 5], True)
    var, mean = var_mean(fusion, x, [1], 0)
    wide = broadcast(fusion, sum_(fusion, x, [1]), [False, True])
    for tensor in (
        var,
        mean,
        apply_to_tensor(fusion, "where", apply_to_tensor(fusion, "gt", x, wide), x, 0.5),
    ):
        add_output(fusion, tensor)
    text = fusion_text(fusion)
    assert "= welford( T0_g_float[iS0{4}, iS1{5}] );" in text
    assert "rS" in text and "flags={false, true} );" in text
    assert "   > T" in text and "0.5);" in text


def test_outputs_say_what_they_alias():
    fusion = Fusion()
    x = define_tensor(fusion, [4], True)
    add_output(fusion, apply_to_tensor(fusion, "neg", x), x)
    assert "  T1_g_float[iS1{4}] alias of T0\n" in str(fusion)


def test_scheduled_text_shows_transforms_between_domains():
    fusion = Fusion()
    x = define_tensor(fusion, [-1, 8], True)
    add_output(fusion, sum_(fusion, x, [1]))
    schedule = Schedule(fusion)
    schedule.cache_after(schedule.fusion.inputs[0], cache_op=CacheOp.streaming)
    total = schedule.tensor(1)
    schedule.split(total, 1, 4)
    partial = schedule.rfactor(total, [2])
    schedule.split(partial, 0, 2, inner_split=False)
    schedule.parallelize(partial, 0, ParallelType.grid_x)
    text = scheduled_text(schedule.fusion)
    assert "cache_op=Streaming );" in text
    section = text.split("TransformPrinter : ")[1].split(f"{partial.name}_l_float")[1].split("loop domain")[0]
    assert "root domain" in section and "logical domain" in section
    assert "Split: rS" in section and "by factor 4" in section and "by outer factor 2" in section
    assert text.endswith("} // %kernel\n") and "TransformPrinter" not in scheduled_text(
        schedule.fusion, False
    )
