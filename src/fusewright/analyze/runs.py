"""Determines how an index expression varies along a run of neighbouring positions, for vector accesses.

A run is `w` positions along one dimension (the lane), starting at a multiple of `w`. Over the run an
expression may be constant, or increase by one per position from a multiple of `w`, if `w` divides certain
numbers and sizes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from fusewright.core.hardware import MAX_VECTOR_BYTES, WARP_SIZE
from fusewright.core.recorded import gcd
from fusewright.ir.axis import IterDomain
from fusewright.ir.index_map import IndexMap, is_size, position, position_of, positions, value_extent
from fusewright.ir.node import Indexed, Stored, Update
from fusewright.ir.value import TensorView
from fusewright.sym import (
    ZERO,
    Expr,
    FloorDiv,
    Le,
    Lt,
    Max,
    Min,
    Mod,
    Symbol,
    as_int,
    bounds,
    const,
    floordiv,
    is_positive_divisor,
    known_multiple,
    mod,
    product,
)

# The most elements of a vector. A multiple of this power of two is a multiple of every width.
_WIDEST = MAX_VECTOR_BYTES
# The fewest elements, or bytes, of a contiguous piece for which an indexed read uses vectors: two accesses of
# a warp. If one vector of a warp crosses the end of a piece, the warp also reads all its elements one by one.
LEAST_PIECE, LEAST_PIECE_BYTES = 512, 2 * WARP_SIZE * MAX_VECTOR_BYTES


def is_long(piece: int, element_bytes: int) -> bool:
    """Whether a contiguous piece of this number of elements is long enough for vectors."""
    return piece >= min(LEAST_PIECE, LEAST_PIECE_BYTES // element_bytes)


@dataclass(frozen=True, slots=True)
class Run:
    """How an expression varies over a run of `w` positions, if `w` divides all of `sizes`.

    Attributes:
        moves: whether it increases by one per position, from a multiple of `w` on. Otherwise it is constant.
        sizes: the numbers and size symbols that `w` has to divide.
        joined: for a moving run through memory, the tensor's dimensions along which it runs as along one.
    """

    moves: bool
    sizes: tuple[Expr, ...] = ()
    joined: tuple[IterDomain, ...] = ()


_CONSTANT = Run(False)


def indexed_run(node: Indexed, dim: int, unit: IterDomain | None) -> Run | None:
    """How an indexed read traverses its source along dimension `dim` of the result, or None.

    It moves if the index along `unit`, the dimension that is contiguous in memory, moves and all others are
    constant. A read that reverses at the ends of long rows moves as well, with alignment to single elements.
    """
    if any(not tensor.shape[dim].is_broadcast for tensor in node.index_tensors):
        return None
    run = memory_run(node.source, node.map, dim, unit)
    if run is None:
        lengths = [as_int(each) for each in straight_pieces(node, dim, unit) or ()]
        size = node.source.dtype.size
        if lengths and all(n is not None and is_long(n, size) for n in lengths):
            return Run(True, (const(1),))
    return run


def merged_indexed_run(node: Indexed, dims: Sequence[int], unit: IterDomain | None) -> Run | None:
    """How an indexed read traverses its source along merged dimensions of the result, or None.

    The sizes of the result are numbers.

    Args:
        dims: the merged dimensions, the innermost last.
    """
    axes = [node.output.maybe_root[dim] for dim in dims]
    extents = [axis.extent for axis in axes]
    # If the tensor is inlined, a broadcast dimension takes the consumer's extent.
    if any(axis.is_broadcast for axis in axes) or any(as_int(extent) == 0 for extent in extents):
        return None
    if any(not tensor.shape[dim].is_broadcast for tensor in node.index_tensors for dim in dims):
        return None
    places = positions([axis.extent for axis in node.output.maybe_root])
    rest: Expr = position(dims[-1], product(extents))
    for dim, extent in zip(reversed(dims[1:]), reversed(extents[1:])):
        places[dim] = mod(rest, extent)
        rest = floordiv(rest, extent)
    places[dims[0]] = rest
    run = memory_run(node.source, node.map.at(places), dims[-1], unit)
    return run if run is not None and all(as_int(size) is not None for size in run.sizes) else None


def stored_run(node: Stored, dim: int, unit: IterDomain | None) -> Run | None:
    """How a store by index traverses its output along dimension `dim` of the stored tensor, or None."""
    if isinstance(node, Update) and any(not t.shape[dim].is_broadcast for t in node.index_tensors):
        return None
    return memory_run(node.output, node.map, dim, unit)


def memory_run(tensor: TensorView, index_map: IndexMap, dim: int, unit: IterDomain | None) -> Run | None:
    """How an index map traverses a tensor in memory along dimension `dim` of its positions, or None.

    Dimensions without gaps between them in memory may count as one, since an index that merges or splits them
    differently is contiguous along all of them together. The result is the run with the weakest requirements.
    """
    indices = {axis: index for axis, index in zip(tensor.shape, index_map.indices) if not axis.is_broadcast}
    there = expression_run(index_map.pred, dim)
    if there is None:
        return None
    lanes = {s for e in index_map.indices for s in e.free_symbols if position_of(s) == dim}
    own = {
        size for s in lanes for size in divisors(value_extent(s)) or ()
    }  # required of all vectors along dim
    best: Run | None = None
    for joined in dense_groups(tensor, unit):
        run = _run_through(tensor, indices, dim, joined)
        if run is not None:
            sizes = dict.fromkeys((*run.sizes, *there.sizes))
            run = Run(run.moves, tuple(sizes), joined if run.moves else ())
            best = run if best is None else min(best, run, key=lambda each: _requirements(each, own))
    return best


def dense_groups(tensor: TensorView, unit: IterDomain | None) -> list[tuple[IterDomain, ...]]:
    """The groups of dimensions that are contiguous in memory: `unit`, `unit` and its neighbour, and so on.

    Each group has the outermost dimension first.
    """
    if unit is None:
        return [()]
    groups: list[tuple[IterDomain, ...]] = [(unit,)]
    memory = [each for each in zip(tensor.memory_axes, tensor.contiguity) if not each[0].is_broadcast]
    for axis, contiguous in reversed(memory[:-1]):
        if not contiguous:
            break
        groups.append((axis, *groups[-1]))
    return groups


def _run_through(
    tensor: TensorView, indices: dict[IterDomain, Expr], dim: int, joined: tuple[IterDomain, ...]
) -> Run | None:
    """The run if only the index along the merged dimensions `joined` may move."""
    run, others = expression_run(place_along(indices, joined), dim), constant_elsewhere(indices, joined, dim)
    if run is None or others is None:
        return None
    sizes = dict.fromkeys((*run.sizes, *others))
    if run.moves and is_stride(tensor, joined):
        row = divisors(product([axis.extent for axis in joined]))
        if row is None:
            return None
        sizes.update(dict.fromkeys(row))
    return Run(run.moves, tuple(sizes))


def place_along(indices: Mapping[IterDomain, Expr], joined: Sequence[IterDomain]) -> Expr:
    """The position along merged dimensions."""
    place: Expr = ZERO
    for axis in joined:
        place = place * axis.extent + indices[axis]
    return place


def constant_elsewhere(
    indices: Mapping[IterDomain, Expr], joined: Collection[IterDomain], dim: int
) -> tuple[Expr, ...] | None:
    """What a width has to divide for all other indices to be constant over a run; None if one is not."""
    runs = [expression_run(index, dim) for axis, index in indices.items() if axis not in joined]
    found = [run.sizes for run in runs if run is not None and not run.moves]
    return tuple(size for sizes in found for size in sizes) if len(found) == len(runs) else None


def _requirements(run: Run, own: Collection[Expr]) -> tuple[int, int]:
    """A sort key: runs with fewer size symbols beside `own`, then with larger divisors, come first."""
    numbers = [n for n in map(as_int, run.sizes) if n is not None]
    return sum(as_int(size) is None and size not in own for size in run.sizes), -gcd(_WIDEST, *numbers)


def is_stride(source: TensorView, inner: Sequence[IterDomain]) -> bool:
    """Whether another dimension's stride is a product that contains the sizes of `inner`."""
    axes = zip(source.memory_axes, source.contiguity)
    return any(contiguous and axis not in inner and not axis.is_broadcast for axis, contiguous in axes)


