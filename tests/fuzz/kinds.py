"""What random programs are written of: each function adds a call, or a pattern of several, to a program."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fusewright import DataType
from tests.fuzz.bounded import KEEPS_BOOLS, UNARY
from tests.fuzz.dims import Dim
from tests.fuzz.programs import Extent
from tests.fuzz.writer import COMPLEX, DATATYPE, FLOATS, STORED, Slot, Writer

# On integers silu is not defined.
INTEGER_UNARY = tuple(name for name in UNARY if name != "silu")
COMPLEX_UNARY = ("neg", "set", "abs", "real", "imag")
COMPARE = ("lt", "le", "gt", "ge", "eq", "ne")
FLOAT_BINARY = ("add", "sub", "mul", "div", "truediv", "minimum", "maximum", *COMPARE, "logical_or")
BOOL_BINARY = ("bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or")
INTEGER_BINARY = ("add", "sub", "mul", "minimum", "maximum", "div", "mod", "remainder", "truediv", *COMPARE)
POSITIONS = ("argmax", "argmin")
FLOAT_REDUCTIONS = ("sum", "sum", "sum", "mean", "max", "min", "prod", "var", "var_mean", "logsumexp")
SEARCHES = (*POSITIONS, "any", "all")
DIVISIONS = ("div", "mod", "remainder")
# No dimension is added to a value of more.
MAX_RANK = 12
# The product of more random values overflows or vanishes.
MAX_FACTORS = 64


# ---- operands ----------------------------------------------------------------------------------------------


def aligned(a: Slot, b: Slot) -> bool:
    """Whether an elementwise operation takes both."""
    return all(x == y or None in (x, y) for x, y in zip(reversed(a.dims), reversed(b.dims)))


def joined(*slots: Slot) -> tuple[Dim, ...]:
    """The dimensions of an elementwise operation of these."""
    rank = max(s.ndim for s in slots)
    padded = [(None,) * (rank - s.ndim) + s.dims for s in slots]
    return tuple(next((d for d in column if d is not None), None) for column in zip(*padded))


def without(dims: tuple[Dim, ...], over: Sequence[int], keepdim: bool) -> tuple[Dim, ...]:
    if keepdim:
        return tuple(None if i in over else d for i, d in enumerate(dims))
    return tuple(d for i, d in enumerate(dims) if i not in over)


def _positions(narrow: tuple[Dim, ...], wide: tuple[Dim, ...]) -> list[int] | None:
    """Where the dimensions of `narrow` stand in `wide`, in the same order; None if they do not."""
    places: list[int] = []
    for dim in narrow:
        start = places[-1] + 1 if places else 0
        if dim is None or dim not in wide[start:]:
            return None
        places.append(wide.index(dim, start))
    return places


def _partner(w: Writer, x: Slot, accepts: Callable[[Slot], bool] = lambda s: True) -> Any:
    """A second operand: a value that aligns, a number, or a size."""
    if w.chance(30) and w.sources:
        return w.pick(list(w.sources.values()))
    if w.chance(4):
        if x.is_float or x.is_complex:
            return w.pick((2.0, -0.5, 0.1, 1, 3))
        return w.pick((2, -1, 3, 0.5, True))
    return w.any(lambda s: aligned(x, s) and accepts(s))


# ---- elementwise -------------------------------------------------------------------------------------------


def unary(w: Writer) -> None:
    x = w.any()
    if x is None:
        return
    names = tuple(UNARY) if x.is_float else INTEGER_UNARY
    if x.is_complex:
        names = COMPLEX_UNARY
    elif x.dtype is DataType.Bool:
        names = (*KEEPS_BOOLS, "logical_not")
    w.call(w.pick(names), x, dims=x.dims)


def binary(w: Writer) -> None:
    x = w.any()
    y = None if x is None else _partner(w, x, lambda s: not (s.is_complex and x.is_reduced))
    if x is not None and y is not None:
        combine(w, x, y)


def combine(w: Writer, x: Slot, y: Any) -> Slot | None:
    """Some operation of two operands that align."""
    is_number = not isinstance(y, Slot)
    types: set[Any] = {x.value.dtype}
    types.add(y.value.dtype if isinstance(y, Slot) else int if isinstance(y, Extent) else type(y))
    if any(t in (torch.complex64, torch.complex128) for t in types):
        if x.is_reduced or (not is_number and y.is_reduced):
            return None
        name = w.pick(("add", "sub", "mul"))
    elif any(t is float or getattr(t, "is_floating_point", False) for t in types):
        name = w.pick(FLOAT_BINARY if w.chance(2) else ("add", "sub", "mul"))
    elif types <= {torch.bool, bool}:
        name = w.pick(BOOL_BINARY)
    else:
        name = w.pick(INTEGER_BINARY)
        if name in DIVISIONS:
            y, is_number = w.pick((2, 3, -4)), True
    dims = x.dims if is_number else joined(x, y)
    operands = (y, x) if w.chance(4) and name not in DIVISIONS else (x, y)
    return w.call(name, *operands, dims=dims)


def ternary(w: Writer) -> None:
    name = w.pick(("where", "where", "clamp", "threshold", "lerp", "addcmul", "add_alpha", "pow"))
    if name == "where":
        return _where(w)
    x = w.any(lambda s: s.is_float and not s.value.scalar)
    if x is None:
        return None
    y = w.any(lambda s: s.is_float and aligned(x, s))
    if name == "clamp":
        low, high = w.pick(((-1.0, 1.0), (0, 0.75), (None, 0.5), (-0.5, None)))
        w.call("clamp", x, low, high, dims=x.dims)
    elif name == "threshold":
        w.call("threshold", x, w.pick((0.0, 0.5)), w.pick((-1.0, 2.0)), dims=x.dims)
    elif name == "pow":
        w.call("pow", x, w.pick((2, 3)), dims=x.dims)
    elif y is not None and name == "add_alpha":
        w.call(w.pick(("add_alpha", "sub_alpha")), x, y, w.pick((0.5, 2)), dims=joined(x, y))
    elif y is not None and name == "lerp":
        w.call("lerp", x, y, w.pick((0.25, 0.75, x)), dims=joined(x, y))
    elif y is not None:
        w.call("addcmul", x, y, x, w.pick((0.5, -2.0)), dims=joined(x, y))
    return None


def _where(w: Writer) -> None:
    condition = w.any(lambda s: s.dtype is DataType.Bool)
    if condition is None:
        return compare(w)
    x = w.any(lambda s: aligned(condition, s) and not s.is_complex)
    if x is None:
        return None
    y = w.any(lambda s: aligned(s, condition) and aligned(s, x) and not s.is_complex)
    branches: list[Any] = [x, y if y is not None and w.chance(2) else w.pick((0.0, 1.5, -1))]
    if w.chance(3):
        branches.reverse()
    slots = [condition, *(b for b in branches if isinstance(b, Slot))]
    w.call("where", condition, *branches, dims=joined(*slots))
    return None


def compare(w: Writer) -> None:
    x = w.any(lambda s: not s.is_complex)
    y = None if x is None else _partner(w, x, lambda s: not s.is_complex)
    if x is not None and y is not None:
        dims = joined(x, y) if isinstance(y, Slot) else x.dims
        w.call(w.pick(COMPARE), x, y, dims=dims)


def cast(w: Writer) -> None:
    x = w.any(lambda s: not s.is_complex)
    if x is not None:
        dtype = w.pick((*w.flavour.dtypes, DataType.Float, DataType.Float, DataType.Int32, DataType.Bool))
        if dtype not in COMPLEX or not x.is_reduced:
            w.call("cast", x, dtype, dims=x.dims)


def bitcast(w: Writer) -> None:
    """The bits of a value that is known exactly as another type's, at times of what is computed with them."""
    x = w.any(
        lambda s: not s.value.scalar and _has_plain_bits(s.dtype) and not bool((s.value.error > 0).any())
    )
    if x is None:
        return
    dtypes = [d for d in DATATYPE.values() if _has_plain_bits(d) and d.size == x.dtype.size]
    y = w.call("bitcast", x, w.pick(dtypes), dims=x.dims)
    if y is not None and y.dtype not in (*FLOATS, *STORED) and w.chance(3):
        z = w.call("bitwise_xor", y, 1, dims=y.dims)
        if z is not None and z.dtype is y.dtype:
            w.call("bitcast", z, x.dtype, dims=x.dims)


