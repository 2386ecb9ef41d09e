"""An evaluator of fusions that shares nothing with Fusewright's own: node -> direct torch calls.

Fuzz tests compare generated kernels to it. Every value is rounded to the dtype of its node; reduced floats
are computed with in float32. `ops.evaluate`, which `fd.validate` uses, runs the op rows' own torch functions
instead, so the two check each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from fusewright.core.dtype import DataType
from fusewright.core.op import Rule
from fusewright.ir import (
    Broadcast,
    Copy,
    Expand,
    Full,
    Fusion,
    Iota,
    Permute,
    Pointwise,
    Reduction,
    Scalar,
    Scan,
    Squeeze,
    TensorView,
)
from fusewright.sym import Symbol, evaluate

Tensor = torch.Tensor
Torch = Callable[..., Tensor]


def _same_named(names: str) -> dict[str, Torch]:
    return {name: getattr(torch, name) for name in names.split()}


def _integral(x: Tensor) -> bool:
    return not (x.is_floating_point() or x.is_complex())


def _div(a: Tensor, b: Tensor) -> Tensor:
    if _integral(a):
        return torch.div(a, torch.where(b == 0, 1, b), rounding_mode="trunc")
    return a / b


def _remainder_of(function: Torch) -> Torch:
    return lambda a, b: function(a, torch.where(b == 0, 1, b) if _integral(b) else b)


def _pow(a: Tensor, b: Tensor) -> Tensor:
    if not _integral(a):
        return torch.pow(a, b)
    inverse = torch.where(a == 1, 1, torch.where(a == -1, torch.where(b % 2 == 1, -1, 1), 0)).to(a.dtype)
    return torch.where(b < 0, inverse, torch.pow(a, b.clamp(min=0)))


def _logical_right_shift(a: Tensor, b: Tensor) -> Tensor:
    width = torch.iinfo(a.dtype).bits
    mask = (1 << width) - 1
    flat = [
        (x & mask) >> s if 0 <= s < width else 0
        for x, s in zip(*(t.reshape(-1).tolist() for t in torch.broadcast_tensors(a, b)))
    ]
    signed = [v - (1 << width) if v >> (width - 1) else v for v in flat]
    return torch.tensor(signed, dtype=a.dtype).reshape(torch.broadcast_shapes(a.shape, b.shape))


def _lerp(start: Tensor, end: Tensor, weight: Tensor) -> Tensor:
    if start.is_complex() or _integral(start):
        return start + weight * (end - start)
    return torch.lerp(start, end, weight)


def _clamp(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    return torch.where(x.isnan(), x, torch.minimum(torch.maximum(x, low), high))


def _any_sign(x: Tensor) -> Tensor:
    return x if x.dtype == torch.bool else torch.sign(x)


def _on_bools(on_bools: Torch, otherwise: Torch) -> Torch:
    return lambda *xs: (on_bools if all(x.dtype == torch.bool for x in xs) else otherwise)(*xs)


ELEMENTWISE: dict[str, Torch] = {
    **_same_named("acos acosh asin asinh atan atanh cos cosh exp exp2 expm1 erf erfc erfinv lgamma"),
    **_same_named("log log10 log1p log2 reciprocal rsqrt sigmoid sin sinh sqrt tan tanh"),
    **_same_named("atan2 nextafter gcd maximum minimum eq ne lt le gt ge complex where"),
    **_same_named("logical_not logical_and logical_or bitwise_not bitwise_and bitwise_or bitwise_xor"),
    **_same_named("signbit isfinite isinf isnan isneginf isposinf isreal"),
    **_same_named("bitwise_left_shift bitwise_right_shift"),
    **{
        name: (lambda f: lambda x: x if _integral(x) else f(x))(getattr(torch, name))
        for name in ("ceil", "floor", "round", "trunc")
    },
    "erfcinv": lambda x: -torch.special.ndtri(x.double() / 2).to(x.dtype) / math.sqrt(2),
    "frac": lambda x: torch.zeros_like(x) if _integral(x) else torch.frac(x),
    "relu": lambda x: x if x.dtype == torch.bool else torch.relu(x),
    "silu": torch.nn.functional.silu,
    "neg": _on_bools(lambda x: x, torch.neg),
    "abs": _on_bools(lambda x: x, torch.abs),
    "sign": _any_sign,
    "real": lambda x: x.real if x.is_complex() else x,
    "imag": lambda x: x.imag,
    "add": torch.add,
    "sub": _on_bools(torch.logical_xor, torch.sub),
    "mul": torch.mul,
    "div": _on_bools(lambda a, b: a, _div),
    "truediv": torch.true_divide,
    "mod": _on_bools(lambda a, b: torch.zeros_like(a & b), _remainder_of(torch.fmod)),
    "fmod": _on_bools(lambda a, b: torch.zeros_like(a & b), _remainder_of(torch.fmod)),
    "remainder": _on_bools(lambda a, b: torch.zeros_like(a & b), _remainder_of(torch.remainder)),
    "pow": _on_bools(lambda a, b: a | ~b, _pow),
    "logical_right_shift": _logical_right_shift,
    "lerp": _lerp,
    "addcmul": lambda a, b, c, alpha: a + alpha * b * c,
    "clamp": _on_bools(lambda x, low, high: (x | low) & high, _clamp),
    "threshold": lambda x, limit, value: torch.where(x <= limit, value, x),
}


def _welford(x: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    count = math.prod(x.shape[d] for d in dims)
    mean = x.mean(dims, keepdim=True)
    if not count:
        mean = torch.zeros_like(mean)
    m2 = (x - mean).square().sum(dims)
    mean = mean.squeeze(dims)
    return mean, m2, torch.full_like(mean, count, dtype=torch.int64)


def _prod(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    for dim in reversed(dims):
        x = x.prod(dim, dtype=x.dtype)
    return x


def _extremum(function: Torch, of_nothing: str) -> Torch:
    def reduce(x: Tensor, dims: tuple[int, ...]) -> Tensor:
        if all(x.shape[d] for d in dims):
            return function(x, dims)
        kept = [n for d, n in enumerate(x.shape) if d not in dims]
        if x.dtype == torch.bool:
            return torch.full(kept, of_nothing == "highest")
        limits = torch.iinfo(x.dtype) if _integral(x) else None
        value = float("inf") if limits is None else limits.max
        if of_nothing == "lowest":
            value = -float("inf") if limits is None else limits.min
        return torch.full(kept, value, dtype=x.dtype)

    return reduce


def _arg_extremum(largest: bool) -> Callable[[Tensor, Tensor, tuple[int, ...]], tuple[Tensor, ...]]:
    """In Python's own order of tuples: by value, with NaN before all others, then by position."""

    sign = -1 if largest else 1

    def reduce(x: Tensor, at: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, ...]:
        kept = [d for d in range(x.ndim) if d not in dims]
        rows, places = (t.expand(x.shape).permute(*kept, *dims).flatten(len(kept)) for t in (x, at))
        shape, count = rows.shape[:-1], math.prod(rows.shape[:-1])
        best = [
            min(((v == v, sign * v if v == v else 0, p, v) for v, p in zip(*row)), default=(0, 0, -1, 0))
            for row in zip(*(t.reshape(count, rows.shape[-1]).tolist() for t in (rows, places)))
        ]
        values, found = torch.tensor([b[3] for b in best]), torch.tensor([b[2] for b in best])
        return values.to(x.dtype).reshape(shape), found.long().reshape(shape)

    return reduce


