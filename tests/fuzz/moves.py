"""Operations that move elements, or find them by index, each with its error bound: see `bounded`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from tests.fuzz.bounded import Bounded, Number, Tensor, convert, exact

Size = int | Bounded


def moved(x: Bounded, move: Callable[[Tensor], Tensor]) -> Bounded:
    return Bounded(move(x.data), move(x.error))


def _sizes(shape: Sequence[Size]) -> list[int]:
    return [int(n.data) if isinstance(n, Bounded) else n for n in shape]


# ---- shapes ------------------------------------------------------------------------------------------------


def reshape(x: Bounded, shape: Sequence[Size]) -> Bounded:
    return moved(x, lambda t: t.reshape(_sizes(shape)))


def flatten(x: Bounded, start_dim: int = 0, end_dim: int = -1) -> Bounded:
    return moved(x, lambda t: t.flatten(start_dim, end_dim))


def slice_(
    x: Bounded, starts: Sequence[Size], ends: Sequence[Size], steps: Sequence[Size] | None = None
) -> Bounded:
    each = zip(_sizes(starts), _sizes(ends), _sizes(steps or [1] * len(starts)))
    ranges = tuple(slice(start, end, step) for start, end, step in each)
    return moved(x, lambda t: t[ranges])


def split(x: Bounded, sizes: int | Sequence[int], dim: int = 0) -> tuple[Bounded, ...]:
    listed = sizes if isinstance(sizes, int) else list(sizes)
    return tuple(map(Bounded, x.data.split(listed, dim), x.error.split(listed, dim)))


def chunk(x: Bounded, chunks: int, dim: int = 0) -> tuple[Bounded, ...]:
    return tuple(map(Bounded, x.data.chunk(chunks, dim), x.error.chunk(chunks, dim)))


def pad(x: Bounded, pad_widths: Sequence[Size], value: Number | None = None) -> Bounded:
    fill, widths = convert(exact(0 if value is None else value), x.dtype), _sizes(pad_widths)
    return Bounded(_padded(x.data, widths, fill.data), _padded(x.error, widths, fill.error))


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


def cat(tensors: Sequence[Bounded], dim: int = 0) -> Bounded:
    return Bounded(torch.cat([x.data for x in tensors], dim), torch.cat([x.error for x in tensors], dim))


def stack(tensors: Sequence[Bounded], dim: int = 0) -> Bounded:
    return Bounded(torch.stack([x.data for x in tensors], dim), torch.stack([x.error for x in tensors], dim))


def flip(x: Bounded, dims: int | Sequence[int]) -> Bounded:
    return moved(x, lambda t: t.flip([dims] if isinstance(dims, int) else list(dims)))


def roll(x: Bounded, shifts: int | tuple[int, ...], dims: int | tuple[int, ...]) -> Bounded:
    return moved(x, lambda t: t.roll(shifts, dims))


def repeat(x: Bounded, repeats: Sequence[int]) -> Bounded:
    return moved(x, lambda t: t.repeat(list(repeats)))


def repeat_interleave(x: Bounded, repeats: int, dim: int) -> Bounded:
    return moved(x, lambda t: t.repeat_interleave(repeats, dim))


def triu(x: Bounded, diagonal: Size = 0) -> Bounded:
    [offset] = _sizes([diagonal])
    return moved(x, lambda t: t.triu(offset))


def tril(x: Bounded, diagonal: Size = 0) -> Bounded:
    [offset] = _sizes([diagonal])
    return moved(x, lambda t: t.tril(offset))


# ---- by index ----------------------------------------------------------------------------------------------


def select(x: Bounded, index: Size, dim: int) -> Bounded:
    [place] = _sizes([index])
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