def _has_plain_bits(dtype: DataType) -> bool:
    return dtype is not DataType.Bool and dtype not in COMPLEX


def narrow(w: Writer) -> None:
    """A value kept in 8 bits, at times moved, and widened again."""
    x: Slot | None = w.any(lambda s: s.is_float and not s.value.scalar)
    x = x and w.call("cast", x, w.pick(STORED), dims=x.dims)
    if x is not None and x.ndim > 1 and w.chance(3):
        x = w.call("stride_order", x, w.permutation(x.ndim), dims=x.dims)
    if x is not None and x.ndim > 1 and w.chance(3):
        x = _permuted(w, x)
    if x is not None and w.chance(1.5):
        w.call("cast", x, w.pick(FLOATS), dims=x.dims)


# ---- shapes ------------------------------------------------------------------------------------------------


def permute(w: Writer) -> None:
    x = w.any(lambda s: s.ndim > 1)
    if x is not None:
        _permuted(w, x)


def _permuted(w: Writer, x: Slot) -> Slot | None:
    dims = w.permutation(x.ndim)
    return w.call("permute", x, dims, dims=tuple(x.dims[d] for d in dims))


def broadcast(w: Writer) -> None:
    x = w.any(lambda s: s.ndim < min(MAX_RANK, w.flavour.max_rank + 1) and not s.value.scalar)
    if x is not None:
        widened(w, x, w.rng.randint(0, x.ndim))


