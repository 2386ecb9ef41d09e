"""From sizes and strides to contiguity and stride order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.errors import ArgumentTypeError, ShapeError, UnsupportedDeviceError
from fusewright.frontend import compute_contiguity, compute_tensor_descriptor


@pytest.mark.parametrize(
    ("sizes", "strides", "contiguity", "order"),
    [
        ([2, 3], [3, 1], [True, True], [1, 0]),
        ([2, 3], [1, 2], [True, True], [0, 1]),
        ([2, 3], [6, 2], [True, False], [1, 0]),
        ([2, 1, 3], [3, 3, 1], [True, None, True], [2, 1, 0]),
        ([2, 4, 3], [3, 0, 1], [True, None, True], [2, 1, 0]),
        ([4, 2, 3], [0, 1, 2], [None, True, True], [2, 0, 1]),
        ([2, 3, 4], [24, 4, 1], [False, True, True], [2, 1, 0]),
        ([1], [7], [None], [0]),
        ([], [], [], []),
    ],
    ids=str,
)
def test_descriptor(
    sizes: list[int], strides: list[int], contiguity: list[bool | None], order: list[int]
) -> None:
    assert compute_tensor_descriptor(sizes, strides) == (contiguity, order)


@pytest.mark.parametrize("dims", list(itertools.permutations(range(3))))
def test_descriptor_of_a_permuted_dense_tensor_is_dense(dims: tuple[int, ...]) -> None:
    x = torch.empty(4, 5, 6).permute(dims)
    contiguity, order = compute_tensor_descriptor(x.shape, x.stride())
    assert contiguity == [True] * 3
    assert sorted(range(3), key=lambda d: -order[d]) == sorted(range(3), key=lambda d: -x.stride()[d])


def test_contiguity_in_logical_order() -> None:
    assert compute_contiguity([2, 3, 1], [3, 1, 1]) == [True, True, None]
    assert compute_contiguity([2, 3], [1, 2]) == [False, False]


def test_negative_strides_are_refused() -> None:
    with pytest.raises(ShapeError, match="must not be negative"):
        compute_tensor_descriptor([2], [-1])


def test_from_pytorch() -> None:
    with FusionDefinition() as fd:
        fd.from_pytorch(torch.empty(4, 5).t())
        fd.from_pytorch(torch.empty(4, 1).expand(4, 3), static_sizes=True)
        fd.from_pytorch(torch.tensor(2.0, dtype=torch.float64))
        with pytest.raises(UnsupportedDeviceError, match="Found unsupported device meta") as caught:
            fd.from_pytorch(torch.empty(3, device="meta"))
        assert isinstance(caught.value, ValueError)
        with pytest.raises(ArgumentTypeError):
            fd.from_pytorch(2.0)  # type: ignore[arg-type]
        fd.add_output(fd.define_tensor([-1]))
    a, b, c = fd._complete().fusion.tensors()[:3]
    assert a.allocation == (a.logical[1], a.logical[0])
    assert (b.contiguity, [str(e) for e in b.extents]) == ((True, None), ["4", "3"])
    assert (c.is_cpu, c.dtype, c.ndim) == (True, DataType.Double, 0)


def test_three_forms_of_define_tensor() -> None:
    with FusionDefinition() as fd:
        fd.define_tensor([-1, 1, 4], [True, None, True], DataType.Half)
        fd.define_tensor([-1, 1, 4], contiguity=True, dtype=DataType.Half)
        fd.define_tensor([7, 1, 4], [4, 4, 1], DataType.Half)
        fd.define_tensor([7, 1, 4], [4, 4, 1], DataType.Half, static_sizes=True)
        fd.define_tensor([-1, -1])
        fd.add_output(fd.define_tensor([]))
    tensors = fd._complete().fusion.tensors()
    assert [t.contiguity for t in tensors[:4]] == [(True, None, True)] * 4
    assert [[str(e) for e in t.extents] for t in tensors[:4]] == [
        ["i0", "1", "4"],
        ["i4", "1", "4"],
        ["i7", "1", "i9"],
        ["7", "1", "4"],
    ]
    assert tensors[4].contiguity == (False, False)


def test_integers_of_numpy_are_integers() -> None:
    found = compute_contiguity(
        [np.int32(3), np.int32(1 << 16), np.int32(1 << 16)], [1 << 32, np.int32(1 << 16), 1]
    )
    assert found == [True, True, True]
    assert {type(value) for value in found} == {bool}
