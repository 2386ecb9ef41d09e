import copy
import pickle

import pytest
import torch

from fusewright.core import enums
from fusewright.core.dtype import DataType, from_torch, of_python_value, promote
from fusewright.core.dtype import torch_dtype_to_datatype as table
from fusewright.core.errors import DtypeError
from fusewright.core.op import converted

D = DataType
REAL_TYPES = [d for d in DataType if d not in (D.Null, D.Float4_e2m1fn_x2)]


def test_members_print_like_bound_enums():
    assert str(D.Float) == "DataType.Float"
    assert D.Float.name == "Float" and isinstance(D.Float.value, int)
    assert D(D.Half.value) is D.Half
    assert pickle.loads(pickle.dumps(D.Half)) is D.Half and copy.deepcopy(D.Half) is D.Half


@pytest.mark.parametrize("dtype", REAL_TYPES, ids=str)
def test_size_and_category_are_torchs(dtype):
    assert dtype.size == dtype.torch.itemsize
    assert dtype.is_floating == dtype.torch.is_floating_point
    assert dtype.is_complex == dtype.torch.is_complex
    kinds = (dtype.is_bool, dtype.is_integral, dtype.is_floating, dtype.is_complex)
    assert kinds.index(True) == dtype.category and sum(kinds) == 1


def test_null_has_no_facts():
    for fact in ("torch", "category"):
        with pytest.raises(ValueError):
            getattr(D.Null, fact)


def test_arithmetic_on_reduced_floats_is_in_float():
    reduced = {d for d in DataType if d.compute is not d and not d.is_short_integer}
    eights = {D.Float8_e4m3fn, D.Float8_e5m2, D.Float8_e8m0fnu}
    assert reduced == {D.Half, D.BFloat16, D.Float4_e2m1fn} | eights
    assert all(d.compute is D.Float for d in reduced)


def test_arithmetic_on_short_integers_is_in_32_bits():
    short = {d for d in DataType if d.is_short_integer}
    assert short == {D.Int8, D.UInt8, D.Int16, D.UInt16}
    assert all(d.compute is D.Int32 for d in short)
    assert promote(D.Int8, D.UInt8) is D.Int16
    assert promote(D.Int16, D.UInt16) is D.Int32
    assert promote(D.UInt8, D.Bool) is D.UInt8
    assert promote(D.Int8, D.Half) is D.Half


def test_what_is_beyond_a_short_integer_wraps():
    values = torch.tensor([300.7, -1.5, -129.0, 40000.0, 3e9, torch.nan])
    assert converted(values, D.UInt8).tolist() == [44, 255, 127, 64, 255, 0]
    assert converted(values, D.Int8).tolist() == [44, -1, 127, 64, -1, 0]
    assert converted(torch.tensor([300, -200]), D.Int8).tolist() == [44, 56]


def test_real_and_complex_types():
    assert (D.ComplexFloat.real, D.ComplexDouble.real, D.Half.real) == (D.Float, D.Double, D.Half)
    assert (D.Float.complex, D.ComplexDouble.complex) == (D.ComplexFloat, D.ComplexDouble)
    with pytest.raises(ValueError):
        _ = D.Half.complex


@pytest.mark.parametrize("dtype", [d for d in REAL_TYPES if not d.is_complex and d is not D.Index], ids=str)
def test_limits_bound_every_value_and_are_values(dtype):
    for limit in (dtype.lowest, dtype.highest):
        assert torch.tensor(limit, dtype=dtype.torch).item() == limit
    info = torch.finfo if dtype.is_floating else torch.iinfo
    if not dtype.is_bool and dtype is not D.Float4_e2m1fn:  # which torch does not know
        assert dtype.lowest <= info(dtype.torch).min and dtype.highest >= info(dtype.torch).max


def test_maps_from_torch_and_python():
    for dtype in REAL_TYPES:
        if dtype not in (D.Index, D.UInt64, D.Float4_e2m1fn):
            assert table[dtype.torch] is dtype
    assert table[torch.float4_e2m1fn_x2] is D.Float4_e2m1fn_x2
    with pytest.raises(KeyError):
        table[torch.uint64]
    with pytest.raises(DtypeError, match=r"one of .*torch\.uint64.*, but got torch\.uint32"):
        from_torch(torch.uint32)
    assert from_torch(torch.uint64) is D.UInt64
    assert [of_python_value(v) for v in (True, 1, 1.0, 1j)] == [D.Bool, D.Int, D.Double, D.ComplexDouble]


@pytest.mark.parametrize("a", REAL_TYPES, ids=str)
def test_promotion_is_a_join(a):
    for b in REAL_TYPES:
        joined = promote(a, b)
        assert joined is promote(b, a)
        assert promote(joined, a) is joined
        assert joined.category == max(a.category, b.category)