def widened(w: Writer, x: Slot, at: int) -> Slot | None:
    """`x` with a dimension of size 1 more."""
    flags = [i == at for i in range(x.ndim + 1)]
    return w.call("broadcast", x, flags, dims=(*x.dims[:at], None, *x.dims[at:]))


def squeeze(w: Writer) -> None:
    x = w.any(lambda s: None in s.dims)
    if x is not None:
        dim = w.pick([i for i, d in enumerate(x.dims) if d is None])
        w.call("squeeze", x, (dim,), dims=(*x.dims[:dim], *x.dims[dim + 1 :]))


def expand(w: Writer) -> None:
    x = w.any(lambda s: None in s.dims)
    free = [n for n in w.sources if x is not None and n not in x.dims]
    if x is not None and free:
        dim, name = w.pick([i for i, d in enumerate(x.dims) if d is None]), w.pick(free)
        dims = tuple(name if i == dim else d for i, d in enumerate(x.dims))
        shape = tuple(w.sources[name] if i == dim else -1 for i in range(x.ndim))
        w.call("expand", x, shape, dims=dims)


def back(w: Writer) -> None:
    """A value broadcast to where another one has more dimensions."""
    wide = w.any(lambda s: s.ndim > 1)
    if wide is None:
        return
    narrow = w.any(
        lambda s: s.ndim < wide.ndim and not s.value.scalar and _positions(s.dims, wide.dims) is not None
    )
    at = None if narrow is None else _positions(narrow.dims, wide.dims)
    if narrow is None or at is None:
        return
    if w.chance(2) and all(d in w.sources for d in wide.dims):
        shape = tuple(w.sources[d] for d in wide.dims if d)
        w.call("broadcast_in_dim", narrow, shape, tuple(at), dims=wide.dims)
    else:
        flags = [i not in at for i in range(wide.ndim)]
        dims = tuple(d if i in at else None for i, d in enumerate(wide.dims))
        w.call("broadcast", narrow, flags, dims=dims)


def order(w: Writer) -> None:
    x = w.any(lambda s: s.ndim > 1)
    if x is not None:
        w.call("stride_order", x, w.permutation(x.ndim), dims=x.dims)


def factory(w: Writer) -> None:
    x = w.tensor(lambda s: all(d is None or d in w.sources for d in s.dims))
    if x is None:
        return
    shape = tuple(1 if d is None else w.sources[d] for d in x.dims)
    if w.chance(2):
        dtype = w.pick((DataType.Int, DataType.Int32, DataType.Float))
        start, step = (0.5, 0.25) if dtype is DataType.Float else w.pick(((1, 2), (0, 1), (7, -3)))
        w.call("iota", shape[-1], start, step, dtype, dims=x.dims[-1:])
    else:
        w.call("full", shape, w.pick((0.5, 2.0)), w.pick(FLOATS), dims=x.dims)


