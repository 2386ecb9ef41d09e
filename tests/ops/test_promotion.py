"""The rules of the reference's section on type promotion, as a table."""

import pytest

from fusewright.core.dtype import DataType as D
from fusewright.core.errors import DtypeError
from fusewright.core.op import result_dtype
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.ops.promotion import Tier, common_dtype, promote_operands
from fusewright.ops.reductions import REDUCTIONS, reduction_dtypes

T, R, S = Tier.TENSOR, Tier.RANK0, Tier.SCALAR


@pytest.mark.parametrize(
    ("operands", "common"),
    [
        # equal types stay, reduced floats too
        (((D.Half, T), (D.Half, T)), D.Half),
        (((D.Half, T), (D.Half, S)), D.Half),
        (((D.Bool, S), (D.Bool, S)), D.Bool),
        # one tier: pairwise
        (((D.Int32, T), (D.Int, T)), D.Int),
        (((D.Float, T), (D.Double, T)), D.Double),
        (((D.Half, T), (D.BFloat16, T)), D.Float),
        (((D.Half, T), (D.Int, T), (D.Bool, T)), D.Half),
        (((D.Int, S), (D.Double, S)), D.Double),
        # a scalar of a reduced float counts as Float
        (((D.Half, S), (D.Int, S)), D.Float),
        (((D.Int, T), (D.Half, S)), D.Float),
        # a higher tier wins within its category and against smaller ones
        (((D.Int32, T), (D.Int, S)), D.Int32),
        (((D.Int32, T), (D.Int, R)), D.Int32),
        (((D.Float, T), (D.Double, S)), D.Float),
        (((D.Float, T), (D.Double, R)), D.Float),
        (((D.Half, T), (D.Double, S)), D.Half),
        (((D.Half, T), (D.Float, R)), D.Half),
        (((D.Float, R), (D.Double, S)), D.Float),
        (((D.Double, S), (D.Float, T)), D.Float),
        # a lower tier of a larger category is joined in
        (((D.Int, T), (D.Double, S)), D.Double),
        (((D.Int32, T), (D.Float, R)), D.Float),
        (((D.Bool, T), (D.Int, S)), D.Int),
        (((D.Bool, T), (D.Half, R)), D.Half),
        (((D.Bool, T), (D.Double, S)), D.Double),
        # complex takes the width of the floating tensor
        (((D.Float, T), (D.ComplexDouble, S)), D.ComplexFloat),
        (((D.Double, T), (D.ComplexFloat, S)), D.ComplexDouble),
        (((D.Int, T), (D.ComplexDouble, S)), D.ComplexDouble),
        (((D.Bool, T), (D.ComplexFloat, R)), D.ComplexFloat),
        (((D.ComplexFloat, T), (D.Double, S)), D.ComplexFloat),
        (((D.ComplexFloat, T), (D.ComplexDouble, S)), D.ComplexFloat),
        # three tiers, from the highest down
        (((D.Int32, T), (D.Half, R), (D.Double, S)), D.Half),
        (((D.Bool, T), (D.Int32, R), (D.Int, S)), D.Int32),
        # the index type
        (((D.Index, S), (D.Int, S)), D.Index),
        (((D.Float, T), (D.Index, S)), D.Float),
    ],
)
def test_common_type(operands, common):
    assert common_dtype(operands) is common


@pytest.mark.parametrize("reduced", [D.Half, D.BFloat16, D.Float8_e4m3fn], ids=str)
def test_reduced_floats_have_no_complex_type(reduced):
    with pytest.raises(DtypeError, match=str(reduced)):
        common_dtype([(reduced, T), (D.ComplexDouble, S)])