@pytest.mark.parametrize(
    ("a", "b", "joined"),
    [
        (D.Bool, D.Int32, D.Int32),
        (D.Int32, D.Int, D.Int),
        (D.Int, D.Float, D.Float),
        (D.Float, D.Double, D.Double),
        (D.Double, D.ComplexFloat, D.ComplexDouble),
        (D.Float, D.ComplexFloat, D.ComplexFloat),
        (D.Int, D.ComplexFloat, D.ComplexFloat),
        (D.Half, D.BFloat16, D.Float),
        (D.Half, D.Float, D.Float),
        (D.Half, D.Double, D.Double),
        (D.Float8_e4m3fn, D.Float8_e5m2, D.Float),
        (D.BFloat16, D.Int, D.BFloat16),
        (D.Half, D.Bool, D.Half),
        (D.Half, D.ComplexFloat, D.ComplexFloat),
        (D.Index, D.Int, D.Index),
        (D.Int32, D.Index, D.Index),
        (D.Index, D.Float, D.Float),
    ],
)
def test_pairwise_promotion(a, b, joined):
    assert promote(a, b) is joined and promote(b, a) is joined


def test_conversion_to_integers_saturates_as_the_device_does():
    x = torch.tensor([-2.7, 2.7, 1e30, -1e30, float("inf"), float("nan")])
    low, high = -(2**31), 2**31 - 1
    assert converted(x, D.Int32).tolist() == [-2, 2, high, low, high, 0]
    assert converted(x.double(), D.Int32).tolist() == [-2, 2, high, low, high, low]
    low, high = -(2**63), 2**63 - 1
    assert converted(x, D.Int).tolist() == [-2, 2, high, low, high, low]
    assert converted(torch.tensor([2.0**31 - 128, -(2.0**31)]), D.Int32).tolist() == [2**31 - 128, -(2**31)]
    assert converted(x, D.UInt64).tolist() == [0, 2, 2**64 - 1, 0, 2**64 - 1, 2**63]


def test_four_bit_floats_round_to_the_nearest_a_tie_to_even_bits():
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    x = torch.arange(-8, 8, 1 / 64)
    distance = (x.abs()[:, None] - values).abs()
    distance[:, 1::2] += 2.0**-20  # odd bits lose a tie
    nearest = torch.copysign(values[distance.argmin(1)], x)
    assert torch.equal(converted(x, D.Float4_e2m1fn).float(), nearest)
    quarters = torch.arange(-4, 4, 1 / 4)  # which e4m3 has all of
    again = converted(quarters.to(torch.float8_e4m3fn), D.Float4_e2m1fn)
    assert torch.equal(again.float(), converted(quarters, D.Float4_e2m1fn).float())
    limits = torch.tensor([float("inf"), -float("inf"), float("nan"), -0.0])
    assert converted(limits, D.Float4_e2m1fn).view(torch.uint8).tolist() == [76, 204, 76, 128]


def test_pairs_are_no_numbers():
    pairs = D.Float4_e2m1fn_x2
    assert (pairs.size, pairs.torch.itemsize, pairs.values.itemsize) == (1, 1, 1)
    assert not (pairs.is_floating or pairs.is_integral or pairs.is_bool or pairs.is_complex)
    with pytest.raises(ValueError, match="no common type"):
        promote(pairs, D.Float)


def test_conversion_of_complex_and_to_bool():
    z = torch.tensor([0j, 2j, 3 + 1j])
    assert converted(z, D.Bool).tolist() == [False, True, True]
    assert converted(z, D.Int).tolist() == [0, 0, 3]
    assert converted(torch.tensor([0.25, -0.0, float("nan")]), D.Bool).tolist() == [True, False, True]


def test_enums_have_entries_and_keyword_names():
    assert getattr(D, "__entries")["Half"][0] is D.Half
    entries = getattr(enums.SchedulerType, "__entries")
    assert entries["pointwise"][0] is enums.SchedulerType.pointwise
    for cls in (enums.MemoryType, enums.CacheOp):
        assert getattr(cls, "global") is cls.global_
        assert str(cls.global_) == f"{cls.__name__}.global"


def test_parallel_types():
    parallel = enums.ParallelType
    block, grid = (tuple(p for p in parallel if getattr(p, kind)) for kind in ("is_block", "is_grid"))
    assert block == (parallel.block_x, parallel.block_y, parallel.block_z)
    assert grid == (parallel.grid_x, parallel.grid_y, parallel.grid_z, parallel.cluster_x)
    assert {p for p in parallel if p.is_thread} == {*grid, *block}
    assert (parallel.block_x.ir_name, parallel.tma.ir_name, parallel.vectorize.ir_name) == (
        "threadIdx.x",
        "B",
        "V",
    )