# ---- reductions --------------------------------------------------------------------------------------------


def reduced_dims(w: Writer, x: Slot) -> tuple[int, ...]:
    style = w.pick(("last", "last", "first", "all", "some"))
    if style == "last":
        return (x.ndim - 1,)
    if style == "first":
        return (0,)
    if style == "all":
        return tuple(range(x.ndim))
    return tuple(sorted(w.rng.sample(range(x.ndim), w.rng.randint(1, x.ndim))))


def reduce(w: Writer) -> None:
    x = w.tensor()
    if x is not None:
        reduced(w, x, reduced_dims(w, x), w.chance(2))


def reduced(w: Writer, x: Slot, over: tuple[int, ...], keepdim: bool) -> Slot | None:
    """Some reduction of `x` over these dimensions."""
    if x.is_complex:
        name = w.pick(("sum", "sum", "sum", "any"))
    elif x.is_float:
        name = w.pick((*FLOAT_REDUCTIONS, *SEARCHES))
    else:
        name = w.pick(("sum", "max", "min", *SEARCHES))
    if name == "var_mean" and x.is_reduced:
        name = "var"
    if name == "prod" and math.prod(x.value.data.shape[d] for d in over) > MAX_FACTORS:
        name = "sum"
    args: tuple[Any, ...] = (over, w.pick((0, 1))) if name.startswith("var") else (over,)
    if name in POSITIONS:  # along one dimension, or among all
        over = over if len(over) == 1 else tuple(range(x.ndim))
        args = (over[0] if len(over) < x.ndim else w.pick((None, 0)) if x.ndim == 1 else None,)
    return w.call(name, x, *args, keepdim=keepdim, dims=without(x.dims, over, keepdim))


def several(w: Writer) -> None:
    """Two or three reductions of one value over different dimensions, or over the outer and the others."""
    x = w.tensor()
    if x is None:
        return
    if x.ndim > 1 and w.chance(2):
        at = w.rng.randint(1, x.ndim - 1)
        every = [tuple(range(at)), tuple(range(at, x.ndim)), tuple(range(x.ndim))]
    else:
        every = [reduced_dims(w, x) for _ in range(3)]
    for over in every[: w.rng.randint(2, 3)]:
        reduced(w, x, over, w.chance(2))


def rejoin(w: Writer) -> None:
    """What is reduced, or a factor of it, meets the result: `x * y + sum(x * y)`, `sum(x * y) * y`."""
    x = w.tensor(lambda s: not s.is_complex or s.dtype in COMPLEX)
    y = None if x is None else w.tensor(lambda s: aligned(x, s))
    if x is None or y is None:
        return
    product = combine(w, x, y)
    if product is None or not product.ndim:
        return
    over = reduced_dims(w, product)
    total = reduced(w, product, over, keepdim=over != (0,) or w.chance(2))
    if total is not None:
        other = w.pick([s for s in (product, x, y) if aligned(s, total)] or [2.0])
        combine(w, total, other)


def gradient(w: Writer) -> None:
    """How a normalization's weight, and what it normalizes, get their gradients."""
    dy = w.any(lambda s: s.is_float and s.ndim > 1)
    x = None if dy is None else w.any(lambda s: s.is_float and s.dims == dy.dims)
    if dy is None or x is None:
        return
    product = w.call("mul", dy, x, dims=dy.dims)
    if product is None:
        return
    outer, inner = tuple(range(dy.ndim - 1)), (dy.ndim - 1,)
    weight = w.call("sum", product, outer, dims=without(dy.dims, outer, False))
    row = w.call("sum", product, inner, keepdim=True, dims=without(dy.dims, inner, True))
    if row is not None:
        scaled = w.call("mul", x, row, dims=joined(x, row))
        if scaled is not None:
            w.call("sub", dy, scaled, dims=joined(dy, scaled))
    if weight is not None and w.chance(2):
        combine(w, weight, w.pick([dy, x, product]))


