"""Checks of inputs: class and message of each error, and the sizes, strides and index type that result."""

from __future__ import annotations

import pytest
import torch

from fusewright import FusionDefinition
from fusewright.core.errors import (
    ContiguityError,
    DeviceError,
    InputDtypeError,
    InputError,
    RankError,
    ShapeError,
)
from fusewright.host.inputs.binding import Binder
from fusewright.host.inputs.memory_checks import spanned_elements
from fusewright.ops.build_indexing import triu
from fusewright.sym import Symbol
from tests.host.fusions import DataType, Definition


def bind(d: Definition, *inputs):
    if not d.fusion.outputs:
        d.output(d.neg(d.fusion.inputs[0]))
    d.fusion.unify_extents()
    binder = Binder(d.fusion)
    return binder.bind(binder.flatten(inputs), None)


def rows(contiguity=True, shape=(-1, -1), **kwargs) -> Definition:
    d = Definition()
    d.tensor(shape, contiguity, **kwargs)
    return d


def test_scalar_for_a_tensor():
    with pytest.raises(InputError, match=r"Expected input 0, .*, to be an at::Tensor but got scalar 2"):
        bind(rows(), 2)


def test_tensor_for_a_scalar():
    d = Definition()
    d.tensor((-1,))
    d.scalar()
    with pytest.raises(
        InputError, match="Expected input 1, d2, to be a scalar but got float tensor of rank 1"
    ):
        bind(d, torch.ones(3), torch.ones(3))


def test_wrong_dtype():
    message = "to be bound to a tensor of dtype float, but got a tensor of dtype __half"
    with pytest.raises(InputDtypeError, match=rf"Expected input 0, .*, {message}"):
        bind(rows(), torch.ones(2, 2, dtype=torch.half))


@pytest.mark.parametrize(
    ("dtype", "given", "message"),
    [
        (
            DataType.Double,
            2 + 1j,
            r"Scalar value \(2,1\) is not compatible with the expected data type: double.",
        ),
        (DataType.Int, 2.5, "Scalar value 2.5 is not compatible with the expected data type: int64_t."),
        (DataType.Double, "2", "to be a scalar but got str"),
        (DataType.Int, 2**63, "Scalar value 9223372036854775808 is not compatible .*: int64_t."),
        (DataType.Float, -1e39, r"Scalar value -1e\+39 is not compatible .*: float."),
    ],
)
def test_scalar_of_a_wrong_kind(dtype, given, message):
    d = rows()
    d.scalar(dtype)
    with pytest.raises(InputError, match=message):
        bind(d, torch.ones(2, 2), given)


def test_wrong_rank():
    with pytest.raises(RankError, match="input 0, T0, to have 2 dimensions, but got 3"):
        bind(rows(), torch.ones(2, 2, 2))


def test_wrong_number_of_inputs():
    with pytest.raises(InputError, match=r"Expected 1 inputs \(T0\), but got 2"):
        bind(rows(), torch.ones(2, 2), torch.ones(2, 2))


def test_sizes_that_conflict():
    d = Definition()
    d.output(d.add(d.tensor(), d.tensor()))
    with pytest.raises(ShapeError, match="a conflict was found with 2 different sizes") as error:
        bind(d, torch.ones(2, 4), torch.ones(3, 4))
    assert "input 1, T1, dimension 0" in str(error.value) and "2, as T0.size(0)" in str(error.value)


def test_product_of_a_size_that_another_operation_found_equal_to_a_third():
    with FusionDefinition() as fd:
        y, x, row = (fd.define_tensor(shape) for shape in ([-1], [-1, -1], [-1]))
        fd.add_output(fd.ops.gt(x, y))  # its columns are as many as y has elements
        fd.add_output(fd.ops.reshape(x, [-1]) + row)
    x = torch.ones(2, 3)
    assert fd.execute([x[0], x, torch.ones(6)])[1].shape == (6,)
    with pytest.raises(ShapeError, match=r"(?s)conflict was found with 2 different sizes.*given: 6"):
        fd.execute([x[0], x, torch.ones(3)])


@pytest.mark.parametrize(("shape", "given"), [((4, -1), (3, 4)), ((-1, 1), (3, 4))])
def test_sizes_that_the_definition_fixes(shape, given):
    with pytest.raises(ShapeError, match=r"to have size [14], but got [34]"):
        bind(rows(shape=shape), torch.ones(given))


@pytest.mark.parametrize(
    ("contiguity", "strides", "ok"),
    [
        ([True, True], (6, 1), True),
        ([True, True], (12, 1), False),
        ([True, True], (12, 2), False),
        ([False, True], (12, 1), True),
        ([False, False], (1, 6), True),
        ([True, False], (12, 2), True),
        ([True, False], (13, 2), False),
    ],
)
def test_contiguity(contiguity, strides, ok):
    tensor = torch.empty(200).as_strided((5, 6), strides)
    if ok:
        assert bind(rows(contiguity), tensor).strides == (strides,)
    else:
        with pytest.raises(ContiguityError, match=rf"strides \({strides[0]}, {strides[1]}\)"):
            bind(rows(contiguity), tensor)


