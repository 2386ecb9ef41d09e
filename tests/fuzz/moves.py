"""Operations that move elements, or find them by index, each with its error bound: see `bounded`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from tests.fuzz.bounded import Bounded, Number, Tensor, convert, exact, movable

Size = int | Bounded


def moved(x: Bounded, move: Callable[[Tensor], Tensor]) -> Bounded:
    bits = movable(x.data)
    data = move(bits)
    return Bounded(data if bits is x.data else data.view(x.dtype), move(x.error))


def sizes_of(shape: Bounded | Sequence[Size]) -> list[int]:
    """A shape, which is a vector of scalars or a list."""
    if isinstance(shape, Bounded):
        return [int(n) for n in shape.data]
    return [int(n.data) if isinstance(n, Bounded) else n for n in shape]


# ---- shapes ------------------------------------------------------------------------------------------------


def reshape(x: Bounded, shape: Bounded | Sequence[Size]) -> Bounded:
    return moved(x, lambda t: t.reshape(sizes_of(shape)))


def flatten(x: Bounded, start_dim: int = 0, end_dim: int = -1) -> Bounded:
    return moved(x, lambda t: t.flatten(start_dim, end_dim))


def slice_(
    x: Bounded, starts: Sequence[Size], ends: Sequence[Size], steps: Sequence[Size] | None = None
) -> Bounded:
    each = zip(sizes_of(starts), sizes_of(ends), sizes_of(steps or [1] * len(starts)))
    ranges = tuple(slice(start, end, step) for start, end, step in each)
    return moved(x, lambda t: t[ranges])


def split(x: Bounded, sizes: int | Sequence[int], dim: int = 0) -> tuple[Bounded, ...]:
    listed = sizes if isinstance(sizes, int) else list(sizes)
    count = len(x.data.split(listed, dim))
    return tuple(moved(x, lambda t, i=i: t.split(listed, dim)[i]) for i in range(count))  # type: ignore[misc]


def chunk(x: Bounded, chunks: int, dim: int = 0) -> tuple[Bounded, ...]:
    count = len(x.data.chunk(chunks, dim))
    return tuple(moved(x, lambda t, i=i: t.chunk(chunks, dim)[i]) for i in range(count))  # type: ignore[misc]


def pad(x: Bounded, pad_widths: Sequence[Size], value: Number | None = None) -> Bounded:
    fill, widths = convert(exact(0 if value is None else value), x.dtype), sizes_of(pad_widths)
    return _several([x, fill], lambda t, number: _padded(t, widths, number))


def _padded(t: Tensor, widths: Sequence[int], fill: Tensor) -> Tensor:
    for i in range(len(widths) // 2):
        dim, before, after = t.ndim - 1 - i, widths[2 * i], widths[2 * i + 1]
        first, last = max(-before, 0), t.shape[dim] - max(-after, 0)
        parts = [t.narrow(dim, first, last - first)]
        for count, at in ((before, 0), (after, len(parts) + (before > 0))):
            if count > 0:
                shape = [count if d == dim else n for d, n in enumerate(t.shape)]
                parts.insert(at, fill.expand(shape))
        t = torch.cat(parts, dim)
    return t


def _several(operands: Sequence[Bounded], move: Callable[..., Tensor]) -> Bounded:
    """A move of several tensors of one type."""
    bits = [movable(x.data) for x in operands]
    data = move(*bits)
    is_plain = bits[0] is operands[0].data
    return Bounded(data if is_plain else data.view(operands[0].dtype), move(*(x.error for x in operands)))


def cat(tensors: Sequence[Bounded], dim: int = 0) -> Bounded:
    return _several(tensors, lambda *ts: torch.cat(ts, dim))


def stack(tensors: Sequence[Bounded], dim: int = 0) -> Bounded:
    return _several(tensors, lambda *ts: torch.stack(ts, dim))


def flip(x: Bounded, dims: int | Sequence[int]) -> Bounded:
    return moved(x, lambda t: t.flip([dims] if isinstance(dims, int) else list(dims)))


def roll(x: Bounded, shifts: int | tuple[int, ...], dims: int | tuple[int, ...]) -> Bounded:
    return moved(x, lambda t: t.roll(shifts, dims))


def unfold(x: Bounded, dim: int, size: int, step: int) -> Bounded:
    return moved(x, lambda t: t.unfold(dim, size, step))


def repeat(x: Bounded, repeats: Sequence[int]) -> Bounded:
    return moved(x, lambda t: t.repeat(list(repeats)))


def repeat_interleave(x: Bounded, repeats: int, dim: int) -> Bounded:
    return moved(x, lambda t: t.repeat_interleave(repeats, dim))


def triu(x: Bounded, diagonal: Size = 0) -> Bounded:
    [offset] = sizes_of([diagonal])
    return moved(x, lambda t: t.triu(offset))


def tril(x: Bounded, diagonal: Size = 0) -> Bounded:
    [offset] = sizes_of([diagonal])
    return moved(x, lambda t: t.tril(offset))


# ---- by index ----------------------------------------------------------------------------------------------


def select(x: Bounded, index: Size, dim: int) -> Bounded:
    [place] = sizes_of([index])
    return moved(x, lambda t: t.select(dim, place))


def index_select(x: Bounded, index: Bounded, dim: int) -> Bounded:
    return moved(x, lambda t: t.index_select(dim, index.data))


def gather(x: Bounded, index: Bounded, dim: int) -> Bounded:
    return moved(x, lambda t: t.gather(dim, index.data.long()))


def take_along_axis(x: Bounded, index: Bounded, dim: int) -> Bounded:
    return moved(x, lambda t: torch.take_along_dim(t, index.data.long(), dim))


def embedding_fwd(index: Bounded, weight: Bounded) -> Bounded:
    return moved(weight, lambda t: t[index.data.long()])


MOVES: dict[str, Callable[..., Bounded | tuple[Bounded, ...]]] = {
    "slice": slice_,
    **{
        function.__name__: function
        for function in (
            reshape,
            flatten,
            split,
            chunk,
            pad,
            cat,
            stack,
            flip,
            roll,
            unfold,
            repeat,
            repeat_interleave,
            triu,
            tril,
            select,
            index_select,
            gather,
            take_along_axis,
            embedding_fwd,
        )
    },
}