@pytest.mark.parametrize(
    ("name", "operands", "result"),
    [
        # the consequences that the reference lists
        ("add", ((D.Int32, T), (D.Int, S)), D.Int32),
        ("add", ((D.Float, T), (D.Double, S)), D.Float),
        ("add", ((D.Int, T), (D.Double, S)), D.Double),
        ("add", ((D.Half, T), (D.Half, T)), D.Float),
        ("add", ((D.Bool, T), (D.Int, S)), D.Int),
        # keep
        ("relu", ((D.Half, T),), D.Half),
        ("floor", ((D.Int, T),), D.Int),
        ("clamp", ((D.Half, T), (D.Double, S), (D.Double, S)), D.Half),
        ("threshold", ((D.Int32, T), (D.Double, S), (D.Int, S)), D.Int32),
        ("bitwise_not", ((D.Bool, T),), D.Bool),
        # same-up
        ("neg", ((D.Int32, T),), D.Int32),
        ("neg", ((D.BFloat16, T),), D.Float),
        ("div", ((D.Int, T), (D.Int, T)), D.Int),
        ("lerp", ((D.Half, T), (D.Half, T), (D.Double, S)), D.Float),
        ("addcmul", ((D.Half, T), (D.Half, T), (D.Half, T), (D.Double, S)), D.Float),
        ("addcmul", ((D.Int, T), (D.Int, T), (D.Int, T), (D.Double, S)), D.Int),
        # float-up
        ("exp", ((D.Int, T),), D.Float),
        ("exp", ((D.Bool, T),), D.Float),
        ("exp", ((D.Half, T),), D.Float),
        ("exp", ((D.Double, T),), D.Double),
        ("exp", ((D.ComplexFloat, T),), D.ComplexFloat),
        ("truediv", ((D.Int, T), (D.Int32, T)), D.Float),
        ("atan2", ((D.Int, T), (D.Double, S)), D.Double),
        # full-float
        ("nextafter", ((D.Float, T), (D.Double, S)), D.Float),
        # bool
        ("lt", ((D.Half, T), (D.Int, T)), D.Bool),
        ("logical_and", ((D.Half, T), (D.Int, T)), D.Bool),
        ("isnan", ((D.Half, T),), D.Bool),
        # parts
        ("abs", ((D.ComplexDouble, T),), D.Double),
        ("abs", ((D.Half, T),), D.Half),
        ("real", ((D.Int, T),), D.Int),
        ("imag", ((D.ComplexFloat, T),), D.Float),
        ("complex", ((D.Double, T), (D.Double, T)), D.ComplexDouble),
        # no upcast
        ("where", ((D.Bool, T), (D.Half, T), (D.Half, T)), D.Half),
        ("where", ((D.Bool, T), (D.Half, T), (D.Double, S)), D.Half),
        ("where", ((D.Bool, S), (D.Half, T), (D.Float, T)), D.Float),
    ],
)
def test_result_type(name, operands, result):
    assert promote_operands(ELEMENTWISE[name], operands)[1] is result


def test_types_that_operands_are_cast_to():
    def cast_to(name, *operands):
        return promote_operands(ELEMENTWISE[name], operands)[0]

    assert cast_to("add", (D.Half, T), (D.Int, T)) == (D.Float, D.Float)
    assert cast_to("lt", (D.Half, T), (D.Half, T)) == (D.Float, D.Float)
    assert cast_to("logical_or", (D.Half, T), (D.Int, T)) == (D.Bool, D.Bool)
    assert cast_to("where", (D.Bool, T), (D.Int, T), (D.Double, S)) == (D.Bool, D.Double, D.Double)
    assert cast_to("clamp", (D.Int, T), (D.Double, S), (D.Double, S)) == (D.Int,) * 3
    assert cast_to("isnan", (D.Half, T)) == (D.Half,)


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("nextafter", (D.Half, D.Half)),
        ("nextafter", (D.Int, D.Int)),
        ("bitwise_and", (D.Float, D.Float)),
        ("bitwise_not", (D.Float,)),
        ("bitwise_left_shift", (D.Int, D.Float)),
        ("logical_right_shift", (D.Bool, D.Bool)),
        ("gcd", (D.Float, D.Int)),
        ("imag", (D.Float,)),
        ("erf", (D.ComplexFloat,)),
        ("lt", (D.ComplexFloat, D.ComplexFloat)),
        ("complex", (D.Float, D.Double)),
        ("complex", (D.Half, D.Half)),
        ("where", (D.Int, D.Float, D.Float)),
        ("clamp", (D.Float, D.ComplexFloat, D.Float)),
        ("add", (D.UInt64, D.UInt64)),
    ],
)
def test_rejected_types_name_the_operation(name, types):
    with pytest.raises(DtypeError, match=name):
        result_dtype(ELEMENTWISE[name], types)


def test_condition_of_where_has_the_references_message():
    with pytest.raises(RuntimeError, match="Condition should be of DataType Bool"):
        promote_operands(ELEMENTWISE["where"], [(D.Float, T), (D.Float, T), (D.Float, T)])


@pytest.mark.parametrize(
    ("name", "given", "dtype", "expected"),
    [
        ("sum", D.Bool, D.Null, (D.Int, D.Int)),
        ("sum", D.Int32, D.Null, (D.Int, D.Int)),
        ("sum", D.Half, D.Null, (D.Float, D.Half)),
        ("prod", D.ComplexFloat, D.Null, (D.ComplexFloat, D.ComplexFloat)),
        ("sum", D.Half, D.Double, (D.Double, D.Double)),
        ("sum", D.Float, D.Int32, (D.Int32, D.Int32)),
        ("max", D.Half, D.Null, (D.Float, D.Half)),
        ("min", D.Bool, D.Null, (D.Bool, D.Bool)),
        ("max", D.Int32, D.Null, (D.Int32, D.Int32)),
        ("welford", D.BFloat16, D.Null, (D.Float, D.Float)),
    ],
)
def test_reduction_types(name, given, dtype, expected):
    assert reduction_dtypes(REDUCTIONS[name], given, dtype) == expected


@pytest.mark.parametrize(
    ("name", "given", "dtype"),
    [("max", D.Float, D.Float), ("max", D.ComplexFloat, D.Null), ("welford", D.Int, D.Null)],
)
def test_rejected_reduction_types(name, given, dtype):
    with pytest.raises(DtypeError, match=name):
        reduction_dtypes(REDUCTIONS[name], given, dtype)
