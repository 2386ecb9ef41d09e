"""Every operation of `fd.ops` with its value and error bound: see `bounded`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from fusewright.core.dtype import DataType
from tests.fuzz.bounded import (
    BOOL_BINARY,
    COMPARISONS,
    FLOAT_BINARY,
    INTEGER_BINARY,
    UNARY,
    Bounded,
    Number,
    Operand,
    Tensor,
    addcmul,
    binary,
    bitcast,
    cast,
    clamp,
    convert,
    exact,
    lerp,
    logical_not,
    part,
    power,
    scaled,
    threshold,
    unary,
    up,
    where,
)
from tests.fuzz.composites import COMPOSITES
from tests.fuzz.functions import FURTHER, sub_alpha
from tests.fuzz.library import (
    argsort,
    aten,
    embedding_bwd,
    grouped_mm,
    index_put_accumulate,
    linear,
    matmul,
    scaled_mm,
    scatter,
    sdpfa_bwd,
    sdpfa_fwd,
    sort,
    topk,
)
from tests.fuzz.moves import MOVES, moved, sizes_of
from tests.fuzz.reductions import (
    any_or_all,
    arg_extremum,
    logsumexp,
    max_sum_exp,
    mean,
    reduction,
    softmax,
    std,
    var,
    var_mean_of,
    welford,
)
from tests.fuzz.scans import SCANS, scan

# ---- shapes ------------------------------------------------------------------------------------------------


def broadcast(x: Bounded, flags: Sequence[bool]) -> Bounded:
    def move(t: Tensor) -> Tensor:
        for dim, new in enumerate(flags):
            t = t.unsqueeze(dim) if new else t
        return t

    return moved(x, move)


def broadcast_in_dim(x: Bounded, shape: Sequence[int], dims: Sequence[int]) -> Bounded:
    return expand(broadcast(x, [i not in dims for i in range(len(shape))]), shape)


def expand(x: Bounded, shape: Bounded | Sequence[int]) -> Bounded:
    return moved(x, lambda t: t.expand(sizes_of(shape)))


def squeeze(x: Bounded, dims: Sequence[int]) -> Bounded:
    return moved(x, lambda t: t.squeeze(tuple(dims)) if dims else t)


def permute(x: Bounded, dims: Sequence[int]) -> Bounded:
    return moved(x, lambda t: t.permute(list(dims)))


def stride_order(x: Bounded, order: Sequence[int]) -> Bounded:
    return x


def segment_set(x: Bounded) -> Bounded:
    return x


def full(shape: Bounded | Sequence[int], value: Number, dtype: DataType) -> Bounded:
    return expand(convert(exact(value), dtype.torch), shape)


def iota(length: int, start: Operand, step: Operand, dtype: DataType) -> Bounded:
    places = torch.arange(length)
    if not dtype.is_floating:
        start, step = (int(v.data) if isinstance(v, Bounded) else v for v in (start, step))
        return exact((places * step + start).to(dtype.torch))
    x = binary("add", start, binary("mul", convert(exact(places), up(dtype.torch)), step))
    return convert(x, dtype.torch)


# ---- sizes -------------------------------------------------------------------------------------------------


def size(x: Bounded, dim: int) -> Bounded:
    return exact(x.data.shape[dim])


def shape(x: Bounded) -> Bounded:
    """A vector of scalars, which only shapes are made of."""
    found = exact(torch.tensor(x.data.shape, dtype=torch.int64))
    return Bounded(found.data, found.error, scalar=True)


def at(vector: Bounded, index: int) -> Bounded:
    return exact(int(vector.data[index]))


# ---- the table ---------------------------------------------------------------------------------------------


def _named(function: Callable[..., Bounded], name: str) -> Callable[..., Bounded]:
    return lambda *args, **kwargs: function(name, *args, **kwargs)


#: One function for each operation of `fd.ops` that needs no other hardware, with the same arguments.
OPERATIONS: dict[str, Callable[..., Bounded | tuple[Bounded, ...]]] = {
    **{name: _named(unary, name) for name in UNARY},
    **{name: _named(binary, name) for name in (FLOAT_BINARY | INTEGER_BINARY | BOOL_BINARY | COMPARISONS)},
    **FURTHER,
    **{name: _named(reduction, name) for name in ("sum", "prod", "max", "min")},
    **{name: _named(scan, name) for name in SCANS},
    **{name: _named(part, name) for name in ("real", "imag")},
    "add_alpha": _named(lambda _, *xs: scaled("add", *xs), ""),
    "sub_alpha": sub_alpha,
    "pow": power,
    "cast": cast,
    "bitcast": bitcast,
    "where": where,
    "clamp": clamp,
    "threshold": threshold,
    "lerp": lerp,
    "addcmul": addcmul,
    "logical_not": logical_not,
    **{name: _named(any_or_all, name) for name in ("any", "all")},
    **{name: _named(arg_extremum, name) for name in ("argmax", "argmin")},
    **{name: _named(softmax, name) for name in ("softmax", "log_softmax")},
    "logsumexp": logsumexp,
    "max_sum_exp": max_sum_exp,
    **{
        function.__name__: function
        for function in (
            *(matmul, linear, grouped_mm, scaled_mm, sdpfa_fwd, sdpfa_bwd),
            *(aten, argsort, sort, topk, scatter, index_put_accumulate, embedding_bwd),
        )
    },
    "mean": mean,
    "var": var,
    "std": std,
    "var_mean": var_mean_of,
    "welford": welford,
    "broadcast": broadcast,
    "broadcast_in_dim": broadcast_in_dim,
    "expand": expand,
    "squeeze": squeeze,
    "permute": permute,
    "stride_order": stride_order,
    "segment_set": segment_set,
    **MOVES,
    "size": size,
    "shape": shape,
    "tensor_sizes": shape,
    "at": at,
    "full": full,
    "zeros": lambda shape, dtype: full(shape, 0, dtype),
    "ones": lambda shape, dtype: full(shape, 1, dtype),
    "iota": iota,
    **COMPOSITES,
}