def _max_sum_exp(x: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, ...]:
    (top,) = _extremum(torch.amax, "lowest")(x, dims)[None]
    kept = [1 if i in dims else size for i, size in enumerate(x.shape)]
    finite = top.nan_to_num(nan=torch.nan)
    return top, (x - finite.reshape(kept)).exp().sum(dims)


# The reductions of several tensors, then those of one.
ARG_EXTREMA = {"argmax": _arg_extremum(True), "argmin": _arg_extremum(False)}
REDUCTIONS: dict[str, Callable[[Tensor, tuple[int, ...]], tuple[Tensor, ...]]] = {
    "sum": lambda x, dims: (x.sum(dims, dtype=x.dtype),),
    "prod": lambda x, dims: (_prod(x, dims),),
    "max": lambda x, dims: (_extremum(torch.amax, "lowest")(x, dims),),
    "min": lambda x, dims: (_extremum(torch.amin, "highest")(x, dims),),
    "welford": _welford,
    "max_sum_exp": _max_sum_exp,
    "logsumexp": lambda x, dims: (torch.logsumexp(x, dims),),
}


COMBINING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": torch.add,
    "prod": torch.mul,
    "max": torch.maximum,
    "min": torch.minimum,
    "logsumexp": torch.logaddexp,
}


def _scanned(name: str, x: Tensor, dim: int, init: Sequence[Tensor]) -> Tensor:
    """One element after another."""
    found = x.clone()
    combine = COMBINING[name]
    for i in range(x.shape[dim]):
        before = found.select(dim, i - 1) if i else init[0] if init else None
        if before is not None:
            found.select(dim, i).copy_(combine(before, x.select(dim, i)))
    return found


