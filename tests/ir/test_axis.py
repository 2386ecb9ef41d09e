"""Axes and transforms: index rules against integers, kinds, and the printed form."""

from __future__ import annotations

from itertools import product

import pytest

from fusewright.core.enums import ParallelType
from fusewright.ir import Fusion, IterDomain, IterKind, Merge, Split, Swizzle
from fusewright.ir.axis import ancestors, transforms_between
from fusewright.sym import as_int, const, symbol


@pytest.fixture
def fusion() -> Fusion:
    return Fusion()


def axis(fusion: Fusion, extent: int, kind: IterKind = IterKind.ITERATION) -> IterDomain:
    return fusion.new_axis(const(extent), kind)


def ints(exprs) -> list[int]:
    return [as_int(e) for e in exprs]


def test_swizzle_is_exclusive_or_and_its_own_inverse(fusion):
    swizzle = Swizzle(axis(fusion, 8), axis(fusion, 8), fusion.plain_axis)
    extents = (const(8), const(8))
    for x, y in product(range(8), repeat=2):
        point = (const(x), const(y))
        assert ints(swizzle.forward(point, extents)) == [x, x ^ y]
        assert ints(swizzle.backward(swizzle.forward(point, extents), extents)) == [x, y]


@pytest.mark.parametrize("inner_split", [True, False])
@pytest.mark.parametrize("extent, factor", [(12, 4), (10, 4), (3, 5)])
def test_split_covers_its_input_and_backward_undoes_forward(fusion, extent, factor, inner_split):
    split = Split(axis(fusion, extent), const(factor), inner_split, fusion.plain_axis)
    ins = (const(extent),)
    outer, inner = ints(a.extent for a in split.outputs)
    assert (inner if inner_split else outer) == factor and outer * inner >= extent > (outer - 1) * (inner - 1)
    for i in range(extent):
        o, n = split.forward((const(i),), ins)
        assert as_int(o) < outer and as_int(n) < inner
        assert ints(split.backward((o, n), ins)) == [i]
    assert split.may_overrun(ins) == (extent % factor != 0)


def test_merge_is_row_major(fusion):
    merge = Merge(axis(fusion, 3), axis(fusion, 4), fusion.plain_axis)
    ins = (const(3), const(4))
    assert as_int(merge.outputs[0].extent) == 12
    assert ints(merge.forward((const(2), const(1)), ins)) == [9]
    assert ints(merge.backward((const(9),), ins)) == [2, 1]


@pytest.mark.parametrize(
    "outer, inner, merged",
    [
        (IterKind.BROADCAST, IterKind.BROADCAST, IterKind.BROADCAST),
        (IterKind.ITERATION, IterKind.BROADCAST, IterKind.ITERATION),
        (IterKind.BROADCAST, IterKind.REDUCTION, IterKind.REDUCTION),
    ],
)
def test_merge_of_kinds(fusion, outer, inner, merged):
    out = Merge(axis(fusion, 1, outer), axis(fusion, 1, inner), fusion.plain_axis).outputs[0]
    assert out.kind is merged


def test_walks_between_axes(fusion):
    a, b = axis(fusion, 6), axis(fusion, 4)
    merge = Merge(a, b, fusion.plain_axis)
    split = Split(merge.outputs[0], const(8), True, fusion.plain_axis)
    assert transforms_between([a, b], split.outputs) == [merge, split]
    assert transforms_between(merge.outputs, split.outputs) == [split]
    assert ancestors(split.inner, [a, b]) == {a, b}


def test_printed_axes(fusion):
    size = symbol("i0", lo=0)
    plain = fusion.new_axis(size)
    split = Split(plain, const(4), True, fusion.plain_axis)
    split.inner.parallel = ParallelType.vectorize
    merged = Merge(fusion.new_axis(size), fusion.new_axis(const(3)), fusion.plain_axis).outputs[0]
    expanded = fusion.new_axis(const(1), IterKind.BROADCAST, expanded=const(7))
    reduced = fusion.new_axis(const(2), IterKind.REDUCTION, rfactor=True)
    reduced.parallel = ParallelType.block_x
    assert str(plain) == "iS0{i0}"
    assert str(split.outer) == "iS1{( ceilDiv(i0, 4) )}" and str(split.inner) == "iV2{4}"
    assert str(merged).startswith("iS5{( ") and "i0" in str(merged)
    assert str(expanded) == "bS6{1 ex 7}" and as_int(expanded.visible_extent) == 7
    assert str(reduced) == "rthreadIdx.x7{2}rf"
