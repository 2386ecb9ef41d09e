"""Derives the properties that a definition declares of a tensor from the tensor's sizes and strides."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

from fusewright.core.errors import ArgumentTypeError, RankError, ShapeError


def _ints(function: str, what: str, given: Sequence[int]) -> list[int]:
    """As Python's: numpy's integers are integers, too, but their products may overflow."""
    if not isinstance(given, Sequence) or not all(isinstance(value, Integral) for value in given):
        raise ArgumentTypeError(function=function, expected=f"{what}: list of ints", given=repr(given))
    return [int(value) for value in given]


def _checked(function: str, sizes: Sequence[int], strides: Sequence[int]) -> tuple[list[int], list[int]]:
    sizes, strides = _ints(function, "sizes", sizes), _ints(function, "strides", strides)
    if len(sizes) != len(strides):
        raise RankError(what="strides", expected=len(sizes), given=len(strides))
    for what, values in (("sizes", sizes), ("strides", strides)):
        if any(value < 0 for value in values):
            raise ShapeError(f"{what} must not be negative", expected="at least 0", given=values)
    return sizes, strides


def _contiguity(sizes: Sequence[int], strides: Sequence[int], order: Sequence[int]) -> list[bool | None]:
    """One entry a dimension, in `order` (outermost first)."""
    contiguity: list[bool | None] = []
    expected = 1
    for dim in reversed(order):
        if sizes[dim] == 1 or strides[dim] == 0:
            contiguity.append(None)
        else:
            contiguity.append(strides[dim] == expected)
            expected = strides[dim] * sizes[dim]
    return contiguity[::-1]


def compute_contiguity(sizes: Sequence[int], strides: Sequence[int]) -> list[bool | None]:
    """For each dimension, in logical order: None for a broadcast (size 1 or stride 0), else if it is dense.

    Dense: its stride is the stride times size of the next dimension inward that is no broadcast, or 1 if
    there is none.
    """
    sizes, strides = _checked("compute_contiguity", sizes, strides)
    return _contiguity(sizes, strides, range(len(sizes)))


def compute_tensor_descriptor(
    sizes: Sequence[int], strides: Sequence[int]
) -> tuple[list[bool | None], list[int]]:
    """(contiguity in memory order, stride order) of a tensor.

    Dimensions are ordered by decreasing stride, ties as they are; those with stride 0 then take the places
    that they have logically.
    """
    sizes, strides = _checked("compute_tensor_descriptor", sizes, strides)
    order = sorted((d for d in range(len(sizes)) if strides[d] != 0), key=lambda d: -strides[d])
    for dim in range(len(sizes)):
        if strides[dim] == 0:
            order.insert(dim, dim)
    stride_order = [0] * len(sizes)
    for place, dim in enumerate(order):
        stride_order[dim] = len(sizes) - 1 - place
    return _contiguity(sizes, strides, order), stride_order
