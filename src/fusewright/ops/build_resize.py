"""Builders of operations that cut, extend, join and reverse dimensions: slice, pad, cat, flip and similar
ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fusewright.core.errors import DtypeError, RankError, ShapeError
from fusewright.ir import Fusion, Indexed, IndexMap, Scalar, TensorView, position
from fusewright.ops.build_elementwise import as_element, copy_tensor, insert_axes
from fusewright.ops.build_factory import scalar_of
from fusewright.ops.build_indexed import (
    choose,
    indexed,
    own_positions,
    remainder,
    sized_axis,
    within,
    zero_of,
)
from fusewright.ops.build_shape import extent_of, known_size, offset_of, wrap_dims, wrap_index
from fusewright.ops.registry import Dims, ScalarLike, Shape, op
from fusewright.sym import (
    ONE,
    TRUE,
    ZERO,
    Expr,
    as_int,
    ceildiv,
    const,
    eq,
    floordiv,
    land,
    le,
    lt,
    maximum,
    minimum,
    mod,
)

#: By dimension: its new size, and the place in the old one of each place in the new one.
_Changes = dict[int, tuple[Expr, Callable[[Expr], Expr]]]


def _along(
    fusion: Fusion,
    kind: str,
    arg: TensorView,
    changes: _Changes,
    *,
    fill: Scalar | None = None,
    inverse: IndexMap | None = None,
) -> TensorView:
    """`arg` with other sizes along some dimensions.

    changes: for each of those dimensions its new size, and the index in `arg` for a position. Where `fill` is
    given, positions of which that index is outside `arg` hold it.
    """
    axes, indices = [], list(own_positions(arg))
    pred: Expr = TRUE
    for dim, axis in enumerate(arg.shape):
        if dim not in changes:
            axes.append(fusion.copy_axis(axis))
            continue
        size, index_at = changes[dim]
        axes.append(sized_axis(fusion, size))
        index = index_at(ZERO if size is ONE else position(dim, size))
        if fill is not None:
            pred = land(pred, within(index, axis.visible_extent))
        indices[dim] = ZERO if axis.is_broadcast else index
    return indexed(fusion, kind, arg, axes, IndexMap(tuple(indices), pred), fill=fill, inverse=inverse)


# ---- slices ------------------------------------------------------------------------------------------------


@op(name="slice")
def slice_(
    fusion: Fusion,
    arg: TensorView,
    start_indices: Shape,
    end_indices: Shape,
    strides: Shape | None = None,
    manual_normalization: bool = False,
) -> TensorView:
    """arg[start:end:stride] along each dimension; ranges are cut off at the sizes.

    With `manual_normalization` they lie within the sizes already, and nothing is cut off.
    """
    steps: Shape = [1] * len(start_indices) if strides is None else strides
    if len(start_indices) != len(steps):
        raise RankError(
            "Slice start_indices and strides don't match!", expected=len(start_indices), given=len(steps)
        )
    if len(start_indices) != arg.ndim:
        raise RankError(
            "Number of tensor dimensions does not match slice dimensions!",
            expected=arg.ndim,
            given=len(start_indices),
        )
    if len(start_indices) != len(end_indices):
        raise RankError(
            "Slice indexing attribute dimensions don't match!",
            expected=len(start_indices),
            given=len(end_indices),
        )
    ranges = [_checked_range(*each) for each in zip(start_indices, end_indices, steps)]
    for _, _, step in ranges:
        fusion.require(lt(ZERO, step), "Slice operation strides must be positive")
    return sliced(fusion, "Slice", arg, ranges, manual_normalization)


#: start, end and step of a slice
Range = tuple[Expr, Expr, Expr]


def _checked_range(start: int | Scalar, end: int | Scalar, step: int | Scalar) -> Range:
    first, last, stride = known_size(start), known_size(end), known_size(step)
    if isinstance(first, int) and first < 0:
        raise ShapeError(
            "Slice operation start_indices must be greater than or equal to 0.",
            expected="0 or more",
            given=first,
        )
    if isinstance(first, int) and isinstance(last, int) and last < first:
        raise ShapeError(
            "Slice operation end_indices must be greater than or equal to start_indices.",
            expected=f"{first} or more",
            given=last,
        )
    if isinstance(stride, int) and stride < 1:
        raise ShapeError("Slice operation strides must be positive", expected="1 or more", given=stride)
    return extent_of(first), extent_of(last), extent_of(stride)


def sliced(
    fusion: Fusion, kind: str, arg: TensorView, ranges: Sequence[Range], is_within: bool = False
) -> TensorView:
    """The elements of `arg` in these ranges, one a dimension."""
    changes: _Changes = {}
    places = own_positions(arg)
    back = list(places)
    kept: Expr = TRUE
    for dim, (axis, (start, end, step)) in enumerate(zip(arg.shape, ranges)):
        size = axis.visible_extent
        first = start if is_within else minimum(start, size)
        last = end if is_within else maximum(minimum(end, size), first)
        count = ceildiv(last - first, step)
        if first is ZERO and step is ONE and count is size:
            continue
        changes[dim] = count, _affine(first, step)
        offset = places[dim] - first
        back[dim] = offset if step is ONE else floordiv(offset, step)
        # Elements between the steps, and outside the range, are not kept.
        kept = land(kept, le(ZERO, offset), lt(offset, last - first))
        if step is not ONE:
            kept = land(kept, eq(mod(offset, step), 0))
    if not changes:
        return copy_tensor(fusion, arg)
    is_injective = not arg.is_expanded
    inverse = IndexMap(tuple(back), kept) if is_injective else None
    return _along(fusion, kind, arg, changes, inverse=inverse)


def _affine(start: Expr, step: Expr) -> Callable[[Expr], Expr]:
    return lambda place: start + place * step


def _part(fusion: Fusion, kind: str, arg: TensorView, dim: int, start: Expr, end: Expr) -> TensorView:
    """arg[start:end] along one dimension, within its size."""
    ranges: list[Range] = [(ZERO, axis.visible_extent, ONE) for axis in arg.shape]
    ranges[dim] = start, end, ONE
    return sliced(fusion, kind, arg, ranges, is_within=True)


@op()
def chunk(fusion: Fusion, arg: TensorView, chunks: int, dim: int = 0) -> tuple[TensorView, ...]:
    """`arg` in at most `chunks` parts along `dim`, as torch.chunk: all as long, but perhaps the last; in
    exactly as many where there is no element.

    ShapeError if the size is not known in the definition, which the number of parts depends on.
    """
    if chunks < 1:
        raise ShapeError("chunk: no number of parts", expected="1 or more", given=chunks)
    place, size = _known_dim(arg, dim, "chunk")
    return split(fusion, arg, -(-size // chunks) if size else [0] * chunks, place)


@op()
def split(fusion: Fusion, arg: TensorView, split_size: Dims, dim: int = 0) -> tuple[TensorView, ...]:
    """`arg` in parts of `split_size` along `dim`, the last perhaps shorter, or of the sizes listed."""
    place = wrap_index(dim, arg.ndim)
    if isinstance(split_size, int):
        place, size = _known_dim(arg, dim, "split")
        if split_size < 1:
            raise ShapeError("split: no size of a part", expected="1 or more", given=split_size)
        whole, rest = divmod(size, split_size)
        parts = [split_size] * whole + ([rest] if rest or not whole else [])
    else:
        parts = list(split_size)
        if any(part < 0 for part in parts):
            raise ShapeError("split: a negative size of a part", expected="0 or more", given=parts)
        fusion.equate(const(sum(parts)), arg.extents[place], f"split, dimension {place}")
    starts = [sum(parts[:i]) for i in range(len(parts))]
    return tuple(
        _part(fusion, "Split", arg, place, const(start), const(start + part))
        for start, part in zip(starts, parts)
    )


def _known_dim(arg: TensorView, dim: int, what: str) -> tuple[int, int]:
    place = wrap_index(dim, arg.ndim)
    size = as_int(arg.extents[place])
    if size is None:
        raise ShapeError(
            f"{what}: the number of parts depends on the size of dimension {place}",
            expected="a size that the definition states",
            given=str(arg.extents[place]),
            hint="define_tensor with that size, split with a list of sizes, or slice for each part",
        )
    return place, size


# ---- pads and joins ----------------------------------------------------------------------------------------


@op()
def pad(fusion: Fusion, arg: TensorView, pad_widths: Shape, value: ScalarLike | None = None) -> TensorView:
    """`arg` with `value` (default: zero) around it, cut off where a width is negative.

    pad_widths: before and after, for the last dimension first, as torch.nn.functional.pad.
    """
    if len(pad_widths) % 2:
        raise ShapeError(
            "Invalid number of padding widths", expected="two a dimension", given=len(pad_widths)
        )
    if len(pad_widths) > 2 * arg.ndim:
        raise RankError(
            "Number of pad widths must be at most twice the input dimension",
            expected=2 * arg.ndim,
            given=len(pad_widths),
        )
    fill = zero_of(fusion, arg.dtype) if value is None else scalar_of(fusion, value)
    if fill.dtype.category is not arg.dtype.category:
        raise DtypeError(
            "Tensor arg and pad value must have the same dtype.", expected=arg.dtype, given=fill.dtype
        )
    converted = as_element(fusion, fill, arg.dtype)
    assert isinstance(converted, Scalar)
    widths: dict[int, tuple[Expr, Expr]] = {}
    for i in range(len(pad_widths) // 2):
        before, after = (offset_of(fusion, known_size(width)) for width in pad_widths[2 * i : 2 * i + 2])
        if before is not ZERO or after is not ZERO:
            widths[arg.ndim - 1 - i] = before, after
    return padded(fusion, "Pad", arg, widths, converted) if widths else copy_tensor(fusion, arg)


def padded(
    fusion: Fusion, kind: str, arg: TensorView, widths: Mapping[int, tuple[Expr, Expr]], fill: Scalar
) -> TensorView:
    """`arg` with (before, after) elements more along some dimensions, which hold `fill`."""
    changes: _Changes = {}
    for dim, (before, after) in widths.items():
        size = arg.extents[dim] + before + after
        number = as_int(size)
        if number is not None and number < 0:
            raise ShapeError(
                f"Invalid resized domain extent {number} of dimension {dim}",
                expected="0 or more",
                given=number,
            )
        fusion.require(le(ZERO, size), f"Invalid resized domain extent of dimension {dim}")
        changes[dim] = size, _affine(ZERO - before, ONE)
    return _along(fusion, kind, arg, changes, fill=fill)


@op()
def cat(
    fusion: Fusion, tensors: Sequence[TensorView], dim: int = 0, manual_padding: bool = False
) -> TensorView:
    """The tensors one after another along `dim`; they have the same type and the same other sizes.

    With `manual_padding` each is padded to the size of the result already.
    """
    if not tensors:
        raise ShapeError("Attempting to concatenate empty list of tensors", expected="one tensor or more")
    first = tensors[0]
    for i, tensor in enumerate(tensors):
        if tensor.ndim != first.ndim:
            raise RankError(
                f"cat: Unexpected number of dimensions of tensor {i}", expected=first.ndim, given=tensor.ndim
            )
        if tensor.dtype is not first.dtype:
            raise DtypeError(what=f"cat: tensor {i}", expected=first.dtype, given=tensor.dtype)
    if not -first.ndim <= dim < first.ndim:
        raise ShapeError(
            f"Invalid dimension to cat: {dim}", expected=f"{-first.ndim} to {first.ndim - 1}", given=dim
        )
    along = dim % first.ndim
    for other in range(first.ndim):
        if other != along or manual_padding:
            for tensor in tensors[1:]:
                fusion.equate(first.extents[other], tensor.extents[other], f"cat, dimension {other}")
    if len(tensors) == 1:
        return copy_tensor(fusion, first)
    if manual_padding:
        return _joined_pads(fusion, tensors)
    sizes = [tensor.extents[along] for tensor in tensors]
    total: Expr = ZERO
    ends = []
    for size in sizes:
        total = total + size
        ends.append(total)
    zero = zero_of(fusion, first.dtype)
    pieces = [
        padded(fusion, "Pad", tensor, {along: (end - size, total - end)}, zero)
        for tensor, size, end in zip(tensors, sizes, ends)
    ]
    return _joined(fusion, pieces, along, ends)


def _joined(fusion: Fusion, pieces: Sequence[TensorView], dim: int, ends: Sequence[Expr]) -> TensorView:
    """Piece k where the position along `dim` is before ends[k], and no earlier end."""
    joined = pieces[-1]
    place = own_positions(joined)[dim]
    for piece, end in zip(reversed(pieces[:-1]), reversed(ends[:-1])):
        joined = choose(fusion, piece, joined, lt(place, end))
    return joined


def _joined_pads(fusion: Fusion, pieces: Sequence[TensorView]) -> TensorView:
    """Pieces that pads extended to the size of the result: each where its own pad found an element."""
    joined = pieces[-1]
    for i, piece in reversed(list(enumerate(pieces[:-1]))):
        node = piece.definition
        if not isinstance(node, Indexed):
            raise ShapeError(
                f"cat: tensor {i} is no pad", expected="tensors that fd.ops.pad made, with manual_padding"
            )
        joined = choose(fusion, piece, joined, node.map.pred)
    return joined


@op()
def stack(fusion: Fusion, tensors: Sequence[TensorView], dim: int = 0) -> TensorView:
    """Tensors of the same sizes one after another along a new dimension `dim`."""
    if not tensors:
        raise ShapeError("stack: an empty list of tensors", expected="one tensor or more")
    rank = tensors[0].ndim + 1
    place = wrap_index(dim, rank)
    flags = [i == place for i in range(rank)]
    for i, tensor in enumerate(tensors):
        if tensor.ndim != rank - 1:
            raise RankError(what=f"stack: tensor {i}", expected=rank - 1, given=tensor.ndim)
    return cat(fusion, [insert_axes(fusion, tensor, flags) for tensor in tensors], place)


# ---- turns and repetitions ---------------------------------------------------------------------------------


@op()
def flip(fusion: Fusion, arg: TensorView, dims: Dims) -> TensorView:
    """`arg` with the order of its elements along `dims` reversed."""
    listed = [dims] if isinstance(dims, int) else dims
    turned = wrap_dims(listed, arg.ndim, "flip")
    places = own_positions(arg)
    changes: _Changes = {}
    for dim in turned:
        if not arg.shape[dim].is_broadcast:
            changes[dim] = arg.extents[dim], _from_end(arg.extents[dim])
    if not changes:
        return copy_tensor(fusion, arg)
    back = [changes[i][1](place) if i in changes else place for i, place in enumerate(places)]
    is_injective = not arg.is_expanded
    return _along(fusion, "Flip", arg, changes, inverse=IndexMap(tuple(back)) if is_injective else None)


def _from_end(size: Expr) -> Callable[[Expr], Expr]:
    return lambda place: size - 1 - place


@op()
def roll(fusion: Fusion, arg: TensorView, shifts: Dims, dims: Dims) -> TensorView:
    """`arg` with its elements moved by `shifts` along `dims`; those beyond the end move to the start."""
    steps = [shifts] if isinstance(shifts, int) else list(shifts)
    along = wrap_dims([dims] if isinstance(dims, int) else dims, arg.ndim, "roll")
    if len(steps) != len(along):
        raise RankError(what="roll: the list of shifts", expected=f"{len(along)} entries", given=steps)
    changes: _Changes = {}
    back = own_positions(arg)
    for step, dim in zip(steps, along):
        if not arg.shape[dim].is_broadcast and step:
            changes[dim] = arg.extents[dim], _rolled(step, arg.extents[dim])
            back[dim] = _rolled(-step, arg.extents[dim])(back[dim])
    if not changes:
        return copy_tensor(fusion, arg)
    inverse = None if arg.is_expanded else IndexMap(tuple(back))
    return _along(fusion, "Roll", arg, changes, inverse=inverse)


def _rolled(step: int, size: Expr) -> Callable[[Expr], Expr]:
    # The shift is brought into the range first: no position is negative then.
    shift = remainder(const(-step), size)
    return lambda place: remainder(place + shift, size)


@op()
def repeat(fusion: Fusion, arg: TensorView, repeats: Shape) -> TensorView:
    """`arg` repeats[d] times along each dimension, as torch.Tensor.repeat; new dimensions lead."""
    if len(repeats) < arg.ndim:
        raise RankError(
            what="repeat: the list of repeats", expected=f"at least {arg.ndim}", given=len(repeats)
        )
    source = insert_axes(fusion, arg, [i < len(repeats) - arg.ndim for i in range(len(repeats))])
    changes: _Changes = {}
    for dim, given in enumerate(repeats):
        times = known_size(given)
        if isinstance(times, int) and times < 0:
            raise ShapeError(
                f"repeat: a negative number for dimension {dim}", expected="0 or more", given=times
            )
        size = source.extents[dim]
        if extent_of(times) is not ONE:
            changes[dim] = size * extent_of(times), _wrapped(size)
    return _along(fusion, "Repeat", source, changes) if changes else copy_tensor(fusion, source)


def _wrapped(size: Expr) -> Callable[[Expr], Expr]:
    return lambda place: remainder(place, size)


@op()
def repeat_interleave(fusion: Fusion, arg: TensorView, repeats: int, dim: int) -> TensorView:
    """Each element `repeats` times in a row along `dim`."""
    place = wrap_index(dim, arg.ndim)
    if repeats < 0:
        raise ShapeError("repeat_interleave: a negative number", expected="0 or more", given=repeats)
    size = arg.extents[place]
    if repeats == 1:
        return copy_tensor(fusion, arg)
    return _along(
        fusion, "RepeatInterleave", arg, {place: (size * repeats, lambda p: floordiv(p, max(repeats, 1)))}
    )