def normalize(w: Writer) -> None:
    """Softmax, layer norm or RMS norm over some dimensions, call by call."""
    x = w.tensor(lambda s: s.is_float)
    if x is None:
        return
    over = reduced_dims(w, x) if w.chance(2) else (x.ndim - 1,)
    kept = without(x.dims, over, True)
    if len(over) == 1 and w.chance(3):
        w.call(w.pick(("softmax", "log_softmax")), x, over[0], dims=x.dims)
        return
    up = w.call("cast", x, DataType.Float, dims=x.dims)
    out = None if up is None else w.pick((softmax, layer_norm, _rms_norm))(w, up, over, kept)
    if out is not None and w.chance(2):
        w.call("cast", out, x.dtype, dims=x.dims)


def softmax(w: Writer, x: Slot, over: tuple[int, ...], kept: tuple[Dim, ...]) -> Slot | None:
    top = w.call("max", x, over, keepdim=True, dims=kept)
    shifted = top and w.call("sub", x, top, dims=x.dims)
    powers = shifted and w.call("exp", shifted, dims=x.dims)
    total = powers and w.call("sum", powers, over, keepdim=True, dims=kept)
    return total and w.call("div", powers, total, dims=x.dims)


def layer_norm(w: Writer, x: Slot, over: tuple[int, ...], kept: tuple[Dim, ...]) -> Slot | None:
    average = w.call("var_mean", x, over, 0, keepdim=True, dims=kept)
    variance = average and w.slots[-2]
    safe = variance and w.call("add", variance, 1e-5, dims=kept)
    scale = safe and w.call("rsqrt", safe, dims=kept)
    centred = scale and w.call("sub", x, average, dims=x.dims)
    return centred and w.call("mul", centred, scale, dims=x.dims)


def _rms_norm(w: Writer, x: Slot, over: tuple[int, ...], kept: tuple[Dim, ...]) -> Slot | None:
    square = w.call("mul", x, x, dims=x.dims)
    average = square and w.call("mean", square, over, keepdim=True, dims=kept)
    safe = average and w.call("add", average, 1e-6, dims=kept)
    scale = safe and w.call("rsqrt", safe, dims=kept)
    return scale and w.call("mul", x, scale, dims=x.dims)


# ---- what torch computes -----------------------------------------------------------------------------------


def contract(w: Writer) -> None:
    """A product with another value, or with the value itself, transposed."""
    x = w.tensor(lambda s: (s.is_float or s.is_complex) and s.ndim <= w.flavour.max_rank)
    if x is None:
        return
    y = w.tensor(lambda s: s.dtype is x.dtype and s.ndim == 2 and s.dims[-1] == x.dims[-1])
    if y is not None and w.chance(1.5):
        w.call("linear", x, y, dims=(*x.dims[:-1], y.dims[0]))
    elif x.ndim > 1:
        y = _transposed_last(w, x)
        if y is not None:
            w.call("matmul", x, y, dims=(*x.dims[:-1], x.dims[-2]))
    else:
        w.call("matmul", x, x, dims=())


def _transposed_last(w: Writer, x: Slot) -> Slot | None:
    places = (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)
    return w.call("permute", x, places, dims=tuple(x.dims[i] for i in places))


def arrange(w: Writer) -> None:
    """Sorted values, or all of them as the largest ones, with their places."""
    x = w.tensor(lambda s: not s.is_complex)
    if x is None:
        return
    dim = w.rng.randrange(x.ndim)
    name = x.dims[dim]
    if w.chance(2) and name in w.sources and x.dtype is not DataType.Bool:
        w.call("topk", x, w.sources[name], dim, w.chance(2), True, dims=x.dims)
    else:
        w.call("sort", x, dim, descending=w.chance(2), dims=x.dims)


# ---- scans -------------------------------------------------------------------------------------------------


def scan(w: Writer) -> None:
    """A scan along some dimension, at times with another one, and with what is scanned."""
    x = w.tensor()
    out = None if x is None else _scanned(w, x)
    if x is None or out is None:
        return
    if w.chance(4):
        out = _scanned(w, out) or out
    if w.chance(3) and not x.is_complex:
        combine(w, out, x)


