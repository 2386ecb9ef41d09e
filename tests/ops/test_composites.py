"""Operations that are composed of others: what they compute, of which type, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fusewright.core.dtype import DataType
from fusewright.core.errors import DefinitionError, DtypeError, OutputError, RankError, ShapeError
from tests.ops.definition import Definition, tensor_of

Tensor = torch.Tensor
Float, Double, Half, BFloat16 = DataType.Float, DataType.Double, DataType.Half, DataType.BFloat16
Int, Int32, Bool = DataType.Int, DataType.Int32, DataType.Bool
INF, NAN = float("inf"), float("nan")


def close(actual: Tensor, wide: Tensor) -> None:
    """`wide` was computed in float64 from the same inputs; the result is rounded to its type once."""
    roundoff = {torch.half: 1e-3, torch.bfloat16: 8e-3}.get(actual.dtype, 1e-5)
    torch.testing.assert_close(actual.double(), wide.double(), rtol=roundoff, atol=1e-5, equal_nan=True)


# ---- softmax and its kin -----------------------------------------------------------------------------------

SOFTMAX: dict[str, Callable[..., Tensor]] = {
    "softmax": torch.softmax,
    "log_softmax": torch.log_softmax,
    "logsumexp": torch.logsumexp,
}


@pytest.mark.parametrize("name", SOFTMAX)
@pytest.mark.parametrize("dtype", [Float, Half, BFloat16, Double], ids=str)
def test_softmax_is_torchs_computed_in_float(name: str, dtype: DataType) -> None:
    rows = tensor_of(dtype, -9, 9)
    rows[1, 2], rows[2] = INF, -INF
    for x in (rows, rows[:, :1], rows[0], rows[:0], rows[:, :0]):
        for dim in {0, -1}:
            d = Definition()
            (out,) = d.run(getattr(d, name)(d.input(x), dim))
            assert out.dtype is x.dtype
            close(out, SOFTMAX[name](x.double(), dim))


def test_logsumexp_over_several_dims_and_of_integers() -> None:
    for x in (tensor_of(Float), tensor_of(Int)):
        d = Definition()
        a = d.input(x)
        outs = d.run(d.logsumexp(a, [0, -1]), d.logsumexp(a, [1, 0], keepdim=True), d.logsumexp(a, dim=0))
        assert {out.dtype for out in outs} == {torch.float32}
        for out, (dims, keepdim) in zip(outs, (((0, 1), False), ((0, 1), True), (0, False))):
            close(out, torch.logsumexp(x.double(), dims, keepdim))


def test_softmax_casts_to_dtype_first() -> None:
    d = Definition()
    x = tensor_of(Half)
    (out,) = d.run(d.softmax(d.input(x), 1, dtype=Double))
    torch.testing.assert_close(out, torch.softmax(x, 1, dtype=torch.float64))
    d = Definition()
    assert d.log_softmax(d.input(tensor_of(Int)), 0, dtype=Float).dtype is Float


# ---- positions of extrema ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", [Float, BFloat16, Double, Int, Int32, Bool], ids=str)
def test_positions_are_torchs_first(name: str, dtype: DataType) -> None:
    rows = (
        tensor_of(dtype, -2.5, 2.5, (4, 3, 5)).round()
        if dtype.is_floating
        else tensor_of(dtype, shape=(4, 3, 5))
    )
    if dtype.is_floating:
        rows[2, 1, 3] = rows[2, 2, 1] = NAN
    find = getattr(torch, name)
    for x in (rows, rows[:, :, :1], rows[:1, :1, :1], rows[0, 0]):
        for dim in (None, 0, -1):
            for keepdim in (False, True):
                d = Definition()
                (out,) = d.run(getattr(d, name)(d.input(x), dim, keepdim))
                given = x.int() if dtype is Bool else x
                assert torch.equal(out, find(given, dim, keepdim=keepdim)), (x.shape, dim)


def test_positions_among_copies_are_those_of_the_first() -> None:
    for shape, sizes in (((4, 1, 5), (-1, 3, -1)), ((1, 4, 1, 5, 1), (2, -1, 3, -1, 2)), ((1, 4), (3, -1))):
        x = tensor_of(Float, shape=shape)
        wide = x.expand(sizes)
        for dim in (None, 1, -1):
            d = Definition()
            (out,) = d.run(d.argmax(d.expand(d.input(x), sizes), dim))
            assert torch.equal(out, wide.argmax(dim)), (shape, dim)


def test_positions_of_rank_0_and_of_no_elements() -> None:
    d = Definition()
    assert d.run(d.argmax(d.input(torch.tensor(3.0))))[0].item() == 0
    d = Definition()
    assert d.run(d.argmin(d.input(torch.empty(2, 0)), 1))[0].tolist() == [-1, -1]
    d = Definition()
    a = d.input(torch.empty(0, 1))
    copies = d.expand(a, [-1, 3])
    assert [x.tolist() for x in d.run(d.argmax(copies), d.argmax(copies, 0), d.argmax(a, 1))] == [
        -1,
        [-1] * 3,
        [],
    ]


@pytest.mark.parametrize("dtype", [Bool, Int, Half, Float, DataType.ComplexFloat], ids=str)
def test_any_and_all(dtype: DataType) -> None:
    rows = torch.tensor([[0, 0, 0], [1, 0, 2], [1, 3, 1]]).to(dtype.torch)
    if dtype is Float:
        rows[2, 1] = NAN
    for x in (rows, rows[:, :1], rows[:, :0]):
        d = Definition()
        a = d.input(x)
        got = d.run(d.any(a, -1), d.all(a, [1], True), d.any(a), d.all(a), d.all(a, dim=0))
        wanted = [x.any(-1), x.all(1, True), x.any(), x.all(), x.all(0)]
        assert all(map(torch.equal, got, wanted))


def test_std() -> None:
    x = tensor_of(Float)
    d = Definition()
    a = d.input(x)
    got = d.run(d.std(a), d.std(a, 0, correction=0), d.std(a, dim=[-1], keepdim=True))
    for out, wanted in zip(got, (x.std(), x.std(0, correction=0), x.std(-1, keepdim=True))):
        close(out, wanted)


# ---- normalizations ----------------------------------------------------------------------------------------


def normal(*shape: int, dtype: DataType = Float) -> Tensor:
    return torch.randn(shape, dtype=torch.float64).to(dtype.torch)


@pytest.mark.parametrize("dtype", [Float, Half, BFloat16, Double], ids=str)
def test_layer_and_rms_norm(dtype: DataType) -> None:
    x, weight, bias = normal(4, 3, 5, dtype=dtype), normal(3, 5, dtype=dtype), normal(3, 5, dtype=dtype)
    wide = [t.double() for t in (x, weight, bias)]
    d = Definition()
    a, w, b = (d.input(t) for t in (x, weight, bias))
    out, mean, invstd, plain, *_ = d.run(
        *d.layer_norm(a, [3, 5], w, b, eps=1e-3), d.layer_norm(a, 1)[0], *d.rms_norm(a, 2, w, 1e-3)
    )
    assert out.dtype is plain.dtype is x.dtype
    assert mean.dtype is invstd.dtype is dtype.compute.torch and mean.shape == (4, 1, 1)
    close(out, F.layer_norm(wide[0], [3, 5], *wide[1:], 1e-3))
    close(mean, wide[0].mean((1, 2), keepdim=True))
    close(invstd, (wide[0].var((1, 2), correction=0, keepdim=True) + 1e-3).rsqrt())
    close(plain, F.layer_norm(wide[0], [5]))
    scaled, scale = _[:2]
    assert scaled.dtype is x.dtype and scale.dtype is dtype.compute.torch
    close(scaled, F.rms_norm(wide[0], [3, 5], wide[1], 1e-3))
    close(scale, (wide[0].square().mean((1, 2), keepdim=True) + 1e-3).rsqrt())


def test_rms_norm_of_zeros_is_torchs_by_default() -> None:
    x = torch.full((2, 4), 1e-4).half()
    d = Definition()
    close(d.run(d.rms_norm(d.input(x), [4])[0])[0], F.rms_norm(x, [4]))


def test_sizes_of_a_normalized_shape_may_be_scalars_and_must_be_the_inputs() -> None:
    d = Definition()
    x = d.input(normal(2, 4))
    d.run(d.layer_norm(x, [d.size(x, 1)])[0])
    d = Definition()
    with pytest.raises(ShapeError, match="a conflict was found with 2 different sizes"):
        d.layer_norm(d.define_tensor([2, 4]), [5])


@pytest.mark.parametrize("dtype", [Float, BFloat16, Double], ids=str)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 2, 5), (1, 1, 4)], ids=str)
def test_batch_norm(dtype: DataType, training: bool, shape: tuple[int, ...]) -> None:
    channels = shape[1]
    x = normal(*shape, dtype=dtype)
    weight, bias, running_mean = (normal(channels, dtype=dtype) for _ in range(3))
    running_var = torch.rand(channels).to(dtype.torch) + 0.5
    wide = [t.to(torch.float64, copy=True) for t in (x, running_mean, running_var, weight, bias)]
    wanted = F.batch_norm(*wide, training, 0.2, 1e-3)
    d = Definition()
    inputs = [d.input(t) for t in (x, weight, bias, running_mean, running_var)]
    found = d.batch_norm(*inputs, 0.2, 1e-3, training)
    outputs = [(o.tensor, o.alias) for o in d.fusion.outputs]
    assert [alias for _, alias in outputs] == (inputs[3:] if training else [])
    out, mean, invstd, *updated = d.run(*found, *(tensor for tensor, _ in outputs))
    assert out.dtype is x.dtype and mean.dtype is invstd.dtype is dtype.compute.torch
    assert mean.shape == invstd.shape == (channels,)
    close(out, wanted)
    for new, old in zip(updated, wide[1:3]):
        close(new, old)  # which torch has updated
    dims = [i for i in range(x.ndim) if i != 1]
    if training:
        close(mean, x.double().mean(dims))
        close(invstd, (x.double().var(dims, correction=0) + 1e-3).rsqrt())
    else:
        close(mean, running_mean)
        close(invstd, (running_var.double() + 1e-3).rsqrt())


def test_batch_norm_with_channels_last_and_without_affine_or_running_statistics() -> None:
    x = normal(4, 2, 3)
    d = Definition()
    a = d.input(x)
    nothing = (None,) * 4
    last, statistics_of_input = d.run(
        d.batch_norm(a, *nothing, 0.1, 1e-5, True, channels_last=True)[0],
        d.batch_norm(a, *nothing, 0.1, 1e-5, training=False)[0],
    )
    close(last, F.batch_norm(x.movedim(2, 1), None, None, training=True).movedim(1, 2))
    close(statistics_of_input, F.batch_norm(x, None, None, training=True))


def test_running_statistics_may_be_casts_of_inputs_and_nothing_else() -> None:
    d = Definition()
    x, running = d.define_tensor([-1, -1], dtype=Half), [d.define_tensor([-1], dtype=Half) for _ in range(2)]
    momentum, eps = d.define_scalar(), d.define_scalar()
    d.batch_norm(d.cast(x, Float), None, None, *(d.cast(t, Float) for t in running), momentum, eps, True)
    assert [o.alias for o in d.fusion.outputs] == running
    assert all(o.hidden and o.tensor.dtype is Half for o in d.fusion.outputs)
    with pytest.raises(OutputError, match="running_mean must be an input of the fusion, or a cast of one"):
        d.batch_norm(x, None, None, *(d.neg(t) for t in running), momentum, eps, True)


# ---- activations and masks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [Float, Half, BFloat16, Double], ids=str)
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(dtype: DataType, approximate: str) -> None:
    x = torch.cat([tensor_of(dtype, -6, 6).flatten(), torch.tensor([0.0, INF, NAN]).to(dtype.torch)])
    d = Definition()
    (out,) = d.run(d.gelu(d.input(x), approximate))
    assert out.dtype is x.dtype
    close(out, F.gelu(x.double(), approximate=approximate))


@pytest.mark.parametrize(
    ("dtype", "value"),
    [(Float, 2), (Half, -INF), (Int32, 2.5), (Bool, True), (DataType.ComplexFloat, 1j)],
    ids=str,
)
def test_masked_fill(dtype: DataType, value: Any) -> None:
    x, mask = tensor_of(dtype), tensor_of(Bool, shape=(5,))
    d = Definition()
    (out,) = d.run(d.masked_fill(d.input(x), d.input(mask), value))
    assert torch.equal(out, x.masked_fill(mask, int(value) if dtype is Int32 else value))


def test_masked_fill_with_a_tensor() -> None:
    x, mask = tensor_of(Float), tensor_of(Bool)
    d = Definition()
    (out,) = d.run(d.masked_fill(d.input(x), d.input(mask), d.input(torch.tensor(7.5))))
    assert torch.equal(out, x.masked_fill(mask, 7.5))


# ---- errors ------------------------------------------------------------------------------------------------

BOUNDARY = r"Tried to access out of boundary index {}. total index: {}"
ONES = (None,) * 4
REFUSED: dict[str, tuple[type[Exception], str, Callable[[Any, Any], Any]]] = {
    "softmax dim": (ShapeError, BOUNDARY.format(2, 2), lambda d, x: d.softmax(x, 2)),
    "log_softmax dim": (ShapeError, BOUNDARY.format(-1, 2), lambda d, x: d.log_softmax(x, -3)),
    "logsumexp dim": (ShapeError, BOUNDARY.format(2, 2), lambda d, x: d.logsumexp(x, [0, 2])),
    "argmax dim": (ShapeError, BOUNDARY.format(2, 2), lambda d, x: d.argmax(x, 2)),
    "any dim": (ShapeError, BOUNDARY.format(-1, 2), lambda d, x: d.any(x, -3)),
    "softmax of rank 0": (
        ShapeError,
        BOUNDARY.format(0, 0),
        lambda d, x: d.softmax(d.define_tensor([]), 0),
    ),
    "softmax float dim": (TypeError, r"softmax\(\): incompatible", lambda d, x: d.softmax(x, 0.5)),
    "argmax dims": (TypeError, r"argmax\(\): incompatible", lambda d, x: d.argmax(x, [0])),
    "softmax of Int": (
        DtypeError,
        "the input of softmax to have dtype a floating type",
        lambda d, x: d.softmax(d.define_tensor([-1], dtype=Int), 0),
    ),
    "gelu of complex": (
        DtypeError,
        "the input of gelu",
        lambda d, x: d.gelu(d.define_tensor([-1], dtype=DataType.ComplexFloat)),
    ),
    "argmax of complex": (
        DtypeError,
        "the operands of argmax",
        lambda d, x: d.argmax(d.define_tensor([-1], dtype=DataType.ComplexFloat)),
    ),
    "gelu form": (
        DefinitionError,
        "approximate argument must be either none or tanh",
        lambda d, x: d.gelu(x, "x"),
    ),
    "dropout p": (DefinitionError, "between 0 and 1, but got 1.5", lambda d, x: d.dropout(x, 1.5)),
    "mask": (DtypeError, "the mask of masked_fill", lambda d, x: d.masked_fill(x, x, 0)),
    "fill": (
        DtypeError,
        "the value of masked_fill",
        lambda d, x: d.masked_fill(x, d.define_tensor([-1, -1], dtype=Bool), 1j),
    ),
    "normalized rank": (
        RankError,
        "normalized_shape of layer_norm to have 1 to 2",
        lambda d, x: d.layer_norm(x, 3),
    ),
    "weight rank": (RankError, "the weight of rms_norm to have 1 dim", lambda d, x: d.rms_norm(x, 1, x)),
    "bias size": (
        ShapeError,
        "the bias of layer_norm",
        lambda d, x: d.layer_norm(x, 1, None, d.define_tensor([1])),
    ),
    "batch_norm rank": (
        RankError,
        "at least 2",
        lambda d, x: d.batch_norm(d.define_tensor([-1]), *ONES, 0.1, 1e-5, True),
    ),
    "half of the statistics": (
        ShapeError,
        "running_mean and running_var go together",
        lambda d, x: d.batch_norm(x, None, None, d.define_tensor([-1]), None, 0.1, 1e-5, True),
    ),
    "groups": (ShapeError, "num_groups", lambda d, x: d.group_norm(x, 0)),
    "groups of channels": (
        ShapeError,
        "num_groups=3 where there are 8 channels",
        lambda d, x: d.group_norm(d.define_tensor([-1, 8, -1]), 3),
    ),
    "instance_norm rank": (RankError, "at least 2", lambda d, x: d.instance_norm(d.define_tensor([-1]))),
    "target rank": (RankError, "the target of cross_entropy", lambda d, x: d.cross_entropy(x, x)),
    "target type": (
        DtypeError,
        "the target of cross_entropy to have dtype Int or Int32",
        lambda d, x: d.cross_entropy(x, d.define_tensor([-1])),
    ),
    "cross_entropy reduction": (
        DefinitionError,
        "max is not a valid value for reduction",
        lambda d, x: d.cross_entropy(x, d.define_tensor([-1], dtype=Int), reduction="max"),
    ),
    "complex eps": (DtypeError, "eps", lambda d, x: d.layer_norm(x, 1, eps=1j)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    error, text, call = REFUSED[case]
    d = Definition()
    x = d.define_tensor([-1, -1])
    with pytest.raises(error, match=text):
        call(d, x)
