"""How random inputs lie in memory, and how that is declared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from fusewright import DataType
from fusewright.frontend.descriptors import compute_tensor_descriptor
from tests.fuzz.programs import Input, TensorArgument

GAPS = (0, 1, 2, 3, 4, 8)
# Strides that a dimension of size 1 may have like any other.
STRIDES_OF_ONE = (0, 1, 2, 3, 9, 100)
OFFSETS = (1, 2, 3, 4, 5, 8)


@dataclass(frozen=True)
class Layout:
    """What all tensors passed for one input have in common.

    Attributes:
        order: the dimensions from the outermost in memory inward.
        dense: of each of these, whether its stride is the product of the sizes inside; None: the dimension is
            expanded (stride 0), or of size 1.
        misaligned: whether tensors may start anywhere in their storage.
        is_free: whether each tensor has an order and gaps of its own.
        expands: whether each may then have an expanded dimension.
    """

    order: tuple[int, ...]
    dense: tuple[bool | None, ...]
    misaligned: bool = False
    is_free: bool = False
    expands: bool = False

    def overlaps(self, dims: Sequence[str | None]) -> bool:
        """Whether several elements may be one in memory; `dims`: None for those of size 1."""
        return self.expands or any(
            dense is None and dims[dim] is not None for dim, dense in zip(self.order, self.dense)
        )

    def argument(self, rng: Random, shape: Sequence[int]) -> TensorArgument:
        """A tensor of this shape."""
        layout = random_layout(rng, len(shape), self.expands) if self.is_free else self
        strides = [0] * len(shape)
        next_stride, innermost = 1, True
        for dim, dense in zip(reversed(layout.order), reversed(layout.dense)):
            if shape[dim] == 1 and rng.random() < 0.3:
                strides[dim] = rng.choice(STRIDES_OF_ONE)
                continue
            if dense is None:
                strides[dim] = next_stride if shape[dim] == 1 else 0
                continue
            gap = 0 if dense else rng.choice(GAPS)
            strides[dim] = next_stride + (min(gap, 2) if innermost else gap)
            next_stride, innermost = strides[dim] * max(shape[dim], 1), False
        offset = rng.choice(OFFSETS) if layout.misaligned and rng.random() < 0.7 else 0
        return TensorArgument(tuple(shape), tuple(strides), offset, rng.randrange(100))


def random_layout(rng: Random, rank: int, may_expand: bool) -> Layout:
    """Any order; at times gaps between rows, an expanded dimension, a start that is not aligned."""
    order = list(range(rank))
    if rank and rng.random() < 0.5:
        rng.shuffle(order)
    dense: list[bool | None] = [True] * rank
    if rank and rng.random() < 0.35:
        for _ in range(rng.randint(1, 2)):
            dense[rng.randrange(rank)] = False
    if rank and may_expand and rng.random() < 0.25:
        dense[rng.randrange(rank)] = None
    return Layout(tuple(order), tuple(dense), misaligned=rng.random() < 0.5)


def plain_layout(rank: int) -> Layout:
    """Row-major, without gaps."""
    return Layout(tuple(range(rank)), (True,) * rank)


def declare(
    rng: Random, dtype: DataType, form: str, layout: Layout, shape: Sequence[int], declared: Sequence[int]
) -> tuple[Input, Layout, TensorArgument]:
    """An input, how all of its tensors lie in memory, and the first of them, of this shape.

    declared: for the form `define_tensor`, the size of each dimension that is written down.
    """
    if form != "define_tensor":
        first = layout.argument(rng, shape)
        contiguity, stride_order = compute_tensor_descriptor(first.shape, first.strides)
        order = sorted(range(len(shape)), key=lambda dim: -stride_order[dim])
        return Input(dtype, form), Layout(tuple(order), tuple(contiguity), layout.misaligned), first
    dense = [None if declared[dim] == 1 else flag for dim, flag in zip(layout.order, layout.dense)]
    layout = replace(layout, dense=tuple(dense))
    first = layout.argument(rng, shape)
    if layout.is_free:
        return Input(dtype, form, tuple(declared)), layout, first
    is_ordered = layout.order == tuple(range(len(shape)))
    if is_ordered and all(flag or declared[dim] == 1 for dim, flag in zip(layout.order, dense)):
        return Input(dtype, form, tuple(declared), True), layout, first
    places = () if is_ordered else tuple(layout.order[::-1].index(dim) for dim in range(len(shape)))
    return Input(dtype, form, tuple(declared), tuple(dense), places), layout, first