def expression_run(e: Expr, dim: int) -> Run | None:
    """How `e` varies along dimension `dim`; None if it is neither constant nor increasing over a run."""
    if not _depends(e, dim):
        return _CONSTANT
    if isinstance(e, Symbol):
        return Run(True)
    if isinstance(e, (FloorDiv, Mod)):
        return _division_run(e, dim)
    if isinstance(e, (Lt, Le)):
        return _comparison_run(e, dim)
    if e.kind in ("and", "or", "not", "min", "max", "eq", "xor"):
        return _all_constant(e.args, dim)
    return _sum_run(e, dim)


def straight_pieces(node: Indexed, dim: int, unit: IterDomain | None) -> tuple[Expr, ...] | None:
    """The sizes at whose multiples an indexed read jumps; None if it is not contiguous between them.

    Between jumps, the read advances by one along the dimension `unit` of its source for each position along
    `dim`, and along no other dimension. Vectors may start at any position: those that cross a jump are read
    by element.
    """
    if any(not tensor.shape[dim].is_broadcast for tensor in node.index_tensors):
        return None
    pieces: dict[Expr, None] = {}
    for axis, index in zip(node.source.shape, node.map.indices):
        if _rate(index, dim, pieces) != (axis is unit):
            return None
    bounds = node.map.pred.args if node.map.pred.kind == "and" else (node.map.pred,)
    for bound in bounds:
        if not _depends(bound, dim):
            continue
        if not isinstance(bound, (Lt, Le)) or _rate(bound.args[1] - bound.args[0], dim, pieces) is None:
            return None
    return tuple(pieces)


