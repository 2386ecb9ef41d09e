"""What a library computes: products, sorting, additions at indices, with error bounds: see `bounded`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch

from fusewright import DataType
from tests.fuzz.bounded import (
    INF,
    INTEGERS,
    ROUNDOFF,
    Bounded,
    Number,
    Tensor,
    binary,
    category,
    convert,
    exact,
    movable,
    rounded,
    unary,
    unknown_where,
    up,
    where,
    widened,
)
from tests.fuzz.moves import moved, reshape
from tests.fuzz.reductions import reduction, softmax

#: A result that no program uses: one that is None, or that nothing is known of.
ABSENT = exact(0)

# ---- contractions ------------------------------------------------------------------------------------------


def matmul(a: Bounded, b: Bounded) -> Bounded:
    """A library may round partial sums to the type of the result."""
    x, y, number, unit = widened(a.data), widened(b.data), a.data.shape[-1], ROUNDOFF[a.dtype]
    size = x.abs().real @ y.abs().real
    error = x.abs() @ b.error + a.error @ (y.abs() + b.error)
    several = 4 if a.dtype.is_complex else 2
    return rounded(x @ y, error + several * number * unit * size, a.dtype)


def linear(a: Bounded, b: Bounded, bias: Bounded | None = None) -> Bounded:
    product = matmul(a, moved(b, lambda t: t.mT))
    return product if bias is None else convert(binary("add", product, bias), a.dtype)


def _wide(matrix: Bounded, scale: Bounded) -> Bounded:
    """A matrix times a scale of one element."""
    factor = convert(moved(scale, lambda t: t.reshape([])), torch.float32)
    return binary("mul", convert(matrix, torch.float32), factor)


def _in_groups(mat1: Bounded, mat2: Bounded, offsets: Bounded) -> Bounded:
    """Groups are cut out of rows, columns, or what is summed over."""
    ends = [0, *(int(end) for end in offsets.data)]
    parts, every = [slice(start, end) for start, end in itertools.pairwise(ends)], slice(None)

    def cut(x: Bounded, *part: slice | int) -> Bounded:
        return moved(x, lambda t: t[part])

    join, dim = torch.cat, 0
    if mat1.data.ndim == mat2.data.ndim:
        join = torch.stack
        products = [matmul(cut(mat1, every, part), cut(mat2, part, every)) for part in parts]
    elif mat2.data.ndim == 3:
        products = [matmul(cut(mat1, part), cut(mat2, i)) for i, part in enumerate(parts)]
    else:
        products, dim = [matmul(cut(mat1, i), cut(mat2, every, part)) for i, part in enumerate(parts)], 1
    return Bounded(join([p.data for p in products], dim), join([p.error for p in products], dim))


def grouped_mm(
    mat1: Bounded,
    mat2: Bounded,
    offsets: Bounded,
    scale1: Bounded | None = None,
    scale2: Bounded | None = None,
    *,
    dtype: DataType = DataType.BFloat16,
) -> Bounded | tuple[Bounded, Bounded, Bounded]:
    if scale1 is None or scale2 is None:
        return _in_groups(mat1, mat2, offsets)
    product = _in_groups(_wide(mat1, scale1), _wide(mat2, scale2), offsets)
    return convert(product, dtype.torch), ABSENT, ABSENT


def scaled_mm(
    mat1: Bounded, mat2: Bounded, scale1: Bounded, scale2: Bounded, *, dtype: DataType = DataType.BFloat16
) -> tuple[Bounded, Bounded, Bounded]:
    return convert(matmul(_wide(mat1, scale1), _wide(mat2, scale2)), dtype.torch), ABSENT, ABSENT


# ---- attention ---------------------------------------------------------------------------------------------


def _scores(query: Bounded, key: Bounded, is_causal: bool | None, scale: float | None) -> Bounded:
    found = matmul(query, moved(key, lambda t: t.mT))
    found = convert(found, torch.float32)
    found = binary("mul", found, 1 / math.sqrt(query.data.shape[-1]) if scale is None else scale)
    if not is_causal:
        return found
    seen = torch.ones(found.data.shape[-2:], dtype=torch.bool).tril()
    return where(exact(seen), found, -INF)


def sdpfa_fwd(
    query: Bounded,
    key: Bounded,
    value: Bounded,
    bias: Bounded | None = None,
    mask: Bounded | None = None,
    dropout_p: float | None = None,
    is_causal: bool | None = False,
    scale: float | None = None,
) -> tuple[Bounded, Bounded, Bounded, Bounded]:
    """(out, logsumexp, seed, offset), where nothing is dropped.

    Scores and probabilities may be rounded to the type on their way.
    """
    assert bias is None and mask is None and not dropout_p
    scores = _scores(query, key, is_causal, scale)
    top = reduction("max", scores, -1, True)
    total = reduction("sum", unary("exp", binary("sub", scores, top)), -1, True)
    logsumexp = binary("add", unary("log", total), top)
    out = matmul(convert(softmax("softmax", scores, -1), query.dtype), value)
    return out, moved(logsumexp, lambda t: t.squeeze(-1)), ABSENT, ABSENT


def sdpfa_bwd(
    grad: Bounded,
    query: Bounded,
    key: Bounded,
    value: Bounded,
    output: Bounded,
    logsumexp: Bounded,
    dropout_p: float | None = None,
    is_causal: bool | None = False,
    philox_seed: Bounded = ABSENT,
    philox_offset: Bounded = ABSENT,
    scale: float | None = None,
) -> tuple[Bounded, Bounded, Bounded]:
    """The gradients, from the probabilities that logsumexp stands for."""
    scores = _scores(query, key, is_causal, scale)
    p = unary("exp", binary("sub", scores, moved(logsumexp, lambda t: t.unsqueeze(-1))))
    narrow = convert(p, query.dtype)
    of_value = matmul(moved(narrow, lambda t: t.mT), grad)
    of_p = convert(matmul(grad, moved(value, lambda t: t.mT)), torch.float32)
    row = reduction("sum", binary("mul", grad, output), -1, True)
    of_scores = convert(binary("mul", p, binary("sub", of_p, row)), query.dtype)
    factor = 1 / math.sqrt(query.data.shape[-1]) if scale is None else scale
    of_query, of_key = matmul(of_scores, key), matmul(moved(of_scores, lambda t: t.mT), query)
    scaled = (convert(binary("mul", t, factor), query.dtype) for t in (of_query, of_key))
    return (*scaled, of_value)  # type: ignore[return-value]


# ---- sorting -----------------------------------------------------------------------------------------------


def sort(
    arg: Bounded, dim: int = -1, descending: bool = False, stable: bool = False
) -> tuple[Bounded, Bounded]:
    """A value is off by the worst error along `dim`; an index is unknown where a neighbour may be first.

    The order of equal elements that are exact is known where the sort is stable.
    """
    if not arg.data.ndim:
        return arg, exact(torch.tensor(0))
    if arg.data.shape[dim] == 0:
        return arg, exact(arg.data.to(torch.int64))
    x = arg.data if arg.dtype in INTEGERS else widened(arg.data)
    places = torch.argsort(x, dim=dim, descending=descending, stable=True)
    ordered, error = x.gather(dim, places), arg.error.gather(dim, places)
    worst = error.amax(dim, keepdim=True).expand_as(error)
    apart = ordered.diff(dim=dim).abs() > 2 * worst.narrow(dim, 1, worst.shape[dim] - 1)
    edge = torch.ones_like(ordered.narrow(dim, 0, 1), dtype=torch.bool)
    known = torch.cat([apart, edge], dim) & torch.cat([edge, apart], dim) & (worst < INF)
    known |= torch.tensor(stable) & (worst == 0)
    return Bounded(arg.data.gather(dim, places), worst.clone()), Bounded(places, unknown_where(~known))


def topk(
    arg: Bounded, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Bounded, Bounded]:
    values, places = sort(arg, dim, largest)
    return moved(values, lambda t: t.narrow(dim, 0, k)), moved(places, lambda t: t.narrow(dim, 0, k))


def aten(
    overload: str, arguments: Sequence[Bounded], shapes: Sequence[Sequence[int]], dtypes: Sequence[DataType]
) -> Bounded:
    """What programs call it with: a copy."""
    assert overload == "clone.default"
    return arguments[0]


def argsort(arg: Bounded, dim: int, descending: bool = False, stable: bool = False) -> Bounded:
    return sort(arg, dim, descending, stable)[1]


# ---- assignments and additions at indices ------------------------------------------------------------------


def scatter(arg: Bounded, index: Bounded, src: Bounded | Number, dim: int) -> Bounded:
    """Unknown where several elements are for one place."""
    places, shape = index.data.long(), index.data.shape
    given = src if isinstance(src, Bounded) else convert(exact(src), arg.dtype)
    values = Bounded(given.data.expand(shape), given.error.expand(shape)) if not given.data.ndim else given
    taken = torch.zeros(arg.data.shape, dtype=torch.int64).scatter_add(dim, places, torch.ones(shape).long())
    bits = movable(arg.data).scatter(dim, places, movable(values.data))
    data, error = bits.view(arg.data.dtype), arg.error.scatter(dim, places, values.error)
    unknown = unknown_where(taken > (1 if given.data.ndim else index.data.numel()))
    return Bounded(data, error + unknown)


def _added(x: Bounded, places: Tensor, rows: Bounded) -> Bounded:
    """`x` with row i of `rows` added to row places[i], in the type of both, in any order."""
    if category(x.dtype) < 2:
        data = x.data.index_add(0, places, rows.data)
        return Bounded(data, unknown_where(x.error.index_add(0, places, rows.error) > 0))
    wide, each = widened(x.data), widened(rows.data)
    size = wide.abs().index_add(0, places, each.abs())
    number = torch.zeros(len(wide), dtype=torch.float64).index_add(
        0, places, torch.ones(len(places), dtype=torch.float64)
    )
    several = (2 * number * ROUNDOFF[x.dtype]).reshape(-1, *(1 for _ in wide.shape[1:]))
    error = x.error.index_add(0, places, rows.error) + several * size
    return rounded(wide.index_add(0, places, each), error, x.dtype, 0)


def index_put_accumulate(acc: Bounded, index: Bounded, value: Bounded) -> Bounded:
    wide = up(acc.dtype)
    total = _added(convert(acc, wide), index.data.long().flatten(), convert(value, wide))
    return convert(total, acc.dtype)


def embedding_bwd(
    grad_output: Bounded,
    indices: Bounded,
    num_embeddings: int | Bounded,
    padding_idx: int | None = None,
    scale_grad_by_freq: bool = False,
) -> Bounded:
    width, places = grad_output.data.shape[-1], indices.data.long().flatten()
    number = int(num_embeddings.data) if isinstance(num_embeddings, Bounded) else num_embeddings
    wide = up(grad_output.dtype)
    rows = reshape(convert(grad_output, wide), (len(places), width))
    if padding_idx is not None:
        kept = places != padding_idx
        rows, places = moved(rows, lambda t: t[kept]), places[kept]
    if scale_grad_by_freq:
        often = torch.bincount(places, minlength=max(number, 1))[places].unsqueeze(1)
        rows = convert(binary("truediv", rows, exact(often)), wide)
    return convert(_added(exact(torch.zeros(number, width, dtype=wide)), places, rows), grad_output.dtype)
