"""Operations that few programs are made of: each function adds a call, or several, to a program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fusewright import DataType
from tests.fuzz.dims import Dim, times
from tests.fuzz.functions import FUNCTIONS, TESTS
from tests.fuzz.kinds import aligned, combine, joined, reduced_dims, widened, without
from tests.fuzz.writer import FLOATS, Slot, Writer

#: What makes operands of functions that few numbers are operands of.
PREPARED = {
    **dict.fromkeys(("acos", "asin"), "sin"),
    **dict.fromkeys(("atanh", "erfinv"), "tanh"),
    **{"acosh": "cosh", "erfcinv": "sigmoid", "log10": "exp"},
}
COMPLEX_TESTS = ("isfinite", "isinf", "isnan", "isreal")
WIDE = (DataType.Float, DataType.Double)
GROUPS_OF_CLASSES = 5
BLOCK = 16


def _is_exact(s: Slot) -> bool:
    return not bool((s.value.error > 0).any())


def _is_integer(s: Slot) -> bool:
    return s.dtype in (DataType.Int, DataType.Int32)


# ---- elementwise -------------------------------------------------------------------------------------------


def function(w: Writer) -> None:
    x = w.any(lambda s: s.is_float)
    name = w.pick((*FUNCTIONS, "gelu", "gelu"))
    if x is not None and name == "lgamma":  # away from its roots
        x = w.call("abs", x, dims=x.dims)
        x = x and w.call("add", x, 3, dims=x.dims)
    elif x is not None and name in PREPARED:
        x = w.call(PREPARED[name], x, dims=x.dims)
    if x is not None:
        more = ("tanh",) if name == "gelu" and w.chance(2) else ()
        if name != "gelu" or not x.value.scalar:
            w.call(name, x, *more, dims=x.dims)


def test(w: Writer) -> None:
    """Something that is true of an element, or other bits of it."""
    x = w.any(_is_exact)
    if x is None:
        return
    names = COMPLEX_TESTS if x.is_complex else tuple(name for name in TESTS if name != "bitwise_not")
    discrete = x.dtype is DataType.Bool or _is_integer(x)
    w.call(w.pick((*names, "bitwise_not") if discrete else names), x, dims=x.dims)


def exact_pair(w: Writer) -> None:
    """Of two operands that are exact."""
    x = w.tensor(lambda s: _is_exact(s) and (s.dtype in WIDE or _is_integer(s)))
    y = x and w.tensor(lambda s: _is_exact(s) and s.dtype is x.dtype and aligned(x, s))
    if x is None or y is None:
        return
    if _is_integer(x):
        name = w.pick(("gcd", "bitwise_left_shift", "bitwise_right_shift", "logical_right_shift"))
        if name != "gcd":
            w.call(name, x, w.pick((0, 1, 3)), dims=x.dims)
            return
    else:
        name = w.pick(("atan2", "complex", "nextafter", "fmod", "remainder"))
        if name in ("fmod", "remainder"):
            w.call(name, x, w.pick((2.0, -0.75)), dims=x.dims)
            return
    w.call(name, x, y, dims=joined(x, y))


def masked(w: Writer) -> None:
    mask = w.tensor(lambda s: s.dtype is DataType.Bool)
    x = mask and w.tensor(lambda s: aligned(mask, s))
    if mask is not None and x is not None:
        value: Any = True if x.dtype is DataType.Bool else w.pick((0, 2, -1))
        w.call("masked_fill", x, mask, value, dims=joined(mask, x))


def like(w: Writer) -> None:
    x = w.tensor()
    if x is None:
        return
    name = w.pick(("full_like", "zeros_like", "ones_like", "zeros", "ones"))
    if not name.endswith("like"):
        shape = _shape(w, x)
        if shape is not None:
            w.call(name, shape, x.dtype, dims=x.dims)
    else:
        more = (w.pick((1, 0)),) if name == "full_like" else ()
        w.call(name, x, *more, dims=x.dims)


def _shape(w: Writer, x: Slot) -> tuple[Any, ...] | None:
    """The sizes of a value as operands."""
    if not all(d is None or d in w.sources for d in x.dims):
        return None
    return tuple(1 if d is None else w.sources[d] for d in x.dims)


def sizes(w: Writer) -> None:
    """Of a value: as a number beside another one, or as the shape of a new one."""
    x = w.tensor()
    if x is None:
        return
    name = w.pick(("size", "shape", "tensor_sizes", "at"))
    at = w.rng.randrange(x.ndim)
    if name == "size":
        w.call("size", x, at, dims=())
        return
    vector = w.call("shape" if name == "at" else name, x, dims=(str(x.ndim),), hides=(0,))
    if vector is not None and name == "at":
        w.call("at", vector, at - x.ndim if w.chance(2) else at, dims=())
    elif vector is not None:
        w.call("full", vector, 0.5, DataType.Float, dims=x.dims)


# ---- reductions and normalizations -------------------------------------------------------------------------


def deviation(w: Writer) -> None:
    x = w.tensor(lambda s: s.is_float)
    if x is None:
        return
    over = reduced_dims(w, x)
    if w.chance(2):
        w.call("std", x, over, w.pick((0, 1)), dims=without(x.dims, over, False))
        return
    kept = without(x.dims, over, False)
    if w.chance(4):
        w.call("max_sum_exp", x, over, dims=kept)
        return
    count = w.call("welford", x, over, dims=kept, hides=(2,))
    if count is not None and w.chance(2):
        w.call("cast", count, DataType.Int, dims=kept)


def norm(w: Writer) -> None:
    """A normalization in one call, with or without factors."""
    x = w.tensor(lambda s: s.is_float)
    if x is None:
        return
    if x.ndim < 2 or w.chance(2):
        count = w.pick((1, 1, x.ndim))
        kept = without(x.dims, range(x.ndim - count, x.ndim), True)
        weight = _factor(w, x.dims[-count:])
        if w.chance(2):
            w.call("layer_norm", x, count, weight, _factor(w, x.dims[-count:]), dims=[x.dims, kept, kept])
        else:
            w.call("rms_norm", x, count, weight, dims=[x.dims, kept])
        return
    channel = (x.dims[1],)
    factors = [_factor(w, channel), _factor(w, channel)]
    name = w.pick(("instance_norm", "group_norm", "batch_norm"))
    if name == "instance_norm":
        w.call(name, x, *factors, dims=[x.dims, x.dims[:2], x.dims[:2]])
    elif name == "group_norm":
        groups = 2 if w.chance(2) and x.dims[1] and w.require(f"{x.dims[1]} % 2 == 0") else 1
        apart = (x.dims[0], None if groups == 1 else w.named("2"))
        w.call(name, x, groups, *factors, dims=[x.dims, apart, apart])
    else:
        w.call(name, x, *factors, None, None, 0.1, 1e-5, True, dims=[x.dims, channel, channel])


def _factor(w: Writer, dims: tuple[Dim, ...]) -> Slot | None:
    """A weight or a bias, at times."""
    return w.tensor(lambda s: s.is_float and s.dims == dims) if w.chance(1.5) else None


def quantize(w: Writer) -> None:
    """Elements of blocks and their scales, widened again."""
    x = w.tensor(lambda s: s.is_float and s.dtype is not DataType.Double)
    if x is None:
        return
    longer = (*x.dims[:-1], w.named(times([str(BLOCK), x.dims[-1]])))
    rows = w.call("repeat_interleave", x, BLOCK, x.ndim - 1, dims=longer)
    last = rows and w.call("nv_block_quantize", rows, dims=[longer, x.dims], hides=(0, 1))
    if last is not None:
        elements = w.slots[last.index - 1]
        for slot in (elements, last):
            w.call("cast", slot, DataType.Float, dims=slot.dims, least_known=0.0)


# ---- random numbers ----------------------------------------------------------------------------------------


def random_numbers(w: Writer) -> None:
    """Which tell little: small ones beside a value, and values of which some are dropped."""
    x = w.tensor(lambda s: s.is_float)
    if x is None:
        return
    state = {"rng_seed": w.rng.randrange(100), "rng_offset": 4 * w.rng.randrange(10)} if w.chance(2) else {}
    name, shape = w.pick(("uniform", "normal", "rand_like", "randn_like", "dropout")), _shape(w, x)
    if name == "dropout":
        w.call(name, x, w.pick((0, 0.25, 0.5)), dims=x.dims, least_known=0.0, **state)
    elif name in ("uniform", "normal") and shape is not None:
        bounds = (1.0, 1.0625) if name == "uniform" else (2.0, 0.0078125)
        w.call(name, *bounds, shape, dims=x.dims, dtype=w.pick(FLOATS), **state)
    elif name.endswith("like"):
        drawn = w.call(name, x, dims=x.dims, least_known=0.0, **state)
        small = drawn and w.call("mul", drawn, 0.0078125, dims=x.dims, least_known=0.0)
        if small is not None:
            w.call("add", x, small, dims=x.dims)


# ---- by index ----------------------------------------------------------------------------------------------


def _places(w: Writer, dim: Dim, below: Any) -> Slot | None:
    """Indices of one dimension: 0, 1, ... below a limit, and from 0 on again."""
    if dim not in w.sources:
        return None
    line = w.call("iota", w.sources[dim], 0, 1, DataType.Int, dims=(dim,))
    return line and w.call("mod", line, below, dims=(dim,))


def assign(w: Writer) -> None:
    """Rows, or elements of rows, written or added at indices."""
    x = w.tensor(lambda s: s.is_float and s.dims[0] is not None)
    if x is None or x.dims[0] not in w.sources or not w.require(f"{x.dims[0]} > 0"):
        return
    names = ("scatter", "index_put_accumulate", "argsort")
    name = w.pick((*names, "embedding_bwd", "embedding_bwd") if x.ndim == 2 else names)
    if name == "argsort":
        w.call("argsort", x, 0, w.chance(2), True, dims=x.dims)
    elif name == "embedding_bwd":
        index = _places(w, x.dims[0], GROUPS_OF_CLASSES)
        if index is not None:
            rows = (w.named(str(GROUPS_OF_CLASSES)), x.dims[1])
            options = ((), (1,), (None, True))
            w.call(name, x, index, GROUPS_OF_CLASSES, *w.pick(options), dims=rows)
    elif name == "index_put_accumulate":
        limit = w.pick((1, w.sources[x.dims[0]]))
        index = _places(w, x.dims[0], limit)
        y = w.tensor(lambda s: s.dtype is x.dtype and s.dims == x.dims)
        if index is not None:
            w.call(name, x, index, y, dims=x.dims)
    elif name == "scatter":
        index = _places(w, x.dims[0], w.sources[x.dims[0]])
        for _ in range(x.ndim - 1):
            index = index and widened(w, index, index.ndim)
        others = [d for d in x.dims[1:] if d is not None]
        if index is not None and all(w.require(f"{d} > 0") for d in others):
            w.call(name, x, index, w.pick((x, 2)), 0, dims=x.dims)


def loss(w: Writer) -> None:
    x = w.tensor(lambda s: s.is_float and s.ndim == 2 and None not in s.dims)
    if x is None or x.dims[1] not in w.sources or not all(w.require(f"{d} > 0") for d in x.dims):
        return
    target = _places(w, x.dims[0], w.sources[x.dims[1]])
    if target is not None:
        how = w.pick(("none", "mean", "sum"))
        smoothing = w.pick((0.0, 0.25))
        dims = x.dims[:1] if how == "none" else ()
        w.call("cross_entropy", x, target, None, w.pick((-100, 0)), how, smoothing, dims=dims)


# ---- products and attention --------------------------------------------------------------------------------


def products(w: Writer) -> None:
    """Of groups of rows with a matrix each, and of scaled matrices."""
    x = w.tensor(
        lambda s: s.is_float and s.dtype is not DataType.Double and s.ndim == 2 and s.dims[0] in w.sources
    )
    turned = x and w.call("permute", x, (1, 0), dims=x.dims[::-1])
    if x is None or turned is None:
        return
    if w.chance(2):
        scales = [w.call("full", (1, 1), value, DataType.Float, dims=(None, None)) for value in (0.5, 0.25)]
        square = [(x.dims[0], x.dims[0]), (), ()]
        w.call("scaled_mm", x, turned, *scales, dims=square, hides=(1, 2), dtype=DataType.Float)
        return
    half = w.call("div", w.sources[x.dims[0]], 2, dims=())
    rest = half and w.call("sub", w.sources[x.dims[0]], half, dims=())
    ends = rest and w.call("iota", 2, half, rest, DataType.Int32, dims=(w.named("2"),))
    both = ends and w.call("stack", [turned, turned], 0, dims=(w.named("2"), *turned.dims))
    if both is not None:
        w.call("grouped_mm", x, both, ends, dims=(x.dims[0], x.dims[0]))


def attend(w: Writer) -> None:
    """Attention, and at times its gradients."""
    q = w.tensor(lambda s: s.is_reduced and s.ndim == 4 and None not in s.dims)
    k = q and w.tensor(lambda s: s.dtype is q.dtype and s.dims == q.dims)
    if q is None or k is None or not all(w.require(f"{d} > 0") for d in q.dims):
        return
    options: dict[str, Any] = w.pick(({}, {"is_causal": True}, {"scale": 0.5}))
    dims: list[tuple[Dim, ...]] = [q.dims, q.dims[:-1], (), ()]
    last = w.call("sdpfa_fwd", q, k, q, dims=dims, hides=(2, 3), **options)
    if last is None or w.chance(2):
        return
    results = [w.slots[last.index - i] for i in (3, 2, 1, 0)]
    causal, scale = options.get("is_causal"), options.get("scale")
    out, logsumexp, *state = results
    w.call("sdpfa_bwd", k, q, k, q, out, logsumexp, None, causal, *state, scale, dims=q.dims)


def met(w: Writer) -> None:
    """Any two values."""
    x = w.tensor(lambda s: not s.is_complex)
    y = x and w.tensor(lambda s: not s.is_complex and aligned(x, s))
    if x is not None and y is not None:
        combine(w, x, y)


RARE: dict[str, Callable[[Writer], None]] = {
    kind.__name__: kind
    for kind in (
        function,
        test,
        exact_pair,
        masked,
        like,
        sizes,
        deviation,
        norm,
        quantize,
        random_numbers,
        assign,
        loss,
        products,
        attend,
        met,
    )
}
