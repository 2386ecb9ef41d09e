"""Calls that change shapes or find elements by index, for random programs: see `kinds`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fusewright import DataType
from tests.fuzz.dims import Dim, cut, factors, plus, times, total
from tests.fuzz.kinds import combine, layer_norm, reduced, reduced_dims, softmax, widened, without
from tests.fuzz.writer import Slot, Writer

# No reshape makes more dimensions.
MOST_DIMS = 8

# ---- reshape -----------------------------------------------------------------------------------------------


def reshape(w: Writer) -> None:
    x = w.any(lambda s: not s.value.scalar)
    if x is not None:
        style = w.pick((_merged, _merged, _split, _split, _with_ones, _shuffled, lambda w, s: [times(s)]))
        reshaped(w, x, (style if x.ndim else _with_ones)(w, list(x.dims)))


def reshaped(w: Writer, x: Slot, dims: list[Dim] | None) -> Slot | None:
    """`x` with these dimensions, at times one of them inferred."""
    if dims is None or len(dims) > MOST_DIMS:
        return None
    shape = [w.operand_of(d) for d in dims]
    unknown = [i for i, size in enumerate(shape) if size is None]
    sized = [i for i, d in enumerate(dims) if d is not None]
    inferred = unknown or ([w.pick(sized)] if sized and w.chance(3) else [])
    if len(unknown) > 1:
        return None
    for at in inferred:
        others = [d for i, d in enumerate(dims) if i != at and d is not None]
        if others and not w.require(f"{times(others) or 1} > 0"):
            return None
        shape[at] = -1
    return w.call("reshape", x, shape, dims=tuple(w.named(d) for d in dims))


def _merged(w: Writer, dims: list[Dim]) -> list[Dim]:
    first = w.rng.randrange(len(dims))
    last = w.rng.randint(first, min(first + 2, len(dims) - 1))
    return [*dims[:first], times(dims[first : last + 1]), *dims[last + 1 :]]


def _split(w: Writer, dims: list[Dim]) -> list[Dim] | None:
    places = [i for i, d in enumerate(dims) if d is not None]
    if not places:
        return None
    at = w.pick(places)
    parts = _parted(w, dims[at] or "")
    return parts and [*dims[:at], *parts, *dims[at + 1 :]]


def _parted(w: Writer, name: str) -> list[Dim] | None:
    """A size as a product of two."""
    parts: list[Dim] = list(factors(name))
    if len(parts) > 1 and w.chance(1.5):
        at = w.rng.randint(1, len(parts) - 1)
        w.rng.shuffle(parts)
        return [times(parts[:at]), times(parts[at:])]
    size = w.size(name)
    divisors = [n for n in range(2, min(size, 64) + 1) if size % n == 0]
    if not divisors:
        return None
    inner = w.pick(divisors)
    if w.is_constant(name):
        pair: list[Dim] = [str(size // inner), str(inner)]
    elif w.require(f"{name} % {inner} == 0"):
        pair = [f"({name}//{inner})", str(inner)]
    else:
        return None
    return pair[::-1] if w.chance(2) else pair


def _with_ones(w: Writer, dims: list[Dim]) -> list[Dim]:
    kept = [d for d in dims if d is not None or w.chance(2)]
    for _ in range(w.rng.randint(0, 2)):
        kept.insert(w.rng.randint(0, len(kept)), None)
    return kept or [None]


def _shuffled(w: Writer, dims: list[Dim]) -> list[Dim]:
    return [dims[i] for i in w.permutation(len(dims))]


def flatten(w: Writer) -> None:
    x = w.tensor()
    if x is None:
        return
    first = w.rng.randrange(x.ndim)
    last = w.rng.randint(first, x.ndim - 1)
    end = last - x.ndim if w.chance(2) else last
    middle = w.named(times(x.dims[first : last + 1]))
    w.call("flatten", x, first, end, dims=(*x.dims[:first], middle, *x.dims[last + 1 :]))


# ---- parts -------------------------------------------------------------------------------------------------


def slice_(w: Writer) -> None:
    x = w.tensor()
    if x is None:
        return
    starts: list[Any] = []
    ends: list[Any] = []
    steps: list[Any] = []
    dims: list[Dim] = []
    for dim in x.dims:
        end = w.operand_of(dim) if w.chance(2) else None
        start, last, step = 0, 2**40 if end is None else end, 1
        name: int | str = 2**40 if end is None else dim or 1
        if not w.chance(3):
            start = w.pick((0, 1, 1, 2, 5))
            step = w.pick((1, 1, 1, 2, 3))
            if end is None or not w.require(f"{dim or 1} >= {start}"):
                last = name = start + w.pick((0, 1, 2, 4, 7, 16, 64))
        starts.append(w.given(start))
        ends.append(last)
        steps.append(w.given(step))
        dims.append(w.named(cut(dim or "1", start, name if last != 2**40 else dim or "1", step)))
    more = () if all(step == 1 for step in steps) and w.chance(2) else (steps,)
    w.call("slice", x, starts, ends, *more, dims=tuple(dims))


def windows(w: Writer) -> None:
    """Parts of a dimension that may overlap, as they are or reduced."""
    x = w.tensor(lambda s: s.ndim < MOST_DIMS)
    if x is None or not x.ndim:
        return
    at, size, step = w.rng.randrange(x.ndim), w.pick((1, 2, 3, 5)), w.pick((1, 1, 2, 3))
    length = x.dims[at] or "1"
    if not w.require(f"{length} >= {size}"):
        return
    count = w.named(cut(length, size - 1, length, step))
    dims = (*(count if i == at else dim for i, dim in enumerate(x.dims)), w.named(str(size)))
    made = w.call("unfold", x, at, size, step, dims=dims)
    if made is not None and w.chance(2):
        reduced(w, made, (x.ndim,), w.chance(2))


def numbered(w: Writer) -> None:
    """Positions along one dimension of a tensor, beside its elements, in another shape."""
    x = w.tensor(lambda s: s.ndim > 1 and not s.is_complex)
    if x is None:
        return
    along = w.rng.randrange(x.ndim)
    size = w.operand_of(x.dims[along])
    line = None if size is None else w.call("iota", size, 0, 1, DataType.Int, dims=(x.dims[along],))
    if line is None:
        return
    dims = tuple(dim if i == along else None for i, dim in enumerate(x.dims))
    row = w.call("broadcast", line, [i != along for i in range(x.ndim)], dims=dims)
    made = row and w.call("add", x, row, dims=x.dims)
    if made:
        reshaped(w, made, w.pick((_merged, lambda w, dims: [times(dims)]))(w, list(made.dims)))


def first(w: Writer) -> None:
    """The first elements along one dimension, all along the others, which nothing but a reduction reads."""
    x = w.tensor()
    if x is None or not x.ndim:
        return
    along, count = w.rng.randrange(x.ndim), w.pick((1, 2, 3, 7, 16))
    ends = [count if i == along else w.operand_of(dim) for i, dim in enumerate(x.dims)]
    if None in ends:
        return
    part = w.named(cut(x.dims[along] or "1", 0, count, 1))
    dims = tuple(part if i == along else dim for i, dim in enumerate(x.dims))
    made = w.call("slice", x, [0] * x.ndim, ends, dims=dims, hides=(0,))
    if made is not None:
        reduced(w, made, tuple(sorted({along, *reduced_dims(w, x)})), w.chance(2))


def parts(w: Writer) -> None:
    """A dimension of a size that the definition knows in several parts, some of which are joined again."""
    x = w.tensor(lambda s: any(d is not None and w.is_constant(d) for d in s.dims))
    if x is None:
        return
    at = w.pick([i for i, d in enumerate(x.dims) if d is not None and w.is_constant(d)])
    size = w.size(x.dims[at])
    given: Any = w.rng.randint(1, 3)
    name = w.pick(("chunk", "split", "split"))
    if name == "chunk":
        given, each = max(given, 1), max(1, math.ceil(size / given))
        listed = [min(each, size - i) for i in range(0, size, each)] or [0] * given
    elif w.chance(2):
        given = max(1, size // given)
        listed = [min(given, size - i) for i in range(0, size, given)] or [0]
    else:
        middle = w.rng.randint(0, size)
        given = listed = [middle, size - middle]
    dims = [(*x.dims[:at], w.named(str(n)), *x.dims[at + 1 :]) for n in listed]
    if w.call(name, x, given, at, dims=dims) is not None and w.chance(2):
        pieces = w.slots[-len(listed) :]
        w.call("cat", pieces[::-1], at, dims=(*x.dims[:at], w.named(str(size)), *x.dims[at + 1 :]))


# ---- pads and joins ----------------------------------------------------------------------------------------


def pad(w: Writer) -> None:
    x = w.tensor()
    if x is None:
        return
    dims = list(x.dims)
    widths: list[Any] = []
    for at in reversed(range(w.rng.randrange(x.ndim), x.ndim)):
        before, after = (w.pick((0, 0, 1, 2, 3, -1, -2)) for _ in range(2))
        crop = -min(before, 0) - min(after, 0)
        if crop and not w.require(f"{dims[at] or 1} >= {crop}"):
            before = after = 0
        widths += [w.given(before), w.given(after)]
        dims[at] = w.named(plus(dims[at] or "1", before + after)) if before or after else dims[at]
    fill: tuple[Any, ...] = ()
    if w.chance(2):
        fill = (
            (w.pick((0.5, -2.0, 0.1, float("-inf"))),) if x.is_float else
            (w.pick((1 + 2j, 0.5j)),) if x.is_complex else
            (True,) if x.dtype is DataType.Bool else (w.pick((3, -1)),)
        )  # fmt: skip
    w.call("pad", x, widths, *fill, dims=tuple(dims))


def join(w: Writer) -> None:
    """cat or stack of values that agree, or of one and something computed of it."""
    x = w.tensor()
    if x is None:
        return
    at = w.rng.randrange(x.ndim)
    is_stack = w.chance(4) and x.ndim < MOST_DIMS
    pieces = [x]
    for _ in range(w.rng.randint(1, 2)):
        fits = [
            s for s in w.slots
            if not s.is_hidden and s.dtype is x.dtype and s.ndim == x.ndim and not s.value.scalar
            and all(a == b or (i == at and not is_stack) for i, (a, b) in enumerate(zip(s.dims, x.dims)))
        ]  # fmt: skip
        pieces.insert(w.rng.randint(0, len(pieces)), w.pick(fits))
    if is_stack:
        at = w.rng.randint(0, x.ndim)
        w.call("stack", pieces, at, dims=(*x.dims[:at], str(len(pieces)), *x.dims[at:]))
        return
    size = w.named(total([s.dims[at] or "1" for s in pieces]))
    w.call("cat", pieces, at - x.ndim if w.chance(2) else at, dims=(*x.dims[:at], size, *x.dims[at + 1 :]))


def rotary(w: Writer) -> None:
    """The halves of the last dimension exchanged, one negated, beside the whole."""
    x = w.tensor(lambda s: s.is_float and s.dims[-1] is not None and w.size(s.dims[-1]) % 2 == 0)
    if x is None:
        return
    name = x.dims[-1] or ""
    if not w.is_constant(name) or not w.size(name):
        return
    half = w.size(name) // 2
    inner = (*x.dims[:-1], w.named(str(half)))
    sizes = [w.operand_of(d) for d in x.dims[:-1]]
    zeros = [0] * (x.ndim - 1)
    if None in sizes:
        return
    low = w.call("slice", x, [*zeros, 0], [*sizes, half], dims=inner)
    high = low and w.call("slice", x, [*zeros, half], [*sizes, 2 * half], dims=inner)
    high = high and w.call("neg", high, dims=inner)
    high = high and w.call("cast", high, x.dtype, dims=inner)
    turned = low and high and w.call("cat", [high, low], -1, dims=x.dims)
    if turned:
        combine(w, x, turned)


# ---- turns and repetitions ---------------------------------------------------------------------------------


def turn(w: Writer) -> None:
    x = w.tensor()
    if x is None:
        return
    some = tuple(w.rng.sample(range(x.ndim), w.rng.randint(1, x.ndim)))
    if w.chance(2):
        w.call("flip", x, some, dims=x.dims)
    else:
        w.call("roll", x, tuple(w.pick((1, -1, 3, 100, -7)) for _ in some), some, dims=x.dims)


def repeat(w: Writer) -> None:
    x = w.tensor(lambda s: s.ndim < MOST_DIMS)
    if x is None:
        return
    if w.chance(2):
        at, count = w.rng.randrange(x.ndim), w.pick((1, 2, 2, 3))
        dims = tuple(w.named(times([str(count), d])) if i == at else d for i, d in enumerate(x.dims))
        w.call("repeat_interleave", x, count, at, dims=dims)
        return
    lead = w.rng.randint(0, 1)
    counts = [w.pick((1, 1, 2, 2, 3)) for _ in range(lead + x.ndim)]
    whole = ((None,) * lead) + x.dims
    w.call("repeat", x, counts, dims=tuple(w.named(times([str(n), d])) for n, d in zip(counts, whole)))


def triangle(w: Writer) -> None:
    x = w.tensor(lambda s: s.ndim > 1)
    if x is not None:
        w.call(w.pick(("triu", "tril")), x, w.given(w.pick((0, 0, 1, -1, 3, -40))), dims=x.dims)


# ---- by index ----------------------------------------------------------------------------------------------


def select(w: Writer) -> None:
    x = w.tensor()
    if x is None:
        return
    at = w.rng.randrange(x.ndim)
    index = w.pick((0, 0, 1, 2, -1, -2))
    if w.require(f"{x.dims[at] or 1} > {index if index >= 0 else -index - 1}"):
        dim = at - x.ndim if w.chance(2) else at
        w.call("select", x, w.given(index), dim, dims=without(x.dims, (at,), False))


def find(w: Writer) -> None:
    """Elements of some value by an input, or what was made of one, that holds indices."""
    index = w.any(lambda s: s.below is not None)
    if index is None:
        return
    below = index.below
    x = w.tensor(lambda s: below in s.dims and s.index != index.index)
    if x is None:
        return
    at = w.pick([i for i, d in enumerate(x.dims) if d == below])
    if index.ndim < 2 and w.chance(2):
        along = index.dims or (None,)
        w.call("index_select", x, index, at, dims=(*x.dims[:at], *along, *x.dims[at + 1 :]))
    elif x.ndim == 2 and at == 0 and w.chance(2):
        w.call("embedding_fwd", index, x, dims=(*index.dims, x.dims[1]))
    else:
        _along_axis(w, x, index, at)


def _along_axis(w: Writer, x: Slot, index: Slot, at: int) -> None:
    """take_along_axis, or gather where the sizes of the index allow it."""
    if index.ndim == 1:
        wide: Slot | None = index
        for i in range(x.ndim):
            if i != at and wide is not None:
                wide = widened(w, wide, i)
        if wide is None:
            return
        index = wide
    if index.ndim != x.ndim:
        return
    others = [(a, b) for i, (a, b) in enumerate(zip(x.dims, index.dims)) if i != at]
    if any(a != b and None not in (a, b) for a, b in others):
        return
    longer = [a for a, b in others if a is not None and b is None]
    fits = all(b is None or a == b for a, b in others)
    if fits and w.chance(2) and all(w.require(f"{a} > 0") for a in longer):
        w.call("gather", x, index, at, dims=index.dims)
        return
    dims = tuple(index.dims[i] if i == at else a or b for i, (a, b) in enumerate(zip(x.dims, index.dims)))
    w.call("take_along_axis", x, index, at, dims=dims)


# ---- into places -------------------------------------------------------------------------------------------


def put(w: Writer) -> None:
    """Elements found by an index, worked on, and stored or added where they were found; at times combined
    with what they came from.
    """
    index = w.any(lambda s: s.below is not None)
    if index is None:
        return
    below = index.below
    x = w.tensor(lambda s: below in s.dims and s.index != index.index)
    if x is None:
        return
    at = w.pick([i for i, d in enumerate(x.dims) if d == below])
    out = w.pick((_scattered, _added_rows, _gradient))(w, x, index, at)
    if out is not None and out.dims == x.dims and w.chance(2):
        combine(w, out, x)


def _worked_on(w: Writer, x: Slot) -> Slot:
    """At times something computed from it, of its type."""
    if x.dtype is DataType.Bool or w.chance(2):
        return x
    y = w.call("neg", x, dims=x.dims)
    if y is not None and y.dtype is not x.dtype:
        y = w.call("cast", y, x.dtype, dims=x.dims)
    return y or x


def _scattered(w: Writer, x: Slot, index: Slot, at: int) -> Slot | None:
    if index.ndim == 1:
        wide: Slot | None = index
        for i in range(x.ndim):
            if i != at and wide is not None:
                wide = widened(w, wide, i)
        if wide is None:
            return None
        index = wide
    others = [(a, b) for i, (a, b) in enumerate(zip(x.dims, index.dims)) if i != at]
    if index.ndim != x.ndim or any(b is not None and a != b for a, b in others):
        return None
    if not all(a is None or w.require(f"{a} > 0") for a, _ in others):
        return None
    if w.chance(3):
        return w.call("scatter", x, index, w.pick((0, 1)), at, dims=x.dims)
    found = w.call("gather", x, index, at, dims=index.dims)
    # Copies of one element are one value; others that meet at a place leave nothing known of it.
    return found and w.call("scatter", _worked_on(w, x), index, found, at, dims=x.dims)


def _added_rows(w: Writer, x: Slot, index: Slot, at: int) -> Slot | None:
    if index.ndim != 1 or at or x.dtype is DataType.Bool:
        return None
    found = w.call("index_select", x, index, 0, dims=(*index.dims, *x.dims[1:]))
    return found and w.call(
        "index_put_accumulate", _worked_on(w, x), index, _worked_on(w, found), dims=x.dims
    )


def _gradient(w: Writer, x: Slot, index: Slot, at: int) -> Slot | None:
    rows = w.operand_of(x.dims[0]) if x.ndim == 2 and not at and x.is_float else None
    if rows is None:
        return None
    found = w.call("embedding_fwd", index, x, dims=(*index.dims, x.dims[1]))
    padding = {} if w.chance(2) else {"padding_idx": w.pick((0, 1, -1))}
    return found and w.call("embedding_bwd", _worked_on(w, found), index, rows, dims=x.dims, **padding)


# ---- patterns ----------------------------------------------------------------------------------------------


def heads(w: Writer) -> None:
    """A dimension split, the result permuted, worked on or reduced, and brought back."""
    x = w.tensor(lambda s: s.is_float and 1 < s.ndim < MOST_DIMS and not s.value.scalar)
    if x is None:
        return
    inner = _parted(w, x.dims[-1]) if x.dims[-1] else None
    y = inner and reshaped(w, x, [*x.dims[:-1], *inner])
    if not y:
        return
    order = (*range(y.ndim - 3), y.ndim - 2, y.ndim - 3, y.ndim - 1)
    turned = w.call("permute", y, order, dims=tuple(y.dims[d] for d in order))
    if turned and w.chance(2):
        over = (turned.ndim - 1,)
        turned = softmax(w, turned, over, without(turned.dims, over, True))
    elif turned:
        turned = w.call("silu", turned, dims=turned.dims)
    back = turned and w.call("permute", turned, order, dims=y.dims)
    if back:
        merged = reshaped(w, back, [*y.dims[:-2], times(y.dims[-2:])])
        if merged and merged.dims == x.dims:
            combine(w, merged, x)


def grouped(w: Writer) -> None:
    """A reduction, or a normalization, between a reshape and one back."""
    x = w.tensor(lambda s: s.is_float)
    if x is None:
        return
    style: Callable[..., list[Dim] | None] = w.pick((_merged, _split, _split))
    dims = style(w, list(x.dims))
    y = reshaped(w, x, dims)
    if y is None or not y.ndim:
        return
    over = reduced_dims(w, y)
    if w.chance(2):
        out = reduced(w, y, over, w.chance(2))
        if out is not None and out.ndim and w.chance(2):
            reshaped(w, out, w.pick((_merged, _with_ones, _shuffled))(w, list(out.dims)))
        return
    kept = without(y.dims, over, True)
    up = w.call("cast", y, DataType.Float, dims=y.dims)
    normal = up and w.pick((softmax, layer_norm))(w, up, over, kept)
    back = normal and reshaped(w, normal, list(x.dims))
    if back and back.dims == x.dims and w.chance(2):
        combine(w, back, x)


SHAPING: dict[str, Callable[[Writer], None]] = {
    "slice": slice_,
    **{
        function.__name__: function
        for function in (
            reshape,
            flatten,
            first,
            windows,
            numbered,
            parts,
            pad,
            join,
            rotary,
            turn,
            repeat,
            triangle,
            select,
            find,
            put,
            heads,
            grouped,
        )
    },
}