def _rate(e: Expr, dim: int, pieces: dict[Expr, None]) -> int | None:
    """The increase of `e` from each position along `dim` to the next, except at jumps.

    None if it is not constant. Divisions jump at multiples of their divisors, which are added to `pieces`. A
    maximum or minimum changes its operand near one end of the dimension, whose size is added to `pieces`.
    """
    if not _depends(e, dim):
        return 0
    if isinstance(e, Symbol):
        return 1
    if isinstance(e, (FloorDiv, Mod)):
        dividend, divisor = e.args
        rate = _rate(dividend, dim, pieces)
        if rate not in (0, 1) or not all(map(is_size, divisor.free_symbols)):
            return None
        if rate:
            pieces[divisor] = None
        return rate if isinstance(e, Mod) else 0
    if isinstance(e, (Max, Min)):
        if len(e.args) != 2:
            return None
        along = (s for s in e.free_symbols if position_of(s) == dim)
        pieces.update({value_extent(s): None for s in along})
        return _rate(usual_operand(e)[0], dim, pieces)
    total = 0
    for core, coefficient in e.terms:
        if len(core.factors) > 1:
            rate = 0 if all(_rate(factor, dim, pieces) == 0 for factor in core.factors) else None
        else:  # an operation of another kind is not analysed
            rate = _rate(core, dim, pieces) if core is not e else None
        if rate is None:
            return None
        total += coefficient * rate
    return total


def usual_operand(e: Max | Min) -> tuple[Expr, Expr]:
    """The operand that is the result at most positions, and a term that is >= 0 there."""
    first, second = e.args
    above = first - second if isinstance(e, Max) else second - first
    lo, hi = bounds(above)
    is_first = lo is not None and (hi is None or lo + hi >= 0)
    return (first, above) if is_first else (second, -above)


def divisors(size: Expr) -> tuple[Expr, ...] | None:
    """The numbers and symbols that a width has to divide so that it divides `size`, or None."""
    return multiples(size.terms, size.constant)


def _depends(e: Expr, dim: int) -> bool:
    return any(position_of(s) == dim for s in e.free_symbols)