@pytest.mark.parametrize(
    ("contiguity", "shape", "strides", "used"),
    [
        ([True, True], (1, 6), (99, 1), (6, 1)),
        ([True, True], (5, 1), (1, 77), (1, 1)),
        ([True, False], (5, 1), (40, 3), (40, 40)),
        ([False, True], (1, 6), (99, 1), (0, 1)),
    ],
)
def test_dimension_of_one_element_has_no_stride_of_its_own(contiguity, shape, strides, used):
    assert bind(rows(contiguity), torch.empty(300).as_strided(shape, strides)).strides == (used,)


def test_contiguity_is_in_memory_order():
    transposed = torch.ones(6, 5).t()
    assert bind(rows(stride_order=[0, 1]), transposed).strides == ((1, 5),)
    with pytest.raises(ContiguityError):
        bind(rows(), transposed)


def test_expanded_dimension():
    d = rows([True, None], (-1, 3))
    assert bind(d, torch.ones(4, 1).expand(4, 3)).shapes == ((4, 3),)
    with pytest.raises(ContiguityError, match="stride 0 where it is expanded"):
        bind(d, torch.ones(4, 3))


def test_empty_tensor_has_no_strides_to_check():
    bind(rows(), torch.empty(0).as_strided((0, 4), (1, 1)))


def test_a_size_given_as_a_scalar_is_checked_though_no_axis_has_it():
    with FusionDefinition() as fd:
        x, n = fd.define_tensor([-1, 3], contiguity=True), fd.define_scalar(dtype=DataType.Int)
        fd.add_output(fd.ops.exp(fd.ops.expand(x, [n, -1])))
    assert fd.execute([torch.zeros(5, 3), 5])[0].shape == (5, 3)
    for rows in (1, 2):
        with pytest.raises(ShapeError, match=rf"(?s)conflict was found with 2 different sizes.*{rows}"):
            fd.execute([torch.zeros(rows, 3), 5])


def test_devices():
    d = Definition()
    d.output(d.add(d.tensor(), d.tensor()))
    with pytest.raises(DeviceError, match="input 0 on cpu and input 1 on meta"):
        bind(d, torch.ones(2, 2), torch.ones(2, 2, device="meta"))
    with pytest.raises(DeviceError, match="unsupported device meta"):
        bind(d, *[torch.ones(2, 2, device="meta")] * 2)


def test_layouts_that_have_no_strides():
    with pytest.raises(InputError, match="dense tensor"):
        bind(rows(), torch.eye(3).to_sparse())


def test_lazily_negated_view_is_refused():
    view = torch.ones(2, 2, dtype=torch.complex64).conj().imag
    with pytest.raises(InputError, match="resolve_neg"):
        bind(rows(False), view)


def test_alignment_is_the_pointers():
    whole = torch.empty(64)
    for start, bytes_ in ((0, 16), (1, 4), (2, 8), (4, 16)):
        assert bind(rows(), whole[start : start + 4].view(2, 2)).alignment == (bytes_,)


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((1 << 15, 1 << 15), (1 << 15, 1), DataType.Int32),
        ((1 << 16, 1 << 15), (1 << 15, 1), DataType.Int),  # 2^31 elements
        ((2, 4), (1 << 31, 1), DataType.Int),  # an offset of 2^31
        ((1 << 16, 1 << 16), (0, 0), DataType.Int),  # a position beyond 2^31, although the memory is small
        ((0, 1 << 31), (1 << 31, 1), DataType.Int),  # a size, although there are no elements
    ],
)
def test_index_dtype(shape, strides, expected):
    d = rows(False)
    d.output(d.neg(d.fusion.inputs[0]))
    binder = Binder(d.fusion)
    (x, _) = d.fusion.tensors()
    sizes = {e: size for e, size in zip(x.extents, shape) if isinstance(e, Symbol)}
    assert binder.index_dtype([spanned_elements(shape, strides)], sizes) is expected


@pytest.mark.parametrize(
    ("known", "diagonal", "expected"),
    [
        (None, 1 << 20, DataType.Int32),
        (None, 1 << 33, DataType.Int),
        (None, -(1 << 31), DataType.Int),
        (1 << 20, 0, DataType.Int32),
        ((1 << 31) - 20, 0, DataType.Int),
    ],
)
def test_index_dtype_holds_what_is_added_to_positions(known, diagonal, expected):
    d = Definition()
    x, k = d.tensor([-1, -1]), d.scalar(DataType.Int)
    d.output(triu(d.fusion, x, k if known is None else known))
    assert Binder(d.fusion).bind([torch.ones(4, 4), diagonal], None).index_dtype is expected


def test_sizes_from_scalars_are_part_of_the_signature():
    from fusewright.ops.build_factory import full

    d = Definition()
    n, value = d.scalar(DataType.Int), d.scalar()
    d.output(full(d.fusion, [d.add(n, 1), 4], value, DataType.Float))
    executor = d.executor()
    for count, fill in ((2, 1.5), (2, 2.5), (3, 0.5)):
        (out,) = executor.execute([count, fill], device=torch.device("cpu"))
        torch.testing.assert_close(out, torch.full((count + 1, 4), fill))
    with pytest.raises(ShapeError, match="used as a size"):
        executor.execute([-2, 1.0], device=torch.device("cpu"))