def _scanned(w: Writer, x: Slot) -> Slot | None:
    dim = w.pick((x.ndim - 1, 0, w.rng.randrange(x.ndim)))
    names = ["cumsum", "cumsum"] if x.is_complex else ["cumsum", "cumsum", "cummax", "cummin"]
    if not x.is_complex and x.value.data.shape[dim] < MAX_FACTORS:
        names.append("cumprod")
    if x.is_float:
        names.append("logcumsumexp")
    options: dict[str, Any] = {}
    name = w.pick(names)
    if w.chance(4) and x.dtype is not DataType.Bool and name != "logcumsumexp":
        options["init"] = w.pick((0.5, -2.0, 1) if x.is_float or x.is_complex else (3, -2))
    at = dim - x.ndim if w.chance(2) else dim
    return w.call(name, x, at, dims=x.dims, **options)


# ---- a value that meets itself -----------------------------------------------------------------------------


def twice(w: Writer) -> None:
    """One value at two places of a result: pairwise, transposed, or with a broadcast of itself."""
    w.pick((_pairwise, _pairwise, _transposed, _with_broadcast))(w)


def _pairwise(w: Writer) -> None:
    x = w.tensor(lambda s: s.ndim < MAX_RANK and s.value.data.numel() <= 100)
    if x is None:
        return
    at = w.rng.randrange(x.ndim)
    # `x` along dimension `at`, and along the next one
    row, column = widened(w, x, at), widened(w, x, at + 1)
    if row is not None and column is not None and aligned(row, column):
        _meet(w, *((row, column) if w.chance(2) else (column, row)))


def _transposed(w: Writer) -> None:
    x = w.any(lambda s: len(set(s.dims)) < s.ndim)
    if x is None:
        return
    repeated = [(i, j) for i in range(x.ndim) for j in range(i) if x.dims[i] == x.dims[j]]
    i, j = w.pick(repeated)
    places = list(range(x.ndim))
    places[i], places[j] = j, i
    moved = w.call("neg", x, dims=x.dims) if w.chance(3) and x.dtype is not DataType.Bool else x
    turned = moved and w.call("permute", moved, tuple(places), dims=x.dims)
    if turned is not None:
        _meet(w, *((x, turned) if w.chance(2) else (turned, x)))


def _with_broadcast(w: Writer) -> None:
    x = w.tensor(lambda s: s.ndim < MAX_RANK and s.value.data.numel() <= 100)
    wide = None if x is None else widened(w, x, w.rng.randint(0, x.ndim))
    if x is not None and wide is not None and aligned(x, wide):
        _meet(w, x, wide)


def _meet(w: Writer, x: Slot, y: Slot) -> None:
    """The two combined; at times the result is reduced, and each of them used for something else."""
    both = combine(w, x, y)
    if both is not None and w.chance(2):
        reduced(w, both, reduced_dims(w, both), w.chance(2))
    for operand in (x, y):
        if w.chance(3):
            combine(w, operand, True if operand.dtype is DataType.Bool else 2)


# ---- kernel boundaries -------------------------------------------------------------------------------------


def boundary(w: Writer) -> None:
    """A value in some memory order that other kernels read: reduced along several dimensions, or permuted."""
    x = w.tensor()
    if x is None:
        return
    y: Slot | None = x
    if x.ndim > 1 and w.chance(1.5):
        y = w.call("stride_order", x, w.permutation(x.ndim), dims=x.dims)
    if y is not None and w.chance(3):
        y = w.call("segment_set", y, dims=y.dims)
    if y is None:
        return
    for _ in range(w.rng.randint(1, 2)):
        reduced(w, y, reduced_dims(w, y), w.chance(2))
    if y.ndim > 1 and w.chance(2):
        _permuted(w, y)


def segment_set(w: Writer) -> None:
    x = w.tensor()
    if x is not None:
        w.call("segment_set", x, dims=x.dims)


KINDS: dict[str, Callable[[Writer], None]] = {
    function.__name__: function
    for function in (
        unary,
        binary,
        ternary,
        compare,
        cast,
        bitcast,
        narrow,
        permute,
        broadcast,
        squeeze,
        expand,
        back,
        order,
        factory,
        reduce,
        several,
        rejoin,
        gradient,
        normalize,
        contract,
        arrange,
        scan,
        twice,
        boundary,
        segment_set,
    )
}