def _all_constant(args: Sequence[Expr], dim: int) -> Run | None:
    runs = [expression_run(arg, dim) for arg in args]
    sizes: list[Expr] = []
    for run in runs:
        if run is None or run.moves:
            return None
        sizes += run.sizes
    return Run(False, tuple(sizes))


def _division_run(e: Expr, dim: int) -> Run | None:
    dividend, divisor = e.args
    run = expression_run(dividend, dim)
    if run is None or _depends(divisor, dim):
        return None
    if not run.moves:
        return run
    if not is_positive_divisor(divisor):
        return None  # division by a term of unknown sign is not simplified
    divisors = _divisors(divisor, 1)
    return None if divisors is None else Run(isinstance(e, Mod), (*run.sizes, *divisors))


def _sum_run(e: Expr, dim: int) -> Run | None:
    """The run of a sum, which moves if one summand moves and the others are multiples of the width."""
    parts = parts_along(e, dim)
    if parts is None:
        return None
    moving, sizes, rest = parts
    if moving is None:
        return Run(False, sizes)
    if moving != 1:
        return None
    others = multiples(rest, e.constant)
    return None if others is None else Run(True, (*sizes, *others))


def _comparison_run(e: Expr, dim: int) -> Run | None:
    """The run of a comparison, which has to be constant.

    With a moving term m, `0 <= r + m` is constant if the width divides r, and `0 <= r - m` if it divides r +
    1.
    """
    left, right = e.args
    difference = right - left - (1 if isinstance(e, Lt) else 0)
    parts = parts_along(difference, dim)
    if parts is None:
        return None
    moving, sizes, rest = parts
    if moving is None:
        return Run(False, sizes)
    if moving not in (1, -1):
        return None
    others = multiples(rest, difference.constant + (0 if moving == 1 else 1))
    return None if others is None else Run(False, (*sizes, *others))


def parts_along(e: Expr, dim: int) -> tuple[int | None, tuple[Expr, ...], list[tuple[Expr, int]]] | None:
    """The parts of a sum, without its constant; None if it has several moving summands or cannot be analysed.

    Returns:
        The coefficient of the moving summand (None: there is none), the sizes that the summands require, and
        the other summands.
    """
    moving: int | None = None
    sizes: list[Expr] = []
    rest: list[tuple[Expr, int]] = []
    for core, coefficient in e.terms:
        if core is e:  # neither a sum nor a multiple
            return None
        if len(core.factors) > 1 and _depends(core, dim):
            run = _all_constant(core.factors, dim)
        else:
            run = expression_run(core, dim)
        if run is None or (run.moves and moving is not None):
            return None
        sizes += run.sizes
        if run.moves:
            moving = coefficient
        else:
            rest.append((core, coefficient))
    return moving, tuple(sizes), rest


def multiples(terms: Sequence[tuple[Expr, int]], constant: int) -> tuple[Expr, ...] | None:
    """The numbers and symbols that a width has to divide so that it divides each summand, or None."""
    found: list[Expr] = []
    if constant % _WIDEST:
        found.append(const(constant))
    # A product is a multiple if any factor is. Perhaps another summand asks for one of them anyway.
    for core, coefficient in sorted(terms, key=lambda term: len(_size_factors(term[0])) > 1):
        divisors = _divisors(core, coefficient)
        if divisors is None:
            return None
        if found and divisors and any(factor in found for factor in _size_factors(core)):
            continue
        found += divisors
    return tuple(found)


def _size_factors(core: Expr) -> list[Expr]:
    return [factor for factor in core.factors if is_size(factor)]


def _divisors(core: Expr, coefficient: int) -> tuple[Expr, ...] | None:
    """The numbers and symbols that a width has to divide so that it divides `coefficient * core`, or None."""
    known = known_multiple(core) * coefficient
    if known % _WIDEST == 0:
        return ()
    for factor in core.factors:
        if is_size(factor):
            return (factor,)
    return None if known in (1, -1) else (const(known),)
