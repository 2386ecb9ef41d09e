"""Builders: what they compute, of which type, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fusewright.core.dtype import Category, DataType
from fusewright.core.errors import DtypeError, OutputError, RankError, ShapeError
from fusewright.ir import Broadcast, Pointwise, Scalar
from fusewright.ops import OPS
from fusewright.ops.elementwise import CAST, ELEMENTWISE
from tests.ops.definition import Definition, tensor_of

Float, Double, Half, BFloat16 = DataType.Float, DataType.Double, DataType.Half, DataType.BFloat16
Int, Int32, Bool = DataType.Int, DataType.Int32, DataType.Bool


# ---- every elementwise row ---------------------------------------------------------------------------------

_TYPES = {
    Category.BOOL: (Bool,),
    Category.INT: (Int, Int32),
    Category.FLOAT: (Float, Double, Half),
    Category.COMPLEX: (DataType.ComplexFloat,),
}


def _bounds(row: Any, operand: int, dtype: DataType) -> tuple[float, float]:
    domain = row.domain(operand)
    low, high = max(domain.low, -3.0), min(domain.high, 3.0)
    return (1.0, 4.0) if dtype.is_integral and operand else (low, high)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        (name, dtype)
        for name, row in ELEMENTWISE.items()
        if row is not CAST
        for category in sorted(row.supports)
        for dtype in _TYPES[category]
    ],
    ids=str,
)
def test_every_row_computes_what_torch_does(name: str, dtype: DataType) -> None:
    row = ELEMENTWISE[name]
    types = row.operand_dtypes(dtype)
    d = Definition()
    operands = [d.input(tensor_of(t, *_bounds(row, i, t))) for i, t in enumerate(types)]
    scalars = {"addcmul": 3, "clamp": 1, "threshold": 1}.get(name, len(operands))
    operands[scalars:] = [{Bool: True}.get(dtype, 2 if dtype.is_integral else 1.5)] * (
        len(operands) - scalars
    )
    d.given = d.given[: len(d.fusion.inputs)]
    try:
        out = getattr(d, name)(*operands)
    except DtypeError:
        assert name in ("nextafter", "complex")
        assert dtype is Half
        return
    d.run(out)


# ---- promotion ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "operands", "expected"),
    [
        ("add", (Int32, 2), Int32),
        ("add", (Float, 2.5), Float),
        ("add", (Int, 2.5), Double),
        ("add", (Half, Half), Float),
        ("add", (Half, 2.5), Float),
        ("add", (Bool, 2), Int),
        ("add", (Half, BFloat16), Float),
        ("add", (Half, Double), Double),
        ("add", (Float, 1j), DataType.ComplexFloat),
        ("relu", (Half,), Half),
        ("exp", (Int,), Float),
        ("where", (Bool, Half, Half), Half),
        ("lt", (Int, 2.5), Bool),
        ("truediv", (Int, Int), Float),
    ],
)
def test_promotion(name: str, operands: tuple[Any, ...], expected: DataType) -> None:
    d = Definition()
    values = [d.define_tensor([-1], dtype=o) if isinstance(o, DataType) else o for o in operands]
    assert getattr(d, name)(*values).dtype is expected


def test_casts_are_nodes_and_operations_get_one_type() -> None:
    d = Definition()
    out = d.add(d.define_tensor([-1], dtype=Half), d.define_tensor([-1]))
    assert [v.dtype for v in out.definition.inputs] == [Float, Float]
    assert out.producers[0].definition.op is CAST


def test_complex_scalar_with_half_tensor_has_no_common_type() -> None:
    d = Definition()
    with pytest.raises(DtypeError, match="no complex type"):
        d.add(d.define_tensor([-1], dtype=Half), 1j)


# ---- alignment of shapes -----------------------------------------------------------------------------------


def test_lower_rank_gets_leading_broadcasts() -> None:
    d = Definition()
    a, b = tensor_of(Float), tensor_of(Float, shape=(5,))
    (out,) = d.run(d.add(d.input(a), d.input(b)))
    torch.testing.assert_close(out, a + b)
    (node,) = [n for n in d.fusion.nodes if isinstance(n, Broadcast)]
    assert node.flags == (True, False)


def test_sizes_of_operands_become_one() -> None:
    d = Definition()
    a, b = d.define_tensor([-1]), d.define_tensor([-1])
    d.add_output(d.add(a, b))
    d.fusion.unify_extents()
    assert a.extents == b.extents
    assert len(d.fusion.equalities) == 1


def test_static_sizes_that_differ_are_refused() -> None:
    d = Definition()
    with pytest.raises(ShapeError, match="a conflict was found with 2 different sizes"):
        d.add(d.define_tensor([3]), d.define_tensor([4]))


def test_expanded_operand_decides_the_visible_size() -> None:
    d = Definition()
    a = d.define_tensor([3, 4], contiguity=[None, True])
    b = d.define_tensor([1, 4])
    out = d.add(a, b)
    assert [str(axis.visible_extent) for axis in out.shape] == ["3", "4"]
    assert out.shape[0].is_broadcast


# ---- scalars -----------------------------------------------------------------------------------------------


def test_constants_fold_and_other_scalars_are_computed_on_the_host() -> None:
    d = Definition()
    assert d.add(2, 3).value == 5
    assert d.truediv(1, 4).value == 0.25
    s = d.define_scalar(None, Double)
    out = d.mul(s, 2)
    assert isinstance(out, Scalar)
    assert isinstance(out.definition, Pointwise)
    x = d.define_tensor([-1])
    d.given = [3.5, torch.ones(4)]
    assert d.run(d.add(x, out))[0].tolist() == [8.0] * 4


def test_arithmetic_of_sizes_stays_symbolic() -> None:
    d = Definition()
    x = d.define_tensor([-1, -1])
    total = d.mul(d.size(x, 0), d.size(x, 1))
    assert total.extent is x.extents[0] * x.extents[1]
    assert d.size(d.define_tensor([7]), 0).value == 7


# ---- reductions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean"])
@pytest.mark.parametrize("dims", [None, 0, -1, [0, 1]], ids=str)
@pytest.mark.parametrize("keepdim", [False, True])
def test_reductions(name: str, dims: Any, keepdim: bool) -> None:
    x = tensor_of(Double, 0.5, 1.5)
    d = Definition()
    (out,) = d.run(getattr(d, name)(d.input(x), dims, keepdim))
    over = (0, 1) if dims is None else dims
    if name == "prod":
        expected = x.log().sum(over, keepdim=keepdim).exp()
    else:
        expected = getattr(torch, {"max": "amax", "min": "amin"}.get(name, name))(x, over, keepdim=keepdim)
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize(
    ("name", "given", "dtype", "expected"),
    [
        ("sum", Half, DataType.Null, Half),
        ("sum", Bool, DataType.Null, Int),
        ("sum", Int32, DataType.Null, Int),
        ("sum", Half, Float, Float),
        ("prod", Float, Double, Double),
        ("max", Half, DataType.Null, Half),
        ("mean", Int, DataType.Null, Float),
        ("mean", Half, DataType.Null, Half),
    ],
)
def test_reduction_types(name: str, given: DataType, dtype: DataType, expected: DataType) -> None:
    d = Definition()
    out = getattr(d, name)(d.input(tensor_of(given)), [1], dtype=dtype)
    assert out.dtype is expected
    d.run(out)


def test_half_is_summed_in_float() -> None:
    # 2048 + 1 is 2048 in Half.
    x = torch.cat([torch.tensor([2048.0]), torch.ones(64)]).half()
    d = Definition()
    assert d.run(d.sum(d.input(x)))[0].item() == 2112.0


def test_sum_overload_with_a_type_alone() -> None:
    d = Definition()
    assert d.sum(d.define_tensor([-1, -1], dtype=Half), Double).dtype is Double
    assert d.sum(d.define_tensor([-1, -1]), dim=1).ndim == 1


def test_expanded_dimensions_multiply_and_exponentiate() -> None:
    x = torch.tensor([[2.0], [3.0]])
    for name, expected in (("sum", [8.0, 12.0]), ("prod", [16.0, 81.0]), ("max", [2.0, 3.0])):
        d = Definition()
        wide = d.expand(d.input(x), [-1, 4])
        assert d.run(getattr(d, name)(wide, [1]))[0].tolist() == expected


def test_rank_0_is_copied() -> None:
    d = Definition()
    assert d.run(d.sum(d.input(torch.tensor(3.0))))[0].item() == 3.0


@pytest.mark.parametrize("correction", [0, 1, 2, 5, 9])
@pytest.mark.parametrize("dtype", [Float, DataType.ComplexFloat])
def test_var_mean(correction: int, dtype: DataType) -> None:
    x = tensor_of(dtype)
    d = Definition()
    var, mean = d.run(*d.var_mean(d.input(x), [1], correction=correction, keepdim=True))
    centred = x - x.mean(1, keepdim=True)
    expected = (centred.abs() ** 2).sum(1, keepdim=True) / max(5 - correction, 0)
    torch.testing.assert_close(var, expected)
    torch.testing.assert_close(mean, x.mean(1, keepdim=True))


def test_var_mean_of_rank_0_and_of_expanded() -> None:
    d = Definition()
    var, mean = d.run(*d.var_mean(d.input(torch.tensor(3.0)), [], correction=0))
    assert (var.item(), mean.item()) == (0.0, 3.0)
    d = Definition()
    x = torch.tensor([[1.0], [3.0]])
    (var,) = d.run(d.var(d.expand(d.input(x), [-1, 3]), None, 0))
    torch.testing.assert_close(var, torch.var(x.expand(2, 3), correction=0))


def test_var_of_half_is_float_and_var_mean_refuses_it() -> None:
    d = Definition()
    x = d.input(tensor_of(Half))
    assert d.var(x, [1]).dtype is Float
    with pytest.raises(DtypeError, match="var_mean"):
        d.var_mean(x, [1])


def test_welford() -> None:
    x = tensor_of(Float)
    d = Definition()
    avg, m2, n = d.run(*d.welford(d.input(x), [0]))
    torch.testing.assert_close(avg, x.mean(0))
    torch.testing.assert_close(m2, x.var(0) * 3)
    assert n.tolist() == [4] * 5
    with pytest.raises(RankError):
        d.welford(d.define_tensor([]), [])


# ---- shapes ------------------------------------------------------------------------------------------------


def test_broadcast_in_dim_takes_sizes_and_scalars() -> None:
    x = tensor_of(Float)
    d = Definition()
    a = d.input(x)
    (out,) = d.run(d.broadcast_in_dim(a, [d.size(a, 0), 3, d.size(a, 1)], [0, 2]))
    torch.testing.assert_close(out, x[:, None, :].expand(4, 3, 5))


def test_expand_squeeze_permute() -> None:
    x = tensor_of(Float, shape=(4, 1, 5))
    d = Definition()
    wide = d.expand(d.input(x), [2, -1, 3, -1])
    narrow = d.squeeze(wide, [2], squeeze_expanded=True)
    (out,) = d.run(d.permute(narrow, [2, 0, -2]))
    torch.testing.assert_close(out, x[:, 0].expand(2, 4, 5).permute(2, 0, 1))


def test_stride_order_decides_the_order_in_memory() -> None:
    d = Definition()
    x = d.define_tensor([-1, -1, -1])
    out = d.stride_order(x, [0, 2, 1])
    assert [out.logical.index(axis) for axis in out.allocation] == [1, 2, 0]


def test_define_tensor_in_another_memory_order() -> None:
    d = Definition()
    x = d.define_tensor([-1, 1, 8], contiguity=[True, None, False], stride_order=[2, 1, 0])
    assert [axis.is_broadcast for axis in x.shape] == [False, True, False]
    y = d.define_tensor([-1, -1], contiguity=[True, False], stride_order=[0, 1])
    assert y.allocation == (y.logical[1], y.logical[0])
    assert y.contiguity == (True, False)
    assert y.extents[0] is y.logical[0].extent


# ---- factories ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [Float, Half, Int, Bool, DataType.ComplexFloat], ids=str)
def test_full(dtype: DataType) -> None:
    d = Definition()
    (out,) = d.run(d.full([2, 1, 3], 3, dtype))
    assert torch.equal(out, torch.full((2, 1, 3), 3, dtype=dtype.torch))


def test_like_factories_take_shape_and_type() -> None:
    x = tensor_of(Half)
    d = Definition()
    a = d.input(x)
    zeros, ones, filled = d.run(d.zeros_like(a), d.ones_like(a, Int), d.full_like(a, 0.1))
    assert torch.equal(zeros, torch.zeros_like(x))
    assert torch.equal(ones, torch.ones_like(x, dtype=torch.int64))
    assert torch.equal(filled, torch.full_like(x, 0.1))


def test_iota() -> None:
    d = Definition()
    n = d.input(5)
    out = d.run(d.iota(4), d.iota(3, 1.5, 0.5, Float), d.iota(n, 10, -2, Int32))
    assert [x.tolist() for x in out] == [[0, 1, 2, 3], [1.5, 2.0, 2.5], [10, 8, 6, 4, 2]]


# ---- outputs -----------------------------------------------------------------------------------------------


def test_aliased_outputs_share_the_input_and_are_hidden() -> None:
    d = Definition()
    x = d.define_tensor([-1])
    out = d.add(x, 1)
    for args in ((out,), (out, x), (out,), (x,)):
        d.add_output(*args)
    assert [(o.alias is x, o.hidden) for o in d.fusion.outputs[:3]] == [
        (True, False),
        (True, True),
        (True, False),
    ]
    assert d.fusion.outputs[3].tensor is x


def test_aliased_output_of_another_type_is_converted() -> None:
    d = Definition()
    x = d.define_tensor([-1], dtype=Half)
    d.add_output(d.add(x, x), x)
    assert d.fusion.outputs[0].tensor.dtype is Half


@pytest.mark.parametrize("output", ["scalar", "constant"])
def test_only_tensors_are_outputs(output: str) -> None:
    d = Definition()
    with pytest.raises(OutputError, match="only tensors may be outputs"):
        d.add_output(d.define_scalar() if output == "scalar" else 2.0)


def test_an_input_is_written_by_one_output() -> None:
    d = Definition()
    x = d.define_tensor([-1], dtype=Half)
    y = d.add(x, 1.0)
    d.add_output(y, x)
    d.add_output(y, x)
    with pytest.raises(OutputError, match=r"a second output written into T0 .* is written there already"):
        d.add_output(d.mul(x, 2.0), x)


def test_only_inputs_are_aliased() -> None:
    d = Definition()
    x = d.define_tensor([-1])
    with pytest.raises(OutputError, match="must be an input"):
        d.add_output(d.add(x, 1), d.mul(x, 2))


# ---- the table ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(OPS))
def test_every_row_is_documented_and_names_its_arguments(name: str) -> None:
    row = OPS[name]
    assert row.doc
    assert list(row.signature.parameters) == [p.name for p in row.parameters]
    assert row.parameters


def test_numbering_is_as_in_nvfuser() -> None:
    # "after one 1-D tensor the next symbolic double is d2; two 2-D tensors use i0,i1 and i3,i4"
    d = Definition()
    d.define_tensor([-1])
    assert d.define_scalar().name == "d2"
    d = Definition()
    a, b = d.define_tensor([-1, -1]), d.define_tensor([-1, -1])
    assert [str(e) for e in (*a.extents, *b.extents)] == ["i0", "i1", "i3", "i4"]