def _rounded(x: Tensor, dtype: DataType) -> Tensor:
    """C's conversion, then the rounding of storage."""
    if dtype is DataType.Bool:
        return x if x.dtype == torch.bool else x != 0
    if x.is_complex() and not dtype.is_complex:
        x = x.real
    if x.is_floating_point() and dtype.is_integral:
        # CUDA saturates where C says nothing.
        limits = torch.iinfo(dtype.torch)
        x = x.double().trunc().nan_to_num(0.0)
        inside = (x > limits.min) & (x < limits.max)
        limit = torch.where(x > 0, limits.max, limits.min)
        return torch.where(inside, torch.where(inside, x, 0).to(dtype.torch), limit).to(dtype.torch)
    return x.to(dtype.torch)


def reference(fusion: Fusion, inputs: Sequence[Tensor | bool | int | float | complex]) -> list[Tensor]:
    """The visible outputs of `fusion` for CPU `inputs`, computed by torch."""
    values: dict[object, Tensor] = {}
    sizes: dict[Symbol, int] = {}
    for value, given in zip(fusion.inputs, inputs):
        tensor = given if isinstance(given, Tensor) else torch.tensor(given, dtype=value.dtype.torch)
        values[value] = tensor
        if isinstance(value, TensorView):
            for extent, size in zip(value.extents, tensor.shape):
                if isinstance(extent, Symbol):
                    assert sizes.setdefault(extent, size) == size
        elif isinstance(value.extent, Symbol):
            sizes[value.extent] = int(tensor)

    def get(value: TensorView | Scalar) -> Tensor:
        if value not in values:
            assert isinstance(value, Scalar)
            number = value.value
            if number is None:
                assert value.extent is not None
                number = evaluate(value.extent, sizes)
            values[value] = torch.tensor(number, dtype=value.dtype.torch)
        found = values[value]
        return found.float() if value.dtype.is_reduced_float else found

    def shape(tensor: TensorView) -> list[int]:
        return [evaluate(extent, sizes) for extent in tensor.extents]

    def compute(node: object) -> Sequence[Tensor]:
        if isinstance(node, Pointwise):
            if node.op.rule is Rule.BITS:
                return [values[node.inputs[0]].view(node.output.dtype.torch)]
            operands = [get(v) for v in node.inputs]
            result = operands[0] if node.op.name == "cast" else ELEMENTWISE[node.op.name](*operands)
            out = node.outputs[0]
            return [result.expand(shape(out)) if isinstance(out, TensorView) else result]
        if isinstance(node, Reduction):
            dims = tuple(i for i, axis in enumerate(node.output.logical) if axis.is_reduction)
            if node.op.name in ARG_EXTREMA:
                return ARG_EXTREMA[node.op.name](*map(get, node.inputs), dims)
            return REDUCTIONS[node.op.name](get(node.inputs[0]), dims)
        if isinstance(node, Scan):
            x, *init = (get(v) for v in node.inputs)
            return [_scanned(node.op.name, x.expand(shape(node.output)), node.dim, init)]
        if isinstance(node, Broadcast):
            x = get(node.inputs[0])
            for dim, new in enumerate(node.flags):
                x = x.unsqueeze(dim) if new else x
            return [x]
        if isinstance(node, Squeeze):
            kept = [i for i in range(get(node.inputs[0]).ndim) if i not in node.dims]
            x = get(node.inputs[0])
            first = tuple(slice(None) if i in kept else 0 for i in range(x.ndim))
            return [x[first]]
        if isinstance(node, Permute):
            return [get(node.inputs[0]).permute(node.dims)]
        if isinstance(node, (Expand, Full)):
            return [get(node.inputs[0]).expand(shape(node.output))]
        if isinstance(node, Copy):
            return [get(node.inputs[0])]
        assert isinstance(node, Iota)
        start, step = (get(v) for v in node.inputs)
        return [start + step * torch.arange(shape(node.output)[0]).to(step.dtype)]

    for node in fusion.ordered_nodes():
        for out, result in zip(node.outputs, compute(node)):
            values[out] = _rounded(result, out.dtype)
    return [values[o.tensor] for o in fusion.outputs if not o.hidden]
