"""Dimensions of an input that all reads go over as one are one.

    x[i, j, k], read at [p0, p1 // k, p1 % k]      becomes      x[i, l], read at [p0, p1], where l is j * k

The input lies in memory without gaps, and the kernel needs neither factor by itself. So rows that a reshape
has merged have one size for what lies together, as if the input had come so, although another dimension of
the input keeps it from having the dimensions of the reshape.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise

from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.index_map import IndexMap, position
from fusewright.ir.node import Indexed, Node
from fusewright.ir.value import Scalar, TensorView
from fusewright.rewrite.border.dense_views import has_all, is_dense, redefine
from fusewright.sym import ONE, TRUE, Add, Const, Expr, Mul, Symbol, floordiv, mod, product

#: An input, and the first of two of its dimensions.
_Place = tuple[TensorView, int]


def merge_dimensions_read_together(fusion: Fusion) -> Fusion:
    """`fusion` itself, in which inputs have fewer dimensions where these are read as one."""
    nodes = fusion.ordered_nodes()
    sources = dict.fromkeys([node.source for node in nodes if isinstance(node, Indexed)])
    inputs = [s for s in sources if fusion.is_input(s) and _is_read_by_place(fusion, s)]
    tried: set[tuple[Expr, Expr]] = set()
    while (found := _next_pair(inputs, tried)) is not None:
        tried.add(found)
        places = [(source, dim) for source in inputs for dim in _places(source, found)]
        if all(isinstance(size, Const) and size is not ONE for size in found):
            for place in places:
                _merge(fusion, [place], found)
        elif all(isinstance(size, Symbol) for size in found) and found[0] is not found[1]:
            _merge(fusion, places, found)
    return fusion


def _next_pair(
    inputs: Iterable[TensorView], tried: Collection[tuple[Expr, Expr]]
) -> tuple[Expr, Expr] | None:
    """The sizes of two neighbours, the last ones first, that were not tried yet."""
    pairs = (pair for source in inputs for pair in reversed([*pairwise(source.extents)]))
    return next((pair for pair in pairs if pair not in tried), None)


def _places(source: TensorView, sizes: tuple[Expr, Expr]) -> list[int]:
    """The dimensions of one size before one of the other, the last ones first, none of them twice."""
    found: list[int] = []
    for dim in reversed(range(source.ndim - 1)):
        if source.extents[dim : dim + 2] == sizes and dim + 1 not in found:
            found.append(dim)
    return found


def _is_read_by_place(fusion: Fusion, source: TensorView) -> bool:
    """Whether all that reads an input has all of it, each element where the position alone says."""
    if not is_dense(source) or any(output.alias is source for output in fusion.outputs):
        return False
    return all(
        isinstance(use, Indexed) and use.source is source and not (use.indices or use.filled) and has_all(use)
        for use in source.uses
    )


def _merge(fusion: Fusion, places: Sequence[_Place], sizes: tuple[Expr, Expr]) -> None:
    """Makes dimensions of these sizes and the next ones one, if all reads go over both as one."""
    factors = [size for size in sizes if isinstance(size, Symbol)]
    maps = {
        use: _merged(use.map, dim, sizes[1])
        for source, dim in places
        for use in source.uses
        if isinstance(use, Indexed)
    }
    firsts = [maps[use].indices[dim] for source, dim in places for use in source.uses if use in maps]
    if any(isinstance(index, Add) for index in firsts) or any(map.pred is not TRUE for map in maps.values()):
        return
    axes = [axis for source, dim in places for axis in source.shape[dim : dim + 2]]
    others = [*(e for map in maps.values() for e in map.expressions), *_sizes(fusion, axes, maps)]
    if not all(_are_together(e, factors) for e in others):
        return
    for source, dim in places:
        _merge_in(fusion, source, dim, sizes, factors)
    for read, map in maps.items():
        read.map = map
    fusion.edits += 1
    if factors:
        fusion.name_product(*factors)


def _merge_in(
    fusion: Fusion, source: TensorView, dim: int, sizes: tuple[Expr, Expr], factors: Collection[Symbol]
) -> None:
    """Makes a dimension of an input and the next one one, also in the way back of its reads."""
    axes = list(source.shape)
    axes[dim : dim + 2] = [fusion.new_axis(product(sizes), axes[dim].kind)]
    there = [position(i, axis.extent) for i, axis in enumerate(axes)]
    places = [*there[:dim], floordiv(there[dim], sizes[1]), mod(there[dim], sizes[1]), *there[dim + 1 :]]
    for read in source.uses:
        assert isinstance(read, Indexed)
        back = None if read.inverse is None else read.inverse.at(places)
        is_free = back is not None and all(_are_together(e, factors) for e in back.expressions)
        read.inverse = back if is_free else None
    redefine(source, axes)


def _merged(map: IndexMap, dim: int, inner: Expr) -> IndexMap:
    """The same elements, of the tensor whose dimensions `dim` and the next one, of size `inner`, are one."""
    indices = list(map.indices)
    indices[dim : dim + 2] = [indices[dim] * inner + indices[dim + 1]]
    return IndexMap(tuple(indices), map.pred)


def _sizes(fusion: Fusion, axes: Collection[IterDomain], nodes: Collection[Node]) -> Iterator[Expr]:
    """The expressions in which sizes occur but for those of some axes and nodes."""
    for axis in fusion.axes():
        if axis not in axes:
            yield from (e for e in (axis.extent, axis.expanded) if e is not None)
    for node in fusion.nodes:
        if node not in nodes:
            yield from node.index_expressions()
    for value in fusion.values():
        if isinstance(value, Scalar) and value.extent is not None:
            yield value.extent


def _are_together(e: Expr, factors: Collection[Symbol]) -> bool:
    """Whether none of these sizes occurs without the others, in one product with all of them."""
    if e.free_symbols.isdisjoint(factors):
        return True
    if isinstance(e, Symbol):
        return False
    if not isinstance(e, Mul):
        return all(_are_together(arg, factors) for arg in e.args)
    counts = {e.factors.count(factor) for factor in factors}
    return len(counts) == 1 and all(_are_together(arg, factors) for arg in e.args if arg not in factors)
